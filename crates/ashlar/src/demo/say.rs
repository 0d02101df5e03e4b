//! What the demo tells: chapters with their time, and lines below them.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::text::{self, duration, human, per_second};

/// Numbers the chapters and says how long each took.
#[derive(Default)]
pub struct Chapters {
    number: Cell<u32>,
    begun: RefCell<Option<Instant>>,
}

impl Chapters {
    /// The first line.
    pub fn title(&self, title: &str) {
        text::print(title);
    }

    /// Ends the chapter before and begins another.
    pub fn begin(&self, title: &str) {
        self.end();
        self.number.set(self.number.get() + 1);
        *self.begun.borrow_mut() = Some(Instant::now());
        text::print(&format!("\n{}  {title}", self.number.get()));
    }

    fn end(&self) {
        if let Some(begun) = self.begun.take() {
            text::print(&format!("   ({})", duration(begun.elapsed())));
        }
    }
}

impl Drop for Chapters {
    fn drop(&mut self) {
        self.end();
    }
}

/// A line of a chapter.
pub fn line(text: &str) {
    text::print(format!("   {text}").trim_end());
}

/// Bytes that were moved, and how long it took.
#[derive(Clone, Copy)]
pub struct Moved {
    /// How many.
    pub bytes: u64,
    /// How long.
    pub time: Duration,
}

impl Moved {
    /// Tells it.
    pub fn say(self, what: &str) {
        line(&format!(
            "{} in {}, {}: {what}",
            human(self.bytes),
            duration(self.time),
            per_second(self.bytes, self.time)
        ));
    }
}
