//! `ashlar forget`.

use api::Done;
use server::ops::forget;

use crate::client::Client;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar forget old              its drives are gone for good
  ashlar forget 6f1c0f0e-5a0b-4d0c-9a2b-0c5d1e2f3a4b

Takes an array off the list of those this machine knows; no drive is touched. `ashlar import` finds the array again \
if its \
drives come back. To hand an array over to another host: `ashlar export`. To end one: `ashlar destroy`.";

/// Forget an array whose drives are gone
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array, by name or identity
    #[arg(value_name = "NAME|UUID")]
    array: String,
    /// Proceeds even when its drives are present
    #[arg(long)]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Forgets it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let done: Done = match context.server() {
        Some(client) => client.delete(&Client::forced(&format!("/v1/known/{}", encode(&args.array)), args.force))?,
        None => context
            .offline(|world| async move { forget::run(&world, &args.array, args.force).await.map(|(done, _)| done) })?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
