//! Arrays on NVMe drives, in a Debian kernel in QEMU: every way to a drive that Ashlar knows. One boot.

mod steps;
mod two;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};

use crate::world::World;

/// Arrays on emulated NVMe drives in QEMU, by passthrough, polled and plain.
#[derive(Debug, Parser)]
#[command(name = "drives", after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "drives",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| world.guest.sh("uname -r"),
        end: |_world| Ok(()),
    };
    program.run(&Args::parse().common)
}
