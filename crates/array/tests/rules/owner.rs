//! One writer: conflicts, owner marks, taking over. Two machines on the same drives, each with a clock of its own.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use array::owner::{FRESH, OwnerHow, SETTLE, TAKE_OVER, WATCH};
use array::{Array, CreateSpec, Fault, OpenHow, Refused, RefusedCode, Volume, parts};
use futures::future::{Either, select};
use ondisk::{Level, OwnerMark, OwnerState};
use rt::model::{Disk, DiskParams, OpKind, Verdict};
use rt::{Drive, IoError, Reserve, Rt};

use super::world::{World, data, read};

/// One turn of each machine.
const TURN: Duration = Duration::from_millis(10);

pub const RESERVE: OpenHow = how(OwnerHow { reserve: true, ..OwnerHow::PLAIN });
pub const TAKE: OpenHow = how(OwnerHow { take_over: true, ..OwnerHow::PLAIN });
pub const TAKE_RESERVED: OpenHow = how(OwnerHow { take_over: true, reserve: true, carried: None });

const fn how(owner: OwnerHow) -> OpenHow {
    OpenHow { degraded: false, owner, ..super::world::DEGRADED }
}

/// Three drives that several machines reach.
pub fn shared(reservable: bool) -> World {
    let params =
        DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, reservable, ..DiskParams::default() };
    World::of(3, params)
}

/// A server: its runtime, and once it is open its volume.
pub struct Server {
    /// On a machine of its own.
    pub rt: Rt,
    array: Array,
    /// The volume.
    pub v: Volume,
}

impl Server {
    /// Opens, while the others do what they do.
    pub fn open(world: &World, seed: u64, machine: u64, how: OpenHow, others: &[&Server]) -> Result<Server, Refused> {
        let rt = Rt::modelled_on(seed, Duration::ZERO, machine);
        let mut opening = Box::pin(Array::open(&rt, World::drives(&rt, &world.disks), how));
        loop {
            match rt.block_on(select(&mut opening, pin!(rt.sleep(TURN)))) {
                Either::Left((opened, _)) => {
                    drop(opening);
                    let array = opened?;
                    let v = array.volume("v").unwrap();
                    return Ok(Server { rt, array, v });
                }
                Either::Right(_) => others.iter().for_each(|other| other.pass(TURN)),
            }
        }
    }

    pub fn pass(&self, time: Duration) {
        self.rt.block_on(self.rt.sleep(time));
    }

    pub fn write(&self, lba: u64, tag: u8) -> Result<(), Fault> {
        self.rt.block_on(self.v.write(lba * 4096, data(tag, 1), false))
    }

    pub fn is(&self, lba: u64, tag: u8) -> bool {
        read(&self.rt, &self.v, lba, 1) == Ok(vec![tag; 4096])
    }

    fn close(self) {
        self.rt.block_on(self.array.close()).unwrap();
        drop(self.v);
        self.rt.end();
    }

    /// The process dies.
    pub fn kill(self, world: &World) {
        drop((self.array, self.v));
        self.rt.end();
        world.disks.iter().for_each(|d| d.crash(1));
    }

    /// What must be so once another server has the array.
    pub fn has_stopped(&self) {
        assert_eq!(self.array.status().state, ArrayState::Frozen);
        assert_eq!(self.write(3, 9), Err(Fault::TakenOver));
        assert_eq!(read(&self.rt, &self.v, 0, 1), Err(Fault::TakenOver));
        let status = self.array.status();
        assert!(status.members.iter().all(|m| m.errors == 0 && m.suspect.is_none()), "{:#?}", status.members);
        let blamed = |text: &str| {
            text.contains("it is now missing") || text.contains("it has now failed") || text.contains("suspect")
        };
        assert!(status.events.iter().all(|e| !blamed(&e.text)), "{:#?}", status.events);
    }
}

fn writes(disks: &[Disk]) -> u64 {
    disks.iter().map(|d| d.counters().writes).sum()
}

pub fn marks(world: &World) -> Vec<OwnerMark> {
    let mark = |i: usize| {
        let at = world.label(i).layout.owner_mark().unwrap();
        OwnerMark::decode(&world.disks[i].image_read(at, base::BlockCount(1))).ok()
    };
    (0..world.disks.len()).filter_map(mark).collect()
}

/// A second server takes one drive's reservation: the first answers nothing more, blames no drive, and writes nothing more.
pub fn a_conflict_is_no_error_of_a_drive() {
    for drive in 0..3 {
        let world = shared(true);
        world.create(Level::Raid5);
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        a.write(0, 1).unwrap();
        let held = world.disks[drive].held_by().unwrap();
        assert!(world.disks.iter().all(|d| d.held_by() == Some(held)), "one key on all drives");
        assert!(marks(&world).iter().all(|m| m.key == held), "the marks tell whose key it is");
        let b = Rt::modelled_on(2, Duration::ZERO, 1);
        b.block_on(async {
            let drive = Drive::modelled(&b, &world.disks[drive]);
            drive.reserve(Reserve::Register(7)).await.unwrap();
            drive.reserve(Reserve::Preempt { own: 7, victim: held }).await.unwrap();
        });
        let begun = a.rt.now();
        assert_eq!(a.write(1, 2), Err(Fault::TakenOver));
        assert!(a.rt.now() - begun < Duration::from_secs(1), "within one request, not after many");
        a.has_stopped();
        let before = writes(&world.disks);
        a.pass(Duration::from_secs(120));
        assert_eq!(writes(&world.disks), before, "nothing is written any more");
        a.has_stopped();
    }
}

/// Drives forget whose they are, or all reservations: the server takes them again and goes on.
pub fn a_drive_that_forgets_is_reserved_again() {
    let world = shared(true);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
    let key = world.disks[0].held_by();
    for round in 0..9u8 {
        world.disks[usize::from(round) % 3].forget_machine(0);
        assert_eq!(a.write(u64::from(round), round), Ok(()));
        a.rt.block_on(a.v.flush()).unwrap();
    }
    for disk in &world.disks {
        disk.forget_reservations();
    }
    a.write(20, 20).unwrap();
    a.pass(Duration::from_secs(15));
    assert!(key.is_some() && world.disks.iter().all(|d| d.held_by() == key), "taken again");
    assert_eq!(a.array.status().state, ArrayState::Optimal);
    assert!((0..9u8).all(|round| a.is(u64::from(round), round)));
    a.close();
    assert!(world.disks.iter().all(|d| d.held_by().is_none()), "given up in order");
}

/// What a living server has is refused to everybody, by its name; and nothing is written.
pub fn what_is_in_use_is_refused() {
    for reserve in [false, true] {
        let world = shared(reserve);
        world.create(Level::Raid5);
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        a.write(0, 1).unwrap();
        for machine in [0, 1] {
            for how in [OpenHow::default(), RESERVE] {
                let refused = Server::open(&world, 2, machine, how, &[&a]).err().expect("it is in use");
                assert_eq!(refused.code, RefusedCode::InUseElsewhere, "{refused}");
                assert!(refused.why.contains("host-0"), "{refused}");
            }
        }
        assert_eq!(a.write(1, 2), Ok(()));
        assert!(marks(&world).iter().all(|m| m.host == "host-0"), "nothing was written");
        // Nor may its drives be made into another array.
        let rt = Rt::modelled_on(3, Duration::ZERO, 1);
        let spec =
            CreateSpec { name: "b".into(), level: Level::Raid5, width: None, zone_blocks: Some(128), force: true };
        let mut making = Box::pin(Array::create(&rt, World::drives(&rt, &world.disks), &spec));
        let made = loop {
            match rt.block_on(select(&mut making, pin!(rt.sleep(TURN)))) {
                Either::Left((made, _)) => break made.map(drop),
                Either::Right(_) => a.pass(TURN),
            }
        };
        assert_eq!(made.unwrap_err().code, RefusedCode::InUseElsewhere);
        drop(making);
        a.close();
        assert_eq!(world.check().errors, Vec::<String>::new());
    }
}

/// Released, or left by a process that is known to be dead: nobody waits. Left by another machine: watched.
pub fn what_nobody_has_is_opened_at_once() {
    for reserve in [false, true] {
        let world = shared(reserve);
        world.create(Level::Raid5);
        assert!(marks(&world).iter().all(|m| m.state == OwnerState::Released));
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        assert!(a.rt.now().0 < 1_000_000_000, "after an orderly end");
        a.write(0, 1).unwrap();
        a.kill(&world);
        for seed in 0..5 {
            let a = Server::open(&world, 10 + seed, 0, RESERVE, &[]).unwrap();
            assert!(a.rt.now().0 < 1_000_000_000, "after the process died");
            assert!(a.is(0, 1));
            a.kill(&world);
        }
        let b = Server::open(&world, 2, 1, RESERVE, &[]);
        if reserve {
            // What holds the drives there cannot be known.
            assert_eq!(b.err().unwrap().code, RefusedCode::InUseElsewhere);
            let b = Server::open(&world, 3, 1, TAKE_RESERVED, &[]).unwrap();
            assert!(b.is(0, 1));
            b.close();
        } else {
            let b = b.unwrap();
            assert!(b.rt.now().0 > WATCH.as_nanos() as u64, "after the other machine died");
            assert!(b.is(0, 1));
            b.close();
        }
        let a = Server::open(&world, 4, 0, RESERVE, &[]).unwrap();
        assert!(a.rt.now().0 < 1_000_000_000 && a.is(0, 1), "after an orderly end elsewhere");
        a.close();
        assert_eq!(world.check().errors, Vec::<String>::new());
    }
}

/// Somebody takes the array over while the first server's hosts write. What was acknowledged is there; afterwards the first
/// acknowledges nothing, and changes nothing.
pub fn who_is_taken_over_stops() {
    for (reserve, take) in [(true, TAKE_RESERVED), (false, TAKE)] {
        let world = shared(reserve);
        world.create(Level::Raid5);
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        let acked: Rc<RefCell<Vec<u64>>> = Rc::default();
        let (v, rt, done) = (a.v.clone(), a.rt.clone(), acked.clone());
        a.rt.spawn(async move {
            for n in 0.. {
                if v.write(n % 512 * 4096, data((n % 251) as u8, 1), true).await.is_err() {
                    return;
                }
                done.borrow_mut().push(n);
                rt.sleep(Duration::from_millis(3)).await;
            }
        })
        .detach();
        a.pass(Duration::from_millis(500));
        let b = Server::open(&world, 2, 1, take, &[&a]).unwrap();
        let (then, took) = (acked.borrow().len(), Duration::from_nanos(b.rt.now().0));
        assert!(then > 100, "it was at work");
        assert!(if reserve { took < WATCH } else { took >= TAKE_OVER }, "{took:?}");
        b.write(600, 77).unwrap();
        for _ in 0..1000 {
            a.pass(TURN);
            b.pass(TURN);
        }
        assert_eq!(acked.borrow().len(), then, "nothing is acknowledged once another has it");
        a.has_stopped();
        let last: std::collections::BTreeMap<u64, u64> = acked.borrow().iter().map(|n| (n % 512, *n)).collect();
        assert!(last.iter().all(|(lba, n)| b.is(*lba, (n % 251) as u8) || b.is(*lba, ((n + 512) % 251) as u8)));
        assert!(b.is(600, 77));
        assert!(marks(&world).iter().filter(|m| m.host == "host-1").count() >= 2);
        a.kill(&world);
        b.close();
        assert_eq!(world.check().errors, Vec::<String>::new());
    }
}

/// A server stands still, another one takes the array; when the first goes on, it looks before it writes.
pub fn who_stood_still_looks_before_it_writes() {
    for (reserve, take) in [(true, TAKE_RESERVED), (false, TAKE), (false, OpenHow::default())] {
        for pause in [FRESH, WATCH + SETTLE, Duration::from_secs(3600)] {
            let world = shared(reserve);
            world.create(Level::Raid5);
            let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
            a.write(0, 1).unwrap();
            a.pass(Duration::from_millis(100));
            world.disks.iter().for_each(|d| d.hurry(0));
            let b = Server::open(&world, 2, 1, take, &[]).unwrap();
            a.rt.stand_still(pause);
            b.write(0, 2).unwrap();
            b.rt.block_on(b.array.checkpoint()).unwrap();
            // The first thing that it does is a host's write.
            let refused = a.write(0, 3);
            if pause > FRESH || reserve {
                assert_eq!(refused, Err(Fault::TakenOver), "{pause:?}");
                a.has_stopped();
                assert!(b.is(0, 2));
            }
            a.kill(&world);
        }
    }
}

/// A write that was under way when a server stood still is not acknowledged once another one has the array.
pub fn what_was_asked_before_a_standstill_is_not_acknowledged() {
    for (reserve, take) in [(true, TAKE_RESERVED), (false, TAKE), (false, OpenHow::default())] {
        let world = shared(reserve);
        world.create(Level::Raid5);
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        a.write(0, 1).unwrap();
        a.pass(Duration::from_millis(100));
        let v = a.v.clone();
        let write = a.rt.spawn(async move { v.write(0, data(3, 1), false).await });
        a.pass(Duration::from_micros(1));
        // It lands while the first stands still.
        world.disks.iter().for_each(|d| d.hurry(0));
        let b = Server::open(&world, 2, 1, take, &[]).unwrap();
        b.write(0, 2).unwrap();
        a.rt.stand_still(Duration::from_secs(60));
        assert_eq!(a.rt.block_on(write), Err(Fault::TakenOver));
        assert!(b.is(0, 2));
        a.kill(&world);
    }
}

/// Marks that cannot be written (no room below a file), or take long, do not stop hosts.
pub fn marks_that_cannot_be_kept_stop_nobody() {
    for (fails, slow) in [(Some(IoError::NoSpace), 0), (Some(IoError::Medium), 0), (None, 2_500_000_000)] {
        let world = shared(false);
        world.create(Level::Raid5);
        let at = world.label(0).layout.owner_mark().unwrap();
        let a = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
        for disk in &world.disks {
            disk.on_op(Some(Box::new(move |op| match (op.at == at, op.kind, fails) {
                (true, OpKind::Write, Some(error)) => Verdict::Fail(error),
                (true, OpKind::Read, Some(IoError::Medium)) => Verdict::Fail(IoError::Medium),
                (true, _, None) => Verdict::DelayNs(slow),
                _ => Verdict::Proceed,
            })));
        }
        for round in 0..10u8 {
            a.pass(Duration::from_secs(3));
            let begun = a.rt.now();
            assert_eq!(a.write(u64::from(round), round), Ok(()));
            // Three members are given 1, 2 and 4 s until one has answered; another look and two marks may be before it.
            let took = a.rt.now() - begun;
            assert!(took < Duration::from_secs(40), "{fails:?} {slow}: {took:?}");
        }
        let status = a.array.status();
        assert_eq!(status.state, ArrayState::Optimal, "{:#?}", status.events);
        assert!(status.members.iter().all(|m| m.errors == 0));
        world.disks.iter().for_each(|d| d.on_op(None));
        a.close();
    }
}

/// Two servers open an array that nobody has, at nearly the same time: one of them has it, or none; never both.
pub fn of_two_that_open_at_once_one_has_it() {
    let (mut one, mut none) = (0, 0);
    for seed in 0..60 {
        let world = shared(false);
        world.create(Level::Raid5);
        let (a, b) = (Rt::modelled_on(seed, Duration::ZERO, 0), Rt::modelled_on(seed + 100, Duration::ZERO, 1));
        let opening = |rt: &Rt| {
            let (rt, drives) = (rt.clone(), World::drives(rt, &world.disks));
            Box::pin(async move { Array::open(&rt, drives, OpenHow::default()).await })
        };
        let (mut first, mut second) = (opening(&a), opening(&b));
        let (mut had_a, mut had_b) = (None, None);
        // By turns, one up to this much ahead.
        let ahead = Duration::from_micros(seed * 300);
        a.block_on(a.sleep(Duration::ZERO));
        let step = |rt: &Rt, opening: &mut _, had: &mut Option<Result<Array, Refused>>, time| {
            if had.is_some() {
                return rt.block_on(rt.sleep(time));
            }
            if let Either::Left((opened, _)) = rt.block_on(select(opening, pin!(rt.sleep(time)))) {
                *had = Some(opened);
            }
        };
        step(&a, &mut first, &mut had_a, ahead);
        for _ in 0..100_000 {
            step(&a, &mut first, &mut had_a, Duration::from_micros(100));
            step(&b, &mut second, &mut had_b, Duration::from_micros(100));
            if had_a.is_some() && had_b.is_some() {
                break;
            }
        }
        drop((first, second));
        let [had_a, had_b] = [had_a, had_b].map(|had| had.expect("both have an answer"));
        match (had_a, had_b) {
            (Ok(_), Ok(_)) => panic!("both have it, the first by {ahead:?}"),
            (Err(_), Err(_)) => none += 1,
            (Ok(_), Err(e)) | (Err(e), Ok(_)) => {
                assert_eq!(e.code, RefusedCode::InUseElsewhere, "{e}");
                one += 1;
            }
        }
    }
    assert!(one > none, "{one} times one had it, {none} times none");
}

/// An array in parts: every part has its own marks, and they are released together.
pub fn marks_of_all_parts_are_released() {
    let params =
        DiskParams { bytes: 160 << 20, volatile_cache: true, shared: true, reservable: true, ..DiskParams::default() };
    let world = World::of(3, params);
    let rt = Rt::modelled(1);
    let spec =
        CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(3), zone_blocks: Some(128), force: false };
    let made = rt.block_on(parts::create(&rt, World::drives(&rt, &world.disks), &spec, 2)).unwrap();
    rt.block_on(parts::end_all(made));
    let open = |rt: &Rt, how| rt.block_on(parts::open(rt, World::drives(rt, &world.disks), how));
    let opened = open(&rt, RESERVE).unwrap();
    let key = world.disks[0].held_by();
    assert!(key.is_some() && world.disks.iter().all(|d| d.held_by() == key));
    let other = Rt::modelled_on(2, Duration::ZERO, 1);
    assert_eq!(open(&other, OpenHow::default()).err().unwrap().code, RefusedCode::InUseElsewhere);
    let mut parts = opened.into_iter();
    let first = parts.next().unwrap();
    let whole = rt.block_on(parts::Whole::of(first, parts.map(parts::Part::Here).collect())).unwrap();
    rt.block_on(whole.close()).unwrap();
    assert!(world.disks.iter().all(|d| d.held_by().is_none()));
    let opened = open(&other, RESERVE).unwrap();
    assert!(other.now().0 < 1_000_000_000);
    other.block_on(parts::end_all(opened));
}

/// A drive leaves one part while another writes to it still: it stays reserved until it has left both.
pub fn a_drive_that_leaves_a_part_stays_reserved_for_the_others() {
    let params =
        DiskParams { bytes: 160 << 20, volatile_cache: true, shared: true, reservable: true, ..DiskParams::default() };
    let world = World::of(4, params);
    let rt = Rt::modelled(1);
    let spec =
        CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(3), zone_blocks: Some(128), force: false };
    rt.block_on(async {
        parts::end_all(parts::create(&rt, World::drives(&rt, &world.disks), &spec, 2).await.unwrap()).await;
        let mut parts = parts::open(&rt, World::drives(&rt, &world.disks), RESERVE).await.unwrap().into_iter();
        let (first, second) = (parts.next().unwrap(), parts.next().unwrap());
        let array = parts::Whole::of(first.clone(), vec![parts::Part::Here(second.clone())]).await.unwrap();
        array.volume_create("v", 2 << 20).await.unwrap();
        let v = second.live_volumes().remove(0);
        v.write(0, data(3, 200), true).await.unwrap();
        second.rebuild_pause(true).await.unwrap();
        array.drive_retire(base::MemberId(0)).await.unwrap();
        assert!(first.drive_left(base::MemberId(0)).await);
        second.checkpoint().await.unwrap();
        v.write(0, data(4, 200), true).await.unwrap();
        assert_ne!(second.status().state, ArrayState::Frozen, "{:#?}", second.status().events);
        assert!(world.disks[0].held_by().is_some());
        second.rebuild_pause(false).await.unwrap();
        assert!(array.drive_left(base::MemberId(0)).await.unwrap());
        array.end_reservation(&Drive::modelled(&rt, &world.disks[0])).await;
        assert!(world.disks[0].held_by().is_none() && world.disks[1].held_by().is_some());
        drop(v);
        array.close().await.unwrap();
    });
    rt.end();
}

/// Servers that reach different drives: a second one that sees fewer finds the marks of the first on any of them.
pub fn whoever_sees_fewer_drives_finds_a_mark() {
    for (n, level) in [
        (3, Level::Raid5),
        (5, Level::Raid6),
        (6, Level::Raid6),
        (6, Level::Raid10 { copies: 2 }),
        (6, Level::Raid10 { copies: 3 }),
    ] {
        let params = DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, ..DiskParams::default() };
        let world = World::of(n, params);
        world.create(level);
        let a = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
        (0..20).for_each(|i| a.write(i, 1).unwrap());
        a.pass(Duration::from_secs(6));
        let missing = level.tolerates();
        for from in 0..=missing {
            let mut fewer = world.disks.clone();
            fewer.drain(from..from + missing);
            let seen = World { disks: fewer };
            let refused = Server::open(&seen, 2, 1, super::world::DEGRADED, &[&a]).err();
            let code = refused.map(|refused| refused.code);
            assert_eq!(code, Some(RefusedCode::InUseElsewhere), "{level} of {n}, without {from}..");
        }
        assert_eq!(a.array.state(), ArrayState::Optimal);
        assert!((0..20).all(|i| a.is(i, 1)));
        a.close();
        assert!(world.check().ok());
    }
}

/// A drive that reads and does not write, or takes long for its first write, keeps its array's server out as little as any fault.
pub fn a_drive_that_cannot_be_marked_keeps_nobody_out() {
    for (n, level) in [(3, Level::Raid5), (5, Level::Raid6)] {
        for slow in [false, true] {
            let params = DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, ..DiskParams::default() };
            let world = World::of(n, params);
            world.create(level);
            let first = std::cell::Cell::new(true);
            world.disks[0].on_op(Some(Box::new(move |op| match op.kind {
                OpKind::Write if slow && first.replace(false) => Verdict::DelayNs(1_500_000_000),
                OpKind::Write if !slow => Verdict::Fail(IoError::Medium),
                _ => Verdict::Proceed,
            })));
            let a = Server::open(&world, 1, 0, OpenHow::default(), &[]);
            let a = a.unwrap_or_else(|refused| panic!("{level}, slow: {slow}: {refused}"));
            a.write(0, 1).unwrap();
            assert!(a.is(0, 1));
            world.disks[0].on_op(None);
            a.kill(&world);
        }
    }
}

/// The mark of a drive that is back is the owner's, not the one of before.
pub fn a_drive_that_is_back_carries_the_owners_mark() {
    let world = shared(false);
    world.create(Level::Raid5);
    Server::open(&world, 7, 0, OpenHow::default(), &[]).unwrap().close();
    world.disks[2].detach();
    let two = World { disks: world.disks[..2].to_vec() };
    let a = Server::open(&two, 1, 0, OpenHow::default(), &[]).unwrap();
    a.write(0, 1).unwrap();
    world.disks[2].attach();
    let (array, drive) = (a.array.clone(), Drive::modelled(&a.rt, &world.disks[2]));
    a.rt.block_on(array.drive_back(base::MemberId(2), drive)).unwrap();
    a.rt.block_on(array.rebuild_done());
    a.pass(Duration::from_secs(5));
    a.write(1, 2).unwrap();
    world.disks[0].detach();
    for i in 2..6 {
        assert_eq!(a.write(i, 3), Ok(()), "{:#?}", a.array.status().events);
        a.pass(Duration::from_secs(3));
    }
    assert_ne!(a.array.state(), ArrayState::Frozen);
    a.kill(&world);
}

/// Who takes an array over from a server of the same host identity does not count it as shut out: a reservation is the host's.
pub fn the_same_host_identity_is_not_shut_out() {
    let world = shared(true);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
    a.write(0, 1).unwrap();
    a.pass(Duration::from_millis(500));
    let b = Server::open(&world, 2, 0, TAKE_RESERVED, &[&a]).unwrap();
    let took = Duration::from_nanos(b.rt.now().0);
    assert!(took >= TAKE_OVER, "it waits as where nothing is reserved: {took:?}");
    for i in 0..100 {
        b.write(400 + i, 3).unwrap();
        assert!(a.write(100 + i, 2).is_err(), "the first acknowledged after the second had the array");
        a.pass(TURN);
        b.pass(TURN);
    }
    assert!((0..100).all(|i| b.is(400 + i, 3)));
    a.kill(&world);
    b.close();
    assert!(world.check().ok());
}

/// Drives that show their marks slowly are waited for: a plain open takes nothing from a server that lives.
pub fn slow_marks_are_waited_for() {
    let world = shared(false);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
    a.write(0, 1).unwrap();
    let at = world.label(0).layout.owner_mark().unwrap();
    for disk in &world.disks {
        disk.on_op(Some(Box::new(move |op| match op.kind {
            OpKind::Read if op.at == at => Verdict::DelayNs(1_300_000_000),
            _ => Verdict::Proceed,
        })));
    }
    for i in 0..10 {
        a.pass(Duration::from_secs(1));
        a.write(i, 1).unwrap();
    }
    let refused = Server::open(&world, 2, 1, OpenHow::default(), &[&a]).err().expect("the first lives");
    assert_eq!(refused.code, RefusedCode::InUseElsewhere, "{refused}");
    a.write(20, 1).unwrap();
    world.disks.iter().for_each(|d| d.on_op(None));
    a.close();
}

/// An image of a member from before, put back while the array is served, brings the mark of an open that is long over: that is no
/// other server.
pub fn an_older_image_of_a_member_is_no_server() {
    for level in [Level::Raid5, Level::Raid6] {
        let params = DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, ..DiskParams::default() };
        let world = World::of(4, params);
        world.create(level);
        let first = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
        first.write(0, 1).unwrap();
        first.close();
        let old = world.disks[0].fork();
        for seed in 2..8 {
            Server::open(&world, seed, 0, OpenHow::default(), &[]).unwrap().close();
        }
        let a = Server::open(&world, 9, 0, OpenHow::default(), &[]).unwrap();
        a.write(0, 2).unwrap();
        a.rt.block_on(a.array.checkpoint()).unwrap();
        let all = base::BlockCount(old.params().bytes / 4096);
        world.disks[0].image_write(base::MemberLba(0), &old.image_read(base::MemberLba(0), all));
        a.pass(Duration::from_secs(30));
        assert_eq!(a.write(1, 3), Ok(()), "{level}: {:#?}", a.array.status().events);
        assert!(a.is(0, 2) && a.is(1, 3));
        assert!(a.array.status().members[0].state.is_out());
        a.close();
    }
}

/// A process of this boot that is stopped lives: it is not waited for, and not written beside.
pub fn a_process_that_lives_is_not_waited_for() {
    let world = shared(false);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
    a.write(0, 1).unwrap();
    let refused = Server::open(&world, 2, 0, OpenHow::default(), &[]).err().expect("it lives");
    assert_eq!(refused.code, RefusedCode::InUseElsewhere);
    a.rt.stand_still(Duration::from_secs(60));
    assert_eq!(a.write(1, 2), Ok(()));
    a.close();
}

/// What a server had sent before it was taken over from may land long afterwards: nothing is written where that may be.
pub fn what_was_sent_before_may_land_late() {
    let world = shared(false);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, OpenHow::default(), &[]).unwrap();
    (0..20).for_each(|i| a.write(i, 1).unwrap());
    a.pass(Duration::from_millis(500));
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Write if !system => Verdict::DelayNs(40_000_000_000),
        _ => Verdict::Proceed,
    });
    let v = a.v.clone();
    a.rt.spawn(async move { v.write(50 * 4096, data(9, 100), false).await }).detach();
    a.pass(Duration::from_millis(5));
    world.no_hooks();
    let b = Server::open(&world, 2, 1, TAKE, &[&a]).unwrap();
    (0..100).for_each(|i| b.write(400 + i, 3).unwrap());
    for _ in 0..60 {
        a.pass(Duration::from_secs(1));
        b.pass(Duration::from_secs(1));
    }
    let right = |s: &Server| (0..100).all(|i| s.is(400 + i, 3)) && (0..20).all(|i| s.is(i, 1));
    assert!(right(&b), "{:#?}", b.array.status().events);
    a.kill(&world);
    b.kill(&world);
    let c = Server::open(&world, 3, 1, OpenHow::default(), &[]).unwrap_or_else(|refused| panic!("{refused}"));
    assert!(right(&c));
    c.close();
    assert!(world.check().ok());
}
