//! The free zones of a seat: what its drive was told that nothing is there, and what it still keeps for us.

use std::collections::{BTreeMap, BTreeSet};

use rt::Nanos;

use crate::canary::{Canary, planted};

/// Free zones.
#[derive(Clone)]
pub struct FreeZones {
    /// Never written, or deallocated, as far as that is known.
    empty: BTreeSet<u32>,
    /// Freed, and not deallocated: since when.
    kept: BTreeMap<u32, Nanos>,
}

impl FreeZones {
    /// All of so many.
    pub fn all(zones: u32) -> FreeZones {
        FreeZones { empty: (0..zones).collect(), kept: BTreeMap::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.empty.len() + self.kept.len()
    }

    /// Takes the first one: of those that the drive still keeps, so that the others stay empty.
    pub fn take(&mut self) -> Option<u32> {
        self.take_away().map(|(zone, _)| zone)
    }

    /// The same, and since when the drive keeps it.
    pub fn take_away(&mut self) -> Option<(u32, Option<Nanos>)> {
        let kept = self.kept.pop_first().map(|(zone, since)| (zone, Some(since)));
        kept.or_else(|| self.empty.pop_first().map(|zone| (zone, None)))
    }

    /// What was taken away is free again, as it was.
    pub fn put_back(&mut self, (zone, since): (u32, Option<Nanos>)) {
        match since {
            Some(since) => self.free(zone, since),
            None => self.give(zone),
        }
    }

    /// This one is in use.
    pub fn occupy(&mut self, zone: u32) {
        self.empty.remove(&zone);
        self.kept.remove(&zone);
    }

    /// This one is free, and empty.
    pub fn give(&mut self, zone: u32) {
        self.empty.insert(zone);
    }

    /// This one is free from now on, and the drive keeps what was there.
    pub fn free(&mut self, zone: u32, now: Nanos) {
        self.kept.insert(zone, now);
    }

    /// When the one was freed that waits longest to be deallocated.
    pub fn oldest(&self) -> Option<Nanos> {
        self.kept.values().min().copied()
    }

    /// Takes the one that waits longest, if it was freed then or before.
    pub fn take_freed_by(&mut self, then: Nanos) -> Option<u32> {
        let (zone, _) = self.kept.iter().filter(|(_, since)| **since <= then).min_by_key(|(_, since)| **since)?;
        let zone = *zone;
        self.kept.remove(&zone);
        if planted(Canary::DeallocatedInUse) {
            self.empty.insert(zone);
        }
        Some(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_soon_is_not_deallocated() {
        let mut zones = FreeZones::all(4);
        for zone in [0, 1, 2] {
            assert_eq!(zones.take(), Some(zone));
        }
        zones.free(2, Nanos(10));
        zones.free(0, Nanos(20));
        assert_eq!((zones.len(), zones.oldest()), (3, Some(Nanos(10))));
        assert_eq!(zones.take_freed_by(Nanos(9)), None, "not yet");
        assert_eq!(zones.take(), Some(0), "before zone 3, which is empty");
        assert_eq!(zones.take_freed_by(Nanos(30)), Some(2));
        assert_eq!((zones.len(), zones.oldest()), (1, None), "nobody takes it meanwhile");
        zones.give(2);
        assert_eq!([zones.take(), zones.take(), zones.take()], [Some(2), Some(3), None]);
    }
}
