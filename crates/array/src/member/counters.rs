//! What the array asks of one drive, counted.

use api::WorkView;
use rt::{Drive, IoError, Nanos};

use crate::ctx::figures::{Busy, Counter, Histogram, since};

/// What went to a drive since the array was opened.
#[derive(Default)]
pub struct Counters {
    /// Requests.
    pub reads: Counter,
    /// Requests.
    pub writes: Counter,
    /// Requests.
    pub flushes: Counter,
    /// Bytes.
    pub bytes_read: Counter,
    /// Bytes.
    pub bytes_written: Counter,
    /// Requests that failed.
    pub errors: Counter,
    /// Blocks whose checksum did not match.
    pub mismatches: Counter,
    /// How long those took that succeeded.
    pub reads_took: Histogram,
    /// The same.
    pub writes_took: Histogram,
    /// The same.
    pub flushes_took: Histogram,
    busy: Busy,
}

/// A request to a drive, under way.
pub struct Timed<'a> {
    drive: &'a Drive,
    busy: &'a Busy,
    begun: Nanos,
}

impl Counters {
    /// A request begins.
    #[inline]
    pub fn begin<'a>(&'a self, drive: &'a Drive) -> Timed<'a> {
        let begun = drive.turned();
        self.busy.begin(begun);
        Timed { drive, busy: &self.busy, begun }
    }

    /// How they were done, up to `now`.
    pub fn work(&self, now: Nanos) -> WorkView {
        WorkView {
            reads: self.reads_took.view(),
            writes: self.writes_took.view(),
            flushes: self.flushes_took.view(),
            in_flight: u64::from(self.busy.in_flight()),
            busy_nanos: self.busy.nanos(now),
            ..WorkView::default()
        }
    }
}

impl Timed<'_> {
    /// It was done, or failed.
    #[inline]
    pub fn end(self, took: &Histogram, result: Result<(), IoError>) {
        if result.is_ok() {
            took.add(since(self.begun, self.drive.turned()));
        }
    }
}

impl Drop for Timed<'_> {
    #[inline]
    fn drop(&mut self) {
        self.busy.end(self.drive.turned());
    }
}
