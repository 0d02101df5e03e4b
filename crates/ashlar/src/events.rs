//! `ashlar events`.

use std::time::Duration;

use api::{Event, EventSeverity, Events, KeptIn, Kind, Problem};

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
  ashlar events fast --server    all that the server knows of an array
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
    /// From the journal of the server, also where the array has a notebook
    #[arg(long)]
    server: bool,
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
        let next = fetch(&client, args, Some(page.next))?;
        if next.kept_in != page.kept_in {
            // Its numbers are others: it goes on with what comes next.
            output::hint(&format!("{}\n", now_from(next.kept_in)));
            page = fetch(&client, args, None)?;
            continue;
        }
        page = next;
        page.events.iter().for_each(|event| show(event, args.json));
    }
    Ok(Finding::Good)
}

const fn now_from(place: KeptIn) -> &'static str {
    match place {
        KeptIn::Array => "events: from the notebook of the array from here on",
        KeptIn::Server => "events: from the journal of the server from here on; the array takes none now",
    }
}

fn fetch(client: &Client, args: &Args, after: Option<u64>) -> Result<Events, Problem> {
    let (mut query, mut of_server) = (format!("?limit={}", args.count), String::new());
    after.iter().for_each(|after| query.push_str(&format!("&after={after}")));
    args.array.iter().for_each(|array| of_server = format!("&array={}", encode(array)));
    if let Some(array) = args.array.as_ref().filter(|_| !args.server) {
        match client.get(&format!("/v1/arrays/{}/events{query}", encode(array))) {
            // One that is not served any more: what the server knows of it.
            Err(problem) if problem.kind == Kind::NotFound => {}
            answer => return answer,
        }
    }
    client.get(&format!("/v1/events{query}{of_server}"))
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
