//! What cases begin with: an array of sparse files with a volume, served on a unix socket and on TCP.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::load::{self, Load, Mix};
use e2e::model::Model;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result, readback};
use export::nbd::client::Client;
use rand::RngExt;
use rt::Rt;

/// Size of a drive: little more than an array wants at least.
pub const DRIVE: &str = "288M";
/// How long small segments take to be rebuilt.
const REBUILD_MAX: Duration = Duration::from_secs(60);
/// The array and its volume.
pub const ARRAY: &str = "lab";
/// The volume's export.
pub const VOLUME: &str = "lab/v";

/// Where a case works, and with what.
pub struct Lab {
    /// The binary.
    pub program: PathBuf,
    /// An empty directory.
    pub dir: PathBuf,
    /// Decides the loads.
    pub seed: u64,
}

/// An array that is or will be served.
pub struct Served {
    /// Its installation.
    pub ashlar: Ashlar,
    /// Its server.
    pub server: Server,
    /// Its drives' files, relative to the directory.
    pub drives: Vec<String>,
}

impl Lab {
    /// An array over `drives` files in the directory `name`, with a volume; not served yet.
    pub fn array(&self, name: &str, raid: &str, drives: usize, volume_size: &str) -> Result<Served> {
        self.array_of(name, &["--raid", raid, "--size", DRIVE], drives, volume_size)
    }

    /// An array created with these flags.
    pub fn array_of(&self, name: &str, flags: &[&str], drives: usize, volume_size: &str) -> Result<Served> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).or_fail(dir.display().to_string())?;
        let ashlar = Ashlar::new(&self.program, &dir);
        let drives: Vec<String> = (0..drives).map(|n| format!("d/{n}")).collect();
        fs::create_dir_all(dir.join("d")).or_fail("the drives' directory")?;
        let mut create = vec!["create", ARRAY];
        create.extend(flags);
        create.extend(drives.iter().map(String::as_str));
        ashlar.done(&create)?;
        ashlar.done(&["volume", "create", VOLUME, volume_size])?;
        let server = Server::new(&ashlar).with_flags(&["--nbd", "tcp:127.0.0.1:0"]);
        Ok(Served { ashlar, server, drives })
    }

    /// The same, served.
    pub fn served(&self, name: &str, raid: &str, drives: usize, volume_size: &str) -> Result<Served> {
        let mut served = self.array(name, raid, drives, volume_size)?;
        served.server.start()?;
        Ok(served)
    }
}

impl Served {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.ashlar.dir()
    }

    /// The volume's URI on the unix socket.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{VOLUME}?socket={}", self.server.socket().display())
    }

    /// The volume's URI on TCP.
    pub fn tcp_uri(&self) -> Result<String> {
        let all = self.ashlar.json(&["status"])?;
        let addresses = all["nbd"].as_array().cloned().unwrap_or_default();
        let tcp = addresses.iter().filter_map(|a| a.as_str()?.strip_prefix("tcp:")).next();
        let tcp = tcp.ok_or_else(|| Failure::new("ashlar status", format!("no TCP address: {all}")))?;
        Ok(format!("nbd://{tcp}/{VOLUME}"))
    }

    /// Both URIs.
    pub fn uris(&self) -> Result<[String; 2]> {
        Ok([self.uri(), self.tcp_uri()?])
    }

    /// `ashlar drive fail`, which must succeed, whoever is connected.
    pub fn fail(&self, drive: usize) -> Result<()> {
        self.ashlar.done(&["drive", "fail", "--force", ARRAY, &self.drives[drive]]).map(drop)
    }

    /// SIGKILL, and a start.
    pub fn crash(&mut self) -> Result<Duration> {
        self.server.kill()?;
        self.server.start()
    }

    /// A drive's file.
    pub fn file(&self, drive: usize) -> PathBuf {
        self.dir().join(&self.drives[drive])
    }

    /// A place beside the drives where a removed one is kept.
    pub fn shelf(&self, drive: usize) -> PathBuf {
        self.dir().join(format!("removed-{drive}"))
    }

    /// Takes drives out of the box, while nothing is served.
    pub fn remove(&self, drives: &[usize]) -> Result<()> {
        drives.iter().try_for_each(|&d| fs::rename(self.file(d), self.shelf(d)).or_fail("removing a drive"))
    }

    /// Puts them back.
    pub fn put_back(&self, drives: &[usize]) -> Result<()> {
        drives.iter().try_for_each(|&d| fs::rename(self.shelf(d), self.file(d)).or_fail("returning a drive"))
    }

    /// `status --json`'s word for the array.
    pub fn state(&self) -> Result<String> {
        let status = self.ashlar.status(ARRAY)?;
        Ok(status["state"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the array is degraded: small segments are narrow enough to be rebuilt on the drives that are left.
    pub fn becomes_degraded(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let state = self.state()?;
            if state == "degraded" {
                return Ok(());
            }
            let goes_on = state == "rebuilding" && begun.elapsed() < REBUILD_MAX;
            require(goes_on, "status", || format!("the array is {state}, not degraded"))?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Connections to the volume.
    pub async fn clients(&self, rt: &Rt) -> Result<Vec<Client>> {
        Ok(vec![self.server.connect(rt, VOLUME).await?, self.server.connect(rt, VOLUME).await?])
    }
}

/// A load with its model, on one volume.
pub struct Traffic {
    /// The world of the clients.
    pub rt: Rt,
    /// What the volume may hold.
    pub model: Rc<RefCell<Model>>,
    random: load::Random,
}

impl Traffic {
    /// For a volume of `bytes` that was never written.
    pub fn new(lab: &Lab, bytes: u64) -> Result<Traffic> {
        Ok(Traffic {
            rt: Rt::real().or_fail("the runtime (io_uring)")?,
            model: Rc::new(RefCell::new(Model::new(lab.seed as u32, bytes))),
            random: load::random(lab.seed),
        })
    }

    /// Starts a load of a bit of everything.
    pub async fn start(&mut self, served: &Served) -> Result<Load> {
        let clients = served.clients(&self.rt).await?;
        let mix = Mix::plain(self.model.borrow().sectors());
        Ok(Load::start(&self.rt, &clients, &self.model, mix, self.random.random()))
    }

    /// Runs such a load for a while.
    pub fn run(&mut self, served: &Served, time: Duration) -> Result<()> {
        let rt = self.rt.clone();
        let ended = rt.block_on(async {
            let load = self.start(served).await?;
            rt.sleep(time).await;
            load.finish().await
        })?;
        if ended.disconnected {
            return Err(served.server.broken("it closed the connection".into()));
        }
        Ok(())
    }

    /// Runs `verbs` one after the other under load; all must succeed.
    pub fn run_with_verbs(&mut self, served: &Served, verbs: &[Vec<String>]) -> Result<()> {
        const BEFORE_AND_AFTER: Duration = Duration::from_millis(40);
        let rt = self.rt.clone();
        let ended = rt.block_on(async {
            let load = self.start(served).await?;
            rt.sleep(BEFORE_AND_AFTER).await;
            for verb in verbs {
                served.ashlar.run_beside(&rt, verb.clone()).await?.expect(0)?;
            }
            rt.sleep(BEFORE_AND_AFTER).await;
            load.finish().await
        })?;
        if ended.disconnected {
            return Err(served.server.broken("it closed the connection".into()));
        }
        Ok(())
    }

    /// Reads everything back.
    pub fn verify(&self, served: &Served) -> Result<()> {
        self.rt.block_on(async {
            let clients = served.clients(&self.rt).await?;
            readback::verify(&clients, &self.model).await.map(drop)
        })
    }
}

/// Words as a command line.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}
