//! `ashlar destroy`.

use server::ops::destroy;
use server::view::Done;

use crate::confirm;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar destroy fast            asks for the name
  ashlar destroy fast --yes

Wipes our labels from all drives of the array; they can be used for something else then.";

/// Destroy an array and all it holds
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// Does not ask
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Destroys it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let client = context.server_of(&args.array)?;
    confirm::by_name(args.yes, &format!("All data of array {} will be lost.", args.array), &args.array)?;
    let done: Done = match client {
        Some(client) => client.delete(&format!("/v1/arrays/{}", encode(&args.array)))?,
        None => context.offline(|world| async move { destroy::offline(&world, &args.array).await })?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
