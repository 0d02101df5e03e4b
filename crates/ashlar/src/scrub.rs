//! `ashlar scrub`: start, stop, schedule.

use std::pin::pin;
use std::time::Duration;

use api::{Done, Problem, ScrubRunView, ScrubSchedule, ScrubStart};
use clap::Subcommand;
use futures::future::{Either, select};
use server::ops::open::{self, How, Opened};
use server::ops::scrub;
use server::size::Size;

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar scrub start fast                              read all data, repair errors
  ashlar scrub start fast --parity                     also compare redundancy with the data
  ashlar scrub stop fast
  ashlar scrub schedule fast --media-every 168 --parity-every 720 --rate 100M

An array that is served is scrubbed in the background; `ashlar status` shows the progress and what was found. An \
array that is not served is scrubbed by this command; ^C interrupts it, and the next open continues it.";

/// Verify all data in the background and repair errors
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Prints an object for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a scrub: compare every written block with its checksum
    #[command(after_help = "Example:\n  ashlar scrub start fast --parity")]
    Start {
        /// The array
        array: String,
        /// Also compares redundancy with the data
        #[arg(long)]
        parity: bool,
    },
    /// Stop the running scrub
    #[command(after_help = "Example:\n  ashlar scrub stop fast")]
    Stop {
        /// The array
        array: String,
    },
    /// Set how often scrubs run, and how fast
    #[command(after_help = "Example:\n  ashlar scrub schedule fast --media-every 168 --rate 100M")]
    Schedule {
        /// The array
        array: String,
        /// Hours between media scrubs; 0: none
        #[arg(long, value_name = "HOURS")]
        media_every: Option<u32>,
        /// Hours between parity scrubs; 0: none
        #[arg(long, value_name = "HOURS")]
        parity_every: Option<u32>,
        /// Limit of bytes that a scrub reads per second
        #[arg(long, value_name = "BYTES")]
        rate: Option<Size>,
    },
}

impl Args {
    /// Whether scripts read the answer.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Does what is asked.
pub fn run(context: &Context, args: Args) -> Outcome {
    let done = match args.verb {
        Verb::Start { array, parity } => start(context, &array, ScrubStart { parity })?,
        Verb::Stop { array } => stop(context, &array)?,
        Verb::Schedule { array, media_every, parity_every, rate } => {
            let request = ScrubSchedule {
                media_every_hours: media_every,
                parity_every_hours: parity_every,
                bytes_per_second: rate.map(|r| r.0),
            };
            schedule(context, &array, request)?
        }
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

fn path(array: &str, verb: &str) -> String {
    format!("/v1/arrays/{}/scrub/{verb}", encode(array))
}

fn stop(context: &Context, array: &str) -> Result<Done, Problem> {
    match context.server_of(array)? {
        Some(client) => client.post(&path(array, "stop"), &()),
        None => crate::volume::offline(context, array, |o| async move { scrub::stop(&o).await }),
    }
}

fn schedule(context: &Context, array: &str, request: ScrubSchedule) -> Result<Done, Problem> {
    match context.server_of(array)? {
        Some(client) => client.post(&path(array, "schedule"), &request),
        None => crate::volume::offline(context, array, |o| async move { scrub::schedule(&o, &request).await }),
    }
}

fn start(context: &Context, array: &str, request: ScrubStart) -> Result<Done, Problem> {
    if let Some(client) = context.server_of(array)? {
        return client.post(&path(array, "start"), &request);
    }
    context.offline(|world| async move {
        let opened = open::by_name(&world, array, How::default()).await?;
        // One that a restart interrupted makes way.
        let stopped = opened.array.scrub_stop().await.map_err(|f| server::problem::fault(format!("array {array}"), f));
        let started = match stopped {
            Ok(_) => scrub::start(&opened, &request, true).await,
            Err(problem) => Err(problem),
        };
        let result = match started {
            Ok(_) => to_its_end(&world.rt, &opened).await,
            Err(problem) => Err(problem),
        };
        opened.close(&world).await?;
        result
    })
}

/// Shows how far it is until it ends, or ^C does.
async fn to_its_end(rt: &rt::Rt, opened: &Opened) -> Result<Done, Problem> {
    let progress = Progress::new(false);
    let show = async {
        loop {
            if let Some(run) = opened.view().await.scrub.running {
                progress.at("scrub", run.segments_done, run.segments_total);
            }
            rt.sleep(Duration::from_millis(200)).await;
        }
    };
    let (done, show) = (pin!(opened.array.scrub_done()), pin!(show));
    let ended = select(done, show);
    let cancelled = matches!(select(ended, pin!(rt.stop_signal())).await, Either::Right(_));
    let name = opened.array.first().name();
    let view = opened.view().await.scrub;
    if cancelled {
        let far = view
            .running
            .map_or(String::new(), |r| format!(" after {} of {} segments", r.segments_done, r.segments_total));
        return Ok(Done::new(format!("the scrub of {name} was interrupted{far}; the next open continues it")));
    }
    let Some(run) = view.last else { return Err(Problem::failed("scrub", "it did not run", "see the array's events")) };
    let mut done = Done::new(format!("{} scrub of {name}: {}", run.kind, text::scrub_run(&run)));
    done.notes = findings(&run);
    Ok(done)
}

fn findings(run: &ScrubRunView) -> Vec<String> {
    if run.found.is_empty() {
        return vec!["no errors".to_owned()];
    }
    run.found.iter().map(text::scrub_found).collect()
}
