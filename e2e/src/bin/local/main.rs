//! Volumes as block devices of the machine that serves them, by ublk, and by its kernel's NVMe target over TCP and soft RoCE: a guest
//! serves an array to its own kernel. One boot.

mod fabrics;
mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};

use crate::world::World;

/// A guest serves an array to its own kernel, by ublk.
#[derive(Debug, Parser)]
#[command(name = "local", after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "local",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| world.guest.sh("uname -r"),
        end: |_| Ok(()),
    };
    program.run(&Args::parse().common)
}
