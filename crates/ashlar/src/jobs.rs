//! `ashlar jobs` and `ashlar wait`.

use std::time::{Duration, Instant};

use api::{ArrayView, JobKind, JobState, JobView, Jobs, Kind, Problem, Resource};
use uuid::Uuid;

use crate::client::Client;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text::{self, Table, duration, human, percent};

const JOBS_EXAMPLES: &str = "\
Examples:
  ashlar jobs                    rebuilds, scrubs, drives that are emptied, volumes that are deleted
  ashlar jobs fast --json";

const WAIT_EXAMPLES: &str = "\
Examples:
  ashlar wait fast               until nothing is rebuilt, emptied, scrubbed or deleted in fast
  ashlar wait fast --timeout 600
  ashlar wait rebuild-0f7b...-12 until this job has ended (`ashlar jobs` lists them)";

/// `wait` looks so often.
const LOOK: Duration = Duration::from_secs(1);

/// List long work: rebuilds, scrubs and others
#[derive(clap::Args)]
#[command(after_help = JOBS_EXAMPLES)]
pub struct Args {
    /// Only of this array
    array: Option<String>,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Wait until long work has ended
#[derive(clap::Args)]
#[command(after_help = WAIT_EXAMPLES)]
pub struct WaitArgs {
    /// An array, or the id of a job
    #[arg(value_name = "ARRAY|JOB")]
    what: String,
    /// Gives up after so long, with exit code 1
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Prints an object for scripts at the end
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let mut found = fetch(&context.running("jobs")?)?;
    found.jobs.retain(|job| args.array.as_ref().is_none_or(|array| job.array == *array));
    if args.json {
        text::print_json(&found);
        return Ok(Finding::Good);
    }
    if found.jobs.is_empty() {
        text::print("No jobs.");
        return Ok(Finding::Good);
    }
    let mut table = Table::new(&["ARRAY", "JOB", "ABOUT", "STATE", ">DONE", ">RATE", ">LEFT", "ID"]).flush_left();
    for job in &found.jobs {
        let left = job.eta_seconds.map_or("-".to_owned(), |s| duration(Duration::from_secs(s)));
        let rate = job.rate.map_or("-".to_owned(), |rate| format!("{}/s", human(rate)));
        let about = job.subject.clone().unwrap_or_else(|| "-".to_owned());
        let (kind, state) = (kind_word(job.kind), state_word(job.state));
        let (array, id) = (job.array.clone(), job.id.clone());
        table.row(vec![array, kind.to_owned(), about, state.to_owned(), done(job), rate, left, id]);
    }
    table.print();
    Ok(Finding::Good)
}

/// Waits.
pub fn wait(context: &Context, args: &WaitArgs) -> Outcome {
    let client = context.running(&args.what)?;
    // An identity has five groups; in front of that of a job is its kind.
    let is_job = args.what.parse::<Uuid>().is_err() && JobView::array_of(&args.what).is_some();
    let array = match is_job {
        true => args.what.clone(),
        false => {
            let there: Resource<ArrayView> = client.get(&format!("/v1/arrays/{}", encode(&args.what)))?;
            there.view.name
        }
    };
    let begun = Instant::now();
    loop {
        let jobs = fetch(&client)?.jobs;
        let meant = |job: &&JobView| if is_job { job.id == args.what } else { job.array == array };
        let goes_on = |job: &&JobView| !matches!(job.state, JobState::Done | JobState::Cancelled);
        let left: Vec<&JobView> = jobs.iter().filter(meant).filter(goes_on).collect();
        let Some(first) = left.first() else {
            return ended(&jobs, args, is_job);
        };
        if first.state == JobState::Paused {
            let why = format!("{} is paused", first.id);
            let todo = format!("`ashlar rebuild {} resume`", first.array);
            return Err(Problem::refused("job_paused", args.what.clone(), why, todo));
        }
        if args.timeout.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            let why = format!("{} has not ended: {} done", first.id, done(first));
            return Err(Problem::new(Kind::Failed, "timed_out", args.what.clone(), why, "wait longer (--timeout)"));
        }
        if !output::pause(LOOK) {
            return Ok(Finding::Good);
        }
    }
}

fn ended(jobs: &[JobView], args: &WaitArgs, is_job: bool) -> Outcome {
    let job = jobs.iter().find(|job| is_job && job.id == args.what);
    let said = match job {
        Some(job) => format!("{}: {}", job.id, state_word(job.state)),
        None if is_job => format!("{}: ended", args.what),
        None => format!("{}: no job is under way", args.what),
    };
    text::print_done(args.json, &api::Done::new(said));
    Ok(Finding::Good)
}

fn fetch(client: &Client) -> Result<Jobs, Problem> {
    client.get("/v1/jobs")
}

fn done(job: &JobView) -> String {
    match (job.done, job.total) {
        (Some(done), Some(total)) => percent(done, total),
        (Some(done), None) if job.unit == "bytes" => human(done),
        (Some(done), None) => done.to_string(),
        (None, _) => "-".to_owned(),
    }
}

const fn kind_word(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Rebuild => "rebuild",
        JobKind::CopyOut => "copy out",
        JobKind::Scrub => "scrub",
        JobKind::Drop => "delete",
    }
}

const fn state_word(state: JobState) -> &'static str {
    match state {
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Paused => "paused",
        JobState::Done => "done",
        JobState::Cancelled => "cancelled",
    }
}
