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
  ashlar wipe --take-from fast d/3     of an array that this machine knows, and that uses the drive

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
    /// Wipes a member that this array, known on this machine, still uses
    #[arg(long, value_name = "ARRAY")]
    take_from: Vec<String>,
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
    if !args.yes {
        // What would be refused is not asked for.
        let names = [name.clone()];
        let held = context.offline(|world| async move {
            wipe::may(&world, &args.drive, args.force, &args.take_from).await?;
            create::losses(&world, &names).await
        })?;
        let loss = match held.first() {
            Some(held) => format!("Drive {name} {}.\nIt will be lost.", held.what),
            None => format!("Drive {name} carries no label of ours."),
        };
        confirm::by_name(false, &loss, &name)?;
    }
    let done =
        context.offline(|world| async move { wipe::run(&world, &args.drive, args.force, &args.take_from).await })?;
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
