//! The log of a server: lines to standard error, as well as they can be written.
//!
//! ```text
//!   any thread: a line -> queue -> thread "log" -> standard error
//! ```
//!
//! Invariants:
//! - who logs neither waits nor fails, whatever is behind standard error: a full disk, a reader that has gone, one that
//!   does not read;
//! - what does not fit into the queue or cannot be written is lost; how many lines that were is said as soon as it can be;
//! - the end of the process, a panic's too, waits for the queue for [`END_MAX`] at most.
//!
//! Not here: what is logged (each room does), and the output of verbs (`output`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that wait to be written, at most: some ten thousand lines.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// How long the end waits for what is behind standard error.
const END_MAX: Duration = Duration::from_secs(1);

/// The daemon says what each recovery step took, with the array's name; the engine's own lines are for debugging.
const LOG_DEFAULT: &str = "info,array::open=warn";

static LOG: OnceLock<Arc<Log>> = OnceLock::new();

#[derive(Default)]
struct Log {
    queue: Mutex<Queue>,
    /// Something came, or all is written.
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    lost: u64,
    writing: bool,
    /// Nobody writes: there is no thread for it.
    alone: bool,
}

/// Logs to standard error from now on.
pub fn begin() {
    let log = LOG.get_or_init(Arc::default).clone();
    let writer = log.clone();
    let thread = thread::Builder::new().name("log".into()).spawn(move || writer.write_for_ever());
    log.locked().alone = thread.is_err();
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let name = thread.name().unwrap_or("without a name");
        say(&format!("thread {name} panicked: {panic}\n{backtrace}\n"));
        end();
    }));
    let filter = EnvFilter::try_from_env("ASHLAR_LOG").unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Writer(log))
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false)
        // It would tell by `eprintln!`, which panics where standard error cannot be written.
        .log_internal_errors(false)
        .init();
}

/// Puts text behind the last line; false where nothing is logged.
pub fn say(text: &str) -> bool {
    LOG.get().map(|log| log.take(text.as_bytes())).is_some()
}

/// Waits until all is written, but not for long.
pub fn end() {
    let Some(log) = LOG.get() else { return };
    let queue = log.locked();
    let busy = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
    drop(log.news.wait_timeout_while(queue, END_MAX, busy));
}

impl Log {
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line to be written.
    fn take(&self, line: &[u8]) {
        let mut queue = self.locked();
        if queue.alone {
            // It is lost then.
            let _ = write(line);
        } else if queue.bytes + line.len() > QUEUE_BYTES_MAX {
            queue.lost += 1;
        } else {
            queue.bytes += line.len();
            queue.lines.push_back(line.to_vec());
            self.news.notify_all();
        }
    }

    fn write_for_ever(&self) {
        let mut torn = false;
        let mut queue = self.locked();
        loop {
            let Some(line) = queue.lines.pop_front() else {
                self.news.notify_all();
                queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.bytes -= line.len();
            queue.writing = true;
            let lost = queue.lost;
            drop(queue);
            let mut text = if torn { b"\n".to_vec() } else { Vec::new() };
            if lost > 0 {
                text.extend(format!("({lost} lines of the log could not be written)\n").as_bytes());
            }
            text.extend(&line);
            let written = write(&text);
            queue = self.locked();
            queue.writing = false;
            match written {
                Ok(()) => {
                    queue.lost -= lost;
                    torn = false;
                }
                Err(done) => {
                    queue.lost += 1;
                    torn |= done > 0;
                }
            }
        }
    }
}

/// Writes to standard error; how much was written when it fails.
fn write(text: &[u8]) -> Result<(), usize> {
    let stderr = io::stderr();
    let mut done = 0;
    while done < text.len() {
        match rustix::io::write(stderr.as_fd(), &text[done..]) {
            Ok(0) => return Err(done),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // This thread may wait for ever.
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return Err(done),
        }
    }
    Ok(())
}

/// Takes one line at a time from the formatter.
struct Writer(Arc<Log>);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = &'a Writer;

    fn make_writer(&'a self) -> &'a Writer {
        self
    }
}

impl io::Write for &Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.take(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_nobody_waits() {
        let log = Log::default();
        let line = vec![b'x'; 1 << 10];
        for _ in 0..2048 {
            log.take(&line);
        }
        let queue = log.locked();
        assert_eq!((queue.lines.len(), queue.lost), (1024, 1024));
    }
}
