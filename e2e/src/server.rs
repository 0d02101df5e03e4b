//! `ashlar serve` as a child: started, waited for, killed, stopped.
//!
//! Invariant: the child ends with this value, and with this process whatever happens to it (its standard input is a
//! pipe from here).

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use export::nbd::client::Client;
use rt::Rt;
use rt::net::Addr;
use rustix::process::{Pid, Signal, kill_process};

use crate::ashlar::Ashlar;
use crate::{Failure, OrFail, Result};

/// How long a start with its recovery may take. The lock of a killed server's drives may be held for some seconds.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a stop in order may take.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(1);
/// How long a greeting may take; then it is asked for again.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// Lines of the log that a failure shows.
const LOG_LINES: usize = 25;

/// A server that is there or not.
pub struct Server {
    ashlar: Ashlar,
    flags: Vec<String>,
    /// Drives, directories and flags until others are passed.
    passed: Vec<String>,
    starts: u32,
    child: Option<Child>,
}

impl Server {
    /// Not started yet; always listens on a unix socket in the installation's directory.
    #[must_use]
    pub fn new(ashlar: &Ashlar) -> Server {
        Server { ashlar: ashlar.clone(), flags: vec![], passed: vec![], starts: 0, child: None }
    }

    /// With more flags for `serve`.
    #[must_use]
    pub fn with_flags(mut self, flags: &[&str]) -> Server {
        self.flags = flags.iter().map(|f| (*f).to_owned()).collect();
        self
    }

    /// With these flags, too, from its next start on.
    pub fn add_flags(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(|f| (*f).to_owned()));
    }

    /// With these drives, directories and flags, too, in its next starts, instead of those that were passed last.
    pub fn pass(&mut self, args: &[&str]) {
        self.passed = args.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// Its NBD socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.ashlar.dir().join("nbd")
    }

    fn log_path(&self) -> PathBuf {
        self.ashlar.dir().join("log")
    }

    /// Whether there is a child, dead or alive.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// How often it was started, whatever came of it.
    #[must_use]
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path()).or_fail("the server's log")?;
        self.spawn_logging_to(log.into())
    }

    /// The same, its log not kept.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn spawn_logging_to(&mut self, log: Stdio) -> Result<()> {
        let nbd = format!("unix:{}", self.socket().display());
        let mut args = vec!["serve", "--stop-at-eof", "--nbd", &nbd];
        args.extend(self.flags.iter().chain(&self.passed).map(String::as_str));
        let child = self
            .ashlar
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .or_fail("ashlar serve")?;
        self.child = Some(child);
        self.starts += 1;
        Ok(())
    }

    /// Whether it answers on its socket by now. The socket of a killed server takes connections for some milliseconds
    /// more, until its ring is gone; only a greeting tells.
    #[must_use]
    pub fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else {
            return false;
        };
        let mut greeting = [0; 8];
        stream.set_read_timeout(Some(GREETING_MAX)).is_ok()
            && stream.read_exact(&mut greeting).is_ok()
            && &greeting == b"NBDMAGIC"
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it ends, or does not answer in time.
    pub fn wait_ready(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        while begun.elapsed() < READY_MAX {
            if self.answers() {
                return Ok(begun.elapsed());
            }
            if let Some(status) = self.ended()? {
                return Err(self.broken(format!("it ended with {status} instead of serving")));
            }
            thread::sleep(LOOK);
        }
        Err(self.broken(format!("it does not serve after {READY_MAX:?}")))
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(&mut self) -> Result<Duration> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it goes on.
    pub fn wait_end(&mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < READY_MAX {
            if let Some(status) = self.ended()? {
                self.child = None;
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
        Err(self.broken("it goes on".into()))
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.child {
            Some(child) => child.try_wait().or_fail("ashlar serve"),
            None => Ok(None),
        }
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// When it had ended before: nothing but this may end it.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            return Err(self.broken(format!("it ended by itself with {status}")));
        }
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill().or_fail("SIGKILL")?;
        child.wait().or_fail("the killed server").map(drop)
    }

    /// SIGTERM, and waits for an end with exit code 0.
    ///
    /// # Errors
    /// When it ends otherwise, or not in time.
    pub fn stop(&mut self) -> Result<()> {
        let Some(child) = &self.child else {
            return Ok(());
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("ashlar serve", "a process id of 0"))?;
        kill_process(pid, Signal::TERM).or_fail("SIGTERM")?;
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            match self.ended()? {
                None => thread::sleep(LOOK),
                Some(status) if status.success() => {
                    self.child = None;
                    return Ok(());
                }
                Some(status) => {
                    return Err(self.broken(format!("after SIGTERM it ended with {status}")));
                }
            }
        }
        Err(self.broken(format!("it goes on {STOP_MAX:?} after SIGTERM")))
    }

    /// Connects our own client to a volume.
    ///
    /// # Errors
    /// When the server does not export it.
    pub async fn connect(&self, rt: &Rt, volume: &str) -> Result<Client> {
        Client::connect(rt, &Addr::Unix(self.socket()), volume)
            .await
            .map_err(|e| self.broken(format!("NBD export {volume}: {e}")))
    }

    /// A failure with the end of the log.
    #[must_use]
    pub fn broken(&self, why: String) -> Failure {
        Failure::new("ashlar serve", format!("{why}\n{}", self.log_end()))
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_end(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES)..];
        shown.iter().map(|l| format!("  log: {l}\n")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}
