//! A request of a host, timed.

use rt::Nanos;

use super::Volume;
use crate::ctx::figures::since;
use crate::fault::Fault;
use crate::volumes::counters::Op;

/// A request under way; what it was is told at its end. One that is dropped before was given up.
pub struct Timed<'a> {
    volume: &'a Volume,
    begun: Nanos,
}

impl Volume {
    /// A request of a host begins. Times are those of turns of the runtime: what is done within one turn took no time.
    #[must_use]
    #[inline]
    pub fn begin(&self) -> Timed<'_> {
        let begun = self.hosts.ctx.rt.turned();
        self.vol.counters.begin(begun);
        Timed { volume: self, begun }
    }
}

impl Timed<'_> {
    /// It was done, or failed.
    #[inline]
    pub fn end(self, op: Op, fault: Option<Fault>) {
        let took = since(self.begun, self.volume.hosts.ctx.rt.turned());
        self.volume.vol.counters.took(op, took, fault);
    }
}

impl Drop for Timed<'_> {
    #[inline]
    fn drop(&mut self) {
        self.volume.vol.counters.end(self.volume.hosts.ctx.rt.turned());
    }
}
