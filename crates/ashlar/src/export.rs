//! `ashlar export`.

use api::Done;
use server::ops::export;

use crate::attach::local::refuse_left_of;
use crate::client::Client;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar export fast             then, on the other host: ashlar import fast

Closes the array, so that nothing is left to recover, and forgets it here. It is refused while hosts use its volumes: \
unmount and disconnect first. The drives may have other names on the other host.";

/// Hand an array over to another host
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// Proceeds even while hosts are connected; they are disconnected
    #[arg(long)]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Hands it over.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let done: Done = match context.server_of(&args.array)? {
        Some(client) => {
            client.post(&Client::forced(&format!("/v1/arrays/{}/export", encode(&args.array)), args.force), &())?
        }
        None => {
            refuse_left_of(context, &args.array)?;
            context.offline(|world| async move { export::offline(&world, &args.array).await })?
        }
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
