//! `ashlar wipe`.

use std::path::PathBuf;

use server::ops::{create, wipe};

use crate::confirm;
use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar wipe /dev/nvme3n1       says what it holds, and asks for the drive's name
  ashlar wipe --yes d/3
  ashlar wipe --take-from fast d/3     even if this known array uses it

Removes the Ashlar labels from one drive, for instance from one that was replaced. For a whole array: `ashlar \
destroy`.";

/// Remove the Ashlar labels from a drive
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The drive
    drive: PathBuf,
    /// Wipes even if no label can be read or the drive holds other data
    #[arg(long)]
    force: bool,
    /// Wipes a drive that this array, known on this machine, still uses
    #[arg(long, value_name = "ARRAY")]
    take_from: Vec<String>,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Wipes it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let name = args.drive.display().to_string();
    if !args.yes {
        // What would be refused is not asked for.
        let names = [name.clone()];
        let held = context.offline(|world| async move {
            wipe::may(&world, &args.drive, args.force, &args.take_from).await?;
            create::losses(&world, &names).await
        })?;
        let loss = match held.first() {
            Some(held) => format!("Drive {name} {}.\nIts data will be lost.", held.what),
            None => format!("Drive {name} carries no Ashlar label."),
        };
        confirm::by_name(false, &loss, &name)?;
    }
    let done =
        context.offline(|world| async move { wipe::run(&world, &args.drive, args.force, &args.take_from).await })?;
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
