//! A server of memory: a direct drive, or an array of eight drives with a volume.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bench::Target;
use export::nbd::client::Client;
use export::nvme::client::{Host, Wishes};
use rt::{Addr, Rt};

use crate::served::Outcome;

/// A server in a directory of its own.
pub struct Server {
    pub child: Child,
    pub nvme: Addr,
    pub nbd: Addr,
    _dir: tempfile::TempDir,
}

impl Server {
    /// Over an array of this level, or over a direct drive; `more` are further arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, level: Option<&str>, more: &[&str]) -> Outcome<Server> {
        let dir = tempfile::tempdir()?;
        let port = || -> Outcome<Addr> { Ok(Addr::Tcp(TcpListener::bind("127.0.0.1:0")?.local_addr()?)) };
        let (nvme, nbd) = (port()?, port()?);
        let mut command = Command::new(program);
        command
            .args(["serve", "--stop-at-eof", "--allow-any", "--nvme", &nvme.to_string(), "--nbd", &nbd.to_string()])
            .args(more)
            .env("ASHLAR_CONTROL", dir.path().join("control"))
            .env("ASHLAR_STATE_DIR", dir.path().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log"))?);
        match level {
            None => command.args(["--direct", "mem:512M"]),
            Some(level) => {
                let drives = ["\"mem:272M\""; 8].join(", ");
                let volume = "[[array.volume]]\nname = \"v\"\nsize = \"256M\"\n";
                let array = format!(
                    "[[array]]\nname = \"a\"\ncreate = true\nraid = \"{level}\"\nwidth = 8\ndrives = [{drives}]\n"
                );
                let config = dir.path().join("config.toml");
                fs::write(&config, array + volume)?;
                command.arg("--config").arg(config)
            }
        };
        let child = command.spawn()?;
        Ok(Server { child, nvme, nbd, _dir: dir })
    }

    /// The first subsystem's first namespace over NVMe/TCP, with one I/O queue, once the server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn host(&self, rt: &Rt, flow_control: bool) -> Outcome<Target> {
        drop(self.connect(rt).await?);
        let (_, found) = Host::discover(rt, &self.nvme, &Wishes::default()).await?;
        let entry = found.first().ok_or("no subsystem")?;
        let wishes = Wishes { flow_control, ..Wishes::default() };
        let host = Host::connect(rt, &self.nvme, &entry.subsystem, 1, &wishes).await?;
        let nsid = host.namespaces().await?.first().copied().ok_or("no namespace")?;
        Ok(Target::Nvme { disk: host.disk(nsid).await?, host: Rc::new(host) })
    }

    /// A connection by NBD, once it answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn connect(&self, rt: &Rt) -> Outcome<Client> {
        let begun = Instant::now();
        loop {
            match Client::connect(rt, &self.nbd, "").await {
                Ok(client) => return Ok(client),
                Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
                Err(_) => rt.sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
