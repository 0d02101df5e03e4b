//! Who else is told of events: a program, or an address over HTTP. From the configuration file alone: whoever may use the API
//! gains neither the execution of programs nor requests from this machine.
//!
//! ```text
//!   journal -> cursor -> try, try again ... ten times -> alarm, and once every five minutes
//! ```
//!
//! Invariants:
//! - at least once: an event counts as told when the other side has said so, and the cursor is written then;
//! - in order: one that cannot be told holds up those behind it;
//! - a hook that hangs is given up after 10 s, and holds up nobody but itself.

mod exec;
mod post;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{AlarmView, Event, EventSeverity, Problem, Severity, WhichEvents};
use serde::Deserialize;

use crate::journal::Journal;

/// A try ends after so long.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Tries before the alarm.
const TRIES: u32 = 10;

/// Between tries: this, twice this, and so on up to the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Between tries once the alarm is raised.
const PAUSE_FAILING: Duration = Duration::from_secs(300);

/// A hook, as the file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// Its name, by which it remembers what it has told.
    pub name: String,
    /// Where events are sent: "http://ADDRESS[:PORT]/PATH".
    pub url: Option<String>,
    /// A file with the key by which what is sent there is signed.
    pub key_file: Option<PathBuf>,
    /// A program and its arguments: an event is on its standard input.
    pub exec: Option<Vec<String>>,
    /// Only events that matter so much: info, warning (when nothing is said) or error.
    pub severity: Option<EventSeverity>,
}

/// How a hook tells.
#[derive(Clone, Debug)]
enum Way {
    Post(post::Target),
    Exec(Vec<String>),
}

/// The hooks of a server. Clones are the same.
#[derive(Clone, Default)]
pub struct Hooks {
    failing: Arc<Mutex<Vec<(String, String)>>>,
}

impl HookConfig {
    fn way(&self) -> Result<Way, Problem> {
        let no = |why: &str, todo: &str| Err(Problem::usage(format!("hook \"{}\"", self.name), why, todo));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || !self.name.chars().all(is_name) {
            return no("its name is not possible", "use letters, digits, - and _");
        }
        match (&self.url, &self.exec) {
            (Some(url), None) => post::Target::new(url, self.key_file.as_deref()).map(Way::Post),
            (None, Some(words)) if words.first().is_some_and(|program| program.starts_with('/')) => {
                Ok(Way::Exec(words.clone()))
            }
            (None, Some(_)) => no("exec does not begin with the path of a program", "write exec = [\"/usr/bin/...\"]"),
            (Some(_), Some(_)) | (None, None) => no("it needs either url or exec", "give one of them"),
        }
    }
}

impl Hooks {
    /// Tells of what happens from now on, and of what happened since a hook was told last; on the calling runtime of tokio.
    ///
    /// # Errors
    /// When a hook says what cannot be.
    pub fn check(all: &[HookConfig]) -> Result<(), Problem> {
        let mut names: Vec<&str> = all.iter().map(|hook| hook.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            let what = format!("hook \"{}\"", twice[0]);
            return Err(Problem::usage(what, "two hooks have this name", "give each its own"));
        }
        all.iter().try_for_each(|hook| hook.way().map(drop))
    }

    /// Begins to tell; [`Hooks::check`] has been asked before. On the calling runtime of tokio.
    pub fn start(&self, all: &[HookConfig], journal: &Journal, state_dir: &Path) {
        for hook in all {
            let Ok(way) = hook.way() else { continue };
            let cursor = state_dir.join(format!("hook-{}.cursor", hook.name));
            let teller = Teller {
                name: hook.name.clone(),
                way,
                at_least: hook.severity.unwrap_or(EventSeverity::Warning),
                journal: journal.clone(),
                cursor,
                hooks: self.clone(),
                pause: PAUSE_MIN,
            };
            tokio::spawn(teller.run());
        }
    }

    /// Hooks that cannot be told, as alarms.
    #[must_use]
    pub fn alarms(&self) -> Vec<AlarmView> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let alarm = |(name, why): &(String, String)| AlarmView {
            code: "hook_failing".to_owned(),
            severity: Severity::Warning,
            seat: None,
            what: format!("Events cannot be told to the hook {name}: {why}"),
            todo: "Look at the other side; events wait, and are told once it answers".to_owned(),
            acknowledged: None,
        };
        failing.iter().map(alarm).collect()
    }

    fn set_failing(&self, name: &str, why: Option<String>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.retain(|(known, _)| known != name);
        failing.extend(why.map(|why| (name.to_owned(), why)));
    }
}

/// One hook at work.
struct Teller {
    name: String,
    way: Way,
    at_least: EventSeverity,
    journal: Journal,
    cursor: PathBuf,
    hooks: Hooks,
    pause: Duration,
}

impl Teller {
    async fn run(self) {
        let mut newest = self.journal.newest();
        // A new hook begins with what happens from now on.
        let known = fs::read_to_string(&self.cursor).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let mut told = known.unwrap_or(*newest.borrow());
        self.remember(told).await;
        // The journal ends with the server.
        while newest.wait_for(|newest| *newest > told).await.is_ok() {
            let (journal, which) =
                (self.journal.clone(), WhichEvents { after: Some(told), limit: Some(100), array: None });
            let Ok(page) = tokio::task::spawn_blocking(move || journal.read(&which)).await else { return };
            for event in page.events {
                if event.what.severity >= self.at_least {
                    self.tell(&event).await;
                }
                told = event.seq;
                self.remember(told).await;
            }
            told = told.max(page.next);
        }
    }

    /// Tells of an event, however long that takes.
    async fn tell(&self, event: &Event) {
        let body = serde_json::to_vec(event).unwrap_or_default();
        let (mut tries, mut pause) = (0, self.pause);
        loop {
            let told = match &self.way {
                Way::Post(target) => target.post(&body).await,
                Way::Exec(words) => exec::run(words, &body).await,
            };
            let Err(why) = told else {
                self.hooks.set_failing(&self.name, None);
                return;
            };
            tries += 1;
            if tries == TRIES {
                tracing::warn!("hook {}: event {} cannot be told: {why}", self.name, event.seq);
            }
            if tries >= TRIES {
                self.hooks.set_failing(&self.name, Some(why));
                pause = PAUSE_FAILING;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Writes down what was told, on a thread that may hang with the state directory.
    async fn remember(&self, told: u64) {
        let cursor = self.cursor.clone();
        let written = tokio::task::spawn_blocking(move || keep(&cursor, told)).await;
        if let Ok(Err(e)) = written {
            tracing::warn!("hook {}: {}: {e}: it may be told twice", self.name, self.cursor.display());
        }
    }
}

/// Whole or not at all: without a cursor a hook begins with what happens from now on.
fn keep(cursor: &Path, told: u64) -> io::Result<()> {
    let new = cursor.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(format!("{told}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, cursor)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use api::EventCode;

    use super::*;

    fn error(journal: &Journal, text: &str) {
        journal.tell(Event::now(EventCode::ArrayFrozen, EventSeverity::Error, Some("a"), text));
    }

    /// A server that answers requests with these statuses, in turn; what it was sent.
    fn other_side(statuses: Vec<u16>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let served = thread::spawn(move || {
            let one = |status: u16| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut said, mut some) = (String::new(), [0; 4096]);
                while !said.contains("}") {
                    let n = stream.read(&mut some).unwrap();
                    said.push_str(&String::from_utf8_lossy(&some[..n]));
                }
                stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").as_bytes()).unwrap();
                said
            };
            statuses.into_iter().map(one).collect()
        });
        (url, served)
    }

    fn start(dir: &Path, journal: &Journal, hook: HookConfig) -> (Running, Hooks) {
        Hooks::check(std::slice::from_ref(&hook)).unwrap();
        let hooks = Hooks::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (started, journal, dir) = (hooks.clone(), journal.clone(), dir.to_owned());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                started.start(&[hook], &journal, &dir);
                let _gone = ended.await;
            });
        });
        (Running { end: Some(end), thread: Some(thread) }, hooks)
    }

    /// Hooks at work, until this goes.
    struct Running {
        end: Option<tokio::sync::oneshot::Sender<()>>,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl Drop for Running {
        fn drop(&mut self) {
            drop(self.end.take());
            self.thread.take().map(thread::JoinHandle::join);
        }
    }

    #[test]
    fn an_event_is_sent_until_it_is_taken_and_signed() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        fs::write(&key, "Jefe\n").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let (url, served) = other_side(vec![500, 503, 204]);
        let (journal, _) = Journal::open(dir.path()).unwrap();
        // Before the hook: not told.
        error(&journal, "old");
        while *journal.newest().borrow() < 1 {
            thread::sleep(Duration::from_millis(2));
        }
        let hook = HookConfig { name: "h".into(), url: Some(url), key_file: Some(key), ..HookConfig::default() };
        let (runtime, hooks) = start(dir.path(), &journal, hook);
        while !dir.path().join("hook-h.cursor").exists() {
            thread::sleep(Duration::from_millis(2));
        }
        journal.note(EventCode::RequestDone, None, None, "of no weight");
        error(&journal, "frozen");
        let said = served.join().unwrap();
        assert_eq!(said.len(), 3);
        for request in &said {
            let lower = request.to_ascii_lowercase();
            assert!(lower.starts_with("post /events http/1.1\r\n") && request.contains("frozen"), "{request}");
            let (_, body) = request.split_once("\r\n\r\n").unwrap();
            let signed = post::signature(b"Jefe", body.as_bytes());
            assert!(lower.contains(&format!("x-ashlar-signature: sha256={signed}")), "{request}");
        }
        while fs::read_to_string(dir.path().join("hook-h.cursor")).unwrap().trim() != "3" {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(hooks.alarms().is_empty());
        drop(runtime);
    }

    #[test]
    fn a_program_gets_the_event_and_goes_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!("cat >> {}; echo >> {}", out.display(), out.display());
        let exec = Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), script]);
        let hook = || HookConfig { name: "h".into(), exec: exec.clone(), ..HookConfig::default() };
        let (journal, _) = Journal::open(dir.path()).unwrap();
        // An event may come twice: a program that has it is asked again when the end comes before that is written down.
        let wait_for = |text: &str| {
            let begun = std::time::Instant::now();
            while !fs::read_to_string(&out).unwrap_or_default().contains(&format!("\"text\":\"{text}\"")) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
                thread::sleep(Duration::from_millis(5));
            }
        };
        let (runtime, _) = start(dir.path(), &journal, hook());
        while !dir.path().join("hook-h.cursor").exists() {
            thread::sleep(Duration::from_millis(2));
        }
        error(&journal, "one");
        wait_for("one");
        drop(runtime);
        error(&journal, "two");
        let (runtime, _) = start(dir.path(), &journal, hook());
        wait_for("two");
        drop(runtime);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::write(&open, "k").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        let url = || Some("http://127.0.0.1/x".to_owned());
        let of = |name: &str, url, exec: Option<&str>, key_file: Option<&PathBuf>| {
            let exec = exec.map(|program| vec![program.to_owned()]);
            let hook = HookConfig { name: name.into(), url, exec, key_file: key_file.cloned(), severity: None };
            Hooks::check(&[hook]).map_err(|problem| problem.why.clone())
        };
        assert!(of("h", url(), None, None).is_ok() && of("h", None, Some("/bin/true"), None).is_ok());
        for (tried, why) in [
            (of("a b", url(), None, None), "name"),
            (of("h", None, None, None), "either"),
            (of("h", None, Some("true"), None), "path"),
            (of("h", Some("https://x/".into()), None, None), "http://"),
            (of("h", url(), None, Some(&open)), "others"),
            (of("h", url(), None, Some(&link)), "regular"),
        ] {
            let said = tried.unwrap_err();
            assert!(said.contains(why), "{said}: {why}");
        }
        let two = [
            HookConfig { name: "h".into(), url: url(), ..HookConfig::default() },
            HookConfig { name: "h".into(), url: url(), ..HookConfig::default() },
        ];
        assert!(Hooks::check(&two).is_err());
    }
}
