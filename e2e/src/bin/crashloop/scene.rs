//! One array under test: its drives, its server, its volume's model.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::load;
use e2e::model::Model;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use export::nbd::client::Client;
use rt::Rt;

use crate::args::Args;
use crate::members::Members;
use crate::swaps::Swaps;

/// Name of the volume.
const VOLUME: &str = "v";
/// Drives of the full array hold little more than the fewest zones: it is soon full.
const SMALL_DRIVE: &str = "288M";
/// "80 % full" is of what volumes can hold.
const FULL_PERCENT: u64 = 80;
/// Connections of a load.
const CONNECTIONS: usize = 2;

/// What a load on this array is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Any mix.
    Any,
    /// Much data, so that the cleaner works.
    Churn,
}

/// One array.
pub struct Scene {
    /// The array's name.
    pub name: &'static str,
    /// Its installation.
    pub ashlar: Ashlar,
    /// Its server.
    pub server: Server,
    /// What its volume may hold.
    pub model: Rc<RefCell<Model>>,
    /// Its members.
    pub members: Members,
    /// Older copies of them.
    pub swaps: Swaps,
    /// What its loads are like.
    pub style: Style,
    /// How long the last start took: a guess where a recovery can be met.
    pub last_start: Duration,
    /// Cycles so far.
    pub cycles: u32,
    volume_bytes: u64,
    plan: String,
}

impl Scene {
    /// The array of the command line, with a volume that is small against it.
    pub fn roomy(args: &Args, program: &Path, dir: &Path) -> Result<Scene> {
        let shape = Shape { name: "roomy", drives: args.drives, size: &args.size, style: Style::Any };
        Scene::new(args, program, dir, &shape, Some(&args.volume_size))
    }

    /// The smallest array of the same level, with a volume that fills it to 80 %.
    pub fn full(args: &Args, program: &Path, dir: &Path) -> Result<Scene> {
        let drives = match args.raid.as_str() {
            "6" | "10" => 4,
            "5" => 3,
            _ => 2,
        };
        let shape = Shape { name: "full", drives, size: SMALL_DRIVE, style: Style::Churn };
        Scene::new(args, program, dir, &shape, None)
    }

    fn new(args: &Args, program: &Path, dir: &Path, shape: &Shape<'_>, volume_size: Option<&str>) -> Result<Scene> {
        let Shape { name, drives, size, style } = *shape;
        let dir = dir.join(name);
        fs::create_dir_all(dir.join("d")).or_fail(dir.display().to_string())?;
        let ashlar = Ashlar::new(program, &dir);
        let paths: Vec<String> = (0..drives).map(|n| format!("d/{n}")).collect();
        let parts = if style == Style::Churn { 1 } else { args.parts }.to_string();
        let mut create = vec!["create", name, "--raid", &args.raid, "--size", size, "--parts", &parts];
        create.extend(paths.iter().map(String::as_str));
        let created = ashlar.json(&create)?;
        let plan = &created["plan"];
        let usable = number(plan, "usable_bytes")?;
        let full = (usable * FULL_PERCENT / 100) >> 20 << 20;
        let volume_size = volume_size.map_or(full.to_string(), str::to_owned);
        ashlar.done(&["volume", "create", &format!("{name}/{VOLUME}"), &volume_size])?;
        let listed = ashlar.json(&["volume", "list", name])?;
        let volume_bytes = number(&listed["volumes"][0], "bytes")?;
        let cores = if style == Style::Churn { 1 } else { args.cores };
        let salt = (args.seed as u32).wrapping_mul(2) | u32::from(style == Style::Churn);
        Ok(Scene {
            name,
            server: Server::new(&ashlar).with_flags(&["--cores", &cores.to_string()]),
            model: Rc::new(RefCell::new(Model::new(salt, volume_bytes))),
            members: Members::new(name, drives, size, args),
            swaps: Swaps::new(args),
            style,
            last_start: Duration::from_millis(100),
            cycles: 0,
            volume_bytes,
            plan: format!(
                "array {name}: RAID {} {} in {parts} over {drives} files of {size}, {} MiB usable",
                args.raid,
                plan["scheme"].as_str().unwrap_or("?"),
                usable >> 20
            ),
            ashlar,
        })
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        format!("{}, volume of {} MiB", self.plan, self.volume_bytes >> 20)
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u64 {
        self.model.borrow().sectors()
    }

    /// Starts the server for the first time; fills the volume where it is to be full.
    pub async fn begin(&mut self, rt: &Rt) -> Result<()> {
        self.last_start = self.server.start()?;
        if self.style == Style::Churn {
            let clients = self.connect(rt).await?;
            load::fill(&clients[0], &self.model, self.volume_bytes).await?;
            e2e::readback::verify(&clients, &self.model).await?;
        }
        Ok(())
    }

    /// Connections to the volume.
    pub async fn connect(&self, rt: &Rt) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            clients.push(self.server.connect(rt, &format!("{}/{VOLUME}", self.name)).await?);
        }
        Ok(clients)
    }

    /// `ashlar check`, offline.
    pub fn check(&self) -> Result<()> {
        self.ashlar.run(&["check", self.name])?.expect(0).map(drop)
    }

    /// The last stop, in order, and a last check.
    pub fn end(&mut self) -> Result<()> {
        self.server.stop()?;
        self.check()
    }
}

/// What tells the two arrays apart.
struct Shape<'a> {
    name: &'static str,
    drives: usize,
    size: &'a str,
    style: Style,
}

fn number(value: &serde_json::Value, key: &str) -> Result<u64> {
    value[key].as_u64().ok_or_else(|| Failure::new(format!("\"{key}\" in an answer"), format!("not there: {value}")))
}
