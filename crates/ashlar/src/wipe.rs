//! `ashlar wipe`.

use std::path::PathBuf;

use server::ops::wipe;

use crate::confirm;
use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar wipe /dev/nvme3n1       asks for the drive's name
  ashlar wipe --yes d/3

Takes our labels off one drive, for instance one that was replaced. For a whole array: `ashlar destroy`.";

/// Take our labels off a drive
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The drive
    drive: PathBuf,
    /// Wipes also where no label can be read, and over what is not ours
    #[arg(long)]
    force: bool,
    /// Does not ask
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Wipes it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let name = args.drive.display().to_string();
    confirm::by_name(args.yes, &format!("What drive {name} holds of an array will be lost."), &name)?;
    let done = context.offline(|world| async move { wipe::run(&world, &args.drive, args.force).await })?;
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
