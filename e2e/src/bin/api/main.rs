//! The API under schemathesis, which makes requests from its description: half of them on the control socket, half over TLS
//! with a token. No answer may be a failure of the server, and the server goes on. It needs the Python package index.

mod steps;
mod world;

use std::process::ExitCode;

use clap::Parser;
use e2e::stepwise::{self, EXIT_CODES, Program};
use e2e::tools;

use crate::world::World;

/// The API under requests that are made from its description.
#[derive(Debug, Parser)]
#[command(name = "api", after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    common: stepwise::Args,
}

fn main() -> ExitCode {
    let program = Program {
        name: "api",
        steps: steps::ALL,
        begin: World::new,
        kernel: |world| tools::run(&world.dir, "uname", &["-r"]),
        end: World::end,
    };
    program.run(&Arguments::parse().common)
}
