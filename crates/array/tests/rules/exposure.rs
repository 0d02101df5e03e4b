//! What `status` says of how bad it is: how many drives may fail now, which are out, and what raises an alarm.

use std::time::Duration;

use api::{AlarmCode, ArrayState, ArrayView, SeatState, Severity};
use base::MemberId;
use ondisk::Level;
use rt::model::DiskParams;

use crate::world::{BLOCK, DEGRADED, Process, World};

/// Blocks of the volume that are written.
const BLOCKS: u64 = 160;

fn fill(p: &Process<'_>, tag: u8) {
    (0..BLOCKS).step_by(16).for_each(|lba| p.write(lba, tag, 16).unwrap());
    p.flush().unwrap();
}

fn fail(p: &Process<'_>, seat: u16) {
    let array = p.array();
    p.run(async move { array.drive_fail(MemberId(seat)).await }).unwrap();
}

fn pause(p: &Process<'_>, paused: bool) {
    let array = p.array();
    p.run(async move { array.rebuild_pause(paused).await }).unwrap();
}

fn rebuilt(p: &Process<'_>) -> ArrayView {
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    p.array().status()
}

fn codes(status: &ArrayView) -> Vec<(&str, Option<u16>)> {
    status.alarms.iter().map(|a| (a.code.as_str(), a.seat)).collect()
}

/// Seen by an operator: state, drives that may fail, whether a further loss has a place.
fn seen(status: &ArrayView) -> (ArrayState, usize, bool) {
    (status.state, status.exposure.may_fail, status.exposure.rebuild_place)
}

/// Any further loss of as many drives as it says is survived, and one more is not promised.
fn is_true(world: &World, status: &ArrayView, tag: u8) {
    let there: Vec<usize> = (0..world.disks.len())
        .filter(|i| status.members.iter().any(|m| m.drive_name == world.disks[*i].name() && m.state == SeatState::In))
        .collect();
    for lost in &there {
        let mut less = world.fork();
        let keep = |i: &usize| there.contains(i) && (status.exposure.may_fail == 0 || i != lost);
        let disks = less.disks.drain(..).enumerate().filter(|(i, _)| keep(i)).map(|(_, d)| d).collect();
        less.disks = disks;
        let p = less.start_how(7, DEGRADED);
        assert_ne!(p.array().state(), ArrayState::Frozen, "drive {lost} lost: {status:#?}");
        assert!((0..BLOCKS).step_by(16).all(|lba| p.is(lba, tag, 16)), "drive {lost} lost: {status:#?}");
        p.close();
    }
}

/// Width 3 over five drives, which fail one after the other: each step is told apart, and true.
pub fn each_loss_of_a_declustered_array_is_told_apart() {
    let world = World::new(5, false);
    world.create_of_width(Level::Raid5, 3, 64, 16 << 20);
    let p = world.start(1);
    fill(&p, 1);
    let whole = p.array().status();
    assert_eq!((seen(&whole), whole.alarms.len()), ((ArrayState::Optimal, 1, true), 0));
    let mut told = vec![seen(&whole)];
    for seat in [0, 1] {
        pause(&p, true);
        fail(&p, seat);
        let degraded = p.array().status();
        assert_eq!(degraded.exposure.may_fail, 0, "{:#?}", degraded.exposure);
        assert_eq!(degraded.state, ArrayState::Degraded);
        assert_eq!(
            (degraded.alarms[0].code.as_str(), degraded.alarms[0].severity),
            (AlarmCode::NoRedundancy.word(), Severity::Critical)
        );
        assert!(codes(&degraded).contains(&(AlarmCode::DriveFailed.word(), Some(seat))), "{:#?}", degraded.alarms);
        is_true(&world, &degraded, 1);
        pause(&p, false);
        let whole = rebuilt(&p);
        assert_eq!(whole.exposure.failed, (0..=seat).collect::<Vec<_>>());
        is_true(&world, &whole, 1);
        told.push(seen(&whole));
    }
    // Three drives are left for three columns: the next loss has no place.
    let rebuilt = ArrayState::Rebuilt;
    assert_eq!(told, [(ArrayState::Optimal, 1, true), (rebuilt, 1, true), (rebuilt, 1, false)]);
    assert_eq!(codes(&p.array().status())[0], (AlarmCode::NoRebuildPlace.word(), None));
    fail(&p, 2);
    let last = p.array().status();
    assert_eq!(last.exposure.may_fail, 0, "{last:#?}");
    p.kill(1);
}

/// Full width: RAID 6 counts down, and says the level's own number again once the drives are replaced or rebuilt.
pub fn what_may_fail_counts_down() {
    let worlds =
        [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10 { copies: 2 }, 4), (Level::Raid10 { copies: 3 }, 6)];
    for (level, drives) in worlds {
        let world = World::new(drives, false);
        world.create(level);
        let p = world.start(1);
        pause(&p, true);
        fill(&p, 1);
        assert_eq!(p.array().status().exposure.may_fail, level.tolerates());
        for lost in 1..=level.tolerates() {
            fail(&p, lost as u16 - 1);
            let status = p.array().status();
            assert_eq!(status.exposure.may_fail, level.tolerates() - lost, "{level}, {lost} lost");
            let worst = if lost == level.tolerates() { Severity::Critical } else { Severity::Warning };
            assert_eq!(status.alarms[0].severity, worst, "{level}: {:#?}", status.alarms);
            is_true(&world, &status, 1);
        }
        p.kill(1);
    }
}

/// What was rebuilt and no generation names counts as it was: who opens the array after a power cut knows the generation alone.
pub fn what_no_generation_names_may_not_fail() {
    let world = World::new(5, false);
    world.create_of_width(Level::Raid5, 3, 64, 16 << 20);
    let p = world.start(1);
    // So full of live blocks that its segments are restored, not cleaned.
    (0..1600).step_by(16).for_each(|lba| p.write(lba, 1, 16).unwrap());
    fill(&p, 1);
    p.checkpoint();
    pause(&p, true);
    fail(&p, 0);
    pause(&p, false);
    for _ in 0..200_000 {
        let status = p.array().status();
        let survives = status.exposure.may_fail > 0;
        if survives {
            is_true(&world, &status, 1);
        }
        if survives && status.state == ArrayState::Rebuilt {
            p.kill(1);
            return;
        }
        p.wait(std::time::Duration::from_micros(5));
    }
    panic!("it is never rebuilt: {:#?}", p.array().status());
}

/// An array that is full says so until enough was given back, and no longer: also when nobody writes any more.
pub fn what_is_given_back_ends_the_alarm() {
    let world = World::of(3, DiskParams { bytes: (8 << 20) + (66 << 18), ..DiskParams::default() });
    world.create_with(Level::Raid5, 64, 1 << 30);
    let p = world.start(1);
    let full = || p.array().status().alarms.iter().any(|alarm| alarm.code == AlarmCode::Full);
    let fits = (0..4096).position(|piece| p.write(piece * 64, 1, 64).is_err()).unwrap() as u64;
    assert!(full());
    let v = p.v();
    p.run(async move { v.deallocate(0, fits / 2 * 64 * BLOCK, false).await }).unwrap();
    for _ in 0..10 {
        p.wait(Duration::from_secs(1));
        if !full() {
            return;
        }
    }
    panic!("half of it was given back, and it is called full");
}
