//! Owner marks on drives: where they lie, reading and writing them, and what one says of its owner.

use std::pin::pin;
use std::time::Duration;

use api::Remedy;
use base::{ArrayUuid, BLOCK_BYTES, MemberLba};
use futures::future::{Either, select};
use ondisk::{FormatError, Generation, Label, OwnerMark};
use rt::{Buf, Bytes, Drive, Host, IoError, Rt};

use super::PATIENCE_OF_OPEN;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::read::is_labelled;
use crate::member::guard::PATIENCE;

/// The process that a mark names.
pub(super) fn host_of(mark: &OwnerMark) -> Host {
    Host {
        name: mark.host.clone(),
        machine: mark.machine,
        boot: mark.boot,
        pid: mark.pid,
        started: mark.started,
        namespaces: mark.namespaces,
    }
}

/// Where a member, or a part's slice of it, has its mark.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) drive: Drive,
    pub(super) at: MemberLba,
    pub(super) array: ArrayUuid,
    pub(super) array_name: String,
}

/// What lies in a mark's place.
pub(super) enum Seen {
    /// No mark: nothing of ours, or another array's.
    Nothing,
    /// A mark.
    Mark(Box<OwnerMark>),
    /// What may be a mark and cannot be read as one: torn, or a newer program's.
    Unclear,
}

impl Seen {
    pub(super) fn of(block: &[u8], array: ArrayUuid) -> Seen {
        match OwnerMark::decode(block) {
            Ok(mark) if mark.array == array => Seen::Mark(Box::new(mark)),
            Ok(_) | Err(FormatError::Absent(_)) => Seen::Nothing,
            Err(_) => Seen::Unclear,
        }
    }
}

/// The place that a label tells; none where a generation reaches there, and none where something else may have been put: on a
/// drive that was a member once its last label may be all that is left.
pub(super) async fn place_of(drive: &Drive, label: &Label) -> Option<Place> {
    let at = label.layout.owner_mark()?;
    let read = async {
        let (read, first) = drive.read(label.layout.slot(0), Buf::zeroed(BLOCK_BYTES)).await;
        read.map(|()| first)
    };
    let first = drive.within(PATIENCE_OF_OPEN, read).await.unwrap_or_else(|_| Buf::zeroed(BLOCK_BYTES));
    let is_generation = Generation::peek(&first).is_ok();
    if !is_generation && !is_labelled(drive, label).await && !planted(Canary::ForeignTakenBack) {
        return None;
    }
    let longest = label.layout.generation_bytes_max();
    let fits = !is_generation || Generation::total_bytes(&first).map_or(true, |bytes| bytes <= longest);
    let (array, array_name) = (label.array, label.array_name.clone());
    fits.then(|| Place { drive: drive.clone(), at, array, array_name })
}

/// Waits for a drive, not for long.
pub(super) async fn patiently<T>(
    rt: &Rt,
    patience: Duration,
    work: impl Future<Output = Result<T, IoError>>,
) -> Result<T, IoError> {
    match select(pin!(work), pin!(rt.sleep(patience))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(IoError::TimedOut),
    }
}

impl Place {
    /// Waits for as long as a drive is waited for at all: what a slow one says counts.
    pub(super) async fn read(&self, rt: &Rt) -> Result<Buf, IoError> {
        let read = async {
            let (done, block) = self.drive.read(self.at, Buf::zeroed(BLOCK_BYTES)).await;
            done.map(|()| block)
        };
        let patience = if planted(Canary::SlowMarkSkipped) { PATIENCE } else { PATIENCE_OF_OPEN };
        patiently(rt, patience, read).await
    }

    pub(super) async fn erase(&self, rt: &Rt) -> Result<(), IoError> {
        patiently(rt, PATIENCE, self.drive.write(self.at, Buf::zeroed(BLOCK_BYTES).freeze())).await
    }

    pub(super) async fn write(&self, rt: &Rt, mark: &OwnerMark) -> Result<(), IoError> {
        patiently(rt, PATIENCE, self.drive.write(self.at, image(mark))).await
    }
}

pub(super) fn image(mark: &OwnerMark) -> Bytes {
    Buf::from_slice(&mark.encode()).freeze()
}

/// Who it is, for people.
pub(super) fn owner_text(mark: &OwnerMark) -> String {
    format!("host {} (process {}), since {}", mark.host, mark.pid, base::utc(mark.since))
}

/// The refusal of what another server has.
pub(super) fn in_use(array: &str, why: String) -> Refused {
    let todo = "Stop it there first; if that machine cannot be reached and no longer writes, take the array over";
    Refused::new(RefusedCode::InUseElsewhere, format!("array \"{array}\""), why, todo).by(Remedy::TakeOver)
}
