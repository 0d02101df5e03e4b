//! Members fail, are replaced, copied, added and retired in rotation, and scrubs start; what was answered about them must
//! survive the kills, too.
//!
//! ```text
//!   cycle of a round   0       2      3            5         6         7        8       10    12       14       15     17
//!   redundancy 2       scrub   fail   fail another replace   replace   whole?   scrub   add   retire   whole?   copy   whole?
//!   redundancy 1       scrub   fail   -            replace   -         whole?   scrub   add   retire   whole?   copy   whole?
//! ```
//!
//! Invariants: never more members are out than may be; a verb that was answered is in force after the next start, one
//! that was not may be or not; a scrub finds nothing, for nothing rots here.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use e2e::ashlar::{Ashlar, Ended};
use e2e::load::Random;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use rand::RngExt;
use serde_json::Value;

use crate::args::Args;

/// Cycles of a round.
const ROUND: u32 = 18;
/// How long a rebuild may take.
const REBUILD_MAX: Duration = Duration::from_secs(120);

/// What happens to members during a cycle's load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// `drive fail`.
    Fail {
        /// Whom.
        file: String,
    },
    /// `drive replace`.
    Replace {
        /// Whom.
        file: String,
        /// By this file.
        with: String,
    },
    /// `drive add --grow`.
    Grow {
        /// This file.
        with: String,
    },
    /// `drive retire`.
    Retire {
        /// Whom.
        file: String,
    },
    /// `scrub start`.
    Scrub {
        /// With redundancy.
        parity: bool,
    },
}

impl Deed {
    /// Whether other members take part afterwards.
    pub fn changes_members(&self) -> bool {
        !matches!(self, Deed::Scrub { .. })
    }
}

/// The members of one array.
pub struct Members {
    array: &'static str,
    drive_size: String,
    tolerates: usize,
    /// The members' files. Seats are no names: a new drive gets a new one.
    files: Vec<String>,
    /// Those that are out for sure.
    out: Vec<String>,
    /// Members at first.
    at_first: usize,
    /// New files so far.
    made: u32,
    /// Whether a drive was replaced since redundancy was last seen whole.
    rebuilding: bool,
}

impl Members {
    /// All in.
    pub fn new(array: &'static str, drives: usize, drive_size: &str, args: &Args) -> Members {
        Members {
            array,
            drive_size: drive_size.to_owned(),
            tolerates: if args.no_drive_faults { 0 } else { args.tolerates() },
            files: (0..drives).map(|n| format!("d/{n}")).collect(),
            out: vec![],
            at_first: drives,
            made: 0,
            rebuilding: false,
        }
    }

    /// What is to happen in the array's cycle `nth`.
    pub fn deed(&mut self, nth: u32, random: &mut Random, ashlar: &Ashlar) -> Option<Deed> {
        if self.tolerates == 0 {
            return None;
        }
        if self.rebuilding && matches!(nth % ROUND, 2 | 3) {
            // What a new drive does not hold yet may not be lost elsewhere.
            self.rebuilding = ashlar.status(self.array).ok()?["state"] != "optimal";
        }
        match nth % ROUND {
            2 | 3 if self.rebuilding => None,
            2 if self.out.is_empty() => Some(Deed::Fail { file: self.any(random) }),
            3 if self.out.len() == 1 && self.tolerates == 2 => {
                let file = self.any(random);
                (!self.out.contains(&file)).then_some(Deed::Fail { file })
            }
            5 | 6 => {
                let file = self.out.first()?.clone();
                Some(Deed::Replace { file, with: self.new_file() })
            }
            0 | 8 => Some(Deed::Scrub { parity: random.random() }),
            10 if self.out.is_empty() && self.files.len() == self.at_first => {
                Some(Deed::Grow { with: self.new_file() })
            }
            12 if self.out.is_empty() && self.files.len() > self.at_first => {
                Some(Deed::Retire { file: self.any(random) })
            }
            15 if self.out.is_empty() => Some(Deed::Replace { file: self.any(random), with: self.new_file() }),
            _ => None,
        }
    }

    /// Their files.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether all are in, and the array says that it is optimal.
    pub fn are_whole(&self, ashlar: &Ashlar) -> Result<bool> {
        let status = ashlar.status(self.array)?;
        Ok(status["state"] == "optimal" && self.files.iter().all(|file| is_in(&status, file)))
    }

    /// Members that are back are brought up to date.
    pub fn rebuild_is_under_way(&mut self) {
        self.rebuilding = true;
    }

    /// Replaces what is out, and waits until the array is whole.
    pub fn make_whole(&mut self, ashlar: &Ashlar, server: &Server) -> Result<()> {
        for file in std::mem::take(&mut self.out) {
            self.replace_at_once(ashlar, &file)?;
        }
        self.wait_whole(ashlar, server)
    }

    /// Replaces a member that is out, outside of the rotation.
    pub fn replace_at_once(&mut self, ashlar: &Ashlar, file: &str) -> Result<()> {
        let with = self.new_file();
        let deed = Deed::Replace { file: file.to_owned(), with: with.clone() };
        ashlar.run(&self.command(&deed))?.expect(0)?;
        self.rebuilding = true;
        self.files.push(with);
        self.drop_file(ashlar, file)
    }

    fn new_file(&mut self) -> String {
        self.made += 1;
        format!("d/new{}", self.made)
    }

    fn any(&self, random: &mut Random) -> String {
        self.files[random.random_range(0..self.files.len())].clone()
    }

    /// Whether redundancy must be back in the array's cycle `nth`, before its load.
    pub fn whole_by(&self, nth: u32) -> bool {
        self.tolerates > 0 && matches!(nth % ROUND, 7 | 14 | 17) && self.out.is_empty()
    }

    /// The command line of a deed.
    pub fn command(&self, deed: &Deed) -> Vec<String> {
        let words: Vec<&str> = match deed {
            Deed::Fail { file } => vec!["drive", "fail", "--force", self.array, file],
            Deed::Replace { file, with } => {
                vec!["drive", "replace", self.array, file, with, "--size", &self.drive_size]
            }
            Deed::Grow { with } => vec!["drive", "add", "--grow", self.array, with, "--size", &self.drive_size],
            Deed::Retire { file } => vec!["drive", "retire", self.array, file],
            Deed::Scrub { parity: true } => vec!["scrub", "start", self.array, "--parity"],
            Deed::Scrub { parity: false } => vec!["scrub", "start", self.array],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// After a start: what a deed's verb was answered must be so; what it was not is taken as it is found.
    pub fn reconcile(&mut self, ashlar: &Ashlar, deed: &Deed, ended: Ended, killed: bool) -> Result<()> {
        let answered = ended.code == Some(0);
        if matches!(deed, Deed::Scrub { .. }) {
            // One may be running already.
            return Ok(());
        }
        if ended.code == Some(3) && matches!(deed, Deed::Retire { .. }) {
            // The others have no room for what is on it.
            return Ok(());
        }
        if !answered && !killed {
            ended.expect(0)?;
            return Ok(());
        }
        let status = ashlar.status(self.array)?;
        match deed {
            Deed::Fail { file } => {
                let out = !is_in(&status, file);
                if answered && !out {
                    return Err(contradiction(&ended, file, "in", &status));
                }
                // Also where the spare space takes its place: it stays out until it is replaced.
                if out {
                    self.out.push(file.clone());
                }
            }
            Deed::Replace { file, with } => {
                let replaced = is_in(&status, with);
                let listed = is_listed(&status, with);
                if replaced != listed || (answered && !replaced) {
                    return Err(contradiction(
                        &ended,
                        with,
                        if listed { "a member, but not in" } else { "not in" },
                        &status,
                    ));
                }
                if replaced {
                    self.rebuilding = true;
                    self.files.push(with.clone());
                    // One that was in stays until nothing lies on it.
                    if self.out.contains(file) {
                        self.out.retain(|f| f != file);
                        self.drop_file(ashlar, file)?;
                    }
                } else {
                    remove(ashlar, with)?;
                }
            }
            Deed::Grow { with } => {
                let joined = is_in(&status, with);
                if joined != is_listed(&status, with) || (answered && !joined) {
                    return Err(contradiction(&ended, with, "not in", &status));
                }
                if joined {
                    self.files.push(with.clone());
                } else {
                    remove(ashlar, with)?;
                }
            }
            Deed::Retire { file } => {
                if answered && is_in(&status, file) {
                    return Err(contradiction(&ended, file, "in", &status));
                }
            }
            Deed::Scrub { .. } => {}
        }
        Ok(())
    }

    fn drop_file(&mut self, ashlar: &Ashlar, file: &str) -> Result<()> {
        self.files.retain(|f| f != file);
        remove(ashlar, file)
    }

    /// Waits until the array has its redundancy back and nobody is leaving.
    pub fn wait_whole(&mut self, ashlar: &Ashlar, server: &Server) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = ashlar.status(self.array)?;
            let found = ["running", "last"].map(|run| &status["scrub"][run]["found"]);
            if found.iter().any(|f| f.as_array().is_some_and(|f| !f.is_empty())) {
                return Err(server.broken(format!("a scrub found something: {}", status["scrub"])));
            }
            let leaving = status["members"].to_string().contains("\"leaving\"");
            if status["state"] == "optimal" && !leaving {
                let gone: Vec<String> = self.files.iter().filter(|f| !is_listed(&status, f)).cloned().collect();
                return gone.iter().try_for_each(|file| self.drop_file(ashlar, file));
            }
            if begun.elapsed() > REBUILD_MAX {
                return Err(server.broken(format!("not whole after {REBUILD_MAX:?}: {}", short(&status))));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a member is in, by its file.
pub fn is_in(status: &Value, file: &str) -> bool {
    let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
    let path = format!("/{file}");
    members.iter().any(|m| m["state"] == "in" && m["drive"].as_str().is_some_and(|d| d.ends_with(&path)))
}

/// Whether a file is a member, whatever its state.
pub fn is_listed(status: &Value, file: &str) -> bool {
    status["members"].to_string().contains(&format!("/{file}\""))
}

fn remove(ashlar: &Ashlar, file: &str) -> Result<()> {
    let path = ashlar.dir().join(file);
    if path.exists() { fs::remove_file(&path).or_fail(path.display().to_string()) } else { Ok(()) }
}

fn contradiction(ended: &Ended, file: &str, is: &str, status: &Value) -> Failure {
    let answered = if ended.code == Some(0) { "it was answered" } else { "it was cut off" };
    Failure::new(&ended.command, format!("{answered}; after the restart {file} is {is}: {}", short(status)))
}

/// What of a status says how members are.
pub fn short(status: &Value) -> String {
    format!("state {}, rebuild {}, members {}", status["state"], status["rebuild"], status["members"])
}
