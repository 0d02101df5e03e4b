//! What a verb prints, in one place: standard output, and complaints on standard error.
//!
//! Invariants:
//! - output that cannot be written is an error of the verb, told once and with exit code 1 ([`crate::exit::report`]); a
//!   reader that has gone away (`| head`) is none: the verb ends quietly;
//! - after the first failure nothing more is written: what is there is a beginning, never something with gaps;
//! - nothing here panics, whatever the streams are.
//!
//! Not here: how things look (`text`), the log of a server (`log`).

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How standard output stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All of it was written.
    Whole,
    /// Its reader has gone.
    Unread,
    /// It could not be written, and why.
    Failed(String),
}

static STANDING: Mutex<Standing> = Mutex::new(Standing::Whole);

/// How it stands now.
pub fn standing() -> Standing {
    STANDING.lock().map_or(Standing::Whole, |standing| standing.clone())
}

fn failed(standing: Standing) {
    if let Ok(mut now) = STANDING.lock()
        && *now == Standing::Whole
    {
        *now = standing;
    }
}

/// Writes a line.
pub fn line(text: &str) {
    crate::progress::around(|| bytes(format!("{text}\n").as_bytes()));
}

/// Writes bytes as they are.
pub fn bytes(all: &[u8]) {
    if standing() != Standing::Whole {
        return;
    }
    // Not by `io::stdout`, which takes a descriptor that cannot be written for one that was closed on purpose.
    let mut rest = all;
    while !rest.is_empty() {
        match rustix::io::write(io::stdout().as_fd(), rest) {
            Ok(0) => return failed(Standing::Failed("it accepts no data".to_owned())),
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return failed(Standing::Unread),
            Err(errno) => return failed(Standing::Failed(errno.to_string())),
        }
    }
}

/// What was to be written cannot be.
pub fn cannot(why: impl ToString) {
    failed(Standing::Failed(why.to_string()));
}

/// Waits before the next of many reports; false when there is nobody to read it.
pub fn pause(time: Duration) -> bool {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|_| standing() == Standing::Whole) {
        let out = io::stdout();
        let mut watched = [PollFd::new(&out, PollFlags::empty())];
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut watched, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => failed(Standing::Unread),
            // Nothing that can be watched: time alone counts.
            Err(_) => std::thread::sleep(time.saturating_sub(begun.elapsed())),
        }
    }
    standing() == Standing::Whole
}

/// Says on standard error what is wrong; where a server logs, behind its last line.
pub fn complain(text: &str) {
    if !crate::log::say(&format!("{text}\n")) {
        hint(&format!("{text}\n"));
    }
}

/// Writes to standard error, if that can be: there is no better place to say that it cannot.
pub fn hint(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Whether colours are welcome on this stream.
pub fn takes_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
