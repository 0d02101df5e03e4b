//! An array of a machine that systemd starts: served, attached and mounted at boot, and let go of in the other order.
//! Three boots: the third has a kernel with ublk.

mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};

use crate::world::World;

/// The units of systemd, in a Debian machine in QEMU.
#[derive(Debug, Parser)]
#[command(name = "boot", after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "boot",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| world.guest.sh("uname -r"),
        end: |_world| Ok(()),
    };
    program.run(&Args::parse().common)
}
