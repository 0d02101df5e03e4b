//! One writer: a second server reaches the same drives by inodes of its own, as another machine would (loop devices over the
//! drives' files: a lock on a file knows nothing of them).

use std::fs;
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result, tools};

use super::Case;
use crate::fixture::{ARRAY, Lab, Served, Traffic};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "two-servers",
        about: "the second is refused, also its verbs; --take-over stops the first, and nothing is lost",
        run: |lab| two(lab, &[]),
    },
    Case {
        name: "two-servers-parts",
        about: "the same with an array in parts",
        run: |lab| two(lab, &["--parts", "2"]),
    },
    Case { name: "two-starts", about: "two servers start at once: one has the array, or none", run: at_once },
    Case { name: "starts-after-sigkill", about: "100 starts after SIGKILL take as long as after a stop", run: starts },
];

const DRIVES: usize = 3;
const BYTES: u64 = 24 << 20;
/// A refused start ends within this.
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// Loop devices over files, gone when this is dropped.
struct Loops(Vec<String>);

impl Loops {
    fn over(served: &Served) -> Result<Loops> {
        let mut loops = Loops(vec![]);
        for drive in 0..served.drives.len() {
            let file = served.file(drive).display().to_string();
            let printed = tools::run(served.dir(), "losetup", &["-f", "--show", "--direct-io=on", &file])?;
            loops.0.push(printed.trim().to_owned());
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _gone = tools::run(std::path::Path::new("/"), "losetup", &["-d", device]);
        }
    }
}

/// Another installation, on the loop devices.
fn second(lab: &Lab, loops: &Loops, flags: &[&str]) -> Result<(Ashlar, Server)> {
    let dir = lab.dir.join("second");
    fs::create_dir_all(&dir).or_fail("a directory")?;
    let ashlar = Ashlar::new(&lab.program, &dir);
    let mut all: Vec<&str> = flags.to_vec();
    all.extend(loops.0.iter().map(String::as_str));
    let server = Server::new(&ashlar).with_flags(&all);
    Ok((ashlar, server))
}

/// The refusal of a verb tells who has the array.
fn is_refused(ashlar: &Ashlar, args: &[&str]) -> Result<()> {
    let ended = ashlar.run(args)?.expect(3)?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").or_fail("the host's name")?;
    let says = ended.err.contains("in use") && ended.err.contains(host.trim());
    require(says, &ended.command, || format!("it does not say who has it: {}", ended.err))
}

fn two(lab: &Lab, flags: &[&str]) -> Result<()> {
    let create = [&["--raid", "5", "--size", "600M"], flags].concat();
    let mut served = lab.array_of("first", &create, DRIVES, "24M")?;
    served.server.start()?;
    let loops = Loops::over(&served)?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(200))?;
    let rt = traffic.rt.clone();
    let (other, mut server) = second(lab, &loops, &["--take-over", ARRAY])?;
    let all: Vec<&str> = loops.0.iter().map(String::as_str).collect();

    // While the first goes on, everything that writes is refused.
    rt.block_on(async {
        let load = traffic.start(&served).await?;
        let refuse = [
            [&["serve", "--nbd", "unix:refused.sock"], &all[..]].concat(),
            [&["import", "--all"], &all[..]].concat(),
            [&["create", "other", "--raid", "0", "--force"], &all[..]].concat(),
            vec!["wipe", "--yes", all[0]],
        ];
        for args in &refuse {
            let (other, args) = (other.clone(), args.clone());
            let words = args.iter().map(|w| (*w).to_owned()).collect();
            let ended = other.run_beside(&rt, words).await?.expect(3)?;
            let says = ended.err.contains("in use");
            require(says, &ended.command, || format!("it does not say that it is in use: {}", ended.err))?;
        }
        let ended = load.finish().await?;
        require(!ended.disconnected, "the first server", || "it closed the connection".into())
    })?;
    require(served.state()? == "optimal", "the first server", || "it is not optimal any more".into())?;
    traffic.verify(&served)?;
    is_refused(&other, &[&["import", "--all"], &all[..]].concat())?;

    // By force: the first stops before the second goes on.
    rt.block_on(async {
        let load = traffic.start(&served).await?;
        server.spawn()?;
        let begun = Instant::now();
        while !server.answers() {
            require(begun.elapsed() < REFUSED_MAX, "--take-over", || server.log_end())?;
            rt.sleep(Duration::from_millis(20)).await;
        }
        let answered = load.requests();
        rt.sleep(Duration::from_millis(500)).await;
        let later = load.requests();
        require(answered == later && load.is_over(), "the first server", || {
            format!("it answers on: {answered} requests, then {later}")
        })?;
        match load.finish().await {
            Ok(ended) => require(ended.disconnected, "the first server", || "its hosts noticed nothing".into()),
            Err(_refused) => Ok(()),
        }
    })?;
    require(served.state()? == "frozen", "the first server", || "it is not frozen".into())?;
    let status = served.ashlar.status(ARRAY)?;
    let blamed = status["members"].as_array().is_some_and(|all| all.iter().any(|m| m["errors"] != 0));
    require(!blamed, "the first server", || format!("it blames its drives: {status}"))?;
    let taken = Served { ashlar: other.clone(), server, drives: loops.0.clone() };
    traffic.verify(&taken)?;
    traffic.run(&taken, Duration::from_millis(200))?;
    served.server.stop()?;
    traffic.verify(&taken)?;
    let Served { mut server, .. } = taken;
    server.stop()?;
    other.done(&["check", ARRAY])?;
    drop(loops);
    // What was handed over in order is opened at once, from wherever.
    served.server.start()?;
    traffic.verify(&served)?;
    served.server.stop()?;
    served.ashlar.done(&["check", ARRAY]).map(drop)
}

/// Two that start at once, neither of which knows of the other.
fn at_once(lab: &Lab) -> Result<()> {
    const ROUNDS: usize = 8;
    let mut served = lab.array("first", "5", DRIVES, "24M")?;
    let loops = Loops::over(&served)?;
    let (_other, mut second) = second(lab, &loops, &[])?;
    let mut alone = 0;
    for round in 0..ROUNDS {
        served.server.spawn()?;
        second.spawn()?;
        let begun = Instant::now();
        // Both have said what they do when one has ended, or both answer.
        let (mut first_ended, mut second_ended) = (None, None);
        while begun.elapsed() < REFUSED_MAX && first_ended.is_none() && second_ended.is_none() {
            (first_ended, second_ended) = (served.server.ended()?, second.ended()?);
            if served.server.answers() && second.answers() {
                return Err(Failure::new("two starts at once", format!("both serve, in round {round}")));
            }
        }
        alone += usize::from(first_ended.is_some() != second_ended.is_some());
        for server in [&mut served.server, &mut second] {
            match server.ended()? {
                Some(_) => server.wait_end().map(drop)?,
                None => {
                    // The other one of two may be about to be refused, too.
                    let _may_end = server.wait_ready();
                    if server.ended()?.is_some() {
                        server.wait_end().map(drop)?;
                    } else {
                        server.stop()?;
                    }
                }
            }
        }
    }
    require(alone > 0, "two starts at once", || "neither ever had the array".into())?;
    drop(loops);
    served.ashlar.done(&["check", ARRAY]).map(drop)
}

/// The middle one.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn starts(lab: &Lab) -> Result<()> {
    const STARTS: usize = 100;
    const STOPS: usize = 20;
    let mut served = lab.served("first", "5", DRIVES, "24M")?;
    let (mut killed, mut stopped) = (vec![], vec![]);
    for n in 0..STARTS {
        served.server.kill()?;
        killed.push(served.server.start()?);
        if n % (STARTS / STOPS) == 0 {
            served.server.stop()?;
            stopped.push(served.server.start()?);
        }
    }
    served.server.stop()?;
    let (after_kill, after_stop) = (median(&mut killed), median(&mut stopped));
    let most = killed[STARTS * 9 / 10];
    // A mark that is watched takes many times as long.
    require(after_kill < after_stop * 3 && most < after_stop * 6, "starts after SIGKILL", || {
        format!("{after_kill:?}, one in ten {most:?} and more; {after_stop:?} after a stop")
    })
}
