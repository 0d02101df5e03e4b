//! Copies of members' files as they were when a cycle ended, and what generations they hold.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

/// Where they lie, beside the drives' directory.
const PLACE: &str = "kept";
/// The lock of a killed server's drives is held until its ring is gone.
const LOCKED_MAX: Duration = Duration::from_secs(10);

/// A generation names 16 opens before its own: what is older cannot be told from another history.
const OPENS_KNOWN: u32 = 15;

/// The newest generation of one part on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    number: u64,
    id: String,
}

/// What one drive says of every part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words(Vec<Word>);

impl Words {
    fn of(ashlar: &Ashlar, file: &str) -> Result<Words> {
        let begun = Instant::now();
        let mut ended = ashlar.run(&["inspect", file, "--json"])?;
        while ended.code == Some(3) && begun.elapsed() < LOCKED_MAX {
            thread::sleep(Duration::from_millis(10));
            ended = ashlar.run(&["inspect", file, "--json"])?;
        }
        let ended = ended.expect(0)?;
        let inspected: Value = serde_json::from_str(&ended.out).or_fail(ended.command)?;
        let inspected = &inspected["inspection"];
        let parts = inspected["parts"].as_array().filter(|parts| !parts.is_empty());
        let parts: Vec<&Value> = parts.map_or_else(|| vec![inspected], |parts| parts.iter().collect());
        let newest = |part: &Value| {
            let slots = part["slots"].as_array()?.iter().filter_map(|slot| slot.get("valid"));
            let words =
                slots.filter_map(|g| Some(Word { number: g["number"].as_u64()?, id: g["id"].as_str()?.to_owned() }));
            words.max_by_key(|word| word.number)
        };
        let words: Option<Vec<Word>> = parts.into_iter().map(newest).collect();
        words
            .map(Words)
            .ok_or_else(|| Failure::new(format!("ashlar inspect {file}"), format!("no generation: {inspected}")))
    }

    /// Whether these are older in every part by more than a kill may leave a drive.
    fn are_behind(&self, now: &Words) -> bool {
        self.0.iter().zip(&now.0).all(|(then, now)| then.number + 2 <= now.number)
    }
}

/// A copy of a member.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The member's file.
    pub file: String,
    /// The copy's.
    copy: String,
    words: Words,
    /// Whether what it holds had taken effect: all members held it. A kill may leave a generation on some of them.
    in_effect: bool,
    /// Starts of the server before.
    starts: u32,
}

impl Kept {
    /// Copies the file of a member of `all`, while no server runs.
    pub fn take(ashlar: &Ashlar, starts: u32, file: &str, all: &[String]) -> Result<Kept> {
        let words = Words::of(ashlar, file)?;
        let mut in_effect = true;
        for other in all {
            in_effect &= Words::of(ashlar, other)? == words;
        }
        let copy = format!("{PLACE}/{}", name(file));
        fs::create_dir_all(ashlar.dir().join(PLACE)).or_fail(PLACE)?;
        copy_file(ashlar, file, &copy)?;
        Ok(Kept { file: file.to_owned(), copy, words, in_effect, starts })
    }

    /// Whether it must be known, after so many starts, as what the member was.
    pub fn is_certain(&self, starts: u32) -> bool {
        self.in_effect && starts - self.starts <= OPENS_KNOWN
    }

    /// Whether it is behind what `file` says.
    pub fn is_behind(&self, ashlar: &Ashlar, file: &str) -> Result<bool> {
        Ok(self.words.are_behind(&Words::of(ashlar, file)?))
    }

    /// Puts it in the member's place.
    pub fn set_back(&self, ashlar: &Ashlar) -> Result<()> {
        move_file(ashlar, &self.copy, &self.file)
    }

    /// Puts it beside the drives; where it is then. Names decide in which order drives are found.
    pub fn put_beside(&self, ashlar: &Ashlar, first: bool) -> Result<String> {
        let to = format!("d/{}copy-{}", if first { "0-" } else { "z-" }, name(&self.file));
        move_file(ashlar, &self.copy, &to)?;
        Ok(to)
    }

    /// Forgets it, where it was not put anywhere.
    pub fn remove(&self, ashlar: &Ashlar) -> Result<()> {
        if ashlar.dir().join(&self.copy).exists() { remove_file(ashlar, &self.copy) } else { Ok(()) }
    }
}

/// Takes a drive's file away; where it is then.
pub fn take_away(ashlar: &Ashlar, file: &str) -> Result<String> {
    let to = format!("{PLACE}/away-{}", name(file));
    fs::create_dir_all(ashlar.dir().join(PLACE)).or_fail(PLACE)?;
    move_file(ashlar, file, &to)?;
    Ok(to)
}

/// Renames a file within the installation's directory.
pub fn move_file(ashlar: &Ashlar, from: &str, to: &str) -> Result<()> {
    fs::rename(ashlar.dir().join(from), ashlar.dir().join(to)).or_fail(format!("moving {from} to {to}"))
}

/// Removes a file of the installation's directory.
pub fn remove_file(ashlar: &Ashlar, file: &str) -> Result<()> {
    fs::remove_file(ashlar.dir().join(file)).or_fail(format!("removing {file}"))
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Blocks that nothing was written to take no room in the copy; where the file system can, none of it does.
fn copy_file(ashlar: &Ashlar, from: &str, to: &str) -> Result<()> {
    let what = format!("cp {from} {to}");
    let mut command = Command::new("cp");
    command.args(["--sparse=always", "--reflink=auto", from, to]).current_dir(ashlar.dir());
    let ended = command.output().or_fail(what.as_str())?;
    if ended.status.success() { Ok(()) } else { Err(Failure::new(what, String::from_utf8_lossy(&ended.stderr))) }
}
