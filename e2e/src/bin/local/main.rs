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
    /// With the kernel of Debian stable's backports: a device that grows in use needs Linux 6.16
    #[arg(long)]
    newer: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let program = Program {
        name: "local",
        steps: steps::ALL,
        begin: if args.newer { World::of_newer_kernel } else { World::new },
        kernel: |world| world.guest.sh("uname -r"),
        end: |_| Ok(()),
    };
    program.run(&args.common)
}
