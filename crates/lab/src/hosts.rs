//! Hosts that make one load together on one target: each runs `fio --server`, and fio here is their client.
//!
//! fio goes on without a host that it does not reach, and ends as if all were well. So every host is asked before
//! anything starts; the share of each is looked for in every result; and before a run writes, each host reads back what
//! was written here, so that a path that names another device over there is found before it is harmed.
//!
//! Invariant: what a host is called can be part of a file name and of a job file.

use std::fmt;
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fio::frame;
use crate::fio_json::Job;
use crate::model::{Check, Gate, Load, Part};
use crate::served;
use crate::target::{Kind, Target};

/// The port of a server that is told none.
const PORT: u16 = 8765;
/// Hosts of a run, at most.
pub const HOSTS_MAX: usize = 64;
/// Seconds measured may differ by this share of the longest.
const SECONDS_MAX: f64 = 0.10;
/// Hosts begin at the same time within this share of the seconds measured,
const BEGIN_MAX: f64 = 0.10;
/// or within a second, which is what logs tell.
const BEGIN_SECONDS: f64 = 1.0;

/// A host, by the address of its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Port.
    pub port: u16,
}

impl FromStr for Host {
    type Err = String;

    /// "a", "a:8801", "10.0.0.1:8801", "\[fe80::1\]:8801".
    fn from_str(text: &str) -> Result<Host, String> {
        let wrong = || format!("\"{text}\" is not a host; write NAME, NAME:PORT or [ADDRESS]:PORT of a `fio --server`");
        let (name, port) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => (name, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let six = text.starts_with('[');
        let fits = |c: char| c.is_ascii_alphanumeric() || if six { c == ':' } else { ".-_".contains(c) };
        if name.is_empty() || name.starts_with('-') || !name.chars().all(fits) {
            return Err(wrong());
        }
        let port = port.map_or(Ok(PORT), |p| p.parse().map_err(|_| wrong()))?;
        Ok(Host { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Host {
    /// fio's word for it.
    fn argument(&self) -> String {
        let six = if self.name.contains(':') { "ip6:" } else { "" };
        format!("--client={six}{},{}", self.name, self.port)
    }

    /// Its job among what the servers measured.
    pub fn job<'a>(&self, jobs: &'a [Job]) -> Option<&'a Job> {
        jobs.iter().find(|j| j.host.as_ref().is_some_and(|(name, port)| *name == self.name && *port == self.port))
    }
}

/// Several of them, as people say it.
pub fn names(hosts: &[Host]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether these hosts, if any, can make loads on this target.
///
/// # Errors
/// When they cannot: which, and why.
pub fn check(hosts: &[Host], target: &Target) -> Result<(), Error> {
    if hosts.is_empty() {
        return Ok(());
    }
    if let Some((nth, host)) = hosts.iter().enumerate().find(|(nth, host)| hosts[..*nth].contains(host)) {
        let why = format!("it is named twice (also as number {})", nth + 1);
        return Err(Error::usage(format!("host {host}"), why));
    }
    if hosts.len() > HOSTS_MAX {
        return Err(Error::usage("--hosts", format!("{} hosts are too many; at most {HOSTS_MAX}", hosts.len())));
    }
    let why = match target.kind {
        Kind::Model => "modelled drives are in this machine's memory: no other host sees them",
        Kind::Nvme => "the bench loads an NVMe/TCP export from this machine only: attach it on each host",
        Kind::Nbd if target.name.starts_with("nbd+unix:") => {
            "a Unix socket is this machine's alone: name the export as nbd://HOST/EXPORT"
        }
        Kind::File | Kind::Block | Kind::Nbd if target.name.contains(char::is_control) => {
            "its name cannot be passed to a host"
        }
        Kind::File | Kind::Block | Kind::Nbd => return Ok(()),
    };
    Err(Error::usage(&target.name, format!("--hosts: {why}")))
}

/// Why several hosts cannot make a load; none: they can, or it is this machine's to make.
pub fn refuses(part: Part, load: &Load) -> Option<&'static str> {
    match part {
        Part::States => Some("array states need the logs of one machine: run it without --hosts"),
        Part::Check => Some("the checksums of a check are written by one machine: run it without --hosts"),
        _ if load.cached == Some(true) => Some("each host has a page cache of its own: run it without --hosts"),
        _ => None,
    }
}

/// Whether all hosts make a part together; filling a target once is one machine's work.
pub fn share(part: Part) -> bool {
    part != Part::Fill
}

/// The arguments of a call that gives each host its job, which is a file in `dir`; and the text of these.
///
/// # Errors
/// When a file cannot be written.
pub fn arguments(hosts: &[Host], jobs: &[Vec<String>], dir: &Path) -> Result<(Vec<String>, String), Error> {
    let (mut args, mut texts) = (frame(dir).to_vec(), String::new());
    for (nth, (host, lines)) in hosts.iter().zip(jobs).enumerate() {
        let path = dir.join(format!("host-{nth}.fio"));
        let text = format!("[cell]\n{}\n", lines.join("\n"));
        fs::write(&path, &text).map_err(|e| Error::file(&path, e))?;
        args.extend([host.argument(), path.display().to_string()]);
        texts.push_str(&format!("\n# {} for {host}\n{text}", path.display()));
    }
    Ok((args, texts))
}

/// Beginning of the names of a host's logs.
pub fn log(dir: &Path, nth: usize) -> PathBuf {
    dir.join(format!("log-{nth}"))
}

/// A log of all hosts, and when each began by its own clock, in seconds since 1970. fio ends their names with the host's.
pub fn logs(hosts: &[Host], dir: &Path, what: &str) -> (String, Vec<f64>) {
    let (mut all, mut begins) = (String::new(), vec![]);
    for (nth, host) in hosts.iter().enumerate() {
        let path = dir.join(format!("log-{nth}_{what}.log.{}", host.name));
        let text = fs::read_to_string(path).unwrap_or_default();
        begins.extend(text.split(',').next().and_then(|ms| ms.trim().parse::<f64>().ok()).map(|ms| ms / 1e3));
        all.push_str(&text);
    }
    (all, begins)
}

/// What the hosts did together, where each told; `shown`: each showed that its target is the run's.
pub fn gate(hosts: &[Host], jobs: &[Job], begins: &[f64], shown: bool) -> Gate {
    let fail = |why: String| Gate::fail(Check::Hosts, why);
    let told = |host: &&Host| host.job(jobs).is_some_and(|j| j.figures.iops.is_some());
    let missing: Vec<Host> = hosts.iter().filter(|h| !told(h)).cloned().collect();
    if !missing.is_empty() {
        return fail(format!("{} of {} did not run: {}", missing.len(), hosts.len(), names(&missing)));
    }
    let range = |values: &[f64]| {
        let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(*v), m.max(*v)));
        (least, most)
    };
    let seconds: Vec<f64> = jobs.iter().filter_map(|j| j.figures.seconds).collect();
    let (least, most) = range(&seconds);
    if least < most * (1.0 - SECONDS_MAX) {
        return fail(format!("one measured for {least:.1} s, another for {most:.1} s: their rates do not add up"));
    }
    if begins.len() < hosts.len() {
        return Gate::warn(Check::Hosts, "not every host logged when it began: nothing shows that they ran together");
    }
    let (first, last) = range(begins);
    let apart = last - first;
    if apart > (BEGIN_MAX * most).max(BEGIN_SECONDS) {
        let why = "their clocks differ, or they did not run together";
        return fail(format!("they began {apart:.1} s apart by their clocks: {why}"));
    }
    let text = format!("all {} ran for {least:.1} s, started within {apart:.1} s", hosts.len());
    let machines = machines(hosts);
    if machines < hosts.len() {
        let told = format!("{} servers are on {machines} machine{}", hosts.len(), if machines == 1 { "" } else { "s" });
        return Gate::warn(Check::Hosts, format!("{told}, which are not {} hosts; {text}", hosts.len()));
    }
    if shown {
        Gate::pass(Check::Hosts, text)
    } else {
        Gate::warn(Check::Hosts, format!("{text}; nothing shows that each reads the same target"))
    }
}

/// Whether a host is this machine.
pub fn is_here(name: &str) -> bool {
    served::addresses(name).into_iter().any(served::is_here)
}

/// How many machines the hosts are, as far as their addresses tell: all addresses of this one are one.
fn machines(hosts: &[Host]) -> usize {
    let mut known: Vec<(bool, Vec<IpAddr>)> = vec![];
    for host in hosts {
        let (here, addresses) = (is_here(&host.name), served::addresses(&host.name));
        // A name that is not resolved here is a machine of its own.
        let same = |(h, a): &(bool, Vec<IpAddr>)| (*h && here) || a.iter().any(|a| addresses.contains(a));
        if !known.iter().any(same) {
            known.push((here, addresses));
        }
    }
    known.len()
}

/// The share of each host, in words.
pub fn shares(hosts: &[Host], jobs: &[Job]) -> String {
    let share = |host: &Host| {
        let Some(job) = host.job(jobs) else { return format!("{host} nothing") };
        let rate = job.figures.iops.map_or("nothing".to_owned(), |n| format!("{} IOPS", crate::units::grouped(n)));
        let p99 =
            job.figures.latency.p99_us.map_or(String::new(), |us| format!(" at p99 {}", crate::units::latency(us)));
        format!("{host} {rate}{p99}")
    };
    hosts.iter().map(share).collect::<Vec<_>>().join("; ")
}

/// A pattern that nothing else holds, as fio takes it.
///
/// # Errors
/// When the system has no random bytes.
pub fn token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    let read = fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    read.map_err(|e| Error::file("/dev/urandom", e))?;
    Ok(hex(&bytes))
}

/// Bytes as fio takes a pattern.
pub fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("0x{}", digits.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Figures, Verdict};

    fn hosts() -> [Host; 2] {
        ["a".parse().unwrap(), "b:8801".parse().unwrap()]
    }

    fn job(host: &Host, iops: Option<f64>, seconds: f64) -> Job {
        let figures = Figures { iops, seconds: Some(seconds), ..Figures::default() };
        Job { host: Some((host.name.clone(), host.port)), figures, ..Job::default() }
    }

    #[test]
    fn hosts_are_named_by_their_addresses() {
        for (text, want) in
            [("a", "a:8765"), ("10.0.0.1:8801", "10.0.0.1:8801"), ("[::1]:1", "[::1]:1"), ("[::1]", "[::1]:8765")]
        {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), want);
        }
        assert_eq!("[::1]:9".parse::<Host>().unwrap().argument(), "--client=ip6:::1,9");
        for text in ["", ":1", "a:", "a:b", "a:70000", "a b", "../a", "a,1", "[::1]9", "--x", "sock:/tmp/s"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_only_this_machine_sees_is_refused() {
        let [a, b] = hosts();
        let file = Target::look("/no-such-place/drive", Some(1 << 20)).unwrap();
        assert!(check(&[a.clone(), b], &file).is_ok());
        assert!(check(&[a.clone(), a.clone()], &file).unwrap_err().to_string().contains("twice"));
        for name in ["model:tlc", "nbd+unix:///v?socket=/tmp/s"] {
            let target = Target::look(name, Some(1 << 20)).unwrap();
            assert!(check(std::slice::from_ref(&a), &target).unwrap_err().to_string().contains("--hosts"), "{name}");
            assert!(check(&[], &target).is_ok(), "{name} without hosts");
        }
        let cached = Load { cached: Some(true), ..Load::default() };
        assert!(refuses(Part::Alone, &cached).is_some() && refuses(Part::States, &Load::default()).is_some());
        assert!(refuses(Part::Matrix, &Load::default()).is_none());
    }

    #[test]
    fn shares_that_do_not_add_up_fail() {
        let hosts = hosts();
        let [a, b] = &hosts;
        let verdict = |jobs: &[Job], begins: &[f64], shown| gate(&hosts, jobs, begins, shown).verdict;
        let both = [job(a, Some(1.0), 5.0), job(b, Some(2.0), 4.9)];
        assert_eq!(verdict(&both, &[100.0, 100.4], true), Verdict::Pass);
        assert_eq!(verdict(&both, &[100.0, 100.4], false), Verdict::Warn);
        assert_eq!(verdict(&both, &[100.0], true), Verdict::Warn);
        assert_eq!(verdict(&both, &[100.0, 3700.0], true), Verdict::Fail, "clocks");
        assert_eq!(verdict(&both[..1], &[100.0, 100.0], true), Verdict::Fail, "missing");
        assert_eq!(verdict(&[both[0].clone(), job(b, None, 5.0)], &[100.0, 100.0], true), Verdict::Fail, "idle");
        assert_eq!(verdict(&[both[0].clone(), job(b, Some(2.0), 2.0)], &[100.0, 100.0], true), Verdict::Fail, "ended");
        assert!(gate(&hosts, &both[..1], &[], true).reason.contains("b:8801"));
    }

    #[test]
    fn one_machine_twice_is_not_two_hosts() {
        let of = |names: [&str; 2]| names.map(|n| n.parse::<Host>().unwrap());
        assert_eq!(machines(&of(["127.0.0.1:1", "127.0.0.1:2"])), 1);
        assert_eq!(machines(&of(["127.0.0.1:1", "127.0.0.2:2"])), 1, "all of 127/8 is here");
        assert_eq!(machines(&of(["203.0.113.1:1", "203.0.113.1:2"])), 1);
        assert_eq!(machines(&of(["203.0.113.1", "203.0.113.2"])), 2);
        assert_eq!(machines(&of(["127.0.0.1", "203.0.113.2"])), 2);
        let here = of(["127.0.0.1:1", "127.0.0.1:2"]);
        let jobs = [job(&here[0], Some(1.0), 5.0), job(&here[1], Some(1.0), 5.0)];
        let gate = gate(&here, &jobs, &[1.0, 1.0], true);
        assert!(
            gate.verdict == crate::model::Verdict::Warn && gate.reason.contains("2 servers are on 1 machine"),
            "{gate}"
        );
    }
}
