//! `ashlar ublk-control`: the process that sends the kernel's ublk driver a command for a server. Hidden: the server starts it.

use std::io::{stdin, stdout};

use rt::ublk::process;

use crate::exit::{Finding, Outcome};

const EXAMPLES: &str = "\
Examples:
  ashlar ublk-control <command

Reads a command from standard input, in the form that the server gives it, and writes the kernel's answer to standard output.";

/// Send one command to the kernel's ublk driver
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Does it.
pub fn control(_: &Args) -> Outcome {
    process::serve(stdin().lock(), stdout().lock());
    Ok(Finding::Good)
}
