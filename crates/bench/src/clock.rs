//! The CPU time of this thread.
//!
//! The generator, the engine and memory drives run on one thread, so this is all the CPU that a request costs, the
//! kernel's work in system calls included. Not included: io_uring's own worker threads, other processes.

use rt::Rt;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds this thread has computed; `None` in virtual time, where the model computes most of it.
pub(crate) fn thread_cpu_ns(rt: &Rt) -> Option<u64> {
    if rt.is_modelled() {
        return None;
    }
    let t = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(t.tv_sec).expect("CPU time is not negative");
    let ns = u64::try_from(t.tv_nsec).expect("CPU time is not negative");
    Some(seconds * 1_000_000_000 + ns)
}
