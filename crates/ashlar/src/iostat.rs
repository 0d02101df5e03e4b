//! `ashlar iostat`.

use std::time::Duration;

use server::Problem;
use server::view::{Iostats, TrafficView};

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text::{self, Table, count, per_second};

const EXAMPLES: &str = "\
Examples:
  ashlar iostat                  what happens during one second
  ashlar iostat fast --every 5   every five seconds
  ashlar iostat --json           the counters since the arrays were opened";

/// Show what goes through volumes and drives
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array
    array: Option<String>,
    /// Again and again, every SECONDS
    #[arg(long, value_name = "SECONDS")]
    every: Option<u64>,
    /// Stops after so many
    #[arg(long, requires = "every")]
    count: Option<u64>,
    /// Prints counters for scripts (one object per line with --every)
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let interval = Duration::from_secs(args.every.unwrap_or(1).max(1));
    let mut before = fetch(context, args)?;
    let mut left = if args.every.is_some() { args.count.unwrap_or(u64::MAX) } else { 1 };
    while left > 0 {
        if args.json {
            text::print_json(&before);
        }
        left -= 1;
        if args.json && left == 0 {
            break;
        }
        if !output::pause(interval) {
            break;
        }
        let now = fetch(context, args)?;
        if !args.json {
            show(&before, &now);
        }
        before = now;
    }
    Ok(Finding::Good)
}

fn fetch(context: &Context, args: &Args) -> Result<Iostats, Problem> {
    let Some(client) = context.server() else {
        return Err(Problem::refused(
            "not_running",
            "iostat",
            format!("no Ashlar answers at {}", context.control.display()),
            "start `ashlar serve`, or name its socket with --control",
        ));
    };
    let mut all: Iostats = client.get("/v1/iostat")?;
    if let Some(array) = &args.array {
        all.arrays.retain(|a| a.array == *array);
        if all.arrays.is_empty() {
            let why = "this Ashlar does not serve it";
            return Err(Problem::refused(
                "array_not_served",
                format!("array {array}"),
                why,
                "`ashlar status` lists them",
            ));
        }
    }
    Ok(all)
}

fn show(before: &Iostats, now: &Iostats) {
    let time = Duration::from_millis(now.at_millis.saturating_sub(before.at_millis).max(1));
    let mut table = Table::new(&["", ">READ/s", ">READ", ">WRITE/s", ">WRITTEN"]).flush_left();
    for array in &now.arrays {
        let Some(old) = before.arrays.iter().find(|a| a.array == array.array) else { continue };
        for (prefix, new, old) in
            [(format!("{}/", array.array), &array.volumes, &old.volumes), (String::new(), &array.drives, &old.drives)]
        {
            for t in new {
                let zero = TrafficView::default();
                let was = old.iter().find(|o| o.name == t.name).unwrap_or(&zero);
                let rate = |a: u64, b: u64| count(a.saturating_sub(b) as f64 / time.as_secs_f64());
                table.row(vec![
                    format!("{prefix}{}", t.name),
                    rate(t.reads, was.reads),
                    per_second(t.bytes_read.saturating_sub(was.bytes_read), time),
                    rate(t.writes, was.writes),
                    per_second(t.bytes_written.saturating_sub(was.bytes_written), time),
                ]);
            }
        }
    }
    if table.is_empty() {
        text::print("no volumes and no drives");
    } else {
        table.print();
        text::print("");
    }
}
