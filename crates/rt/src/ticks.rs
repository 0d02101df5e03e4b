//! A count that is read in a few nanoseconds, to know when a look at the clock pays.
//!
//! Not here: times (`executor`). What a tick is differs from machine to machine.
#![allow(unsafe_code)]

/// Ticks that take 10 to 50 microseconds: a look at the clock costs little beside them.
#[cfg(target_arch = "x86_64")]
pub(crate) const FEW: u64 = 50_000;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const FEW: u64 = 20_000;

/// The time stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: it reads a register that every x86-64 CPU has; where the kernel forbids that (PR_SET_TSC) no process gets this far.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Without such a counter: the clock's nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
