//! `ashlar destroy`.

use api::Done;
use server::ops::destroy;

use crate::attach::local::refuse_left_of;
use crate::client::Client;
use crate::clients::confirm_loss;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar destroy fast            asks for the name
  ashlar destroy fast --yes
  ashlar destroy fast --force    also while hosts are connected

Wipes the Ashlar labels from all drives of the array, so that they can be used for something else.";

/// Destroy an array and all its data
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// Proceeds even while hosts are connected; they are disconnected
    #[arg(long)]
    force: bool,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Destroys it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let client = context.server_of(&args.array)?;
    confirm_loss(
        client.as_ref(),
        (&format!("array {}", args.array), &args.array, None),
        (&format!("All data of array {} will be lost.", args.array), &args.array),
        (args.yes, args.force),
    )?;
    let done: Done = match client {
        Some(client) => {
            let path = format!("/v1/arrays/{}", encode(&args.array));
            let there: api::Resource<api::ArrayView> = client.get(&path)?;
            client.delete(&Client::confirmed(&path, there.view.uuid, args.force))?
        }
        None => {
            refuse_left_of(context, &args.array)?;
            context.offline(|world| async move { destroy::offline(&world, &args.array).await })?
        }
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
