//! `ashlar man`: the manual pages, for who makes a package. Hidden: users have `man ashlar` and `--help`.

use std::path::PathBuf;

use api::Problem;
use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Finding, Outcome};

const EXAMPLES: &str = "\
Examples:
  ashlar man /usr/local/share/man/man1";

/// Write the manual pages into a directory
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory
    directory: PathBuf,
}

/// Writes them: one for the program, and one for each verb.
pub fn run(args: &Args) -> Outcome {
    let failed =
        |e| Problem::failed(format!("manual pages in {}", args.directory.display()), e, "name a directory that exists");
    clap_mangen::generate_to(Cli::command(), &args.directory).map_err(failed)?;
    Ok(Finding::Good)
}
