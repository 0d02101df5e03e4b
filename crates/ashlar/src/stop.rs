//! `ashlar stop`.

use std::thread;
use std::time::{Duration, Instant};

use api::{Done, Problem};

use crate::client::Client;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar stop fast               close one array; its drives are released
  ashlar stop                    end the running Ashlar
  ashlar stop --force            also while hosts are connected

SIGTERM and SIGINT end `ashlar serve` in the same way, even while hosts are connected; SIGHUP does, too, unless --config was \
given.";

/// A clean stop writes at most what has not been merged into the map yet.
const STOP_MAX: Duration = Duration::from_secs(120);

/// Stop serving an array, or end the running Ashlar
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array
    array: Option<String>,
    /// Proceeds even while hosts are connected; they are disconnected
    #[arg(long)]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Stops it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let Some(client) = context.server() else {
        return Err(Problem::refused(
            "not_running",
            "stop",
            format!("no Ashlar answers at {}", context.place()),
            "nothing to do; or name another socket with --control",
        ));
    };
    let done: Done = match &args.array {
        Some(array) => client.post(&Client::forced(&format!("/v1/arrays/{}/stop", encode(array)), args.force), &())?,
        None => stop_server(&client, args.force)?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

/// Asks the server to stop and waits until it has: it takes its socket away last.
fn stop_server(client: &Client, force: bool) -> Result<Done, Problem> {
    let _: Done = client.post(&Client::forced("/v1/server/stop", force), &())?;
    let begun = Instant::now();
    while client.answers() {
        if begun.elapsed() > STOP_MAX {
            let why = format!("it is still closing its arrays after {} s", STOP_MAX.as_secs());
            return Err(Problem::failed("stop", why, "see its log"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(Done::new("the Ashlar has stopped; its drives are released"))
}
