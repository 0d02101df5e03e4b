//! What one core is asked for: all of a load, or its share of one that several cores generate together.

use std::ops::Range;

use crate::generate::FILL_BLOCK_BYTES;
use crate::load::{Load, Order, Until};

/// A load, where, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) load: Load,
    pub(crate) working_set: Range<u64>,
    pub(crate) until: Until,
    pub(crate) seed: u64,
}

impl Share {
    /// The shares of so many cores: the depth is divided, one request each at least; so are requests, bytes and a limit of
    /// requests a second. Addresses of random loads are of the whole working set, with a seed for each core; of a
    /// sequential load each core has a stream of its own, through its part of the working set.
    ///
    /// Where each core has a target of its own (`apart`), so many of them make up the working set, each as large.
    pub(crate) fn split(&self, cores: usize, apart: bool) -> Vec<Share> {
        let one = |core: usize| {
            let number = cores as u64;
            let of = |all: u64| {
                let piece = piece(all, core as u64, number);
                piece.end - piece.start
            };
            Share {
                load: Load {
                    depth: (of(self.load.depth as u64) as usize).max(1),
                    iops_max: self.load.iops_max.map(|most| of(most).max(1)),
                    ..self.load
                },
                working_set: match self.load.pattern.order {
                    _ if apart => self.of_own(number),
                    Order::Sequential => self.stream(core as u64, number),
                    Order::Random | Order::Skewed => self.working_set.clone(),
                },
                until: match self.until {
                    Until::Elapsed { time, bytes_max } => Until::Elapsed { time, bytes_max: bytes_max / number },
                    Until::Requests(all) => Until::Requests(of(all)),
                },
                seed: self.seed.wrapping_add((core as u64) << 32),
            }
        };
        (0..cores).map(one).collect()
    }

    /// The stream of one core, of whole requests.
    fn stream(&self, core: u64, cores: u64) -> Range<u64> {
        let (start, block) = (self.working_set.start, u64::from(self.load.block_bytes));
        let places = (self.working_set.end - start) / block;
        if places < cores {
            return self.working_set.clone();
        }
        let own = piece(places, core, cores);
        start + own.start * block..start + own.end * block
    }

    /// What each core works on of a target of its own: whole requests that fill, so that all loads have the same, where it
    /// is as large as one.
    fn of_own(&self, cores: u64) -> Range<u64> {
        let (fill, block) = (u64::from(FILL_BLOCK_BYTES), u64::from(self.load.block_bytes));
        let unit = if self.working_set.end / cores < fill { block } else { fill };
        let of = |bytes: u64| bytes / cores / unit * unit;
        of(self.working_set.start)..of(self.working_set.end)
    }
}

/// The piece of one of several who divide `all` among them: pieces lie behind each other, and differ by one at most.
fn piece(all: u64, index: u64, of: u64) -> Range<u64> {
    let (each, more) = (all / of, all % of);
    let start = |index: u64| each * index + index.min(more);
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Pattern;

    const MIB: u64 = 1 << 20;

    fn share(load: Load, bytes: u64, until: Until) -> Share {
        Share { load, working_set: 0..bytes, until, seed: 7 }
    }

    #[test]
    fn pieces_make_up_the_whole() {
        for (all, of) in [(0, 3), (2, 3), (7, 3), (64, 4), (u64::MAX / 8, 5)] {
            let pieces: Vec<_> = (0..of).map(|index| piece(all, index, of)).collect();
            assert_eq!((pieces[0].start, pieces[of as usize - 1].end), (0, all));
            assert!(pieces.windows(2).all(|two| two[0].end == two[1].start));
            assert!(pieces.iter().all(|p| (all / of..=all / of + 1).contains(&(p.end - p.start))));
        }
    }

    #[test]
    fn random_loads_share_the_working_set() {
        let load = Load { iops_max: Some(1001), ..Load::new(Pattern::RANDOM_WRITE, 4096, 5) };
        let shares = share(load, MIB, Until::Requests(9)).split(2, false);
        assert_eq!(shares.iter().map(|s| s.load.depth).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(shares.iter().map(|s| s.load.iops_max).collect::<Vec<_>>(), [Some(501), Some(500)]);
        assert_eq!(shares.iter().map(|s| s.until).collect::<Vec<_>>(), [Until::Requests(5), Until::Requests(4)]);
        assert!(shares.iter().all(|s| s.working_set == (0..MIB)));
        assert!(shares[0].seed == 7 && shares[1].seed != 7);
        let alone = share(load.at_depth(1), MIB, Until::Requests(9)).split(3, false);
        assert!(alone.iter().all(|s| s.load.depth == 1), "each asks for something");
    }

    #[test]
    fn sequential_loads_are_a_stream_for_each_core() {
        let load = Load::new(Pattern::SEQUENTIAL_WRITE, FILL_BLOCK_BYTES, 8);
        let time = Until::Elapsed { time: Duration::from_secs(1), bytes_max: 12 * MIB };
        let shares = share(load, 7 * MIB, time).split(3, false);
        let sets: Vec<_> = shares.iter().map(|s| s.working_set.clone()).collect();
        assert_eq!(sets, [0..3 * MIB, 3 * MIB..5 * MIB, 5 * MIB..7 * MIB]);
        assert_eq!(shares[2].until, Until::Elapsed { time: Duration::from_secs(1), bytes_max: 4 * MIB });
        assert!(share(load, MIB, time).split(2, false).iter().all(|s| s.working_set == (0..MIB)));
    }

    #[test]
    fn cores_with_a_target_of_their_own_have_the_same_part_of_the_bytes_under_all_loads() {
        for pattern in [Pattern::SEQUENTIAL_WRITE, Pattern::RANDOM_READ] {
            let shares = share(Load::new(pattern, 4096, 8), 7 * MIB, Until::Requests(9)).split(2, true);
            assert!(shares.iter().all(|s| s.working_set == (0..3 * MIB)), "{pattern}");
        }
        let tiny = share(Load::new(Pattern::RANDOM_READ, 4096, 8), MIB, Until::Requests(9)).split(3, true);
        assert!(tiny.iter().all(|s| s.working_set == (0..MIB / 3 / 4096 * 4096)));
    }
}
