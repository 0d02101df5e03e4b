//! The demo's server and verbs: processes of this very program.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use api::Problem;
use export::nbd::client::Client;
use rt::Rt;
use rt::net::Addr;
use rustix::process::Pid;
use serde::de::DeserializeOwned;

use super::place::{self, Place};
use super::say;
use crate::client as control;
use crate::text::duration;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);

/// A server that can be started, killed and started again.
pub struct Server {
    dir: PathBuf,
    drive_size: String,
    child: Option<Child>,
}

impl Server {
    /// Not started yet.
    pub fn new(place: &Place) -> Server {
        Server { dir: place.dir().to_owned(), drive_size: place.drive_size(), child: None }
    }

    /// Size of each drive, as a flag.
    pub fn drive_size(&self) -> &str {
        &self.drive_size
    }

    fn command(&self, args: &[&str]) -> Result<Command, Problem> {
        let program = std::env::current_exe().map_err(|e| broken("this program", &e))?;
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.env("ASHLAR_CONTROL", self.dir.join("control.sock")).env("ASHLAR_STATE_DIR", &self.dir);
        command.env_remove("ASHLAR_LOG");
        Ok(command)
    }

    /// Runs a verb and shows the command and what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub async fn verb_shown(&self, rt: &Rt, args: &[&str]) -> Result<(), Problem> {
        let output = self.verb(rt, args).await?;
        output.lines().for_each(|l| say::line(&format!("  {l}")));
        Ok(())
    }

    /// Runs a verb, shows the command, returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub async fn verb(&self, rt: &Rt, args: &[&str]) -> Result<String, Problem> {
        say::line(&format!("$ ashlar {}", args.join(" ")));
        self.verb_quiet(rt, args).await
    }

    /// Runs a verb. Other tasks go on meanwhile.
    ///
    /// # Errors
    /// When it fails.
    pub async fn verb_quiet(&self, rt: &Rt, args: &[&str]) -> Result<String, Problem> {
        let mut command = self.command(args)?;
        let (sender, mut answer) = rt.mailbox();
        thread::spawn(move || sender.send(command.output()));
        let ended = answer.recv().await.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()));
        let output = ended.map_err(|e| broken("ashlar", &e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let why = text.trim().trim_start_matches("ashlar: ").to_owned();
        Err(Problem::failed(format!("ashlar {}", args.join(" ")), why, "please report this"))
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn start(&mut self, rt: &Rt) -> Result<Duration, Problem> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .map_err(|e| broken("the log", &e))?;
        let begun = Instant::now();
        // It ends when its standard input does: with this process, whatever happens to it.
        let mut command = self.command(&["serve", "--stop-at-eof"])?;
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| broken("ashlar serve", &e))?;
        place::guard_server(pid_of(&child));
        while begun.elapsed() < START_MAX {
            if self.answers() {
                self.child = Some(child);
                let time = begun.elapsed();
                say::line(&format!("$ ashlar serve                  (recovered and serving after {})", duration(time)));
                return Ok(time);
            }
            if matches!(child.try_wait(), Ok(Some(_))) {
                break;
            }
            rt.sleep(Duration::from_millis(5)).await;
        }
        self.child = Some(child);
        Err(Problem::failed("ashlar serve", format!("it does not start\n{}", self.log_end()), "please report this"))
    }

    fn answers(&self) -> bool {
        self.ask::<api::ServerView>("/v1/server").is_ok()
    }

    /// Asks over the control socket.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        match control::Client::connect(&control::Place::Here(self.dir.join("control.sock"))) {
            Some(client) => client.get(path),
            None => Err(Problem::failed("ashlar serve", "it does not answer", "please report this")),
        }
    }

    /// Deletes a drive's file: what is on it is lost.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn delete_drive(&self, name: &str) -> Result<(), Problem> {
        fs::remove_file(self.dir.join("d").join(name)).map_err(|e| broken("the file", &e))
    }

    /// Connects to a volume.
    ///
    /// # Errors
    /// When the server does not export it.
    pub async fn connect(&self, rt: &Rt, volume: &str) -> Result<Client, Problem> {
        let address = Addr::Unix(self.dir.join("control-nbd.sock"));
        Client::connect(rt, &address, volume).await.map_err(|e| {
            Problem::failed(format!("NBD export {volume}"), format!("{e}\n{}", self.log_end()), "please report this")
        })
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> Result<(), Problem> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        place::guard_server(None);
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|e| broken("ashlar serve", &e))
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When it does not end well.
    pub async fn stop(&mut self, rt: &Rt) -> Result<(), Problem> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        self.verb(rt, &["stop", "--force"]).await?;
        loop {
            match child.try_wait() {
                Ok(None) => rt.sleep(Duration::from_millis(5)).await,
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => {
                    let why = format!("it ended with {status}\n{}", self.log_end());
                    return Err(Problem::failed("ashlar serve", why, "please report this"));
                }
                Err(e) => return Err(broken("ashlar serve", &e)),
            }
        }
        place::guard_server(None);
        Ok(())
    }

    /// The last lines of the server's log.
    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(problem) = self.kill() {
            eprintln!("ashlar: {problem}");
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

fn broken(what: &str, e: &io::Error) -> Problem {
    Problem::failed(what, e, "please report this")
}
