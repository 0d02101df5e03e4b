//! How fast scrubs read: so fast that one ends well within its interval, however much is stored.
//!
//! The rate follows what is stored when the scrub begins, and is looked at again each minute. A rate that a person has set
//! is kept, and an alarm says so where it is too low.

use base::human;

use super::ScrubKind;
use crate::core::Core;
use crate::engine::alarm::{Alarm, AlarmCode};

/// Bytes a second at least: one NVMe drive reads twenty times as much.
const BYTES_PER_SECOND_MIN: u64 = 64 << 20;

/// A scrub has one part in so many of its interval: the rest is for rebuilds, hosts, and time in which nobody serves the
/// array.
const PART_OF_INTERVAL: u64 = 2;

impl Core {
    /// Bytes that a scrub of all that is written now reads.
    fn bytes_to_scrub(&self) -> u64 {
        let table = self.segments.read();
        let written = table.segments.values().filter(|s| !s.is_spare());
        let blocks: u64 = written.map(|s| u64::from(s.rows.acked) * s.slots.iter().flatten().count() as u64).sum();
        base::BlockCount(blocks).bytes()
    }

    /// Seconds from one beginning of a scrub to the next; `None` when none begins by itself.
    fn scrub_interval(&self) -> Option<u64> {
        let hours = [ScrubKind::Media, ScrubKind::Parity].map(|kind| self.scrub_line(kind).every_hours);
        hours.into_iter().filter(|hours| *hours > 0).min().map(|hours| u64::from(hours) * 3600)
    }

    /// What a scrub reads a second at most: as was set, else enough for what is stored now.
    pub(super) fn scrub_rate_now(&self) -> u64 {
        match self.ctx.settings().scrub_bytes_per_second {
            0 => rate_for(self.bytes_to_scrub(), self.scrub_interval()),
            rate => rate,
        }
    }

    /// The same, as the scrub that runs has seen it last.
    pub(super) fn scrub_pace(&self) -> u64 {
        match self.ctx.settings().scrub_bytes_per_second {
            0 => self.jobs.scrub.bytes_per_second.get(),
            rate => rate,
        }
    }

    /// Whether a rate that was set is too low for what is stored, for the array's alarms.
    pub(super) fn scrub_rate_alarm(&self) -> Option<Alarm> {
        let rate = self.ctx.settings().scrub_bytes_per_second;
        let (interval, bytes) = (self.scrub_interval()?, self.bytes_to_scrub());
        let least = bytes.div_ceil(interval);
        (rate > 0 && rate < least).then(|| {
            let what = format!(
                "scrubs are too slow: one begins every {} hours, and reading {} at {}/s takes {} hours",
                interval / 3600,
                human(bytes),
                human(rate),
                bytes / rate / 3600
            );
            let todo = format!("Set a rate of at least {}/s, or a longer interval", human(least));
            Alarm::warning(AlarmCode::ScrubTooSlow, what, todo)
        })
    }
}

/// Bytes a second at which so many are read well within an interval.
fn rate_for(bytes: u64, interval: Option<u64>) -> u64 {
    let suffices = interval.map_or(0, |seconds| bytes / (seconds / PART_OF_INTERVAL).max(1));
    suffices.max(BYTES_PER_SECOND_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_ends_within_half_its_interval() {
        const TB: u64 = 1_000_000_000_000;
        const WEEK: u64 = 7 * 24 * 3600;
        for (bytes, interval) in [(0, WEEK), (10 * TB, WEEK), (61 * TB, WEEK), (24 * 61 * TB, WEEK), (TB, 3600)] {
            let rate = rate_for(bytes, Some(interval));
            assert!(bytes / rate <= interval / 2 + 1 && rate >= BYTES_PER_SECOND_MIN, "{bytes} in {interval}: {rate}");
        }
        assert_eq!(rate_for(10 * TB, Some(WEEK)), BYTES_PER_SECOND_MIN, "slower than before is none");
        assert_eq!(rate_for(61 * TB, None), BYTES_PER_SECOND_MIN);
    }
}
