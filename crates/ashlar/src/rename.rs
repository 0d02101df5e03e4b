//! `ashlar rename`.

use api::{ArrayPatch, ArrayView, Changed};
use server::ops::rename;

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;
use crate::volume::offline_in;

const EXAMPLES: &str = "\
Examples:
  ashlar rename fast gold
  ashlar rename 0f7b6e1c-9a52-4c1d-8f61-2b7d4f0e5a33 old    one of two arrays of the same name

Hosts may be at work meanwhile. A volume is renamed by `ashlar volume rename`.";

/// Give an array another name
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array: its name, or its identity
    array: String,
    /// Its new name
    to: String,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Renames it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let done = match context.server_of(&args.array)? {
        Some(client) => {
            let patch = ArrayPatch { name: Some(args.to.clone()) };
            client.patch::<Changed<ArrayView>>(&format!("/v1/arrays/{}", encode(&args.array)), &patch)?.done
        }
        None => offline_in(context, &args.array, |world, o| async move { rename::run(&world, &o, &args.to).await })?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
