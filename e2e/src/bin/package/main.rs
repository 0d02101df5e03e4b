//! The Debian package as a user meets it: made, looked at by lintian, installed in clean roots of Debian 12 and 13 and removed
//! again; and on a machine with systemd upgraded under load. It needs root, and a Debian mirror.

mod machine;
mod roots;
mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};
use e2e::tools;

use crate::world::World;

/// The Debian package: lintian, clean roots, an upgrade under load.
#[derive(Debug, Parser)]
#[command(name = "package", after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "package",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| tools::run(&world.dir, "uname", &["-r"]),
        end: |_world| Ok(()),
    };
    program.run(&Arguments::parse().common)
}
