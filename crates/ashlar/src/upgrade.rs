//! `ashlar upgrade`.

use api::{ArrayView, Changed, Done, Resource};
use server::ops::open::{self, How};
use server::ops::upgrade;

use crate::confirm;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;
use crate::volume::offline;

const EXAMPLES: &str = "\
Examples:
  ashlar upgrade fast --dry-run  what it would switch on
  ashlar upgrade fast            asks for the name
  ashlar upgrade fast --yes

Features:
  notebook   events are kept in the array, too, and go with it (`ashlar events fast`)

A new Ashlar reads arrays of older ones and leaves their format as it is. There is no way back from an upgrade: an \
older Ashlar \
refuses the array afterwards. Hosts may be at work meanwhile.";

/// Switch on features of the format of an array
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// Only says what would be switched on
    #[arg(long)]
    dry_run: bool,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Switches them on.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let client = context.server_of(&args.array)?;
    let path = format!("/v1/arrays/{}", encode(&args.array));
    let view = match &client {
        Some(client) => client.get::<Resource<ArrayView>>(&path)?.view,
        None => context.offline(|world| async move {
            let opened = open::by_name(&world, &args.array, How::READ_ONLY).await?;
            let view = opened.view().await;
            opened.close(&world).await?;
            Ok(view)
        })?,
    };
    let missing = view.features_available.join(", ");
    if args.dry_run || missing.is_empty() {
        let said = match missing.as_str() {
            "" => format!("Array {} has every feature that this Ashlar knows: nothing to switch on", view.name),
            missing => format!("Array {} would get: {missing}", view.name),
        };
        text::print_done(args.json, &Done::new(said));
        return Ok(Finding::Good);
    }
    let loss = format!("Array {} gets: {missing}. An older Ashlar will refuse it; there is no way back.", view.name);
    confirm::by_name(args.yes, &loss, &args.array)?;
    let done = match client {
        Some(client) => client.post::<Changed<ArrayView>>(&format!("{path}/upgrade"), &())?.done,
        None => offline(context, &args.array, |o| async move { upgrade::run(&o.array, || ()).await })?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}
