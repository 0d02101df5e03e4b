//! What hosts ask of one volume, counted.

use crate::ctx::figures::Counter;

/// Requests of hosts to one volume.
#[derive(Default)]
pub struct VolumeCounters {
    /// Requests.
    pub reads: Counter,
    /// Requests.
    pub writes: Counter,
    /// Requests.
    pub flushes: Counter,
    /// Requests.
    pub deallocates: Counter,
    /// Bytes.
    pub bytes_read: Counter,
    /// Bytes.
    pub bytes_written: Counter,
    /// Requests that failed.
    pub errors: Counter,
}
