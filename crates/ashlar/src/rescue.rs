//! `ashlar rescue`.

use std::path::PathBuf;

use api::{Kind, Problem, RescueRequest};
use server::ops::rescue;

use crate::context::{Context, split_volume};
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text::{self, human};

const EXAMPLES: &str = "\
Examples:
  ashlar rescue fast/db /mnt/db.img
  ashlar rescue fast/db /dev/nvme9n1 --force --json > db.lost

Writes nothing to the array's drives. Copies what can be read, even when more drives are gone than redundancy \
covers; what cannot be read becomes zeros in the copy, and is listed. ^C ends it at any time. The array must not be \
served (`ashlar stop \
fast`). Exit code 4 when something is lost.";

/// Copy what can be read of a volume (offline, read-only)
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// ARRAY/VOLUME
    volume: String,
    /// A file to create (called FILE.partial until it is complete), or a block device
    to: PathBuf,
    /// Overwrites existing data
    #[arg(long)]
    force: bool,
    /// Copies blocks that may be old: the newest records are on missing drives
    #[arg(long)]
    accept_old: bool,
    /// Reads the state of the generation before the newest
    #[arg(long)]
    previous_generation: bool,
    /// Prints an object for scripts, with every lost range
    #[arg(long)]
    pub json: bool,
}

/// Lost ranges printed; `--json` has all.
const LOST_SHOWN: usize = 20;

/// Copies.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let (array, volume) = split_volume(&args.volume)?;
    if context.server_of(array)?.is_some() {
        return Err(Problem::new(
            Kind::Refused,
            "array_served",
            format!("array {array}"),
            "a running Ashlar serves it",
            format!("read it through its export, or `ashlar stop {array}` first"),
        ));
    }
    let request = RescueRequest {
        volume: volume.to_owned(),
        to: args.to.clone(),
        force: args.force,
        accept_old: args.accept_old,
        previous_generation: args.previous_generation,
    };
    let progress = Progress::new(true);
    let shown = |done, all| progress.at("copying", done, all);
    let view = context.offline(|world| async move { rescue::run(&world, array, &request, shown).await })?;
    drop(progress);
    let outcome = if view.lost_bytes == 0 { Finding::Good } else { Finding::Damage };
    if args.json {
        text::print_json(&view);
        return Ok(outcome);
    }
    text::print_notes(&view.notes);
    for lost in view.lost.iter().take(LOST_SHOWN) {
        text::print(&format!("  lost: {} bytes at {}", lost.bytes, lost.offset));
    }
    if view.lost.len() > LOST_SHOWN {
        text::print(&format!("  ... and {} more ranges; --json has them", view.lost.len() - LOST_SHOWN));
    }
    let (copied, all) = (human(view.copied_bytes), human(view.bytes));
    text::print(&match view.lost_bytes {
        0 => format!("Copied {copied} of {all} to {}; the rest was never written. Nothing is lost.", args.to.display()),
        n => format!("Copied {copied} of {all} to {}. LOST: {}, filled with zeros.", args.to.display(), human(n)),
    });
    Ok(outcome)
}
