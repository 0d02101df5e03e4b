//! Volumes as disks of a virtual machine, by vhost-user: a server on this machine, a guest of QEMU on its sockets. One boot.

mod moved;
mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};

use crate::world::World;

/// A guest of QEMU has volumes as disks, by vhost-user.
#[derive(Debug, Parser)]
#[command(name = "guests", after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "guests",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| world.guest.sh("uname -r"),
        end: |_| Ok(()),
    };
    program.run(&Args::parse().common)
}
