//! The choice of members for a new segment.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::MemberId;
use ondisk::{MemberState, Scheme};

use crate::canary::{Canary, planted};
use crate::member::seat::Seat;

/// The parity scheme for `healthy` members: short of width, a smaller k, so that new writes keep full redundancy. The
/// full k with columns left out when there is no other way: fewer than `1 + m` members, or (`short`) no room.
pub fn parity_scheme(full: Scheme, healthy: usize, short: bool) -> Scheme {
    let short = short || planted(Canary::NarrowForgotten);
    if (short && healthy >= full.k()) || healthy >= full.width() {
        full
    } else {
        full.with_k(healthy.saturating_sub(full.tolerates()).max(1))
    }
}

/// The scheme of an array that was left with so many bays: as it was created, or narrower.
pub fn scheme_for(full: Scheme, bays: usize) -> Scheme {
    match full {
        Scheme::Parity { .. } => parity_scheme(full, bays, false),
        Scheme::Copies { copies, .. } => full.with_k((bays / usize::from(copies)).clamp(1, full.k())),
    }
}

/// A member's place among equals for segment `id`: another one each time (the finalizer of splitmix64).
fn shuffled(member: MemberId, id: u64) -> u64 {
    let x = (id << 16 | u64::from(member.0)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Members for a new segment, in column order, and its scheme; `None` when there is no room.
///
/// The emptiest members first; of equally empty ones any, so that each shares segments with all the others: when one is
/// lost, all give what its columns are made from. See [`parity_scheme`]; where
/// members have no room left, k gets smaller too.
pub fn choose(seats: &[Rc<Seat>], full: Scheme, id: u64, short: bool) -> Option<(Scheme, Vec<Option<MemberId>>)> {
    let short = short || planted(Canary::NarrowForgotten);
    let takes_part = |s: &&Rc<Seat>| s.takes_columns();
    let mut open: Vec<&Rc<Seat>> = seats.iter().filter(takes_part).filter(|s| s.zones_free() > 0).collect();
    let n = seats.len().max(1) as u64;
    open.sort_by_key(|s| (usize::MAX - s.zones_free(), shuffled(s.id, id)));
    let healthy = seats.iter().filter(takes_part).count();
    match full {
        Scheme::Parity { m, .. } => {
            let m = usize::from(m);
            let width = open.len().min(full.width());
            if short && healthy < full.width() && width >= full.k() {
                // Redundancy columns are left out first: reads stay direct.
                let mut columns: Vec<_> = open[..width].iter().map(|s| Some(s.id)).collect();
                columns.resize(full.width(), None);
                return Some((full, columns));
            }
            if width > m {
                let mut chosen: Vec<_> = open[..width].iter().map(|s| s.id).collect();
                chosen.sort_by_key(|&m| (u64::from(m.0) + id) % n);
                return Some((full.with_k(width - m), chosen.into_iter().map(Some).collect()));
            }
            // Fewer than 1 + m healthy members: one data column, and redundancy as far as it goes.
            if healthy > m || open.len() < healthy || open.is_empty() {
                return None;
            }
            let mut columns: Vec<_> = open.iter().map(|s| Some(s.id)).collect();
            columns.resize(1 + m, None);
            Some((full.with_k(1), columns))
        }
        Scheme::Copies { .. } => choose_copies(seats, &open, full, id, short),
    }
}

/// The members that hold each other's copies, fixed by bay, when the bays divide evenly; those that are out are
/// `None`.
pub fn copy_groups(seats: &[Rc<Seat>], copies: usize) -> Option<Vec<Vec<Option<Rc<Seat>>>>> {
    let mut bays: BTreeMap<u16, Option<Rc<Seat>>> = BTreeMap::new();
    let counts = |s: &&Rc<Seat>| matches!(s.state(), MemberState::In | MemberState::Out) && !s.leaves();
    for s in seats.iter().filter(counts) {
        // Two seats in one bay: the newcomer in, the old one out.
        let place = bays.entry(s.bay()).or_default();
        if s.is_in() {
            *place = Some(s.clone());
        }
    }
    let in_order: Vec<Option<Rc<Seat>>> = bays.into_values().collect();
    let even = in_order.len().is_multiple_of(copies);
    even.then(|| in_order.chunks(copies).map(<[_]>::to_vec).collect())
}

/// Whether new segments may use a group: whole ones, or, short of room or when none is whole, those with a member.
pub fn group_serves(groups: &[Vec<Option<Rc<Seat>>>], group: &[Option<Rc<Seat>>], short: bool) -> bool {
    let whole = |g: &[Option<Rc<Seat>>]| g.iter().all(Option::is_some);
    whole(group) || (group.iter().any(Option::is_some) && (short || !groups.iter().any(|g| whole(g))))
}

/// Groups of `copies` members: fixed by bay when the bays divide evenly, else any.
fn choose_copies(
    seats: &[Rc<Seat>],
    open: &[&Rc<Seat>],
    full: Scheme,
    id: u64,
    short: bool,
) -> Option<(Scheme, Vec<Option<MemberId>>)> {
    let (k, copies) = (full.k(), full.width() / full.k());
    let healthy = seats.iter().filter(|s| s.takes_columns()).count();
    let mut chosen: Vec<(usize, Vec<Option<MemberId>>)> = Vec::new();
    if let Some(groups) = copy_groups(seats, copies) {
        for g in groups.iter().filter(|g| group_serves(&groups, g, short)) {
            let room = g.iter().flatten().map(|s| s.zones_free()).min().unwrap_or(0);
            if room > 0 {
                chosen.push((room, g.iter().map(|s| s.as_ref().map(|s| s.id)).collect()));
            }
        }
    } else {
        if open.len() < copies && open.len() == healthy && !open.is_empty() {
            // Too few members for one group: one data column, and copies as far as they go.
            let mut group: Vec<Option<MemberId>> = open.iter().map(|s| Some(s.id)).collect();
            group.resize(copies, None);
            return Some((full.with_k(1), group));
        }
        let usable = (open.len() - open.len() % copies).min(k * copies);
        let mut members: Vec<MemberId> = open[..usable].iter().map(|s| s.id).collect();
        members.sort_by_key(|m| (u64::from(m.0) + id) % seats.len() as u64);
        chosen.extend(members.chunks(copies).map(|g| (1, g.iter().copied().map(Some).collect())));
    }
    chosen.sort_by_key(|(room, _)| usize::MAX - room);
    chosen.truncate(k);
    let mut groups: Vec<Vec<Option<MemberId>>> = chosen.into_iter().map(|(_, g)| g).collect();
    if groups.is_empty() {
        return None;
    }
    let turn = id as usize % groups.len();
    groups.rotate_left(turn);
    let mut columns = Vec::with_capacity(groups.len() * copies);
    for j in 0..copies {
        // Who of a group holds the data column takes turns, so that reads spread.
        columns.extend(groups.iter().map(|g| g[(j + id as usize) % copies]));
    }
    Some((Scheme::Copies { k: groups.len() as u8, copies: copies as u8 }, columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::MemberUuid;
    use ondisk::{Layout, Member};

    fn seats(states: &[MemberState]) -> Vec<Rc<Seat>> {
        let rt = rt::Rt::modelled(1);
        let layout = Layout { drive_blocks: 4096, slot_blocks: 256, zone_blocks: 64, zones: 64 };
        let seat = |(i, &state): (usize, &MemberState)| {
            let member = Member {
                uuid: MemberUuid::default(),
                state,
                bay: i as u16,
                drive_blocks: 4096,
                zones: 64,
                leaving: false,
                gone_since: base::Generation(0),
                why_out: ondisk::WhyOut::Unsaid,
                drive_name: String::new(),
            };
            let drive = rt::Drive::memory(&rt, "m", 1 << 24);
            Seat::new(MemberId(i as u16), &member, layout, Some(drive), &crate::member::guard::Guard::none())
        };
        states.iter().enumerate().map(seat).collect()
    }

    const IN: MemberState = MemberState::In;
    const OUT: MemberState = MemberState::Out;

    #[test]
    fn parity_shrinks_k_then_leaves_columns_out() {
        let full = Scheme::Parity { k: 2, m: 2 };
        for (states, k, placed) in [(vec![IN; 4], 2, 4), (vec![IN, IN, IN, OUT], 1, 3), (vec![IN, IN, OUT, OUT], 1, 2)]
        {
            let (scheme, columns) = choose(&seats(&states), full, 5, false).unwrap();
            assert_eq!((scheme.k(), columns.iter().flatten().count()), (k, placed), "{states:?}");
            assert_eq!(columns.len(), scheme.width());
        }
    }

    #[test]
    fn copies_stay_in_their_pairs() {
        let full = Scheme::Copies { k: 3, copies: 2 };
        let pair_of = |m: MemberId| m.0 / 2;
        for id in 0..6 {
            let (scheme, columns) = choose(&seats(&[IN; 6]), full, id, false).unwrap();
            assert_eq!(scheme.k(), 3);
            for c in 0..3 {
                assert_eq!(pair_of(columns[c].unwrap()), pair_of(columns[c + 3].unwrap()));
                assert_ne!(columns[c], columns[c + 3]);
            }
        }
        let (scheme, columns) = choose(&seats(&[IN, OUT, IN, IN, IN, IN]), full, 0, false).unwrap();
        assert_eq!(scheme.k(), 2);
        assert!(columns.iter().all(Option::is_some));
        let (scheme, columns) = choose(&seats(&[IN, OUT]), full, 0, false).unwrap();
        assert_eq!((scheme.k(), columns.iter().flatten().count()), (1, 1));
    }

    #[test]
    fn short_of_room_columns_are_left_out() {
        let full = Scheme::Parity { k: 2, m: 2 };
        let (scheme, columns) = choose(&seats(&[IN, IN, IN, OUT]), full, 5, true).unwrap();
        assert_eq!((scheme, columns.iter().flatten().count()), (full, 3));
        assert_eq!(columns[3], None, "a redundancy column");
        let full = Scheme::Copies { k: 2, copies: 2 };
        let (scheme, columns) = choose(&seats(&[IN, OUT, IN, IN]), full, 5, true).unwrap();
        assert_eq!((scheme.k(), columns.iter().flatten().count()), (2, 3));
    }

    #[test]
    fn every_member_shares_segments_with_every_other() {
        let seats = seats(&[IN; 12]);
        let mut together = std::collections::BTreeSet::new();
        for id in 0..60 {
            let (_, columns) = choose(&seats, Scheme::Parity { k: 3, m: 1 }, id, false).unwrap();
            let members: Vec<MemberId> = columns.into_iter().flatten().collect();
            for m in &members {
                seats[usize::from(m.0)].take_zone();
                together.extend(members.iter().map(|other| (*m, *other)));
            }
        }
        assert_eq!(together.len(), 12 * 12, "all of them, in 20 rounds over three disjoint segments");
    }

    #[test]
    fn no_member_twice_and_order_rotates() {
        let seats = seats(&[IN; 5]);
        let mut firsts = std::collections::BTreeSet::new();
        for id in 0..5 {
            let (_, columns) = choose(&seats, Scheme::Parity { k: 4, m: 1 }, id, false).unwrap();
            let distinct: std::collections::BTreeSet<_> = columns.iter().flatten().collect();
            assert_eq!(distinct.len(), 5);
            firsts.insert(columns[0]);
        }
        assert_eq!(firsts.len(), 5);
    }
}
