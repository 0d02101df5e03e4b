//! Who goes first of those that are ready: the background has half of the time, while others want the other half.
//!
//! Each poll of the background is followed by as long for the others, if they want it, however many tasks it has. So all its polls
//! together take no longer than the others, and one poll more.
//!
//! Not here: the queues themselves (`queue`), and how long one poll may be (who writes the task knows).

use std::cell::Cell;

/// What a task is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// What somebody waits for.
    Usual,
    /// Work of the program's own.
    Background,
}

/// When it is the background's turn.
#[derive(Default)]
pub(crate) struct Share {
    /// In ticks: when its turn is.
    from: Cell<u64>,
}

/// Ticks that the others are owed, at most: some milliseconds.
const OWED_MAX: u64 = 1 << 24;

impl Share {
    /// Whether it is the background's turn.
    pub(crate) fn is_its_turn(&self, now: u64) -> bool {
        // Before the turn by no more than what is owed: the counter may have been set back.
        self.from.get().wrapping_sub(now).wrapping_sub(1) >= OWED_MAX
    }

    /// It had the time between these. What was owed before, since it was polled when nothing else was ready, is owed still.
    pub(crate) fn had(&self, since: u64, now: u64) {
        let from = now.wrapping_add(now.wrapping_sub(since).min(OWED_MAX));
        if self.from.get().wrapping_sub(from) >= OWED_MAX {
            self.from.set(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_as_long_as_the_background_had() {
        let share = Share::default();
        assert!(share.is_its_turn(0) && share.is_its_turn(1 << 40));
        share.had(1000, 1700);
        assert_eq!([1700, 2399, 2400, 9000].map(|now| share.is_its_turn(now)), [false, false, true, true]);
        let share = Share::default();
        share.had(1000, 1700);
        share.had(1710, 1720);
        assert!(!share.is_its_turn(2399) && share.is_its_turn(2400), "a short poll takes nothing back");
        share.had(0, 1 << 40);
        assert!(!share.is_its_turn((1 << 40) + OWED_MAX - 1) && share.is_its_turn((1 << 40) + OWED_MAX));
        assert!(share.is_its_turn(5), "a counter that was set back");
        share.had(u64::MAX - 9, u64::MAX);
        assert!(!share.is_its_turn(u64::MAX) && !share.is_its_turn(7) && share.is_its_turn(8), "one that begins anew");
    }
}
