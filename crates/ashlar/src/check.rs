//! `ashlar check`.

use api::{Kind, Problem};
use server::ops::check;

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text::{self, human};

const EXAMPLES: &str = "\
Examples:
  ashlar check fast
  ashlar check fast --json | jq .errors

Reads the whole array and proves that log, map, counts, checksums and parity agree. Writes nothing; ^C ends it at any \
time. The array must not be served (`ashlar stop fast`). Exit code 4 when something is wrong.";

/// Verify the whole array (offline, read-only)
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Errors printed; `--json` has more.
const ERRORS_SHOWN: usize = 50;

/// Checks it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    if context.server_of(&args.array)?.is_some() {
        return Err(Problem::new(
            Kind::Refused,
            "array_served",
            format!("array {}", args.array),
            "a running Ashlar serves it",
            format!("`ashlar stop {0}` first; `ashlar import {0}` serves it again", args.array),
        ));
    }
    let progress = Progress::new(false);
    let shown = |p: array::CheckProgress| progress.at("checking segments", p.segments_done, p.segments_total);
    let report = context.offline(|world| async move { check::run(&world, &args.array, shown).await })?;
    let outcome = if report.ok { Finding::Good } else { Finding::Damage };
    if args.json {
        text::print_json(&report);
        return Ok(outcome);
    }
    text::print(&format!(
        "{}: {} segments, {} rows, {} blocks, {} map nodes and {} leaves checked, {} read",
        report.array,
        report.segments,
        report.rows,
        report.blocks,
        report.nodes,
        report.leaves,
        human(report.bytes_read)
    ));
    text::print_notes(&report.notes);
    if report.ok {
        text::print("Everything agrees.");
        return Ok(outcome);
    }
    for error in report.errors.iter().take(ERRORS_SHOWN) {
        text::print(&format!("  damage: {error}"));
    }
    let n = report.errors_total;
    let shown = report.errors.len().min(ERRORS_SHOWN) as u64;
    if n > shown {
        text::print(&format!("  ... and {} more", n - shown));
    }
    text::print(&format!("DAMAGED: {n} error{} found.", if n == 1 { "" } else { "s" }));
    Ok(outcome)
}
