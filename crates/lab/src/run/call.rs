//! One call of a generator: started, watched, ended.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::measure::live_iops;
use crate::error::Error;
use crate::fio::Fio;

/// A generator while it runs; it does not outlive this value.
pub struct Call {
    program: String,
    child: Child,
    rates: Receiver<f64>,
    complaints: Option<JoinHandle<String>>,
    /// It is a client of servers, which go on when it is killed.
    is_client: bool,
}

/// How long servers may take to be told that their load ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// What there is to see of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sight {
    /// A rate.
    Iops(f64),
    /// Nothing new.
    Nothing,
    /// It says no more.
    Ended,
}

impl Call {
    /// Starts it.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(program: &Path, name: String, args: &[String]) -> Result<Call, Error> {
        let fail = |why: String| Error::Program { program: name.clone(), why };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
        let (mut stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (tell, rates) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Some(n @ 1..) = stdout.as_mut().and_then(|s| s.read(&mut chunk).ok()) {
                let rate = live_iops(&String::from_utf8_lossy(&chunk[..n]));
                if rate.is_some_and(|iops| tell.send(iops).is_err()) {
                    break;
                }
            }
        });
        let complaints = std::thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is not shown.
            let _ = stderr.map(|mut s| s.read_to_string(&mut text));
            text
        });
        Ok(Call { program: name, child, rates, complaints: Some(complaints), is_client: false })
    }

    /// Starts fio as a client of servers.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start_client(fio: &Fio, args: &[String]) -> Result<Call, Error> {
        let mut call = Call::start(&fio.program, fio.version.clone(), args)?;
        call.is_client = true;
        Ok(call)
    }

    /// Looks for at most `wait`.
    pub fn look(&self, wait: Duration) -> Sight {
        match self.rates.recv_timeout(wait) {
            Ok(iops) => Sight::Iops(iops),
            Err(RecvTimeoutError::Timeout) => Sight::Nothing,
            Err(RecvTimeoutError::Disconnected) => Sight::Ended,
        }
    }

    /// Asks it to end and to print what it measured.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn stop(&self) -> Result<(), Error> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Ok(()), |pid| kill_process(pid, Signal::INT));
        sent.map_err(|e| Error::Program { program: self.program.clone(), why: e.to_string() })
    }

    /// Waits for its end; returns what it complained of all the same. `asked`: it was asked to end, which is no failure.
    ///
    /// # Errors
    /// When it failed: its own words.
    pub fn end(mut self, asked: bool) -> Result<String, String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        let complaints = self.complaints.take().and_then(|c| c.join().ok()).unwrap_or_default();
        let words: Vec<&str> = complaints.lines().filter(|l| !l.trim().is_empty()).take(5).collect();
        let words = words.join("; ");
        match (status.success() || asked, words.is_empty()) {
            (true, _) => Ok(words),
            (false, true) => Err(format!("{status}, without a message")),
            (false, false) => Err(format!("{status}: {words}")),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let begun = Instant::now();
        if self.is_client && matches!(self.child.try_wait(), Ok(None)) && self.stop().is_ok() {
            while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < FAREWELL {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        // One that has ended cannot be killed, and that is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
