//! How many descriptors the process may have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Stream;

/// More are not asked for: some programs close every descriptor that they may have.
const DESCRIPTORS_MAX: u64 = 65_536;

/// Asks for as many descriptors as the process may ask for; how many it has then.
///
/// # Errors
/// When the kernel refuses; the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    if now < wanted {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    }
    Ok(now.max(wanted))
}

/// Whether a connection just accepted has one of the last `kept` descriptors: the lowest that is free is given out.
#[must_use]
pub fn is_short_of_descriptors(accepted: &Stream, kept: u64) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    accepted.descriptor().saturating_add(kept) >= limit
}
