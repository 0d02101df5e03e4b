//! The alarm of a rate that a person has set too low.

use api::{AlarmCode, AlarmView};
use base::human;

use super::Scrubs;

impl Scrubs {
    /// Whether a rate that was set is too low for what is stored, for the array's alarms.
    pub fn scrub_rate_alarm(&self) -> Option<AlarmView> {
        let rate = self.ctx.settings().scrub_bytes_per_second;
        let (interval, bytes) = (self.course.scrub_interval()?, self.course.bytes_to_scrub());
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
            AlarmView::warning(AlarmCode::ScrubTooSlow, what, todo)
        })
    }
}
