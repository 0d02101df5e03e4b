//! Long work, as a view of what the engine does.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{ArrayState, ArrayView, MemberView, RebuildView, ScrubRunView, SeatState, VolumeState, VolumeView};

/// Jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Jobs {
    /// Version of this object.
    pub version: u32,
    /// Each of them, by array.
    pub jobs: Vec<JobView>,
}

/// Work that outlives the request that began it. Its id is made of what is persistent: it is the same after a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its identity: "rebuild-UUID", and others.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// The array.
    pub array: String,
    /// What it is about: a drive, a volume; none: the array.
    pub subject: Option<String>,
    /// How it is.
    pub state: JobState,
    /// Done, in `unit`; none when that is not known.
    pub done: Option<u64>,
    /// To do in all, in `unit`; none when that is not known.
    pub total: Option<u64>,
    /// "bytes", "segments" or "zones".
    pub unit: String,
    /// Of `unit`, per second, of late.
    pub rate: Option<u64>,
    /// To its end; none while it waits.
    pub eta_seconds: Option<u64>,
    /// Seconds that it has run.
    pub seconds: Option<u64>,
    /// What may be asked of it.
    pub can: Vec<JobVerb>,
}

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Brings redundancy back.
    #[default]
    Rebuild,
    /// Moves everything off a drive that leaves.
    CopyOut,
    /// Reads and compares.
    Scrub,
    /// Frees what a deleted volume held.
    Drop,
}

/// How a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It goes on by itself when something else is done.
    Waiting,
    /// It runs.
    #[default]
    Running,
    /// It goes on when it is told to.
    Paused,
    /// It came to its end.
    Done,
    /// It was ended before.
    Cancelled,
}

/// What may be asked of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobVerb {
    /// Wait until it is told to go on.
    Pause,
    /// Go on.
    Resume,
    /// End.
    Cancel,
}

impl JobView {
    /// The jobs of an array: those that run or wait, and its last scrub.
    #[must_use]
    pub fn of(array: &ArrayView) -> Vec<JobView> {
        let leaving = array.members.iter().filter(|m| m.state == SeatState::Leaving);
        let rebuild = array.rebuild.as_ref().map(|run| JobView::rebuild(array, run));
        let rebuild = rebuild.or_else(|| (array.state == ArrayState::Rebuilding).then(|| JobView::waiting(array)));
        let scrubs = [&array.scrub.running, &array.scrub.last].into_iter().flatten();
        let dropping = array.volumes.iter().filter(|v| v.state == VolumeState::Dropping);
        let copies = leaving.map(|member| JobView::copy_out(array, member));
        let scrubs = scrubs.map(|run| JobView::scrub(array, run));
        rebuild.into_iter().chain(copies).chain(scrubs).chain(dropping.map(|v| JobView::drop(array, v))).collect()
    }

    fn new(kind: JobKind, array: &ArrayView, id: String) -> JobView {
        JobView { id, kind, array: array.name.clone(), ..JobView::default() }
    }

    fn rebuild(array: &ArrayView, run: &RebuildView) -> JobView {
        let (state, can) = match (run.paused, run.waits.is_some()) {
            (true, _) => (JobState::Paused, JobVerb::Resume),
            (false, true) => (JobState::Waiting, JobVerb::Pause),
            (false, false) => (JobState::Running, JobVerb::Pause),
        };
        let runs = state == JobState::Running;
        JobView {
            state,
            done: Some(run.bytes_moved),
            total: (run.bytes_total > 0).then_some(run.bytes_total),
            unit: "bytes".to_owned(),
            rate: runs.then_some(run.bytes_per_second),
            eta_seconds: run.eta_seconds.filter(|_| runs),
            seconds: Some(run.seconds),
            can: vec![can],
            ..JobView::new(JobKind::Rebuild, array, format!("rebuild-{}-{}", array.uuid, since(array)))
        }
    }

    /// Redundancy is on its way back, and no segment is being rebuilt at this moment.
    fn waiting(array: &ArrayView) -> JobView {
        JobView {
            state: JobState::Waiting,
            unit: "bytes".to_owned(),
            ..JobView::new(JobKind::Rebuild, array, format!("rebuild-{}-{}", array.uuid, since(array)))
        }
    }

    fn copy_out(array: &ArrayView, member: &MemberView) -> JobView {
        let used = member.zones.saturating_sub(member.zones_free);
        JobView {
            subject: Some(member.drive_name.clone()),
            state: if array.rebuild_paused { JobState::Paused } else { JobState::Running },
            done: Some(member.zones_free),
            total: Some(member.zones_free + used),
            unit: "zones".to_owned(),
            ..JobView::new(JobKind::CopyOut, array, format!("copy_out-{}-{}", array.uuid, member.member))
        }
    }

    fn scrub(array: &ArrayView, run: &ScrubRunView) -> JobView {
        let scrubs = &array.scrub;
        let schedule = if run.kind == crate::ScrubKind::Media { &scrubs.media } else { &scrubs.parity };
        let running = array.scrub.running.as_ref() == Some(run);
        let state = match (running, run.finished) {
            (true, _) => JobState::Running,
            (false, true) => JobState::Done,
            (false, false) => JobState::Cancelled,
        };
        JobView {
            subject: Some(run.kind.to_string()),
            state,
            done: Some(run.segments_done),
            total: Some(run.segments_total),
            unit: "segments".to_owned(),
            eta_seconds: run.eta_seconds.filter(|_| running),
            seconds: Some(run.seconds),
            can: if running { vec![JobVerb::Cancel] } else { vec![] },
            ..JobView::new(JobKind::Scrub, array, format!("scrub-{}-{}-{}", array.uuid, run.kind, schedule.started_at))
        }
    }

    fn drop(array: &ArrayView, volume: &VolumeView) -> JobView {
        JobView {
            subject: Some(volume.uuid.to_string()),
            unit: "bytes".to_owned(),
            // What is left becomes less; what there was is not remembered.
            ..JobView::new(JobKind::Drop, array, format!("drop-{}-{}", array.uuid, volume.uuid))
        }
    }

    /// The array that an id is of.
    #[must_use]
    pub fn array_of(id: &str) -> Option<Uuid> {
        let rest = id.split_once('-')?.1;
        rest.get(..36).and_then(|uuid| uuid.parse().ok())
    }
}

/// When the newest loss was, as the array counts it: a rebuild is another one after another loss.
fn since(array: &ArrayView) -> u64 {
    array.members.iter().map(|m| m.gone_since).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_what_may_be_asked_of_it() {
        let run = |paused| RebuildView {
            paused,
            bytes_moved: 5,
            bytes_total: 10,
            eta_seconds: Some(3),
            ..RebuildView::default()
        };
        let mut array = ArrayView { rebuild: Some(run(false)), ..ArrayView::default() };
        let job = |array: &ArrayView| JobView::of(array).remove(0);
        let running = job(&array);
        assert_eq!(
            (running.state, &running.can[..], running.eta_seconds),
            (JobState::Running, &[JobVerb::Pause][..], Some(3))
        );
        array.rebuild = Some(run(true));
        let paused = job(&array);
        assert_eq!(
            (paused.state, &paused.can[..], paused.eta_seconds),
            (JobState::Paused, &[JobVerb::Resume][..], None)
        );
        assert_eq!(paused.id, running.id);
        array.rebuild = Some(RebuildView { waits: Some("room".into()), bytes_per_second: 7, ..run(false) });
        let waiting = job(&array);
        assert_eq!(
            (waiting.state, &waiting.can[..], waiting.rate, waiting.eta_seconds),
            (JobState::Waiting, &[JobVerb::Pause][..], None, None)
        );
        assert_eq!((waiting.id, waiting.done), (running.id, Some(5)));
        assert_eq!(JobView::array_of(&paused.id), Some(array.uuid));
    }
}
