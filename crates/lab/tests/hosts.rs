//! Loads over hosts, with servers of fio on this machine: part of the tests that need foreign programs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::Error;
use lab::bins::Bins;
use lab::fio_json;
use lab::hosts::Host;
use lab::model::{Cell, Check, Run, Subject, Verdict};
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, Journal, begin, run};
use lab::suite::Suite;
use lab::target::Target;

const BYTES: u64 = 8 << 20;
const SUITE: &str = r#"
about = "a test"
for_publication = false
[[test]]
name = "fill"
kind = "fill"
access = "sequential"
reads = 0
block = "1M"
[[test]]
name = "read"
kind = "curve"
access = "random"
reads = 100
block = "4K"
threads = [2]
depth = [2]
seconds = 3
ramp = 1
percents = [10]
"#;

/// A server of fio's; ends with this value.
struct Server {
    child: Child,
    host: Host,
}

impl Server {
    fn start(dir: &Path) -> Server {
        // Somebody may take the port in between; then the server does not answer, and the test fails.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("fio");
        command.arg(format!("--server=ip:127.0.0.1,{port}")).current_dir(dir);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the server does not listen");
            std::thread::sleep(Duration::from_millis(100));
        }
        Server { child, host: format!("127.0.0.1:{port}").parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ordered(dir: &Path, hosts: Vec<Host>, text: &str) -> Journal {
    let path = dir.join("test.toml");
    fs::write(&path, text).unwrap();
    let suite = Suite::find(path.to_str().unwrap()).unwrap();
    let target = Target::look(dir.join("shared").to_str().unwrap(), Some(BYTES)).unwrap();
    let wishes = Wishes { hosts: u32::try_from(hosts.len()).unwrap(), ..Wishes::default() };
    let plan = Plan::of(&suite, &target, wishes);
    begin(dir.join("out"), &suite, &target, &plan, Given { hosts, ..Given::default() }).unwrap()
}

fn quiet(journal: &Journal) -> Result<Run, Error> {
    run(journal, &[], Around::default(), &mut |_| {})
}

fn gate(cell: &Cell, check: Check) -> (Verdict, String) {
    let gate = cell.gates.iter().find(|g| g.check == check).unwrap();
    (gate.verdict, gate.reason.clone())
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn two_hosts_make_one_cell_whose_bins_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [Server::start(dir.path()), Server::start(dir.path())];
    let journal = ordered(dir.path(), servers.iter().map(|s| s.host.clone()).collect(), SUITE);
    let result = quiet(&journal).unwrap();
    let [fill, max, tenth] = &result.cells[..] else { panic!("{} cells", result.cells.len()) };
    assert_eq!((fill.load.hosts, max.load.hosts), (None, Some(2)), "a fill is this machine's");
    let hosts = gate(max, Check::Hosts);
    assert!(hosts.0 == Verdict::Warn && hosts.1.contains("2 servers are on 1 machine"), "{hosts:?}");
    // They are here, so the CPUs are theirs, too: the generators' share is no other program's.
    for check in [Check::Host, Check::Noise] {
        assert!(max.gates.iter().any(|g| g.check == check), "{check}: {:?}", max.gates);
    }
    assert_eq!(max.load.outstanding(), Some(8.0));
    assert!(max.note.contains(&servers[0].host.to_string()) && !max.series.is_empty(), "{}", max.note);
    // The rate asked for is that of all hosts.
    assert!((tenth.asked_iops.unwrap() / max.figures.iops.unwrap() - 0.1).abs() < 1e-9);
    assert!((0.9..1.1).contains(&tenth.achieved().unwrap()), "{:?}", tenth.achieved());
    // What fio printed: the cell is the sum of both, bin by bin.
    let path = journal.dir().join(format!("raw/{}.json", tenth.id));
    let jobs = fio_json::parse(&fs::read_to_string(&path).unwrap()).unwrap().jobs;
    assert_eq!(jobs.len(), 2);
    let (mut bins, mut iops) = (Bins::default(), 0.0);
    for job in &jobs {
        bins.merge(&job.bins);
        iops += job.figures.iops.unwrap();
    }
    assert!((tenth.figures.iops.unwrap() / iops - 1.0).abs() < 1e-9);
    assert_eq!((tenth.bins.clone(), tenth.figures.latency.p99_us), (bins.pairs(), bins.quantile_us(0.99)));
    // Imported, it is the same cell.
    let imported = lab::import::import(&path, &Subject::default()).unwrap();
    let [other] = &imported.cells[..] else { panic!("{} cells imported", imported.cells.len()) };
    assert_eq!((&other.figures, &other.bins), (&tenth.figures, &tenth.bins));
    assert_eq!(other.load.hosts, Some(2));
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_host_that_is_not_there_is_found_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let gone = Server::start(dir.path());
    let hosts = vec![server.host.clone(), gone.host.clone()];
    drop(gone);
    let journal = ordered(dir.path(), hosts.clone(), SUITE);
    let error = quiet(&journal).unwrap_err().to_string();
    assert!(error.contains(&hosts[1].to_string()) && error.contains("fio --server"), "{error}");
    assert!(!dir.path().join("shared").exists());
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_host_that_sees_another_target_is_found_before_it_is_harmed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let target = Target::look(dir.path().join("shared").to_str().unwrap(), Some(BYTES)).unwrap();
    let fio = lab::fio::Fio::find().unwrap();
    let hosts = [server.host.clone()];
    // A relative path is another file where the server was started: as if it were of another file system.
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(dir.path().join("src/lib.rs"), vec![7; 4096]).unwrap();
    let other = Target { name: "src/lib.rs".to_owned(), ..target.clone() };
    let error = lab::run::prove(&fio, &hosts, &other, false).unwrap_err().to_string();
    assert!(error.contains(&hosts[0].to_string()) && error.contains("is different there"), "{error}");
    let there = dir.path().join("shared");
    fs::write(&there, vec![7; BYTES as usize]).unwrap();
    assert!(lab::run::prove(&fio, &hosts, &target, false).unwrap(), "the same bytes");
    let elsewhere = Target { name: dir.path().join("none").display().to_string(), ..target.clone() };
    fs::write(dir.path().join("none"), vec![0; BYTES as usize]).unwrap();
    let error = lab::run::prove(&fio, &hosts, &elsewhere, false).unwrap_err().to_string();
    assert!(error.contains("zeros"), "{error}");
    assert!(lab::run::prove(&fio, &hosts, &target, true).unwrap(), "a token was written and read");
    assert_ne!(fs::read(&there).unwrap()[..4096], [7; 4096]);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_host_that_is_lost_meanwhile_fails_the_cell() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut lost = Some(Server::start(dir.path()));
    let hosts = vec![server.host.clone(), lost.as_ref().unwrap().host.clone()];
    let name = hosts[1].to_string();
    let alone = SUITE.replace("\"curve\"", "\"load\"").replace("percents = [10]", "");
    let journal = ordered(dir.path(), hosts, &alone);
    let result = run(&journal, &[], Around::default(), &mut |live| {
        // The server's children are what makes the load; they end with it.
        if live.step == 2 && live.seconds_left < 3.5 && live.ended.is_none() {
            lost.take().into_iter().for_each(|server| end_family(&server));
        }
    });
    let result = result.unwrap();
    let (verdict, reason) = gate(&result.cells[1], Check::Hosts);
    assert!(verdict == Verdict::Fail && reason.contains(&name), "{reason}");
}

/// Ends a server and all that it started.
fn end_family(server: &Server) {
    let mut family = vec![server.child.id()];
    let mut nth = 0;
    while let Some(parent) = family.get(nth) {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        family.extend(children.split_whitespace().filter_map(|w| w.parse::<u32>().ok()));
        nth += 1;
    }
    for pid in family.iter().rev() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}
