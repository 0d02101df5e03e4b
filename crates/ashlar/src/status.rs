//! `ashlar status`.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use server::Problem;
use server::ops::status;
use server::view::{ArrayState, ArrayView, Arrays, MemberState};

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table, human, percent};

const EXAMPLES: &str = "\
Examples:
  ashlar status                  all arrays, one line each
  ashlar status fast             one array: drives, volumes, rebuild, alarms
  ashlar status --watch          every two seconds
  ashlar status --check          exit code 5 unless every array is whole
  ashlar status --json | jq '.arrays[].state'

A running Ashlar answers for the arrays that it serves. Others are recovered in memory; nothing is written.";

/// Show how arrays are
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array, in detail
    array: Option<String>,
    /// Again and again, every SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    watch: Option<u64>,
    /// Exit code 5 when an array is degraded, frozen or absent
    #[arg(long)]
    check: bool,
    /// Prints an object for scripts (one per line with --watch)
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    loop {
        let arrays = fetch(context, args.array.as_deref())?;
        // One array that was asked for and is not there is an error, not a line in a table.
        if let (Some(_), Some(absent), None, false) = (&args.array, arrays.absent.first(), args.watch, args.check) {
            return Err(absent.problem.clone());
        }
        if args.watch.is_some() && !args.json && std::io::stdout().is_terminal() {
            // To the top of a cleared screen.
            text::print("\x1b[H\x1b[2J");
        }
        if args.json {
            text::print_json(&arrays)
        } else {
            show(&arrays, args.array.is_some())
        }
        let Some(seconds) = args.watch else {
            let whole = arrays.absent.is_empty() && arrays.arrays.iter().all(is_whole);
            return Ok(if args.check && !whole { Finding::NotWhole } else { Finding::Good });
        };
        thread::sleep(Duration::from_secs(seconds.max(1)));
    }
}

fn fetch(context: &Context, array: Option<&str>) -> Result<Arrays, Problem> {
    match array {
        Some(name) => match context.server_of(name)? {
            Some(client) => client.get(&format!("/v1/arrays/{}", encode(name))),
            None => context.offline(|world| async move { status::offline(&world, Some(name)).await }),
        },
        None => match context.server() {
            Some(client) => client.get("/v1/arrays"),
            None => context.offline(|world| async move { status::offline(&world, None).await }),
        },
    }
}

fn is_whole(array: &ArrayView) -> bool {
    let members_whole = array.members.iter().all(|m| matches!(m.state, MemberState::In | MemberState::Spare));
    match array.state {
        ArrayState::Optimal => true,
        ArrayState::ReadOnly => members_whole,
        ArrayState::Degraded | ArrayState::Rebuilding | ArrayState::Frozen | ArrayState::Closed => false,
    }
}

fn show(all: &Arrays, details: bool) {
    if details {
        for array in &all.arrays {
            for line in text::array_details(array) {
                text::print(&line);
            }
        }
        if all.served && !all.nbd.is_empty() {
            text::print(&format!("\n  exported over NBD at {}", all.nbd.join(", ")));
        }
        if all.served && !all.nvme.is_empty() {
            text::print(&format!("  exported over NVMe/TCP at {}", all.nvme.join(", ")));
            for array in &all.arrays {
                text::print(&format!("    {} is {}", array.name, server::subsystem::nqn(array.uuid)));
            }
        }
        return;
    }
    if all.arrays.is_empty() && all.absent.is_empty() && all.not_served.is_empty() {
        text::print("No arrays. `ashlar create` makes one, `ashlar import` finds one, `ashlar demo` shows it all.");
        return;
    }
    let mut table = Table::new(&["ARRAY", "LEVEL", "STATE", ">USED", ">USABLE", "", ">VOLUMES", "DRIVES"]).flush_left();
    for a in &all.arrays {
        table.row(vec![
            a.name.clone(),
            format!("{} {}", a.level, a.scheme),
            text::state_word(a.state).to_owned(),
            human(a.used_bytes),
            human(a.usable_bytes),
            percent(a.used_bytes, a.usable_bytes),
            a.volumes.len().to_string(),
            text::drives_line(&a.members),
        ]);
    }
    if !table.is_empty() {
        table.print();
    }
    for a in &all.arrays {
        for alarm in &a.alarms {
            text::print(&format!("{}: {alarm}", a.name));
        }
    }
    for absent in &all.absent {
        text::print(&format!("{}  ABSENT\n{}", absent.name, absent.problem));
    }
    if !all.not_served.is_empty() {
        text::print(&format!("Known and not served: {} (`ashlar import`)", all.not_served.join(", ")));
    }
    if !all.served {
        text::print("No Ashlar is running; `ashlar serve` exports the volumes.");
    }
}
