//! Members that were set back in time, or were away: they are not believed, and come back by themselves.

use std::time::Duration;

use api::{ArrayState, SeatState};
use ondisk::Level;
use rt::model::{Disk, OpKind, Verdict};
use rt::{Drive, IoError};

use crate::world::{BLOCK, DEGRADED, Process, World, data};

const LEVELS: [(Level, usize); 3] = [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10 { copies: 2 }, 4)];

/// Blocks of the volume that are written, in pieces of 16.
const BLOCKS: u64 = 320;

fn fill(p: &Process<'_>, tag: u8, blocks: u64) {
    for lba in (0..blocks).step_by(16) {
        p.write(lba, tag + (lba / 16 % 7) as u8, 16).unwrap();
    }
    p.flush().unwrap();
}

fn holds(p: &Process<'_>, tag: u8, blocks: u64) -> bool {
    (0..blocks).step_by(16).all(|lba| p.is(lba, tag + (lba / 16 % 7) as u8, 16))
}

/// What is left reads right when any one drive is lost now.
fn any_loss_is_survived(world: &World, seed: u64, right: impl Fn(&Process<'_>) -> bool) {
    for lost in 0..world.disks.len() {
        let mut less = world.fork();
        less.disks.remove(lost);
        let p = less.start_how(seed, DEGRADED);
        assert!(right(&p), "drive {lost} lost: {:#?}", p.array().status().events);
        p.close();
    }
}

/// The rebuild ends, and full redundancy is said.
fn becomes_optimal(p: &Process<'_>) {
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    for _ in 0..20 {
        if p.array().state() == ArrayState::Optimal {
            return;
        }
        p.wait(Duration::from_secs(1));
    }
    panic!("not optimal: {:#?}", p.array().status().events);
}

/// Full redundancy is said only where any loss is survived, and comes by itself.
fn comes_back(world: &World, seed: u64, right: impl Fn(&Process<'_>) -> bool + Copy) {
    let p = world.start_how(seed, DEGRADED);
    assert!(right(&p), "{:#?}", p.array().status().events);
    if p.array().state() == ArrayState::Optimal {
        any_loss_is_survived(world, seed, right);
    }
    becomes_optimal(&p);
    assert!(p.array().status().members.iter().all(|m| m.state == SeatState::In));
    any_loss_is_survived(world, seed, right);
    p.close();
    let report = world.check();
    assert!(report.ok(), "{:#?}", report.errors);
}

/// A member whose last generation is older than the one before that in effect is not current, however little it is behind.
pub fn an_old_state_is_not_current() {
    for (level, drives) in LEVELS {
        for (more, killed) in [(0, true), (1, true), (1, false), (3, false), (30, true)] {
            let mut world = World::new(drives, false);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.close();
            let old = world.disks[1].fork();
            let p = world.start(2);
            fill(&p, 50, BLOCKS);
            (0..more).for_each(|_| p.checkpoint_after_a_write());
            if killed {
                p.kill(2)
            } else {
                p.close()
            }
            world.disks[1] = old;
            comes_back(&world, 3, |p| holds(p, 50, BLOCKS));
        }
    }
}

/// So over several opens; and what is set back twice is as well.
pub fn an_old_state_of_opens_ago_is_not_current() {
    for (level, drives) in LEVELS {
        let mut world = World::new(drives, false);
        world.create(level);
        let mut old = Vec::new();
        for open in 0..5 {
            let p = world.start(open);
            fill(&p, 1 + open as u8 * 20, BLOCKS);
            p.close();
            old.push(world.disks[2].fork());
        }
        for state in [0, 2] {
            world.disks[2] = old[state].fork();
            comes_back(&world, 9, |p| holds(p, 81, BLOCKS));
        }
    }
}

/// What is as it was is not copied, and what was written since is.
pub fn only_what_changed_is_made_anew() {
    for (level, drives) in LEVELS {
        let mut world = World::new(drives, false);
        world.create_with(level, 64, 32 << 20);
        let p = world.start(1);
        fill(&p, 1, 2048);
        p.checkpoint();
        p.close();
        let old = world.disks[1].fork();
        let p = world.start(2);
        fill(&p, 50, 160);
        p.close();
        world.disks[1] = old;
        let before = world.disks[1].counters().bytes_written;
        comes_back(&world, 3, |p| {
            holds(p, 50, 160) && (160..2048).step_by(16).all(|lba| p.is(lba, 1 + (lba / 16 % 7) as u8, 16))
        });
        let written = world.disks[1].counters().bytes_written - before;
        let all = 2048 * BLOCK / (drives as u64 - 1);
        assert!(written < all * 3 / 4, "{level}: {written} bytes written to it, all that lies there are about {all}");
    }
}

/// A member that was missing comes back by itself at the next open.
pub fn a_missing_member_comes_back() {
    for (level, drives) in LEVELS {
        let mut world = World::new(drives, false);
        world.create(level);
        let p = world.start(1);
        fill(&p, 1, BLOCKS);
        p.close();
        let away = world.disks.remove(1);
        let p = world.start_how(2, DEGRADED);
        fill(&p, 50, BLOCKS / 2);
        p.close();
        world.disks.insert(1, away);
        comes_back(&world, 3, |p| {
            holds(p, 50, BLOCKS / 2) && (BLOCKS / 2..BLOCKS).step_by(16).all(|l| p.is(l, 1 + (l / 16 % 7) as u8, 16))
        });
    }
}

/// One that failed does not: somebody has to say so.
pub fn one_that_failed_stays_out() {
    for by_command in [true, false] {
        let world = World::new(4, false);
        world.create(Level::Raid5);
        let p = world.start(1);
        fill(&p, 1, BLOCKS);
        if by_command {
            let array = p.array();
            p.run(async move { array.drive_fail(base::MemberId(1)).await }).unwrap();
        } else {
            world.on_ops(|disk, op, system| match op.kind {
                OpKind::Write if disk == 1 && !system => Verdict::Fail(IoError::Medium),
                OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
            });
            fill(&p, 50, 64);
        }
        p.close();
        world.no_hooks();
        let p = world.start(2);
        p.wait(Duration::from_secs(60));
        assert_eq!(p.array().state(), ArrayState::Degraded);
        p.close();
    }
}

/// More old members than the redundancy covers: nothing old is read, nothing is written, and the newest state is there when
/// the drives are.
pub fn too_many_old_members_freeze_or_refuse() {
    for (level, drives) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10 { copies: 2 }, 4), (Level::Raid0, 3)] {
        for set_back in 1..drives {
            let mut world = World::new(drives, false);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.close();
            let old: Vec<Disk> = world.disks[..set_back].iter().map(Disk::fork).collect();
            let p = world.start(2);
            fill(&p, 50, BLOCKS);
            p.close();
            let new = world.fork();
            world.disks.splice(..set_back, old);
            let rt = rt::Rt::modelled(3);
            let opened = rt.block_on(array::Array::open(&rt, World::drives(&rt, &world.disks), DEGRADED));
            if let Ok(array) = opened {
                let v = array.volume("v").unwrap();
                for lba in (0..BLOCKS).step_by(16) {
                    if let Ok(read) = crate::world::read(&rt, &v, lba, 16) {
                        let tag = 50 + (lba / 16 % 7) as u8;
                        assert!(read.iter().all(|b| *b == tag), "{level}, {set_back} old: block {lba} is {}", read[0]);
                    }
                }
                let frozen = array.state() == ArrayState::Frozen;
                let survives = match level {
                    Level::Raid0 => 0,
                    Level::Raid5 => 1,
                    Level::Raid6 => 2,
                    Level::Raid10 { .. } => 2,
                };
                assert!(frozen || set_back <= survives, "{level}, {set_back} old: {:?}", array.state());
                if !frozen {
                    rt.block_on(array.close()).unwrap();
                }
            }
            rt.end();
            let p = new.start(4);
            assert!(holds(&p, 50, BLOCKS));
            p.close();
        }
    }
}

/// So also right after an open that was killed: nothing that it told a host is taken back by drives from before it.
pub fn what_an_open_wrote_before_a_kill_is_not_taken_back() {
    for (level, drives) in LEVELS {
        for set_back in 2..drives {
            let mut world = World::new(drives, false);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.close();
            let old: Vec<Disk> = world.disks[..set_back].iter().map(Disk::fork).collect();
            let p = world.start(2);
            p.write(0, 50, 16).unwrap();
            p.flush().unwrap();
            p.kill(2);
            world.disks.splice(..set_back, old);
            let rt = rt::Rt::modelled(3);
            if let Ok(array) = rt.block_on(array::Array::open(&rt, World::drives(&rt, &world.disks), DEGRADED))
                && let Ok(read) = crate::world::read(&rt, &array.volume("v").unwrap(), 0, 16)
            {
                assert!(read.iter().all(|b| *b == 50), "{level}, {set_back} old: block 0 is {}", read[0]);
            }
            rt.end();
        }
    }
}

/// A drive whose contents are replaced by older ones under a running array: that is noticed, and it comes back.
pub fn a_member_that_is_set_back_in_use_goes_out() {
    for (level, drives) in LEVELS {
        for commits in [true, false] {
            let world = World::new(drives, false);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.checkpoint();
            let old = world.disks[1].fork();
            fill(&p, 50, BLOCKS);
            (0..2).for_each(|_| p.checkpoint_after_a_write());
            let all = base::BlockCount(old.params().bytes / BLOCK);
            world.disks[1].image_write(base::MemberLba(0), &old.image_read(base::MemberLba(0), all));
            assert!(holds(&p, 50, BLOCKS), "{level}: what is read was written last");
            if commits {
                p.checkpoint_after_a_write()
            } else {
                p.wait(Duration::from_secs(15))
            }
            assert!(p.array().status().members[1].state.is_out(), "{level}, commits: {commits}");
            let (array, drive) = (p.array(), Drive::modelled(&p.rt, &world.disks[1]));
            p.run(async move { array.drive_back(base::MemberId(1), drive).await }).unwrap();
            becomes_optimal(&p);
            any_loss_is_survived(&world, 5, |p| holds(p, 50, BLOCKS));
            p.close();
            assert!(world.check().ok());
        }
    }
}

/// A drive that is back under load takes its seat, and gets what was written meanwhile.
pub fn a_drive_that_is_back_under_load_takes_its_seat() {
    for (level, drives) in LEVELS {
        let world = World::new(drives, false);
        world.create(level);
        let p = world.start(1);
        fill(&p, 1, BLOCKS);
        p.checkpoint();
        world.disks[1].detach();
        fill(&p, 50, BLOCKS);
        p.checkpoint();
        assert!(p.array().status().members[1].state.is_out(), "{level}");
        world.disks[1].attach();
        let writer = {
            let (v, rt) = (p.v(), p.rt.clone());
            p.rt.spawn(async move {
                for i in 0..400u64 {
                    v.write(i % 64 * BLOCK, data(9, 1), false).await.unwrap();
                    rt.sleep(Duration::from_micros(200)).await;
                }
            })
        };
        let (array, drive) = (p.array(), Drive::modelled(&p.rt, &world.disks[1]));
        p.run(async move { array.drive_back(base::MemberId(1), drive).await }).unwrap();
        p.run(writer);
        becomes_optimal(&p);
        p.flush().unwrap();
        let right = |p: &Process<'_>| {
            p.is(0, 9, 64) && (64..BLOCKS).step_by(16).all(|lba| p.is(lba, 50 + (lba / 16 % 7) as u8, 16))
        };
        assert!(right(&p));
        any_loss_is_survived(&world, 5, right);
        p.kill(1);
        assert!(world.check().ok());
    }
}

/// A drive that is gone is missing, whatever it was asked when that was noticed: so it comes back by itself.
pub fn a_drive_that_is_gone_is_missing_whatever_it_was_asked() {
    for (level, drives) in LEVELS {
        for asked in [OpKind::Write, OpKind::Flush] {
            let world = World::new(drives, true);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.checkpoint();
            world.on_ops(
                move |disk, op, _| {
                    if disk == 1 && op.kind == asked { Verdict::Fail(IoError::Gone) } else { Verdict::Proceed }
                },
            );
            fill(&p, 50, BLOCKS);
            p.checkpoint();
            assert!(p.array().status().members[1].state.is_out(), "{level}, {asked:?}");
            world.no_hooks();
            let (array, drive) = (p.array(), Drive::modelled(&p.rt, &world.disks[1]));
            let back = p.run(async move { array.drive_back(base::MemberId(1), drive).await });
            assert!(back.is_ok(), "{level}, {asked:?}: {back:?}");
            becomes_optimal(&p);
            any_loss_is_survived(&world, 5, |p| holds(p, 50, BLOCKS));
            p.close();
        }
    }
}

/// A drive of an idle array is pulled, hangs, or is emptied. `drive_fail` of another one notices that, and is refused where the
/// array cannot lose both.
pub fn the_others_are_asked_before_one_is_failed() {
    for (level, drives) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for what in ["pulled", "hung", "emptied"] {
            let world = World::new(drives, true);
            world.create(level);
            let p = world.start(1);
            fill(&p, 1, BLOCKS);
            p.checkpoint();
            match what {
                "hung" => world.on_ops(|disk, _, _| if disk == 1 { Verdict::Hang } else { Verdict::Proceed }),
                "pulled" => world.disks[1].detach(),
                _ => {
                    let all = world.disks[1].params().bytes as usize;
                    world.disks[1].image_write(base::MemberLba(0), &vec![0; all]);
                }
            }
            let array = p.array();
            let failed = p.run(async move { array.drive_fail(base::MemberId(0)).await });
            assert_eq!(failed.is_ok(), level == Level::Raid6, "{level}, {what}: {failed:?}");
            assert!(holds(&p, 1, BLOCKS), "{level}, {what}");
        }
    }
}

/// A segment that has more columns than there are seats does not stay degraded when no drive is missing: its live blocks are written
/// elsewhere.
pub fn a_column_without_a_seat_is_written_elsewhere() {
    for (level, drives) in [(Level::Raid5, 4), (Level::Raid6, 4)] {
        let mut world = World::new(drives, false);
        world.create_with(level, 64, 16 << 20);
        let p = world.start(1);
        p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
        p.close();
        let old = world.disks[3].fork();
        let p = world.start(2);
        fill(&p, 1, 1600);
        p.rt.block_on(p.array().drive_retire(base::MemberId(2))).unwrap();
        p.close();
        world.disks[3] = old;
        // One drive leaves, and another is back without a column that is current: segments lack a seat.
        let p = world.start_how(3, DEGRADED);
        p.rt.block_on(p.array().rebuild_pause(false)).unwrap();
        becomes_optimal(&p);
        assert_eq!(p.array().status().members.iter().filter(|m| m.state == SeatState::In).count(), 3, "{level}");
        assert!(holds(&p, 1, 1600));
        p.close();
        world.disks.remove(2);
        let report = world.check();
        assert!(report.ok(), "{:#?}", report.errors);
    }
}

/// A member whose contents are gone under a running array is out, however much of it reads as zeros.
pub fn a_member_that_is_blank_in_use_goes_out() {
    for (level, drives) in LEVELS {
        let world = World::new(drives, false);
        world.create(level);
        let p = world.start(1);
        fill(&p, 5, BLOCKS);
        p.checkpoint();
        let all = world.disks[1].params().bytes;
        world.disks[1].image_write(base::MemberLba(0), &vec![0; all as usize]);
        p.wait(Duration::from_secs(15));
        assert!(p.array().status().members[1].state.is_out(), "{level}");
        assert!(holds(&p, 5, BLOCKS));
        p.close();
    }
}

/// So is one whose file was cut to nothing, and has grown again by what was written since: what lies behind its end cannot be
/// read.
pub fn a_member_that_was_cut_short_in_use_goes_out() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    fill(&p, 5, BLOCKS);
    p.checkpoint();
    let all = world.disks[1].params().bytes;
    let [_, last, _] = world.label(1).layout.labels();
    world.on_ops(move |disk, op, _| match op.kind {
        OpKind::Read if disk == 1 && op.at == last => Verdict::Fail(rt::IoError::Medium),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    world.disks[1].image_write(base::MemberLba(0), &vec![0; all as usize]);
    p.wait(Duration::from_secs(15));
    assert!(p.array().status().members[1].state.is_out());
    assert!(holds(&p, 5, BLOCKS));
    p.close();
}

/// A missing drive that a person fails does not come back by itself.
pub fn a_missing_drive_that_is_failed_stays_out() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    fill(&p, 1, BLOCKS);
    world.disks[1].detach();
    fill(&p, 50, BLOCKS);
    let array = p.array();
    p.run(async move { array.drive_fail(base::MemberId(1)).await }).unwrap();
    world.disks[1].attach();
    let (array, drive) = (p.array(), Drive::modelled(&p.rt, &world.disks[1]));
    assert!(p.run(async move { array.drive_back(base::MemberId(1), drive).await }).is_err());
    p.close();
    let p = world.start_how(2, DEGRADED);
    p.wait(Duration::from_secs(30));
    assert_eq!(p.array().status().members[1].state, SeatState::Failed, "{:#?}", p.array().status().events);
    p.close();
}
