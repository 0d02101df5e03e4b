//! A real Prometheus reads the server through its states: rules fire and clear, and the dashboard has data.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result, tools};
use export::nbd::client::Client;
use rt::net::Addr;
use rt::{Buf, Rt};
use serde_json::Value;

use super::Case;
use super::rebuild::wait_whole;
use crate::fixture::{ARRAY, DRIVE, Lab, Served, Traffic};

/// The cases.
pub const CASES: &[Case] =
    &[Case { name: "metrics", about: "Prometheus: rules fire and clear through lost drives", run: scraped }];

const DRIVES: usize = 5;
const BYTES: u64 = 24 << 20;
/// An alert is there after a scrape and an evaluation; this machine is slow.
const ALERT_MAX: Duration = Duration::from_secs(40);
const SHARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../share");

fn scraped(lab: &Lab) -> Result<()> {
    let dir = PathBuf::from(SHARE);
    let rules = dir.join("prometheus/ashlar.rules.yml").display().to_string();
    tools::run(&dir, "promtool", &["check", "rules", &rules])?;
    let tests = dir.join("prometheus/ashlar.tests.yml").display().to_string();
    tools::run(&dir, "promtool", &["test", "rules", &tests])?;
    let mut served = lab.served("a", "5", DRIVES, "24M")?;
    served.server.stop()?;
    let metrics = free_address()?;
    let mut server = Server::new(&served.ashlar).with_flags(&["--nbd", "tcp:127.0.0.1:0", "--metrics", &metrics]);
    server.start()?;
    served = Served { ashlar: served.ashlar.clone(), server, drives: served.drives.clone() };
    let prometheus = Prometheus::start(served.dir(), &metrics, &rules)?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(500))?;
    prometheus.wait("ashlar_array_state{state=\"optimal\"} == 1", true)?;
    // Rates want two scrapes.
    traffic.run(&served, Duration::from_secs(2))?;
    dashboard(&prometheus, |expression| !expression.contains(OF_REBUILDS))?;
    firing(&prometheus, "AshlarDriveOut", false)?;

    // So much, and so slow, that it is seen.
    served.ashlar.done(&["volume", "create", "lab/more", "128M"])?;
    require(written(&served, "lab/more", 128)? == 128, "writes to lab/more", || "one was refused".into())?;
    served.ashlar.done(&["rebuild", ARRAY, "--priority", "64K"])?;
    served.fail(1)?;
    firing(&prometheus, "AshlarDriveOut", true)?;
    prometheus.wait("ashlar_drive_state{state=\"failed\"} == 1", true)?;
    traffic.run(&served, Duration::from_millis(200))?;
    let new = "d/new";
    served.ashlar.done(&["drive", "replace", ARRAY, &served.drives[1].clone(), new, "--size", DRIVE])?;
    served.drives[1] = new.to_owned();
    prometheus.wait("ashlar_array_state{state=\"rebuilding\"} == 1", true)?;
    dashboard(&prometheus, |expression| expression.contains(OF_REBUILDS))?;
    served.ashlar.done(&["rebuild", ARRAY, "--priority", "high"])?;
    wait_whole(&served)?;
    served.ashlar.done(&["volume", "delete", "lab/more", "--yes", "--force"])?;
    firing(&prometheus, "AshlarDriveOut", false)?;
    prometheus.wait("ashlar_array_state{state=\"optimal\"} == 1", true)?;
    traffic.verify(&served)?;

    full(&served, &prometheus)?;
    frozen(&mut served, &prometheus, &metrics)?;
    drop(prometheus);
    served.server.kill()
}

/// A volume that is larger than the array is filled: the alert fires, and clears when the volume is deleted.
fn full(served: &Served, prometheus: &Prometheus) -> Result<()> {
    served.ashlar.done(&["volume", "create", "lab/big", "64G"])?;
    let refused = written(served, "lab/big", 64 << 10)? < 64 << 10;
    require(refused, "writes to a full array", || "all were taken".into())?;
    firing(prometheus, "AshlarFull", true)?;
    served.ashlar.done(&["volume", "delete", "lab/big", "--yes", "--force"])?;
    firing(prometheus, "AshlarFull", false)
}

/// Writes a volume from its beginning; how many MiB were taken, until one was refused.
fn written(served: &Served, volume: &str, mebibytes: u64) -> Result<u64> {
    let socket: Addr = format!("unix:{}", served.server.socket().display()).parse().or_fail("the socket")?;
    let rt = Rt::real().or_fail("io_uring")?;
    rt.block_on(async {
        let client = Client::connect(&rt, &socket, volume).await.or_fail("a connection")?;
        for taken in 0..mebibytes {
            if client.write(taken << 20, Buf::from_slice(&vec![7; 1 << 20]).freeze(), false).await.is_err() {
                return Ok(taken);
            }
        }
        Ok(mebibytes)
    })
}

/// More drives are gone than the redundancy covers.
fn frozen(served: &mut Served, prometheus: &Prometheus, metrics: &str) -> Result<()> {
    let begin = |served: &Served| {
        let flags = ["--nbd", "tcp:127.0.0.1:0", "--metrics", metrics, "--degraded"];
        let mut server = Server::new(&served.ashlar).with_flags(&flags);
        server.start()?;
        Ok::<_, Failure>(Served { ashlar: served.ashlar.clone(), server, drives: served.drives.clone() })
    };
    served.server.stop()?;
    served.remove(&[0, 2])?;
    *served = begin(served)?;
    for alert in ["AshlarArrayFrozen", "AshlarRedundancyNone"] {
        firing(prometheus, alert, true)?;
    }
    served.server.kill()?;
    served.put_back(&[0, 2])?;
    *served = begin(served)?;
    for alert in ["AshlarArrayFrozen", "AshlarRedundancyNone"] {
        firing(prometheus, alert, false)?;
    }
    Ok(())
}

fn firing(prometheus: &Prometheus, alert: &str, wanted: bool) -> Result<()> {
    prometheus.wait(&format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}"), wanted)
}

/// Of what only drives with a health log tell.
const OF_HEALTH_LOGS: [&str; 2] = ["ashlar_drive_temperature_celsius", "ashlar_drive_used_ratio"];
/// Of what is there during a rebuild alone.
const OF_REBUILDS: &str = "ashlar_rebuild_done_bytes";

/// Every expression of the dashboard that is `meant` returns data; what files do not tell is not asked for.
fn dashboard(prometheus: &Prometheus, meant: fn(&str) -> bool) -> Result<()> {
    let text = fs::read_to_string(Path::new(SHARE).join("grafana/ashlar.json")).or_fail("the dashboard")?;
    let dashboard: Value = serde_json::from_str(&text).or_fail("the dashboard")?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    require(expressions.len() > 20, "the dashboard", || format!("{} expressions", expressions.len()))?;
    let is_told = |expression: &str| !OF_HEALTH_LOGS.iter().any(|metric| expression.contains(metric));
    let asked: Vec<&str> = expressions.into_iter().filter(|e| meant(e) && is_told(e)).collect();
    require(!asked.is_empty(), "the dashboard", || "it shows nothing of what is meant".to_owned())?;
    for expression in asked {
        let expression = expression.replace("$array", ".*").replace("$__rate_interval", "30s");
        prometheus.wait(&expression, true)?;
    }
    Ok(())
}

fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port")?;
    Ok(listener.local_addr().or_fail("a port")?.to_string())
}

/// It ends with this value.
struct Prometheus {
    child: Child,
    address: String,
    dir: PathBuf,
}

impl Prometheus {
    fn start(dir: &Path, target: &str, rules: &str) -> Result<Prometheus> {
        let address = free_address()?;
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [\"{rules}\"]\nscrape_configs:\n  \
             - job_name: ashlar\n    static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        fs::write(&config, text).or_fail("prometheus.yml")?;
        let log = fs::File::create(dir.join("prometheus.log")).or_fail("prometheus.log")?;
        let child = Command::new(tools::path_of("prometheus")?)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .or_fail("prometheus")?;
        Ok(Prometheus { child, address, dir: dir.to_owned() })
    }

    /// Waits until an expression has a result, or has none any more.
    fn wait(&self, expression: &str, wanted: bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let url = format!("http://{}", self.address);
            // It refuses connections until it is up.
            let said = tools::run(&self.dir, "promtool", &["query", "instant", &url, expression]);
            if said.as_ref().is_ok_and(|said| said.trim().is_empty() != wanted) {
                return Ok(());
            }
            if begun.elapsed() > ALERT_MAX {
                let wants = if wanted { "no result" } else { "a result still" };
                return Err(Failure::new(expression, format!("{wants} after {ALERT_MAX:?}: {said:?}")));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
