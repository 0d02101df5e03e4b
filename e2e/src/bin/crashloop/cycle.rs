//! One cycle: load, death, start, readback.

use std::time::Duration;

use e2e::load::{Ended, Load, Mix, Random};
use e2e::{Failure, Result, ashlar, readback};
use futures::future::{Either, select};
use rand::RngExt;
use rt::Rt;

use crate::args::Args;
use crate::members::Deed;
use crate::scene::{Scene, Style};
use crate::swaps;

/// How long a load runs before the kill, in milliseconds: each power of two is as likely as any other.
const LOAD_MS_POWERS: std::ops::Range<u32> = 1..8;
/// A load that is to turn over the log writes about so much of the volume.
const CHURN_PERCENT: u64 = 20;
/// Between the last answer and an idle kill, in milliseconds at most.
const IDLE_MS_MAX: u64 = 60;
/// Most kills of one recovery after the other.
const RECOVERY_KILLS_MAX: u32 = 3;
/// How long a load may take to write what it is to write: a hundred times what it takes.
const LOAD_MAX: Duration = Duration::from_secs(30);

/// What cycles did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Requests answered.
    pub requests: u64,
    /// Requests in flight when the server died.
    pub unanswered: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read back.
    pub bytes_verified: u64,
    /// Kills, under load or idle.
    pub kills: u32,
    /// Of these, idle.
    pub kills_idle: u32,
    /// Kills during recovery.
    pub kills_in_recovery: u32,
    /// Stops in order.
    pub stops: u32,
    /// Offline checks.
    pub checks: u32,
    /// Drives failed.
    pub drives_failed: u32,
    /// Drives replaced.
    pub drives_replaced: u32,
    /// Drives added.
    pub drives_added: u32,
    /// Drives retired.
    pub drives_retired: u32,
    /// Scrubs started.
    pub scrubs: u32,
    /// Members and older copies of them.
    pub swaps: swaps::Counts,
    /// Starts, and the time of all of them.
    pub starts: u32,
    /// See `starts`.
    pub start: Duration,
}

impl Done {
    /// Adds another's figures.
    pub fn add(&mut self, other: &Done) {
        self.requests += other.requests;
        self.unanswered += other.unanswered;
        self.bytes_written += other.bytes_written;
        self.bytes_verified += other.bytes_verified;
        self.kills += other.kills;
        self.kills_idle += other.kills_idle;
        self.kills_in_recovery += other.kills_in_recovery;
        self.stops += other.stops;
        self.checks += other.checks;
        self.drives_failed += other.drives_failed;
        self.drives_replaced += other.drives_replaced;
        self.drives_added += other.drives_added;
        self.drives_retired += other.drives_retired;
        self.scrubs += other.scrubs;
        self.swaps.add(&other.swaps);
        self.starts += other.starts;
        self.start += other.start;
    }
}

/// How the server's life ends in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// SIGKILL with requests in flight.
    UnderLoad,
    /// SIGKILL some time after the last answer.
    Idle,
    /// SIGTERM.
    Stop,
}

/// What a cycle will do, drawn before it begins.
struct Script {
    mix: Mix,
    death: Death,
    load: Duration,
    churn_bytes: u64,
    idle: Duration,
    deed: Option<Deed>,
    /// From the deed's verb on to the kill.
    deed_to_kill: Duration,
    seed: u64,
    check: bool,
    recovery_kills: Vec<f64>,
}

impl Script {
    fn draw(scene: &mut Scene, random: &mut Random, args: &Args) -> Script {
        let churn = scene.style == Style::Churn;
        let sectors = scene.sectors();
        let power = random.random_range(LOAD_MS_POWERS);
        let deed = scene.members.deed(scene.cycles, random, &scene.ashlar);
        let stays = scene.swaps.are_returning() || scene.swaps.are_late(scene.cycles);
        let deed = deed.filter(|deed| !stays || !deed.changes_members());
        let death = match random.random_range(0..20) {
            0 => Death::Stop,
            1..=4 => Death::Idle,
            _ => Death::UnderLoad,
        };
        let in_recovery = random.random_range(0..100) < 20;
        let recovery_kills = if in_recovery { random.random_range(1..=RECOVERY_KILLS_MAX) } else { 0 };
        Script {
            mix: if churn { Mix::churn(sectors) } else { Mix::drawn(random, sectors) },
            death,
            load: Duration::from_micros(random.random_range(500..=1000) << power),
            churn_bytes: if churn { sectors * 512 * CHURN_PERCENT / 100 } else { 0 },
            idle: Duration::from_millis(random.random_range(0..=IDLE_MS_MAX)),
            deed,
            deed_to_kill: Duration::from_micros(100 << random.random_range(0..11)),
            seed: random.random(),
            check: random.random_range(0..args.check_every.max(1)) == 0,
            recovery_kills: (0..recovery_kills).map(|_| random.random_range(0.0..1.1)).collect(),
        }
    }
}

/// Runs cycle `number` on `scene`, whose server is up.
pub async fn run(rt: &Rt, scene: &mut Scene, random: &mut Random, number: u32, args: &Args) -> Result<Done> {
    let mut done = Done::default();
    scene.model.borrow_mut().set_cycle(number);
    if scene.members.whole_by(scene.cycles) {
        scene.members.wait_whole(&scene.ashlar, &scene.server)?;
    }
    if scene.swaps.are_late(scene.cycles) {
        scene.members.make_whole(&scene.ashlar, &scene.server)?;
    }
    let script = Script::draw(scene, random, args);
    let sound = !script.deed.as_ref().is_some_and(Deed::changes_members) && scene.swaps.want(scene.cycles);
    let sound = sound && scene.members.are_whole(&scene.ashlar)?;
    let verb = load_and_die(rt, scene, &script, &mut done).await?;
    swaps::clear(scene)?;
    if script.check {
        scene.check()?;
        done.checks += 1;
    }
    if sound {
        swaps::turn(scene, random, &mut done.swaps)?;
    }
    start(rt, scene, &script, &mut done).await?;
    swaps::started(scene, &mut done.swaps)?;
    if let (Some(deed), Some(ended)) = (&script.deed, verb) {
        match (deed, ended.code) {
            (Deed::Fail { .. }, Some(0)) => done.drives_failed += 1,
            (Deed::Replace { .. }, Some(0)) => done.drives_replaced += 1,
            (Deed::Grow { .. }, Some(0)) => done.drives_added += 1,
            (Deed::Retire { .. }, Some(0)) => done.drives_retired += 1,
            (Deed::Scrub { .. }, Some(0)) => done.scrubs += 1,
            _ => {}
        }
        scene.members.reconcile(&scene.ashlar, deed, ended, script.death == Death::UnderLoad)?;
    }
    let clients = scene.connect(rt).await?;
    done.bytes_verified += readback::verify(&clients, &scene.model).await?;
    drop(clients);
    swaps::prove(rt, scene, random, &mut done).await?;
    scene.cycles += 1;
    Ok(done)
}

/// The load, with what happens to members meanwhile, and the end of the server.
async fn load_and_die(rt: &Rt, scene: &mut Scene, script: &Script, done: &mut Done) -> Result<Option<ashlar::Ended>> {
    let clients = scene.connect(rt).await?;
    let load = Load::start(rt, &clients, &scene.model, script.mix.clone(), script.seed);
    let begun = rt.now();
    while load.bytes_written() < script.churn_bytes && !load.is_over() {
        if rt.now() - begun > LOAD_MAX {
            let written = load.bytes_written() >> 20;
            let status = scene.ashlar.status(scene.name)?;
            return Err(scene.server.broken(format!("only {written} MiB written in {LOAD_MAX:?}; status: {status}")));
        }
        rt.sleep(Duration::from_millis(1)).await;
    }
    rt.sleep(script.load).await;
    let under_load = script.death == Death::UnderLoad;
    let verb = match &script.deed {
        None => None,
        Some(deed) => {
            let command = scene.members.command(deed);
            let verb = Box::pin(scene.ashlar.run_beside(rt, command));
            let pause = if under_load { script.deed_to_kill } else { LOAD_MAX };
            match select(verb, rt.sleep(pause)).await {
                Either::Left((ended, _)) => Some(Either::Left(ended?)),
                Either::Right(((), verb)) => Some(Either::Right(verb)),
            }
        }
    };
    // An end that nobody asked for shows in the kill, which finds the process dead.
    if under_load || load.is_over() {
        scene.server.kill()?;
        done.kills += 1;
    }
    let ended = load.finish().await?;
    let ended_verb = match verb {
        None => None,
        Some(Either::Left(ended)) => Some(ended),
        Some(Either::Right(verb)) => Some(verb.await?),
    };
    count(done, &ended);
    match script.death {
        Death::UnderLoad => {}
        _ if ended.disconnected => {
            return Err(scene.server.broken("it closed the connection under load".into()));
        }
        Death::Idle => {
            rt.sleep(script.idle).await;
            scene.server.kill()?;
            done.kills += 1;
            done.kills_idle += 1;
        }
        Death::Stop => {
            drop(clients);
            scene.server.stop()?;
            done.stops += 1;
        }
    }
    Ok(ended_verb)
}

fn count(done: &mut Done, ended: &Ended) {
    done.requests += ended.tally.requests;
    done.unanswered += ended.tally.unanswered;
    done.bytes_written += ended.tally.bytes_written;
}

/// Starts the server; kills it on the way there as often as the script says.
async fn start(rt: &Rt, scene: &mut Scene, script: &Script, done: &mut Done) -> Result<()> {
    // What may be refused is started once.
    let recovery_kills = if swaps::may_be_refused(scene) { &[][..] } else { &script.recovery_kills };
    for share in recovery_kills {
        scene.server.spawn()?;
        rt.sleep(scene.last_start.mul_f64(*share)).await;
        if let Some(status) = scene.server.ended()? {
            return Err(Failure::new("ashlar serve", format!("it ended with {status}\n{}", scene.server.log_end())));
        }
        let recovered = scene.server.answers();
        scene.server.kill()?;
        if recovered {
            done.kills += 1;
            done.kills_idle += 1;
        } else {
            done.kills_in_recovery += 1;
        }
    }
    scene.last_start = match scene.server.start() {
        Ok(took) => took,
        Err(failure) => {
            swaps::refused(scene, failure, &mut done.swaps)?;
            scene.server.start()?
        }
    };
    done.starts += 1;
    done.start += scene.last_start;
    Ok(())
}
