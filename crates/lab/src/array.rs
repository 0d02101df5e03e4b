//! An array that is failed and rebuilt while it is measured: through commands of the user's, or through whoever serves it.
//!
//! | hook | what it does |
//! |---|---|
//! | `fail` | takes a drive out; returns when it is out |
//! | `replace` | puts it, or another, back in; the rebuild begins |
//! | `wait` | returns when the array is whole again |
//! | `state` | prints `optimal`, `degraded` or `rebuilding`, and how many hundredths are rebuilt if that is known |
//!
//! `fail` and `replace` are always wanted, and one of `wait` and `state`. Without `state` nobody asks the array: the lab
//! goes by what it did itself, says so in the verdict, and cannot go on by itself after it was stopped between.
//!
//! Not here: making arrays, and which drive is failed.

use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model::State;

/// What an array is, and how far its rebuild has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Its state; one that was rebuilt is optimal.
    pub state: State,
    /// Hundredths rebuilt.
    pub rebuilt_percent: Option<f64>,
}

/// An array under control.
pub trait Array {
    /// Takes a drive out.
    ///
    /// # Errors
    /// When it is not out.
    fn fail(&mut self) -> Result<(), Error>;

    /// Puts a drive in its place.
    ///
    /// # Errors
    /// When no rebuild will begin.
    fn replace(&mut self) -> Result<(), Error>;

    /// How it is.
    ///
    /// # Errors
    /// When nobody knows.
    fn standing(&mut self) -> Result<Standing, Error>;

    /// Whether `standing` is what the array says of itself.
    fn tells(&self) -> bool;
}

/// How an array is controlled; part of a run's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// By commands.
    Hooks(Hooks),
    /// By the Ashlar that serves it.
    Served(Served),
}

/// An array that an Ashlar serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its name.
    pub array: String,
    /// The drive that is failed.
    pub drive: String,
    /// What takes its place; the next time it is the other way round.
    pub spare: String,
    /// The control socket.
    pub socket: String,
}

/// Commands for a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooks {
    /// Takes a drive out.
    pub fail: String,
    /// Puts one in.
    pub replace: String,
    /// Returns when the array is whole.
    pub wait: Option<String>,
    /// Prints its state.
    pub state: Option<String>,
}

impl Control {
    /// In words, for the disclosure.
    pub fn text(&self) -> String {
        match self {
            Control::Served(s) => {
                format!("array {} of the Ashlar at {}: drives {} and {} in turn", s.array, s.socket, s.drive, s.spare)
            }
            Control::Hooks(hooks) => {
                let told = [("wait", &hooks.wait), ("state", &hooks.state)];
                let optional = told.iter().filter_map(|(name, hook)| Some(format!("\n{name}: {}", hook.as_ref()?)));
                format!("fail: {}\nreplace: {}{}", hooks.fail, hooks.replace, optional.collect::<String>())
            }
        }
    }
}

/// An array behind hooks.
#[derive(Debug)]
pub struct Hooked {
    hooks: Hooks,
    failed: bool,
    waiting: Option<Child>,
}

impl Hooked {
    /// An array that is whole, as far as nobody tells otherwise.
    ///
    /// # Errors
    /// When nothing tells the end of a rebuild.
    pub fn new(hooks: Hooks) -> Result<Hooked, Error> {
        if hooks.wait.is_none() && hooks.state.is_none() {
            return Err(Error::usage("hooks", "hook `wait` or `state` is needed to know when a rebuild is over"));
        }
        Ok(Hooked { hooks, failed: false, waiting: None })
    }

    /// What the lab did itself.
    fn by_own_doing(&mut self) -> Result<State, Error> {
        let Some(child) = &mut self.waiting else {
            return Ok(if self.failed { State::Degraded } else { State::Optimal });
        };
        match child.try_wait().map_err(|e| failed("wait", e))? {
            None => Ok(State::Rebuilding),
            Some(status) if status.success() => {
                self.waiting = None;
                Ok(State::Optimal)
            }
            Some(status) => Err(failed("wait", status)),
        }
    }
}

impl Array for Hooked {
    fn fail(&mut self) -> Result<(), Error> {
        call("fail", &self.hooks.fail)?;
        self.failed = true;
        Ok(())
    }

    fn replace(&mut self) -> Result<(), Error> {
        call("replace", &self.hooks.replace)?;
        self.failed = false;
        if let (Some(wait), None) = (&self.hooks.wait, &self.hooks.state) {
            let child = shell(wait).stdout(Stdio::null()).spawn().map_err(|e| failed("wait", e))?;
            self.waiting = Some(child);
        }
        Ok(())
    }

    fn standing(&mut self) -> Result<Standing, Error> {
        match self.hooks.state.clone() {
            Some(hook) => parse(&call("state", &hook)?),
            None => Ok(Standing { state: self.by_own_doing()?, rebuilt_percent: None }),
        }
    }

    fn tells(&self) -> bool {
        self.hooks.state.is_some()
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        if let Some(child) = &mut self.waiting {
            // One that has ended cannot be killed, and that is well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn shell(hook: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", hook]).stdin(Stdio::null());
    command
}

/// Runs a hook to its end and returns what it printed.
fn call(name: &str, hook: &str) -> Result<String, Error> {
    let out = shell(hook).output().map_err(|e| failed(name, e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&out.stderr);
    let words: Vec<&str> = words.lines().filter(|l| !l.trim().is_empty()).take(5).collect();
    Err(failed(name, format!("{}: {}", out.status, words.join("; "))))
}

fn failed(name: &str, why: impl ToString) -> Error {
    Error::Program { program: format!("hook `{name}`"), why: why.to_string() }
}

/// "rebuilding 37.5": a state, and hundredths.
fn parse(text: &str) -> Result<Standing, Error> {
    let mut words = text.split_whitespace();
    let state = match words.next().unwrap_or_default() {
        "optimal" | "rebuilt" => State::Optimal,
        "degraded" => State::Degraded,
        "rebuilding" => State::Rebuilding,
        other => return Err(failed("state", format!("it printed \"{other}\"; valid: optimal, degraded, rebuilding"))),
    };
    let percent = words.next().and_then(|w| w.trim_end_matches('%').parse().ok());
    Ok(Standing { state, rebuilt_percent: percent.filter(|p| (0.0..=100.0).contains(p)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(dir: &std::path::Path) -> Hooks {
        let at = |name: &str| dir.join(name).display().to_string();
        Hooks {
            fail: format!("touch {}", at("failed")),
            replace: format!("rm {}", at("failed")),
            wait: Some(format!("until test -e {}; do sleep 0.02; done", at("whole"))),
            state: None,
        }
    }

    #[test]
    fn without_a_state_hook_it_goes_by_what_was_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut array = Hooked::new(hooks(dir.path())).unwrap();
        let state = |array: &mut Hooked| array.standing().unwrap().state;
        assert_eq!(state(&mut array), State::Optimal);
        array.fail().unwrap();
        assert!(dir.path().join("failed").exists());
        assert_eq!(state(&mut array), State::Degraded);
        array.replace().unwrap();
        assert_eq!(state(&mut array), State::Rebuilding);
        std::fs::write(dir.path().join("whole"), "").unwrap();
        for _ in 0..500 {
            if state(&mut array) == State::Optimal {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("`wait` has ended, and the array is not optimal");
    }

    #[test]
    fn a_state_hook_is_believed_and_a_hook_that_fails_is_told() {
        let mut array =
            Hooked::new(Hooks { state: Some("echo rebuilding 37.5%".to_owned()), ..hooks("/x".as_ref()) }).unwrap();
        assert!(array.tells());
        let standing = array.standing().unwrap();
        assert_eq!((standing.state, standing.rebuilt_percent), (State::Rebuilding, Some(37.5)));
        let mut broken = Hooks { fail: "echo no such drive >&2; exit 3".to_owned(), ..hooks("/x".as_ref()) };
        broken.state = Some("echo fine".to_owned());
        let mut array = Hooked::new(broken).unwrap();
        assert!(array.fail().unwrap_err().to_string().contains("no such drive"));
        assert!(array.standing().unwrap_err().to_string().contains("\"fine\""));
        assert!(Hooked::new(Hooks { wait: None, ..hooks("/x".as_ref()) }).is_err());
    }

    #[test]
    fn states_are_read() {
        for (text, state, percent) in [
            ("optimal\n", State::Optimal, None),
            ("degraded", State::Degraded, None),
            ("rebuilding 12", State::Rebuilding, Some(12.0)),
            ("rebuilding soon", State::Rebuilding, None),
            ("rebuilding 400", State::Rebuilding, None),
        ] {
            let standing = parse(text).unwrap();
            assert_eq!((standing.state, standing.rebuilt_percent), (state, percent), "{text}");
        }
        assert!(parse("").is_err());
    }
}
