//! The newest events in memory, and pages of them.

use std::collections::VecDeque;

use api::{Event, Events, KeptIn, VERSION, WhichEvents};

/// Events that readers find in memory; older ones are read from where they are kept.
pub const RECENT: usize = 4096;

/// The newest events, the oldest first.
#[derive(Default)]
pub struct Recent {
    events: VecDeque<Event>,
    /// The oldest that is kept anywhere.
    oldest: u64,
    /// The number that the next one gets.
    next: u64,
}

impl Recent {
    /// Of a journal that keeps `events`, the newest of which these are.
    pub fn of(events: Vec<Event>, oldest: u64, next: u64) -> Recent {
        let mut recent = Recent { oldest, next, ..Recent::default() };
        let newest_first = events.len().saturating_sub(RECENT);
        events.into_iter().skip(newest_first).for_each(|event| recent.add(event, oldest));
        recent.next = next;
        recent
    }

    /// Another one; the journal keeps those from `oldest` on.
    pub fn add(&mut self, event: Event, oldest: u64) {
        if self.events.len() == RECENT {
            self.events.pop_front();
        }
        self.oldest = oldest;
        self.next = event.seq + 1;
        self.events.push_back(event);
    }

    /// Those of an array.
    pub fn of_array(&self, array: &str) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.array.as_deref() == Some(array))
    }

    /// The number of the newest one; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.next - 1
    }

    /// Whether a page needs older events than these.
    pub fn lacks_older(&self, which: &WhichEvents) -> bool {
        let in_memory = self.events.front().map_or(self.next, |event| event.seq);
        let after = which.after.map(|after| after.min(self.next));
        after.is_some_and(|after| after + 1 < in_memory.max(self.oldest) && in_memory > self.oldest)
    }

    /// The page that is asked for; `older` are those that were kept a moment ago, where it lacks older ones.
    pub fn page(&self, older: &[Event], which: &WhichEvents, kept_in: KeptIn) -> Events {
        let limit = which.limit.unwrap_or(100).clamp(1, 1000);
        let last = older.last().map_or(0, |event| event.seq);
        let all = older.iter().chain(self.events.iter().filter(|event| event.seq > last));
        let mut meant = all.filter(|event| which.array.is_none() || which.array == event.array);
        let events: Vec<Event> = match which.after.map(|after| after.min(self.next)) {
            Some(after) => meant.filter(|event| event.seq > after).take(limit).cloned().collect(),
            None => {
                let mut newest: Vec<Event> = meant.by_ref().rev().take(limit).cloned().collect();
                newest.reverse();
                newest
            }
        };
        let whole = events.len() < limit;
        let next = if whole { self.next - 1 } else { events.last().map_or(self.next - 1, |event| event.seq) };
        Events { version: VERSION, events, next, oldest: self.oldest, kept_in }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(numbers: std::ops::RangeInclusive<u64>) -> Vec<Event> {
        numbers.map(|seq| Event { seq, ..Event::default() }).collect()
    }

    /// What left memory while older events were read is on the page, and nothing is on it twice.
    #[test]
    fn a_page_has_no_gap_where_memory_goes_on() {
        let full = RECENT as u64 + 10;
        let mut recent = Recent::of(events(1..=full), 1, full + 1);
        let which = WhichEvents { after: Some(0), limit: Some(1000), array: None };
        assert!(recent.lacks_older(&which));
        let older = events(1..=full);
        events(full + 1..=full + 50).into_iter().for_each(|event| recent.add(event, 1));
        let mut after = 0;
        while after < full + 50 {
            let page = recent.page(&older, &WhichEvents { after: Some(after), ..which.clone() }, KeptIn::Server);
            let numbers: Vec<u64> = page.events.iter().map(|event| event.seq).collect();
            assert_eq!(numbers, (after + 1..=page.next).collect::<Vec<_>>());
            after = page.next;
        }
        assert!(!recent.lacks_older(&WhichEvents { after: Some(full), ..which.clone() }));
        let newest = recent.page(&[], &WhichEvents { after: None, limit: Some(3), array: None }, KeptIn::Server);
        assert_eq!(newest.events, events(full + 48..=full + 50));
    }
}
