//! Two servers on the same drives, on machines of their own: whoever has the array is the only one that changes it.
//!
//! Each server has a runtime, and so a clock, of its own; the trial lets them go on by turns. A server that stands still is one
//! that gets no turns: then its clock jumps. Its drives go on meanwhile with what it had asked them for.
//!
//! Laws: a second server is refused while the first goes on, unless it takes the array over; once the second has the array,
//! nothing that it reads is changed by the first, and nothing that the first acknowledges is missing from what it found; without
//! reservations the first acknowledges nothing at all any more; what either acknowledged while it had the array is there; a check
//! finds nothing.
//!
//! Why not "nothing at all" with reservations, too: there the second need not wait until the first must have looked, since the
//! drives themselves refuse the first from then on. What they did for it before, and what it hears of when it goes on, it
//! acknowledges: the second has it, as if the first had died at that instant and its answer had been long on the way to the host.
//! No server can do without that, since it may stand still between its last look and its answer. Without reservations drives
//! refuse nobody, so what they do may come after the second has read them: there the wait is what the law relies on.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use array::owner::OwnerHow;
use array::{Array, CreateSpec, OpenHow, Refused, RefusedCode, check};
use futures::future::{Either, select};
use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rt::Rt;
use rt::model::{Disk, DiskParams};

use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::Dice;
use crate::report::Report;
use crate::run::{drain, host};
use crate::volumes::{Fate, Volumes};
use crate::workload::Done;
use crate::world::{World, drives, labelled, open};

/// One turn of a server.
const TURN: Duration = Duration::from_millis(20);

/// What a second server does about the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// It opens the array while the first goes on.
    Asks,
    /// It takes the array over while the first goes on.
    Takes,
    /// It opens, or takes over, while the first stands still.
    WhileStill,
    /// There is none: the drives forget who has reserved them.
    Resets,
}

/// A server at work.
struct Server {
    rt: Rt,
    array: Array,
    done: Rc<Done>,
    /// How fast its clock goes, in thousandths.
    pace: u32,
}

impl Server {
    fn pass(&self, turns: u32) {
        let time = TURN * self.pace / 1000 * turns;
        self.rt.block_on(self.rt.sleep(time));
    }

    fn set_to_work(&self, volumes: &Volumes, hosts: usize, dice: &mut Dice) {
        for _ in 0..hosts {
            self.rt.spawn(host(&self.array, volumes, 0, &self.done).run(self.rt.clone(), dice.random())).detach();
        }
    }

    fn events(&self) -> String {
        format!("{:?} {:#?}", self.array.status().state, self.array.status().events)
    }
}

/// Two servers, and what comes of it.
pub fn servers(world: &mut World, report: &mut Report) -> Result<(), String> {
    let mut dice = Dice::seed_from_u64(world.dice.random());
    let second = [Second::Asks, Second::Takes, Second::WhileStill, Second::Resets][dice.random_range(0..4)];
    let reservable = second == Second::Resets || dice.random_range(0..2) == 0;
    let (level, count) = [(Level::Raid0, 2), (Level::Raid10 { copies: 2 }, 2), (Level::Raid5, 3), (Level::Raid6, 4)]
        [dice.random_range(0..4)];
    let bytes = world.plan.system_bytes() + (66 << 18);
    let params = DiskParams { bytes, shared: true, reservable, ..world.plan.disk() };
    let disks: Vec<Disk> = (0..count).map(|i| Disk::new(&format!("two-{i}"), params, dice.random())).collect();
    let mut volumes = Volumes::default();
    make(world, &disks, level, count, &mut volumes)?;
    world.counts.add(Kind::TwoServers, 1);

    let how =
        |take_over| OpenHow { owner: OwnerHow { take_over, reserve: reservable, carried: None }, ..OpenHow::default() };
    let first = begin(&mut dice, &disks, 0, how(false))?;
    // Seconds must pass: hosts that are in no hurry show as much.
    first.set_to_work(&volumes, dice.random_range(1..5), &mut dice);
    first.pass(dice.random_range(1..100));
    report.recoveries += 1;
    match second {
        Second::Resets => resets(&mut dice, &first, &disks)?,
        Second::Asks => {
            let seen = reached(&mut dice, &disks, level);
            asks(&mut dice, &first, &seen, how(false))?;
        }
        Second::Takes | Second::WhileStill => {
            let take_over = second == Second::Takes || dice.random_range(0..2) == 0;
            let still = second == Second::WhileStill;
            let seen = reached(&mut dice, &disks, level);
            let two = Two { disks: &seen, reservable, still };
            match two.take(&mut dice, first, how(take_over), &mut volumes)? {
                Some(first) => return end(world, first, &disks, volumes),
                None => return checked(world, &disks),
            }
        }
    }
    end(world, first, &disks, volumes)
}

/// The drives that a second server reaches: all, or as few as the redundancy lets it do with.
fn reached(dice: &mut Dice, disks: &[Disk], level: Level) -> Vec<Disk> {
    let mut seen = disks.to_vec();
    let enough = disks.len() > 2 * level.tolerates();
    if enough && dice.random_range(0..2) == 0 {
        for _ in 0..level.tolerates() {
            seen.remove(dice.random_range(0..seen.len()));
        }
    }
    seen
}

/// The array, with a volume, closed in order.
fn make(world: &mut World, disks: &[Disk], level: Level, width: usize, volumes: &mut Volumes) -> Result<(), String> {
    let spec = CreateSpec { level, width: Some(width), zone_blocks: Some(64), ..world.plan.spec() };
    let rt = world.rt();
    let made = rt.block_on(Array::create(&rt, drives(&rt, disks), &spec)).map_err(|e| e.to_string())?;
    let bytes = (1 << 20).min(made.status().usable_bytes);
    rt.block_on(made.volume_create("v", bytes)).map_err(|e| e.to_string())?;
    volumes.add("v", bytes, Fate::Stays);
    rt.block_on(made.close()).map_err(|e| e.to_string())?;
    rt.end();
    Ok(())
}

/// A runtime on a machine, by a wall clock that may be far from others'.
fn runtime(dice: &mut Dice, machine: u64) -> Rt {
    Rt::modelled_on(dice.random(), Duration::from_secs(dice.random_range(0..100_000)), machine)
}

fn serving(dice: &mut Dice, rt: Rt, array: Array) -> Server {
    let done = Rc::new(Done::default());
    done.unhurried.set(true);
    Server { rt, array, done, pace: dice.random_range(990..1011) }
}

fn begin(dice: &mut Dice, disks: &[Disk], machine: u64, how: OpenHow) -> Result<Server, String> {
    let rt = runtime(dice, machine);
    let opened = open(&rt, disks, how);
    let array = opened.map_err(|e| format!("nobody has it, and it is refused: {e}"))?;
    Ok(serving(dice, rt, array))
}

/// Drives forget reservations, or the machine that holds them: nothing comes of it.
fn resets(dice: &mut Dice, first: &Server, disks: &[Disk]) -> Result<(), String> {
    let key = disks[0].held_by();
    for _ in 0..dice.random_range(1..4) {
        for disk in disks {
            match dice.random_range(0..3) {
                0 => disk.forget_machine(0),
                1 => disk.forget_reservations(),
                _ => {}
            }
        }
        first.pass(1000);
    }
    if first.array.status().state != ArrayState::Optimal {
        return Err(format!("a reset stopped it: {}", first.events()));
    }
    if key.is_none() || disks.iter().any(|d| d.held_by() != key) {
        return Err("drives that forgot their reservation were not reserved again".to_owned());
    }
    Ok(())
}

/// A second server opens the array while the first goes on, with pauses that are nothing unusual.
fn asks(dice: &mut Dice, first: &Server, disks: &[Disk], how: OpenHow) -> Result<(), String> {
    let machine = dice.random_range(0..2);
    let rt = runtime(dice, machine);
    let mut opening = Box::pin(Array::open(&rt, drives(&rt, &labelled(&rt, disks)), how));
    loop {
        match rt.block_on(select(&mut opening, pin!(rt.sleep(TURN)))) {
            Either::Left((Ok(array), _)) => {
                return Err(format!(
                    "two have it; the first is {:?}, the second {:?}",
                    first.array.status().state,
                    array.status().state
                ));
            }
            Either::Left((Err(refused), _)) => {
                is_in_use(&refused)?;
                break;
            }
            Either::Right(_) if dice.random_range(0..40) == 0 => {
                let pause = Duration::from_millis(dice.random_range(0..1000));
                disks.iter().for_each(|d| d.hurry(0));
                rt.block_on(rt.sleep(pause));
                first.rt.stand_still(pause);
            }
            Either::Right(_) => first.pass(1),
        }
    }
    drop(opening);
    rt.end();
    first.pass(200);
    match first.array.status().state {
        ArrayState::Optimal => Ok(()),
        _ => Err(format!("who had it was stopped by who was refused: {}", first.events())),
    }
}

fn is_in_use(refused: &Refused) -> Result<(), String> {
    match refused.code {
        RefusedCode::InUseElsewhere => Ok(()),
        _ => Err(format!("refused for another reason: {refused}")),
    }
}

struct Two<'a> {
    disks: &'a [Disk],
    reservable: bool,
    still: bool,
}

impl Two<'_> {
    /// The second server comes; the first, if it still has the array.
    fn take(
        &self,
        dice: &mut Dice,
        first: Server,
        how: OpenHow,
        volumes: &mut Volumes,
    ) -> Result<Option<Server>, String> {
        let rt = runtime(dice, 1);
        let hurry = || self.disks.iter().for_each(|d| d.hurry(0));
        if self.still {
            hurry();
        }
        // It goes on before the second has the array, or long afterwards.
        let pause = TURN * [0, 20, 200, 400, 500, 600, 10_000][dice.random_range(0..7)];
        let mut stood = Duration::ZERO;
        let mut still = self.still;
        let mut opening = Box::pin(Array::open(&rt, drives(&rt, &labelled(&rt, self.disks)), how));
        let opened = loop {
            match rt.block_on(select(&mut opening, pin!(rt.sleep(TURN)))) {
                Either::Left((opened, _)) => break opened,
                Either::Right(_) if still && stood < pause => stood += TURN,
                Either::Right(_) if still => {
                    still = false;
                    first.rt.stand_still(stood);
                    first.pass(1);
                }
                Either::Right(_) => first.pass(1),
            }
        };
        drop(opening);
        match opened {
            Err(refused) => {
                is_in_use(&refused)?;
                if how.owner.take_over {
                    return Err(format!("taking over was refused: {refused}"));
                }
                if still {
                    first.rt.stand_still(stood);
                }
                rt.end();
                Ok(Some(first))
            }
            Ok(array) => {
                let second = serving(dice, rt, array);
                self.both(dice, first, second, still.then_some(stood), volumes)?;
                Ok(None)
            }
        }
    }

    /// The second has the array. The first goes on, or wakes.
    fn both(
        &self,
        dice: &mut Dice,
        first: Server,
        second: Server,
        still: Option<Duration>,
        volumes: &mut Volumes,
    ) -> Result<(), String> {
        let acknowledged = acknowledged(volumes);
        // What the first was asked and has not acknowledged may be there or not, and is as it is from now on.
        let mut seconds = volumes.fork();
        seconds
            .compare(&second.rt, &second.array, Mode::Killed)
            .map_err(|e| format!("after the second took it: {e}"))?;
        let found = seconds.fork();
        second.set_to_work(&seconds, dice.random_range(1..5), dice);
        let mut asleep = still.map(|stood| (stood, dice.random_range(0..400)));
        for turn in 0..800 {
            second.pass(1);
            match asleep {
                Some((stood, until)) if turn < until => asleep = Some((stood + TURN, until)),
                Some((stood, _)) => {
                    asleep = None;
                    first.rt.stand_still(stood);
                }
                None => first.pass(1),
            }
        }
        volumes
            .were_in(&found, Mode::Killed)
            .map_err(|e| format!("the first acknowledged what the second did not find: {e}"))?;
        if !self.reservable && self::acknowledged(volumes) != acknowledged {
            return Err("the first acknowledged a change after the second had the array".to_owned());
        }
        let state = first.array.status().state;
        let blamed = first.array.status().members.iter().any(|m| m.errors > 0);
        if state != ArrayState::Frozen || blamed {
            return Err(format!("the first goes on, or blames its drives ({}): {}", self.reservable, first.events()));
        }
        drain(&second.rt, &second.done).map_err(|e| format!("the second: {e}: {}", second.events()))?;
        for (who, server) in [("first", &first), ("second", &second)] {
            if let Some(wrong) = server.done.wrong.take() {
                return Err(format!("the {who}: {wrong}: {}", server.events()));
            }
        }
        let read = seconds.compare(&second.rt, &second.array, Mode::Killed);
        read.map_err(|e| format!("what the second has: {e}: {}", second.events()))?;
        let Server { rt, array, .. } = first;
        drop(array);
        rt.end();
        self.disks.iter().for_each(|d| d.hurry(0));
        second.rt.block_on(second.array.clone().close()).map_err(|e| format!("{e}: {}", second.events()))?;
        drop(second.array);
        second.rt.end();
        Ok(())
    }
}

/// Changes that were acknowledged.
fn acknowledged(volumes: &Volumes) -> u64 {
    volumes.all.iter().map(|held| held.model.borrow().acknowledged()).sum()
}

/// The first had it all the time.
fn end(world: &mut World, first: Server, disks: &[Disk], mut volumes: Volumes) -> Result<(), String> {
    drain(&first.rt, &first.done)?;
    if let Some(wrong) = first.done.wrong.take() {
        return Err(format!("{wrong}: {}", first.events()));
    }
    if first.array.status().state == ArrayState::Optimal {
        volumes.compare(&first.rt, &first.array, Mode::Killed).map_err(|e| format!("{e}: {}", first.events()))?;
        first.rt.block_on(first.array.clone().close()).map_err(|e| format!("{e}: {}", first.events()))?;
    }
    drop(first.array);
    first.rt.end();
    disks.iter().for_each(|d| d.crash(0));
    checked(world, disks)?;
    let rt = world.rt();
    let opened = open(&rt, disks, OpenHow::default());
    let array = opened.map_err(|e| format!("afterwards: {e}"))?;
    volumes.compare(&rt, &array, Mode::Killed).map_err(|e| format!("afterwards: {e}"))
}

/// Nothing is wrong with what is on the drives.
fn checked(world: &mut World, disks: &[Disk]) -> Result<(), String> {
    let rt = world.rt();
    let copies: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    let found = rt.block_on(check(&rt, drives(&rt, &labelled(&rt, &copies)), |_| {})).map_err(|e| e.to_string())?;
    rt.end();
    if found.error_count == 0 { Ok(()) } else { Err(format!("a check finds {:#?}", found.errors)) }
}
