//! Scrubs: what rots is found and right again, what is being written is left alone.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{AlarmCode, ScrubKind, ScrubRunView};
use array::{OpenHow, ScrubPlan};
use base::{BlockCount, MemberLba};
use ondisk::Level;
use rt::model::{Disk, OpKind, Verdict};

use crate::world::{Process, World};

/// Runs a scrub to its end.
fn scrub(p: &Process<'_>, kind: ScrubKind) -> ScrubRunView {
    p.array().scrub_start(kind, true).unwrap();
    let array = p.array();
    p.run(async move { array.scrub_done().await });
    p.array().status().scrub.last.unwrap()
}

fn found(run: &ScrubRunView) -> (u64, u64, u64, u64) {
    let sum = |of: fn(&api::ScrubFoundView) -> u64| run.found.iter().map(of).sum();
    (sum(|f| f.found), sum(|f| f.repaired), sum(|f| f.not_held), sum(|f| f.lost))
}

fn spoil(disk: &Disk, at: MemberLba) {
    let mut block = disk.image_read(at, BlockCount(1));
    block[77] ^= 0x10;
    disk.image_write(at, &block);
}

/// A block of each kind rots: overwritten data, live data, a record header, redundancy, a label, a generation. A scrub finds
/// them all, and the drives hold what they held.
pub fn it_finds_and_repairs_what_rots() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 0xd1, 9).unwrap();
    p.write(0, 0xd2, 9).unwrap();
    p.checkpoint();
    assert_eq!(found(&scrub(&p, ScrubKind::Parity)), (0, 0, 0, 0), "nothing rots");
    let before = world.fork();
    let of = |tag: u8| world.blocks(|b| b.iter().all(|&x| x == tag)).into_iter().find(|(i, ..)| *i == 1);
    let header = world.headers().into_iter().find(|(i, ..)| *i == 1).map(|(i, at, _)| (i, at));
    let (dead, live) = (of(0xd1).unwrap(), of(0xd2).unwrap());
    let layout = world.label(1).layout;
    let newest = world.newest(1).0;
    let mut wrong = vec![dead.1, live.1, layout.labels()[1], layout.slot((newest % 2) as usize)];
    wrong.extend(header.map(|(_, at)| at));
    for at in &wrong {
        spoil(&world.disks[1], *at);
    }
    let n = wrong.len() as u64;
    assert_eq!(found(&scrub(&p, ScrubKind::Media)), (n, n, 0, 0));
    // What rots is not what a drive fails: each has a figure of its own.
    let status = p.array().status();
    let told: Vec<_> = status.members.iter().map(|m| (m.seat, m.mismatches > 0, m.errors)).collect();
    assert_eq!(told, [(0, false, 0), (1, true, 0), (2, false, 0), (3, false, 0)], "{:#?}", status.members);
    // Redundancy: what no header speaks of.

    let (disk, at) = *world.columns(&world.headers()[0].2).last().unwrap();
    spoil(&world.disks[disk], at);
    assert_eq!(found(&scrub(&p, ScrubKind::Media)), (0, 0, 0, 0), "a patrol read does not look at it");
    assert_eq!(found(&scrub(&p, ScrubKind::Parity)), (1, 1, 0, 0));
    for (disk, at) in wrong[..3].iter().map(|at| (1, *at)).chain([(disk, at)]).chain(header) {
        let (now, was) = (&world.disks[disk], &before.disks[disk]);
        assert!(now.image_read(at, BlockCount(1)) == was.image_read(at, BlockCount(1)), "drive {disk}, block {at}");
    }
    p.close();
    assert!(world.check().ok());
}

/// Rows that are not complete on every member are nobody's business yet.
pub fn it_leaves_rows_in_flight_alone() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    p.write(0, 1, 8).unwrap();
    world.delay_a_write(900_000_000);
    let write = p.begin_write(100, 2, 8);
    p.wait(Duration::from_millis(1));
    let run = scrub(&p, ScrubKind::Parity);
    assert!(!write.is_finished(), "it is still being written");
    assert_eq!(found(&run), (0, 0, 0, 0), "{:#?}", p.array().status().events);
    p.wait(Duration::from_secs(1));
    assert!(p.is(100, 2, 8));
}

/// A place that does not hold what is written back is found out, and its segment is emptied.
pub fn a_place_that_does_not_hold_is_emptied() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(3);
    p.write(0, 0xe1, 30).unwrap();
    p.checkpoint();
    let (disk, at, _) = world.blocks(|b| b.iter().all(|&x| x == 0xe1)).remove(0);
    spoil(&world.disks[disk], at);
    world.on_ops(move |i, op, _| {
        let there = i == disk && (op.at.0..op.at.0 + op.blocks.0).contains(&at.0);
        if op.kind == OpKind::Write && there { Verdict::LoseWrite } else { Verdict::Proceed }
    });
    let run = scrub(&p, ScrubKind::Parity);
    assert_eq!(found(&run), (1, 0, 1, 0));
    assert!(p.array().moved_blocks() >= 30, "what is live there is moved: {:#?}", p.array().status().events);
    world.no_hooks();
    assert!(p.is(0, 0xe1, 30));
}

/// A segment is given back while a scrub looks closer at what is wrong in it: that is nobody's any more.
pub fn what_is_given_back_meanwhile_is_no_finding() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(3);
    (0..10).for_each(|n| p.write(n * 60, 0xe1, 60).unwrap());
    p.checkpoint();
    let (disk, at, _) = world.blocks(|b| b.iter().all(|&x| x == 0xe1)).remove(0);
    spoil(&world.disks[disk], at);
    let looks_closer = Rc::new(Cell::new(false));
    let closer = looks_closer.clone();
    world.on_ops(move |i, op, _| {
        let there = i == disk && op.at == at && op.blocks.0 == 1 && op.kind == OpKind::Read;
        closer.set(closer.get() || there);
        if there { Verdict::DelayNs(900_000_000) } else { Verdict::Proceed }
    });
    p.array().scrub_start(ScrubKind::Media, true).unwrap();
    (0..300).take_while(|_| !looks_closer.get()).for_each(|_| p.wait(Duration::from_millis(10)));
    assert!(looks_closer.get());
    (0..10).for_each(|n| p.write(n * 60, 0xe2, 60).unwrap());
    p.checkpoint();
    let array = p.array();
    p.run(async move { array.scrub_done().await });
    let run = p.array().status().scrub.last.unwrap();
    assert_eq!(found(&run), (0, 0, 0, 0), "{:#?}", p.array().status().events);
    (0..10).for_each(|n| assert!(p.is(n * 60, 0xe2, 60)));
}

/// A restart goes on where the scrub was.
pub fn it_goes_on_after_a_restart() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(4);
    for i in 0..120u64 {
        p.write(i * 16, i as u8, 16).unwrap();
    }
    p.checkpoint();
    // About a segment in two seconds.
    let slow = ScrubPlan { bytes_per_second: Some(1 << 20), ..ScrubPlan::default() };
    let array = p.array();
    p.run(async move { array.scrub_schedule(slow).await }).unwrap();
    p.array().scrub_start(ScrubKind::Media, false).unwrap();
    p.wait(Duration::from_secs(6));
    let half = p.array().status().scrub.running.expect("it takes longer");
    assert!(half.segments_done > 1, "{half:?}");
    // Its place is written down with the next generation.
    p.checkpoint();
    p.kill(1);
    let p = world.start(5);
    p.wait(Duration::from_secs(1));
    let rest = p.array().status().scrub.running.expect("it goes on");
    let events = p.array().status().events;
    assert!(events.iter().any(|e| e.text.contains("resumes at segment")), "{rest:?} after {half:?}: {events:#?}");
    let array = p.array();
    let faster = ScrubPlan { bytes_per_second: Some(1 << 30), ..ScrubPlan::default() };
    p.run(async move { array.scrub_schedule(faster).await }).unwrap();
    let array = p.array();
    p.run(async move { array.scrub_done().await });
    let status = p.array().status().scrub;
    assert!(status.last.is_some_and(|run| run.finished) && status.media.finished_at > 0);
    p.close();
    let p = world.start(6);
    p.wait(Duration::from_secs(1));
    assert!(p.array().status().scrub.running.is_none(), "it has ended");
}

/// What cannot be made from its row is an error for exactly those blocks, durably, without anybody having read them.
pub fn what_it_cannot_repair_is_bad_for_good() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(7);
    p.write(0, 0xf1, 40).unwrap();
    p.checkpoint();
    // Two blocks of one row.
    let blocks = world.blocks(|b| b.iter().all(|&x| x == 0xf1));
    let rows = world.headers();
    let (_, _, h) = rows.iter().find(|(_, _, h)| h.rows > 3).expect("a record of several rows");
    let columns = world.columns(h);
    for (disk, at) in &columns[..2] {
        let at = MemberLba(at.0 + 2);
        assert!(blocks.iter().any(|(i, there, _)| i == disk && *there == at));
        spoil(&world.disks[*disk], at);
    }
    let run = scrub(&p, ScrubKind::Media);
    assert_eq!(found(&run), (2, 0, 0, 2), "{:#?}", p.array().status().events);
    p.checkpoint();
    p.close();
    // Somebody puts the old contents back: they are not believed any more.
    for (disk, at) in &columns[..2] {
        spoil(&world.disks[*disk], MemberLba(at.0 + 2));
    }
    let p = world.start(8);
    let lost: Vec<u64> = (0..40).filter(|lba| p.read(*lba, 1).is_err()).collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!((0..40).all(|lba| lost.contains(&lba) || p.is(lba, 0xf1, 1)));
    p.write(lost[0], 1, 1).unwrap();
    assert!(p.is(lost[0], 1, 1));
}

/// By itself when it is due, and not before.
pub fn it_runs_when_it_is_due() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(9);
    p.write(0, 1, 8).unwrap();
    p.wait(Duration::from_secs(6 * 24 * 3600));
    assert!(p.array().status().scrub.last.is_none(), "after six days");
    p.wait(Duration::from_secs(2 * 24 * 3600));
    assert!(p.array().status().scrub.last.is_some_and(|run| run.finished), "after eight");
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The clock was years ahead when a scrub ran, before a restart or while the array is served: by the right clock the next
/// one is due, once.
pub fn a_start_in_the_future_is_none() {
    let years = 14 * 365 * DAY;
    for restart in [true, false] {
        let world = World::new(3, false);
        world.create(Level::Raid5);
        let mut p = world.start_later(9, if restart { years } else { Duration::ZERO }, OpenHow::default());
        let right = p.rt.unix_seconds();
        if !restart {
            p.rt.set_unix_seconds(right + years.as_secs());
        }
        scrub(&p, ScrubKind::Parity);
        if restart {
            p.close();
            p = world.start(10);
        } else {
            p.rt.set_unix_seconds(right);
        }
        let begun_of = |p: &Process<'_>| p.array().status().scrub.media.started_at;
        let count =
            |p: &Process<'_>| p.array().status().events.iter().filter(|e| e.text.contains("scrub begins")).count();
        let before = count(&p);
        p.wait(2 * Duration::from_secs(3600));
        assert_eq!(count(&p), before + 1, "one scrub: {:#?}", p.array().status().events);
        assert!(begun_of(&p) <= p.rt.unix_seconds(), "it is known when");
        p.wait(5 * DAY);
        assert_eq!(count(&p), before + 1, "not before it is due: {:#?}", p.array().status().events);
    }
}

/// An array that was not served for long has an alarm until it is scrubbed.
pub fn one_that_is_overdue_is_told() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let overdue = |p: &Process<'_>| {
        let alarms = p.array().status().alarms.into_iter();
        alarms
            .filter(|a| a.code == api::AlarmCode::ScrubOverdue)
            .map(|a| a.what.split(' ').nth(1).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let read_only = OpenHow { read_only: true, ..OpenHow::default() };
    for (days, told) in [(13, &[][..]), (15, &["media"]), (61, &["media", "parity"])] {
        let p = world.start_later(9, days * DAY, read_only);
        assert_eq!(overdue(&p), told, "after {days} days");
        p.close();
    }
    let p = world.start_later(9, 61 * DAY, OpenHow::default());
    p.wait(Duration::from_secs(60));
    assert!(overdue(&p).is_empty());
}

/// A rate at which a scrub cannot end before the next one begins is an alarm, until it is put right.
pub fn a_rate_that_is_too_low_is_told() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..20u64).for_each(|i| p.write(i * 32, 1, 32).unwrap());
    p.checkpoint();
    let slow = |p: &Process<'_>| p.array().status().alarms.iter().any(|a| a.code == AlarmCode::ScrubTooSlow);
    let plan = |rate| ScrubPlan { bytes_per_second: Some(rate), ..ScrubPlan::default() };
    for (rate, told) in [(0, false), (1, true), (1 << 20, false), (5, true), (0, false)] {
        p.rt.block_on(p.array().scrub_schedule(plan(rate))).unwrap();
        assert_eq!(slow(&p), told, "{rate} bytes/s");
    }
    let rare = ScrubPlan { media_hours: Some(0), parity_hours: Some(10_000), bytes_per_second: Some(5) };
    p.rt.block_on(p.array().scrub_schedule(rare)).unwrap();
    assert!(!slow(&p), "it has a year");
}
