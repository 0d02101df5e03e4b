//! Names that are here now. A shell waits for them: what does not answer at once is left out.

use std::ffi::OsStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use api::{ArrayView, Arrays, Jobs};
use clap_complete::engine::CompletionCandidate;
use server::registry::Registry;

use crate::client::remote::Flags;
use crate::context::Context;

/// How long a shell waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Arrays that are served or known.
pub fn arrays(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, |context| {
        let known = Registry::at(context.state_dir.clone()).list().unwrap_or_default();
        let served = served(context).into_iter().map(|array| array.name);
        served.chain(known.into_iter().map(|known| known.name)).collect()
    })
}

/// Volumes of served arrays.
pub fn volumes(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, |context| served(context).iter().flat_map(volumes_of).collect())
}

/// Arrays, and volumes of those that are served.
pub fn arrays_and_volumes(typed: &OsStr) -> Vec<CompletionCandidate> {
    arrays(typed).into_iter().chain(volumes(typed)).collect()
}

/// Arrays and jobs.
pub fn arrays_and_jobs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let jobs = fitting(typed, |context| {
        let found: Option<Jobs> = context.server().and_then(|server| server.get("/v1/jobs").ok());
        found.into_iter().flat_map(|found| found.jobs).map(|job| job.id).collect()
    });
    arrays(typed).into_iter().chain(jobs).collect()
}

/// Drives of the array that was typed before.
pub fn drives(typed: &OsStr) -> Vec<CompletionCandidate> {
    let words = words();
    fitting(typed, move |context| {
        let meant = served(context).into_iter().filter(|array| words.contains(&array.name));
        meant.flat_map(|array| array.members).map(|member| member.drive_name).collect()
    })
}

fn volumes_of(array: &ArrayView) -> Vec<String> {
    array.volumes.iter().map(|volume| format!("{}/{}", array.name, volume.name)).collect()
}

fn served(context: &Context) -> Vec<ArrayView> {
    let found: Option<Arrays> = context.server().and_then(|server| server.get("/v1/arrays").ok());
    found.map(|found| found.arrays).unwrap_or_default()
}

/// The names that begin with what was typed.
fn fitting<F>(typed: &OsStr, names: F) -> Vec<CompletionCandidate>
where
    F: FnOnce(&Context) -> Vec<String> + Send + 'static,
{
    let words = words();
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || {
        let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).map(Into::into);
        let context = Context::new(after("--control"), after("--state-dir"), &Flags::default());
        // The shell may have given up.
        let _late = answer.send(context.map(|context| names(&context)).unwrap_or_default());
    });
    let mut names = answered.recv_timeout(PATIENCE).unwrap_or_default();
    names.sort();
    names.dedup();
    let typed = typed.to_string_lossy();
    names.into_iter().filter(|name| name.starts_with(&*typed)).map(CompletionCandidate::new).collect()
}

/// The line so far.
fn words() -> Vec<String> {
    std::env::args().skip_while(|word| word != "--").skip(1).collect()
}
