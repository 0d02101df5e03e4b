//! Long work: its list, and what may be asked of it.

use api::{ArrayView, Changed, JobKind, JobVerb, JobView, Jobs, Kind, Problem, RebuildSet, VERSION};
use axum::extract::State;

use super::answer::{IfMatch, Path};
use super::drives::on;
use super::reads::read;
use super::{Answer, Context};
use crate::ops::{rebuild, scrub};
use crate::snapshot::Snapshot;

fn all(s: &Snapshot) -> Vec<JobView> {
    s.status.arrays.iter().flat_map(JobView::of).collect()
}

/// Jobs that run or wait, and those that ended last.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", responses((status = 200, description = "The jobs", body = Jobs)))]
pub async fn list(State(c): State<Context>) -> Answer<Jobs> {
    read(&c, |s| Ok(Jobs { version: VERSION, jobs: all(s) })).await.into()
}

/// A job.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path, description = "Its id")),
    responses((status = 200, description = "The job", body = JobView)))]
pub async fn one(State(c): State<Context>, Path(id): Path<String>) -> Answer<JobView> {
    find(&c, id).await.into()
}

async fn find(c: &Context, id: String) -> Result<JobView, Problem> {
    let unknown = || {
        let (what, todo) = (format!("job {id}"), "GET /v1/jobs lists them");
        Problem::new(Kind::NotFound, "job_unknown", what, "there is no job of this id now", todo)
    };
    read(c, |s| all(s).into_iter().find(|job| job.id == id).ok_or_else(unknown)).await
}

/// Let a job wait.
#[utoipa::path(post, path = "/v1/jobs/{job}/pause", tag = "jobs", params(("job" = String, Path, description = "Its id")),
    responses((status = 200, description = "The array", body = Changed<ArrayView>)))]
pub async fn pause(State(c): State<Context>, Path(id): Path<String>) -> Answer<Changed<ArrayView>> {
    tell(&c, id, JobVerb::Pause).await
}

/// Let a job go on.
#[utoipa::path(post, path = "/v1/jobs/{job}/resume", tag = "jobs", params(("job" = String, Path, description = "Its id")),
    responses((status = 200, description = "The array", body = Changed<ArrayView>)))]
pub async fn resume(State(c): State<Context>, Path(id): Path<String>) -> Answer<Changed<ArrayView>> {
    tell(&c, id, JobVerb::Resume).await
}

/// End a job.
#[utoipa::path(post, path = "/v1/jobs/{job}/cancel", tag = "jobs", params(("job" = String, Path, description = "Its id")),
    responses((status = 200, description = "The array", body = Changed<ArrayView>)))]
pub async fn cancel(State(c): State<Context>, Path(id): Path<String>) -> Answer<Changed<ArrayView>> {
    tell(&c, id, JobVerb::Cancel).await
}

async fn tell(c: &Context, id: String, verb: JobVerb) -> Answer<Changed<ArrayView>> {
    let job = match find(c, id).await {
        Ok(job) => job,
        Err(problem) => return Err(problem).into(),
    };
    if !job.can.contains(&verb) {
        let why = format!("a job of its kind and state cannot {}", word(verb));
        let todo = "its field `can` says what may be asked of it";
        return Err(Problem::refused("job_cannot", format!("job {}", job.id), why, todo)).into();
    }
    // By the identity: another array may have the name by now.
    let array = JobView::array_of(&job.id).map_or(job.array, |uuid| uuid.to_string());
    on(c, array, IfMatch::default(), move |_, opened| async move {
        match job.kind {
            JobKind::Scrub => scrub::stop(&opened).await,
            JobKind::Rebuild | JobKind::CopyOut | JobKind::Drop => {
                let paused = Some(verb == JobVerb::Pause);
                rebuild::set(&opened, &RebuildSet { priority: None, paused }).await
            }
        }
    })
    .await
}

const fn word(verb: JobVerb) -> &'static str {
    match verb {
        JobVerb::Pause => "be paused",
        JobVerb::Resume => "be resumed",
        JobVerb::Cancel => "be cancelled",
    }
}
