//! `ashlar nvmet-apply`: the process that writes the kernel's NVMe target for a server. Hidden: the server starts it.

use std::io::{stdin, stdout};

use server::nvmet::process;

use crate::exit::{Finding, Outcome};

const EXAMPLES: &str = "\
Examples:
  ashlar nvmet-apply <plan.json

Reads what shall be there from standard input, and writes what became of it to standard output.";

/// Make the kernel's NVMe target equal to a plan
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Does it.
pub fn apply(_: &Args) -> Outcome {
    process::serve(stdin().lock(), stdout().lock());
    Ok(Finding::Good)
}
