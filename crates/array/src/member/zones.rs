//! The free zones of a seat: what its drive was told that nothing is there, and what it still keeps for us.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

    /// When the zone that waits longest is to be deallocated: after `unused`, and at once where more wait than are empty. What a
    /// flash drive knows to be empty is room for its own cleaning. The last free zone is not taken from hosts so soon.
    pub fn due(&self, unused: Duration) -> Option<Nanos> {
        let oldest = self.kept.values().min().copied()?;
        Some(if self.kept.len() > self.empty.len() + 1 { oldest } else { oldest + unused })
    }

    /// Takes that zone, if it is time.
    pub fn take_due(&mut self, now: Nanos, unused: Duration) -> Option<u32> {
        self.due(unused).filter(|at| *at <= now)?;
        let (zone, _) = self.kept.iter().min_by_key(|(_, since)| **since)?;
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
        const UNUSED: Duration = Duration::from_nanos(50);
        let mut zones = FreeZones::all(5);
        for zone in [0, 1, 2] {
            assert_eq!(zones.take(), Some(zone));
        }
        zones.free(2, Nanos(10));
        zones.free(0, Nanos(20));
        assert_eq!((zones.len(), zones.due(UNUSED)), (4, Some(Nanos(60))));
        assert_eq!(zones.take_due(Nanos(59), UNUSED), None, "not yet");
        assert_eq!(zones.take(), Some(0), "before zones 3 and 4, which are empty");
        assert_eq!(zones.take_due(Nanos(60), UNUSED), Some(2));
        assert_eq!((zones.len(), zones.due(UNUSED)), (2, None), "nobody takes it meanwhile");
        zones.give(2);
        assert_eq!([zones.take(), zones.take(), zones.take(), zones.take()], [Some(2), Some(3), Some(4), None]);
    }

    #[test]
    fn half_of_what_is_free_is_empty() {
        const UNUSED: Duration = Duration::from_secs(10);
        let mut zones = FreeZones::all(4);
        (0..4).for_each(|zone| zones.occupy(zone));
        (0..4).for_each(|zone| zones.free(zone, Nanos(u64::from(zone))));
        for zone in [0, 1] {
            assert_eq!(zones.take_due(Nanos(100), UNUSED), Some(zone));
            zones.give(zone);
        }
        assert_eq!(zones.take_due(Nanos(100), UNUSED), None);
        assert_eq!(zones.due(UNUSED), Some(Nanos(2) + UNUSED));
        let mut zones = FreeZones::all(1);
        zones.occupy(0);
        zones.free(0, Nanos(0));
        assert_eq!(zones.take_due(Nanos(100), UNUSED), None, "the last one");
    }
}
