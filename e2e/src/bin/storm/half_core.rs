//! A thread that takes half a core at most.

use std::time::Duration;

use rt::{Nanos, Rt};

/// How long an end of CPU time may be put off.
const WORK: Duration = Duration::from_millis(10);

/// What this thread has used, and when that was looked at.
pub struct HalfCore {
    cpu: Duration,
    wall: Nanos,
}

impl HalfCore {
    /// From now on.
    pub fn new(rt: &Rt) -> HalfCore {
        HalfCore { cpu: cpu_time(), wall: rt.now() }
    }

    /// Rests as long as it takes.
    pub async fn rest(&mut self, rt: &Rt) {
        let used = cpu_time().saturating_sub(self.cpu);
        if used > WORK {
            rt.sleep((2 * used).saturating_sub(rt.now() - self.wall)).await;
            *self = HalfCore::new(rt);
        }
    }
}

/// CPU time of this thread: the first number of the kernel's account, in nanoseconds.
fn cpu_time() -> Duration {
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(account.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default())
}
