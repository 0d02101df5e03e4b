//! What happened, for people: the last events are kept, and each goes to the log.

use std::cell::RefCell;
use std::collections::VecDeque;

use api::{EventSeverity, EventView};

use super::Context;

/// Events kept for `status`.
const EVENTS_KEPT: usize = 256;

/// The last events, oldest first.
#[derive(Default)]
pub(super) struct Events(RefCell<VecDeque<EventView>>);

impl Context {
    /// Remembers something a person should be able to look up.
    pub fn note(&self, text: String) {
        tracing::info!(array = %self.name, "{text}");
        self.add_event(EventSeverity::Info, text);
    }

    /// The same of something that needs a look.
    pub fn warn(&self, text: String) {
        tracing::warn!(array = %self.name, "{text}");
        self.add_event(EventSeverity::Warning, text);
    }

    /// The same of something that hosts notice, or that is lost.
    pub fn error(&self, text: String) {
        tracing::error!(array = %self.name, "{text}");
        self.add_event(EventSeverity::Error, text);
    }

    fn add_event(&self, severity: EventSeverity, text: String) {
        let mut events = self.events.0.borrow_mut();
        if events.len() == EVENTS_KEPT {
            events.pop_front();
        }
        events.push_back(EventView { unix_seconds: self.rt.unix_seconds(), severity, text });
    }

    /// What was remembered, oldest first.
    pub fn events(&self) -> Vec<EventView> {
        self.events.0.borrow().iter().cloned().collect()
    }
}
