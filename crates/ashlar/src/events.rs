//! `ashlar events`.

use std::time::Duration;

use api::{Event, EventSeverity, Events, Kind, Problem};

use crate::client::Client;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar events                  the last 100 events
  ashlar events fast --count 20  the last 20 of an array
  ashlar events --follow         those, and what happens from now on
  ashlar events --json           an object per line, for scripts

Events are kept in the state directory of the server: some 50,000, over restarts. Those of an array that has a \
notebook (`ashlar upgrade`) are kept in the array, too, and found wherever it is imported.";

/// With --follow the server is asked so often.
const LOOK: Duration = Duration::from_secs(1);

/// Show what happened
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array
    array: Option<String>,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// Only events behind the one with this number
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Goes on with what happens
    #[arg(long, short)]
    follow: bool,
    /// Prints an object per line for scripts
    #[arg(long)]
    pub json: bool,
}

/// Shows them.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let client = context.running("events")?;
    let mut page = fetch(&client, args, args.after)?;
    page.events.iter().for_each(|event| show(event, args.json));
    if !args.follow && page.events.is_empty() && !args.json {
        text::print("No events.");
    }
    while args.follow && output::pause(LOOK) {
        page = fetch(&client, args, Some(page.next))?;
        page.events.iter().for_each(|event| show(event, args.json));
    }
    Ok(Finding::Good)
}

fn fetch(client: &Client, args: &Args, after: Option<u64>) -> Result<Events, Problem> {
    let of = args.array.as_ref().map(|array| format!("/arrays/{}", encode(array))).unwrap_or_default();
    let mut path = format!("/v1{of}/events?limit={}", args.count);
    after.iter().for_each(|after| path.push_str(&format!("&after={after}")));
    match client.get(&path) {
        // One that is not served any more: what the server knows of it.
        Err(problem) if problem.kind == Kind::NotFound => {
            let array = args.array.as_ref().map(|array| format!("&array={}", encode(array))).unwrap_or_default();
            client.get(&format!("/v1/events{}{array}", &path[path.find('?').unwrap_or(path.len())..]))
        }
        answer => answer,
    }
}

fn show(event: &Event, json: bool) {
    if json {
        text::print_json(event);
        return;
    }
    let severity = match event.what.severity {
        EventSeverity::Info => "",
        EventSeverity::Warning => "WARNING ",
        EventSeverity::Error => "ERROR ",
    };
    let array = event.array.as_ref().map(|array| format!("{array}: ")).unwrap_or_default();
    let who = event.who.as_ref().map(|who| format!(" ({who})")).unwrap_or_default();
    let when = base::utc(event.what.unix_seconds);
    text::print(&format!("{when}  {:<22}  {severity}{array}{}{who}", event.what.code, event.what.text));
}
