//! Parts told as one.

use super::*;

fn line(seat: u16, drive: &str, state: SeatState, missing: bool) -> MemberView {
    MemberView { seat, member: seat, state, missing, drive_name: drive.to_owned(), ..MemberView::default() }
}

#[test]
fn a_drive_that_failed_in_one_part_is_not_said_to_be_missing() {
    let of = |first: (SeatState, bool), second: (SeatState, bool)| {
        let mut all = vec![line(0, "d", first.0, first.1)];
        add_members(&mut all, vec![line(0, "d", second.0, second.1)], 2);
        let [one] = &all[..] else { panic!("{all:?}") };
        (one.state, one.missing)
    };
    let (failed, missing, here) = ((SeatState::Failed, false), (SeatState::Missing, true), (SeatState::In, false));
    for (first, second, want) in [
        (failed, missing, failed),
        (missing, failed, failed),
        (here, missing, missing),
        (missing, here, missing),
        (missing, missing, missing),
    ] {
        assert_eq!(of(first, second), want, "{first:?} {second:?}");
    }
    let gone = |missing| (SeatState::Replaced, missing);
    assert_eq!(of(gone(true), gone(false)), gone(false), "it failed somewhere");
}

#[test]
fn the_worst_part_is_what_is_told() {
    let of = |(state, may_fail, checkpoint_at, waits): (ArrayState, usize, Option<u64>, bool)| ArrayView {
        state,
        exposure: api::ExposureView { may_fail, rebuild_place: may_fail > 0, ..Default::default() },
        checkpoint_at,
        rebuild: Some(RebuildView { waits: waits.then(|| "room".to_owned()), ..RebuildView::default() }),
        ..ArrayView::default()
    };
    let good = (ArrayState::Optimal, 2, Some(70), true);
    for (bad, state, may_fail, checkpoint_at) in [
        ((ArrayState::Frozen, 0, None, true), ArrayState::Frozen, 0, None),
        ((ArrayState::Degraded, 0, Some(60), false), ArrayState::Degraded, 0, Some(60)),
        ((ArrayState::Rebuilding, 1, Some(80), true), ArrayState::Rebuilding, 1, Some(70)),
        ((ArrayState::Closed, 2, Some(70), false), ArrayState::Closed, 2, Some(70)),
    ] {
        for parts in [[good, bad], [bad, good]] {
            let whole = merged(parts.map(of).to_vec());
            assert_eq!((whole.state, whole.exposure.may_fail), (state, may_fail), "{parts:?}");
            assert_eq!(whole.exposure.rebuild_place, may_fail > 0, "{parts:?}");
            assert_eq!(whole.checkpoint_at, checkpoint_at, "{parts:?}");
            let rebuild = whole.rebuild.expect("both have one");
            assert_eq!(rebuild.waits.is_some(), bad.3, "one that goes on is one: {parts:?}");
        }
    }
    let [frozen, degraded] = [(ArrayState::Frozen, 0, None, true), (ArrayState::Degraded, 1, None, true)];
    for parts in [[frozen, degraded], [degraded, frozen]] {
        let whole = merged(parts.map(of).to_vec());
        assert_eq!((whole.state, whole.exposure.may_fail), (ArrayState::Frozen, 0), "{parts:?}");
    }
}

#[test]
fn members_stand_by_their_seats_and_the_older_of_two_first() {
    let mut all = vec![line(0, "a", SeatState::In, false), line(2, "c", SeatState::In, false)];
    let theirs = vec![line(2, "old", SeatState::Replaced, false), line(0, "a", SeatState::In, false)];
    MemberView::sort(&mut all);
    add_members(&mut all, theirs, 1);
    let names: Vec<&str> = all.iter().map(|m| m.drive_name.as_str()).collect();
    assert_eq!(names, ["a", "old", "c"]);
}
