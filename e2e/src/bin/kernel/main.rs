//! The real Linux initiator: a Debian kernel in QEMU uses an array over NVMe/TCP. One boot.

mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};

use crate::world::World;

/// A Debian kernel in QEMU uses an array over NVMe/TCP.
#[derive(Debug, Parser)]
#[command(name = "kernel", after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "kernel",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| world.guest.sh("uname -r"),
        end: |mut world| world.server.stop(),
    };
    program.run(&Args::parse().common)
}
