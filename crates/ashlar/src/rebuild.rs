//! `ashlar rebuild`: how fast rebuilds go, and whether they wait.

use api::{ArrayView, Arrays, Done, Problem, RebuildSet};
use server::ops::open::{self, How};
use server::ops::rebuild;

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar rebuild fast                       show the settings and the progress
  ashlar rebuild fast --priority high       low, medium or high: its share of I/O beside hosts
  ashlar rebuild fast --priority 200M       bytes per second, whatever hosts do
  ashlar rebuild fast pause                 pause until `resume`, also over restarts
  ashlar rebuild fast resume";

/// Set the speed of rebuilds; pause and resume them
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array
    array: String,
    /// What to do [default: show the state]
    action: Option<Action>,
    /// low, medium, high, or bytes per second; kept over restarts
    #[arg(long)]
    priority: Option<String>,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Action {
    /// Pause rebuilds
    Pause,
    /// Resume rebuilds
    Resume,
}

/// Does what is asked.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let paused = args.action.map(|action| matches!(action, Action::Pause));
    let request = RebuildSet { priority: args.priority.clone(), paused };
    if let Some(priority) = &request.priority {
        rebuild::rate_of(priority)?;
    }
    let done = match request.priority.is_some() || paused.is_some() {
        true => set(context, &args.array, request)?,
        false => rebuild::told(&look(context, &args.array)?),
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

fn set(context: &Context, array: &str, request: RebuildSet) -> Result<Done, Problem> {
    match context.server_of(array)? {
        Some(client) => client.post(&format!("/v1/arrays/{}/rebuild", encode(array)), &request),
        None => crate::volume::offline(context, array, |o| async move { rebuild::set(&o, &request).await }),
    }
}

fn look(context: &Context, array: &str) -> Result<ArrayView, Problem> {
    match context.server_of(array)? {
        Some(client) => {
            let all: Arrays = client.get(&format!("/v1/arrays?name={}", encode(array)))?;
            all.arrays
                .into_iter()
                .next()
                .ok_or_else(|| Problem::failed(format!("array {array}"), "the server did not report it", "try again"))
        }
        None => context.offline(|world| async move {
            let opened = open::by_name(&world, array, How::READ_ONLY).await?;
            let view = opened.view().await;
            opened.close(&world).await?;
            Ok(view)
        }),
    }
}
