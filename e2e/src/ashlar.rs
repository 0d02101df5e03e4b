//! The `ashlar` binary, run as a user runs it: with a control socket and a state directory of its own.
//!
//! Invariant: whatever the machine has in /run and /var/lib is not touched.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use rt::Rt;
use serde_json::Value;

use crate::{Failure, OrFail, Result};

/// One installation: a program and a directory for everything it keeps.
#[derive(Clone, Debug)]
pub struct Ashlar {
    program: PathBuf,
    dir: PathBuf,
}

/// How a verb ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The command, for people.
    pub command: String,
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    fn of(command: String, output: &Output) -> Ended {
        Ended {
            command,
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// That the verb ended with `code`.
    ///
    /// # Errors
    /// When it did not; with all it printed.
    pub fn expect(self, code: i32) -> Result<Ended> {
        if self.code == Some(code) {
            return Ok(self);
        }
        let ended = self.code.map_or("a signal".to_owned(), |c| format!("exit code {c}"));
        let printed = format!("{}{}", self.out, self.err);
        Err(Failure::new(self.command, format!("ended with {ended}, expected {code}\n{}", printed.trim_end())))
    }
}

/// The binary: `named`, or `ashlar` beside this program.
///
/// # Errors
/// When it is not there.
pub fn find(named: Option<PathBuf>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => env::current_exe().or_fail("the path of this program")?.with_file_name("ashlar"),
    };
    if path.is_file() {
        return std::path::absolute(&path).or_fail(path.display().to_string());
    }
    Err(Failure::new(
        path.display().to_string(),
        "there is no such program; build it (cargo build --release -p ashlar), or name it with --ashlar",
    ))
}

impl Ashlar {
    /// The installation of `program` in `dir`.
    #[must_use]
    pub fn new(program: &Path, dir: &Path) -> Ashlar {
        Ashlar { program: program.to_owned(), dir: dir.to_owned() }
    }

    /// Its directory, in which verbs run.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A verb, not started yet.
    #[must_use]
    pub fn command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args.iter().map(AsRef::as_ref))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .env("ASHLAR_CONTROL", self.dir.join("control"))
            .env("ASHLAR_STATE_DIR", self.dir.join("state"));
        command
    }

    /// Runs a verb to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run<S: AsRef<str>>(&self, args: &[S]) -> Result<Ended> {
        let shown = shown(args);
        let output = self.command(args).output().or_fail(shown.as_str())?;
        Ok(Ended::of(shown, &output))
    }

    /// Runs a verb that must succeed; returns what it printed.
    ///
    /// # Errors
    /// When it does not.
    pub fn done<S: AsRef<str>>(&self, args: &[S]) -> Result<String> {
        Ok(self.run(args)?.expect(0)?.out)
    }

    /// Runs a verb that must succeed with `--json`.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn json<S: AsRef<str>>(&self, args: &[S]) -> Result<Value> {
        let mut args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        args.push("--json");
        let out = self.done(&args)?;
        serde_json::from_str(&out).or_fail(format!("the output of {}", shown(&args)))
    }

    /// Runs a verb while other tasks of `rt` go on.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run_beside(&self, rt: &Rt, args: Vec<String>) -> Result<Ended> {
        let shown = shown(&args);
        let mut command = self.command(&args);
        let (sender, mut answer) = rt.mailbox();
        thread::spawn(move || sender.send(command.output()));
        match answer.recv().await {
            Some(output) => Ok(Ended::of(shown.clone(), &output.or_fail(shown)?)),
            None => Err(Failure::new(shown, "the thread that waits for it ended")),
        }
    }

    /// The status of one array, as `status --json` gives it.
    ///
    /// # Errors
    /// When the array is not there.
    pub fn status(&self, array: &str) -> Result<Value> {
        let all = self.json(&["status", array])?;
        match all["arrays"].get(0) {
            Some(array) => Ok(array.clone()),
            None => Err(Failure::new(format!("ashlar status {array}"), format!("no such array: {all}"))),
        }
    }
}

fn shown<S: AsRef<str>>(args: &[S]) -> String {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    format!("ashlar {}", args.join(" "))
}
