//! What a volume is in one part, as the namespace that requests are dealt to; and the bug that can be planted in it.
//!
//! Not here: the dealing, which is what the server does it with ([`export::Striped`]).

use std::cell::Cell;

use export::{Answer, Fault, Namespace, NamespaceInfo, Request};
use volume::LocalVolume;

/// The name of the planted bug: a flush leaves out the last part.
pub const PART_NOT_FLUSHED: &str = "PartNotFlushed";

thread_local! {
    static PART_NOT_FLUSHED_IS_PLANTED: Cell<bool> = const { Cell::new(false) };
}

/// Plants it in this thread, or not.
pub fn plant_part_not_flushed(planted: bool) {
    PART_NOT_FLUSHED_IS_PLANTED.set(planted);
}

/// A volume's share of one part.
#[derive(Clone)]
pub struct Share {
    /// There.
    pub volume: LocalVolume,
    /// Whether this is the last part.
    pub last: bool,
}

impl Namespace for Share {
    fn info(&self) -> NamespaceInfo {
        self.volume.info()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        if matches!(request, Request::Flush) && self.last && PART_NOT_FLUSHED_IS_PLANTED.get() {
            return Ok(Answer::Done);
        }
        self.volume.submit(request).await
    }
}
