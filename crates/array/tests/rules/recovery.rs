//! Recovery: what it finds, what it believes, what it writes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{Array, OpenHow, RefusedCode};
use base::{BlockCount, MemberId};
use ondisk::Level;
use rt::model::{Disk, OpKind, Verdict};
use rt::{Drive, IoError, Rt};

use crate::world::{BLOCK, DEGRADED, World, ZONE};

/// Acknowledged entries are replayed, those too that were in flight when the memtable was frozen.
pub fn acknowledged_entries_are_replayed() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 1, 5).unwrap();
    p.rt.block_on(p.array().volume_create("w", 1 << 20)).unwrap();
    world.delay_a_write(1_000_000_000);
    let late = p.begin_write(100, 2, 5);
    p.wait(Duration::from_millis(1));
    p.rt.block_on(p.array().volume_create("x", 1 << 20)).unwrap();
    p.kill(1);
    drop(late);
    assert!(world.start(2).is(0, 1, 5));

    let p = world.start(3);
    // What the open asked for is done.
    p.wait(Duration::from_secs(1));
    world.delay_a_write(1_000_000_000);
    let late = p.begin_write(200, 3, 5);
    p.wait(Duration::from_millis(1));
    p.checkpoint();
    assert!(!late.is_finished());
    p.rt.block_on(late).unwrap();
    p.kill(1);
    let p = world.start(4);
    assert!(p.is(200, 3, 5) && p.is(0, 1, 5));
}

/// Record headers carry the generation; a recovery that meets a newer one than it chose stops.
pub fn a_record_of_a_newer_generation_stops_it() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(8);
    p.write(0, 1, 3).unwrap();
    p.rt.block_on(p.array().volume_create("w", 1 << 20)).unwrap();
    let number = p.array().status().generation;
    // Goes to the segment that the generation before listed too.
    p.write(9, 2, 3).unwrap();
    assert_eq!(p.array().status().generation, number);
    p.kill(1);
    for i in 0..3 {
        let slot = world.label(i).layout.slot((number % 2) as usize);
        world.disks[i].image_write(slot, &[0; BLOCK as usize]);
    }
    let refused = world.refused(&world.disks, DEGRADED);
    assert_eq!(refused.code, RefusedCode::MembersMissing, "{refused}");
}

/// When every copy of the newest generation is lost, what was written under it is not forgotten silently: its segments
/// may be in no list that is left.
pub fn records_of_a_lost_generation_stop_it() {
    let world = World::new(1, false);
    world.create(Level::Raid0);
    world.start(1).close();
    let p = world.start(2);
    p.write(0, 1, 3).unwrap();
    let number = p.array().status().generation;
    p.kill(1);
    let slot = world.label(0).layout.slot((number % 2) as usize);
    world.disks[0].image_write(slot, &[0xee; BLOCK as usize]);
    let refused = world.refused(&world.disks, OpenHow::default());
    assert!(matches!(refused.code, RefusedCode::Damaged | RefusedCode::MembersMissing), "{refused}");
}

/// A header lost below a durable row is damage and stops recovery; at the tail it is a cut.
pub fn a_lost_durable_header_stops_it_and_a_torn_tail_does_not() {
    for lose_last in [false, true] {
        let world = World::new(1, false);
        world.create(Level::Raid0);
        let p = world.start(10);
        for i in 0..6u8 {
            p.write(u64::from(i), i + 1, 1).unwrap();
        }
        let epoch = p.array().status().epoch;
        p.kill(1);
        let of_epoch = world.headers().into_iter().filter(|(_, _, h)| h.epoch.0 == epoch);
        let mut headers: Vec<_> = of_epoch.collect();
        headers.sort_by_key(|(_, _, h)| (h.segment, h.row));
        assert_eq!(headers.len(), 6);
        let (_, at, _) = if lose_last { &headers[5] } else { &headers[2] };
        world.disks[0].image_write(*at, &[0xee; BLOCK as usize]);
        if lose_last {
            assert!(world.start(11).is(4, 5, 1));
        } else {
            assert_eq!(world.refused(&world.disks, DEGRADED).code, RefusedCode::Damaged);
        }
    }
}

/// A durable header is lost, and behind it lies a block that cannot be read: the records around that one still tell.
pub fn one_bad_block_hides_no_record_beside_it() {
    let world = World::new(1, false);
    world.create(Level::Raid0);
    let p = world.start(10);
    for i in 0..6u8 {
        p.write(u64::from(i), i + 1, 1).unwrap();
    }
    let records = world.records_of(p.array().status().epoch);
    p.kill(1);
    world.lose(&records[2..3], None);
    let (_, bad) = world.columns(&records[3])[0];
    world.on_ops(move |_, op, _| match op.kind {
        OpKind::Read if op.at <= bad && bad < op.at + op.blocks => Verdict::Fail(IoError::Medium),
        _ => Verdict::Proceed,
    });
    assert_eq!(world.refused(&world.disks, DEGRADED).code, RefusedCode::Damaged);
}

/// A record beyond a cut is void for ever, also when a later one ends where it begins.
pub fn what_was_void_stays_void() {
    let world = World::new(3, true);
    world.create(Level::Raid5);
    let p = world.start(1);
    let epoch = p.array().status().epoch;
    p.write(300, 4, 1).unwrap();
    p.flush().unwrap();
    p.write(0, 1, 1).unwrap();
    p.write(100, 2, 1).unwrap();
    p.kill(1);
    let records = world.records_of(epoch);
    assert_eq!(records.len(), 3);
    world.lose(&records[1..2], None);
    let p = world.start(2);
    assert!(p.is(0, 0, 1) && p.is(100, 0, 1), "the first never arrived, the second lies behind it");
    // As long as the one that was lost: the void one lies right behind it.
    p.write(200, 3, 1).unwrap();
    p.kill(2);
    let p = world.start(3);
    assert!(p.is(100, 0, 1), "what was void came back");
    assert!(p.is(200, 3, 1) && p.is(300, 4, 1));
}

/// A drive that hung lands a header of an older life over the one that took its place: the rest of the row knows better.
pub fn a_late_header_of_an_older_life_is_not_believed() {
    let world = World::new(3, true);
    world.create(Level::Raid5);
    let p = world.start(1);
    let epoch = p.array().status().epoch;
    p.write(300, 4, 1).unwrap();
    p.flush().unwrap();
    p.write(0, 1, 1).unwrap();
    p.kill(1);
    let records = world.records_of(epoch);
    let (disk, at) = world.columns(&records[1])[0];
    let late = world.disks[disk].image_read(at, BlockCount(1));
    world.lose(&records[1..], None);
    let p = world.start(2);
    p.write(200, 3, 1).unwrap();
    p.flush().unwrap();
    p.kill(2);
    world.disks[disk].image_write(at, &late);
    let p = world.start(3);
    assert!(p.is(200, 3, 1) && p.is(300, 4, 1) && p.is(0, 0, 1));
}

/// A header that is lost in two of three copies is found in the third.
pub fn a_header_is_looked_for_in_every_copy() {
    let world = World::new(3, false);
    world.create(Level::Raid10 { copies: 3 });
    let p = world.start(1);
    let epoch = p.array().status().epoch;
    p.write(0, 1, 3).unwrap();
    p.kill(1);
    let records = world.records_of(epoch);
    for (disk, at) in world.columns(&records[0]).into_iter().take(2) {
        world.disks[disk].image_write(at, &[0xee; BLOCK as usize]);
    }
    assert!(world.start(2).is(0, 1, 3));
}

/// The new epoch is on the drives before anything is served.
pub fn it_commits_before_it_serves() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    let epoch = p.array().status().epoch;
    assert_eq!(world.generation().epoch.0, epoch);
}

/// What a power cut tore and nobody was promised reads as before, never as an error.
pub fn torn_records_are_not_taken() {
    for seed in 0..40 {
        let world = World::new(3, true);
        world.create(Level::Raid5);
        let p = world.start(seed);
        for i in 0..5 {
            p.write(i * 20, 1, 7).unwrap();
        }
        p.power_cut(seed);
        let p = world.start(seed);
        for i in 0..5 {
            let found = p.read(i * 20, 7).unwrap();
            assert!(found.chunks(BLOCK as usize).all(|b| b.iter().all(|&x| x == b[0] && x <= 1)), "seed {seed}");
        }
    }
}

/// An array whose last two records lack one column.
fn torn_in(column: usize) -> World {
    let world = World::new(3, true);
    world.create(Level::Raid5);
    let p = world.start(1);
    let epoch = p.array().status().epoch;
    p.write(0, 1, 5).unwrap();
    p.write(50, 2, 1).unwrap();
    p.kill(1);
    world.lose(&world.records_of(epoch), Some(column));
    world
}

/// Recovery completes the rows that it takes: afterwards any member may go.
pub fn it_completes_torn_rows() {
    for column in 0..3 {
        let world = torn_in(column);
        world.start(2).kill(2);
        for lost in 0..3 {
            let rt = Rt::modelled(3);
            let mut left = world.fork().disks;
            left.remove(lost);
            let array = rt.block_on(Array::open(&rt, World::drives(&rt, &left), DEGRADED)).unwrap();
            let v = array.volume("v").unwrap();
            let found = (crate::world::read(&rt, &v, 0, 5), crate::world::read(&rt, &v, 50, 1));
            let wanted = (Ok(vec![1; 5 * BLOCK as usize]), Ok(vec![2; BLOCK as usize]));
            assert_eq!(found, wanted, "column {column} was torn, drive {lost} is gone");
        }
    }
}

/// Opens for reading only, and frozen ones, leave the drives as they are.
pub fn read_only_and_frozen_opens_write_nothing() {
    for frozen in [false, true] {
        let world = torn_in(1);
        let changes = Rc::new(Cell::new(0));
        let count = changes.clone();
        world.on_ops(move |_, op, _| {
            count.set(count.get() + u64::from(op.kind != OpKind::Read));
            Verdict::Proceed
        });
        let rt = Rt::modelled(2);
        let (disks, how, state) = if frozen {
            (&world.disks[..1], DEGRADED, ArrayState::Frozen)
        } else {
            (&world.disks[..], OpenHow { read_only: true, ..DEGRADED }, ArrayState::ReadOnly)
        };
        let array = rt.block_on(Array::open(&rt, World::drives(&rt, disks), how)).unwrap();
        assert_eq!(array.status().state, state);
        let v = array.volume("v").unwrap();
        let found = crate::world::read(&rt, &v, 0, 5);
        assert!(frozen || found == Ok(vec![1; 5 * BLOCK as usize]));
        assert!(rt.block_on(v.write(0, crate::world::data(1, 1), false)).is_err());
        rt.block_on(rt.sleep(Duration::from_secs(5)));
        rt.block_on(array.close()).unwrap();
        assert_eq!(changes.get(), 0, "frozen {frozen}");
    }
}

/// A frozen open that may lack the newest records does not answer with older ones.
pub fn a_frozen_open_says_nothing_old() {
    let world = World::new(4, false);
    world.create(Level::Raid10 { copies: 2 });
    let p = world.start(1);
    // Some in each leaf, so that some leaves, blocks and record headers lie in each pair.
    let blocks = || (0..8).flat_map(|leaf| (0..5).map(move |i| leaf * 256 + i));
    blocks().for_each(|lba| p.write(lba, 1, 1).unwrap());
    p.checkpoint();
    blocks().for_each(|lba| p.write(lba, 2, 1).unwrap());
    p.kill(1);
    for pair in [[0, 1], [2, 3]] {
        let rt = Rt::modelled(2);
        let left: Vec<_> = pair.map(|i| world.disks[i].clone()).to_vec();
        let array = rt.block_on(Array::open(&rt, World::drives(&rt, &left), DEGRADED)).unwrap();
        assert_eq!(array.status().state, ArrayState::Frozen);
        let v = array.volume("v").unwrap();
        for lba in blocks() {
            if let Ok(found) = crate::world::read(&rt, &v, lba, 1) {
                assert_eq!(found[0], 2, "block {lba} from drives {pair:?}");
            }
        }
    }
}

/// A segment that was cut four times is sealed, and nothing is lost over it.
pub fn the_fifth_cut_seals() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    for i in 0..12u8 {
        let p = world.start(u64::from(i));
        for before in 0..i {
            assert!(p.is(u64::from(before), before + 1, 1), "start {i}, block {before}");
        }
        p.write(u64::from(i), i + 1, 1).unwrap();
        p.kill(u64::from(i));
        let most = world.generation().segments.iter().map(|s| s.cuts.len()).max();
        assert!(most <= Some(4), "{most:?} cuts");
    }
}

/// Two halves that went separate ways are refused together, also when one of them has gone on for long since.
pub fn two_histories_are_refused_together() {
    for more in [0, 40] {
        let world = World::new(2, false);
        world.create(Level::Raid10 { copies: 2 });
        for i in 0..2usize {
            let rt = Rt::modelled(20 + i as u64);
            let array = rt.block_on(Array::open(&rt, World::drives(&rt, &world.disks[i..=i]), DEGRADED)).unwrap();
            let v = array.volume("v").unwrap();
            for block in 0..=if i == 1 { more } else { 0 } {
                rt.block_on(v.write(block * BLOCK, crate::world::data(i as u8 + 1, 1), false)).unwrap();
                rt.block_on(array.checkpoint()).unwrap();
            }
            drop(v);
            rt.block_on(array.close()).unwrap();
            rt.end();
        }
        let refused = world.refused(&world.disks, DEGRADED);
        assert_eq!(refused.code, RefusedCode::Diverged, "{refused}");
    }
}

/// A process that dies while it writes a generation leaves it on some drives. When such a drive is missing at the next
/// start and comes back later, the array goes on without it.
pub fn a_generation_that_never_took_effect_is_no_history() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 1, 9).unwrap();
    p.kill(1);
    // One drive has what the next process wrote down, the others do not.
    let begun = world.fork();
    begun.start(2).kill(2);
    let disks = [world.disks[0].clone(), world.disks[1].clone(), begun.disks[2].clone()];
    let open = |disks: &[rt::model::Disk]| {
        let rt = Rt::modelled(7);
        let array = rt.block_on(Array::open(&rt, World::drives(&rt, disks), DEGRADED)).unwrap();
        (rt, array)
    };
    let (rt, array) = open(&disks[..2]);
    let v = array.volume("v").unwrap();
    rt.block_on(v.write(0, crate::world::data(2, 9), true)).unwrap();
    drop((v, array));
    rt.end();
    let (rt, array) = open(&disks);
    let status = array.status();
    assert_eq!(status.state, ArrayState::Degraded, "{:#?}", status.events);
    let v = array.volume("v").unwrap();
    assert_eq!(crate::world::read(&rt, &v, 0, 9), Ok(vec![2; 9 * BLOCK as usize]));
}

/// A member that was marked out comes back with what it has, and is not believed.
pub fn stale_members_are_not_believed() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 1, 9).unwrap();
    world.on_ops(|disk, op, _| match op.kind {
        OpKind::Write if disk == 1 => Verdict::Fail(IoError::Medium),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    p.write(0, 2, 9).unwrap();
    p.kill(1);
    let p = world.start(2);
    assert_eq!(p.array().status().state, ArrayState::Degraded);
    assert!(p.is(0, 2, 9));
    let (_, members) = world.newest(0);
    assert!(members[usize::from(MemberId(1).0)].starts_with("out"), "{members:?}");
}

/// No majority rule, but half or fewer of the members asks for a word.
pub fn half_of_the_members_asks_for_degraded() {
    let world = World::new(2, false);
    world.create(Level::Raid10 { copies: 2 });
    let refused = world.refused(&world.disks[..1], OpenHow::default());
    assert_eq!(refused.code, RefusedCode::MembersMissing);
}

/// A member that was in alone to the end and has lost its system area is asked by its records: the others are not believed
/// without it.
pub fn who_was_in_alone_is_asked_by_its_records() {
    let world = World::new(3, false);
    world.create(Level::Raid6);
    let p = world.start(93);
    p.write(0, 1, 8).unwrap();
    p.checkpoint();
    world.disks[1..].iter().for_each(Disk::detach);
    p.write(0, 2, 8).unwrap();
    p.checkpoint();
    // More than the segment that was open has room for: a zone begins anew.
    (0..ZONE as u64).for_each(|lba| p.write(16 + lba, 3, 1).unwrap());
    p.kill(93);
    world.disks[1..].iter().for_each(Disk::attach);
    let layout = world.label(0).layout;
    (0..2).for_each(|i| world.disks[0].image_write(layout.slot(i), &[0xee; BLOCK as usize]));
    let refused = world.refused(&world.disks, OpenHow::default());
    assert_eq!(refused.code, RefusedCode::Damaged, "{refused:?}");
}

/// Going back to the generation before the newest: what was there then is there, or what was written since, or an error;
/// nothing that was given out since is given out again; the array goes on; and a drive that was not here is out.
pub fn going_back_one_generation() {
    let back = OpenHow { previous: true, ..OpenHow::default() };
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(94);
    p.write(0, 1, 64).unwrap();
    p.checkpoint();
    p.write(0, 2, 32).unwrap();
    p.rt.block_on(p.array().volume_create("later", 1 << 20)).unwrap();
    p.write(64, 3, 32).unwrap();
    p.kill(94);
    let given_up = world.generation();
    let looked = world.fork();
    looked.start_how(95, OpenHow { read_only: true, ..back }).kill(95);
    assert!((0..4).all(|i| looked.newest(i) == world.newest(i)), "looking changes nothing");

    let p = world.start_how(96, OpenHow { degraded: true, ..back });
    assert!(p.array().volume("later").is_none());
    assert!((0..32).all(|lba| p.is(lba, 1, 1) || p.is(lba, 2, 1) || p.read(lba, 1).is_err()));
    assert!(p.is(32, 1, 32));
    p.write(0, 4, 16).unwrap();
    p.rt.block_on(p.array().volume_create("anew", 1 << 20)).unwrap();
    p.kill(96);
    let now = world.generation();
    assert!(now.next_segment >= given_up.next_segment && now.epoch > given_up.epoch);
    let anew = now.volumes.iter().find(|v| v.name == "anew").unwrap();
    assert!(anew.id.0 >= given_up.next_volume, "no volume's number is given out again");
    let p = world.start(97);
    assert!(p.is(0, 4, 16) && p.is(32, 1, 32));
    p.close();
    assert_eq!(world.check().errors, Vec::<String>::new());

    // Too few for the one before: nothing is given up.
    let few = looked.fork();
    few.disks[..2].iter().for_each(Disk::detach);
    let refused = few.refused(&few.disks[2..], OpenHow { degraded: true, ..back });
    assert_eq!(refused.code, RefusedCode::MembersMissing);
    assert!((2..4).all(|i| few.newest(i) == looked.newest(i)));
    // The next one was being written over it on all but one drive.
    let torn = looked.fork();
    let slot = |i: usize| torn.label(i).layout.slot(((given_up.number.0 + 1) % 2) as usize);
    (0..3).for_each(|i| torn.disks[i].image_write(slot(i), &[0xee; BLOCK as usize]));
    let p = torn.start_how(100, back);
    assert!(p.is(32, 1, 32));
    p.write(0, 6, 8).unwrap();
    p.kill(100);
    let p = torn.start(101);
    assert!(p.is(0, 6, 8) && p.array().status().members.iter().all(|m| m.state == SeatState::In));

    // One drive was away when the others went back.
    looked.disks[3].detach();
    let p = looked.start_how(98, back);
    p.write(0, 5, 8).unwrap();
    p.kill(98);
    looked.disks[3].attach();
    let p = looked.start(99);
    assert!(p.is(0, 5, 8) && p.array().status().members[3].state.is_out());
}

/// A drive in reserve that had a place by the generation that is given up is in reserve again.
pub fn what_is_given_up_is_on_no_spare() {
    let mut world = World::new(4, false);
    world.create(Level::Raid5);
    let spare = Disk::new("d4", world.disks[0].params(), 4);
    let p = world.start(120);
    p.rt.block_on(p.array().drive_add_spare(Drive::modelled(&p.rt, &spare), false)).unwrap();
    p.write(0, 1, 32).unwrap();
    p.checkpoint();
    p.kill(120);
    world.disks.push(spare);
    // Its slots hold what any drive's do that was in.
    let newest = world.generation();
    let slot = world.label(4).layout.slot((newest.number.0 % 2) as usize);
    world.disks[4].image_write(slot, &newest.encode());
    world.start_how(121, OpenHow { previous: true, ..OpenHow::default() }).kill(121);
    let p = world.start(122);
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    let status = p.array().status();
    let taken_in = status.members.iter().any(|m| m.member == 4 && m.state == SeatState::In);
    assert!(taken_in && p.is(0, 1, 32), "{:#?}", status.events);
}

/// A drive that joins, and the power fails while the first generation with it is written: the others have it, the drive does
/// not. It is in all the same, for what that generation lists lies on it too.
pub fn a_newcomer_is_in_when_its_first_generation_was_cut_short() {
    let mut world = World::new(1, false);
    world.create(Level::Raid0);
    let p = world.start(100);
    p.write(0, 1, 32).unwrap();
    let newcomer = Disk::new("d2", world.disks[0].params(), 2);
    let slots = [0, 1].map(|i| world.label(0).layout.slot(i));
    let labelled = Cell::new(false);
    newcomer.on_op(Some(Box::new(move |op| {
        labelled.set(labelled.get() || (op.kind == OpKind::Write && op.at.0 == 0));
        let generation = op.kind == OpKind::Write && slots.contains(&op.at) && labelled.get();
        if generation { Verdict::Hang } else { Verdict::Proceed }
    })));
    let (array, drive) = (p.array(), Drive::modelled(&p.rt, &newcomer));
    let joins = p.rt.spawn(async move { array.drive_grow(drive, false).await });
    p.wait(Duration::from_millis(100));
    assert!(!joins.is_finished());
    let cut = world.fork();
    let newcomer = newcomer.fork();
    drop(joins);
    p.kill(100);
    world = cut;
    world.disks.push(newcomer);
    for seed in [101, 102] {
        let p = world.start(seed);
        assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
        assert!(p.is(0, 1, 32));
        p.write(64, 3, 32).unwrap();
        p.kill(seed);
    }
}

/// A label that cannot be read for a moment costs nothing; one that reads wrong for good costs its drive, not the array.
pub fn a_label_that_cannot_be_read_costs_its_drive_at_most() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(110);
    p.write(0, 1, 32).unwrap();
    p.close();
    let labels = world.label(1).layout.labels();
    // Both of them, twice.
    let failures = Cell::new(4);
    world.disks[1].on_op(Some(Box::new(move |op| {
        if op.kind != OpKind::Read || !labels.contains(&op.at) || failures.get() == 0 {
            return Verdict::Proceed;
        }
        failures.set(failures.get() - 1);
        Verdict::Fail(rt::IoError::Medium)
    })));
    let p = world.start(111);
    assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
    p.close();
    for at in labels {
        let mut block = world.disks[1].image_read(at, BlockCount(1));
        block[100] ^= 1;
        world.disks[1].image_write(at, &block);
    }
    let p = world.start(112);
    assert_eq!(p.array().status().state, ArrayState::Degraded, "{:#?}", p.array().status().events);
    assert!(p.is(0, 1, 32));
    p.close();
    // One was never written, the other cannot be read: it is no foreign drive.
    world.disks[1].image_write(labels[0], &[0; BLOCK as usize]);
    world.disks[1].set_fault(rt::model::Fault::BadBlocks { at: labels[1], blocks: BlockCount(1) });
    let p = world.start(113);
    assert_eq!(p.array().status().state, ArrayState::Degraded, "{:#?}", p.array().status().events);
    assert!(p.is(0, 1, 32));
}
