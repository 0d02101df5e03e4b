//! The newest events in memory, and pages of them.

use std::collections::VecDeque;

use api::{Event, Events, KeptIn, VERSION, WhichEvents};

/// Events that readers find in memory; older ones are read from where they are kept.
pub const RECENT: usize = 4096;

/// The newest events, the oldest first.
#[derive(Clone, Default)]
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

    /// Older events that a page needs: all below this number.
    pub fn lacks(&self, which: &WhichEvents) -> Option<u64> {
        let in_memory = self.events.front().map_or(self.next, |event| event.seq);
        let after = which.after?.min(self.next);
        (after + 1 < in_memory.max(self.oldest) && in_memory > self.oldest).then_some(in_memory)
    }

    /// The page that is asked for; `older` are those that it lacks.
    pub fn page(self, older: Vec<Event>, which: &WhichEvents, kept_in: KeptIn) -> Events {
        let limit = which.limit.unwrap_or(100).clamp(1, 1000);
        let is_meant = |event: &&Event| which.array.is_none() || which.array == event.array;
        let all: Vec<Event> = older.into_iter().chain(self.events).collect();
        let events: Vec<Event> = match which.after {
            Some(after) => {
                all.iter().filter(|e| e.seq > after.min(self.next)).filter(is_meant).take(limit).cloned().collect()
            }
            None => {
                let newest = all.iter().rev().filter(is_meant).take(limit).cloned();
                newest.collect::<Vec<_>>().into_iter().rev().collect()
            }
        };
        let whole = events.len() < limit;
        let next = if whole { self.next - 1 } else { events.last().map_or(self.next - 1, |event| event.seq) };
        Events { version: VERSION, events, next, oldest: self.oldest, kept_in }
    }
}
