//! What happened, for people: the last events are kept, and each goes to the log.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use api::{EventCode, EventSeverity, EventView};

use super::Context;

/// Events kept for `status`.
const EVENTS_KEPT: usize = 256;

/// The last events, oldest first, and who hears of them.
#[derive(Default)]
pub(super) struct Events {
    kept: RefCell<VecDeque<EventView>>,
    listener: RefCell<Option<Listener>>,
}

/// Who is told of each event at once.
pub type Listener = Arc<dyn Fn(&EventView) + Send + Sync>;

impl Context {
    /// Remembers something a person should be able to look up.
    pub fn note(&self, code: EventCode, text: String) {
        tracing::info!(array = %self.name(), "{text}");
        self.add_event(EventSeverity::Info, code, text);
    }

    /// The same of something that needs a look.
    pub fn warn(&self, code: EventCode, text: String) {
        tracing::warn!(array = %self.name(), "{text}");
        self.add_event(EventSeverity::Warning, code, text);
    }

    /// The same of something that hosts notice, or that is lost.
    pub fn error(&self, code: EventCode, text: String) {
        tracing::error!(array = %self.name(), "{text}");
        self.add_event(EventSeverity::Error, code, text);
    }

    fn add_event(&self, severity: EventSeverity, code: EventCode, text: String) {
        let event = EventView { unix_seconds: self.rt.unix_seconds(), severity, code: code.word().to_owned(), text };
        if let Some(listener) = &*self.events.listener.borrow() {
            listener(&event);
        }
        let mut kept = self.events.kept.borrow_mut();
        if kept.len() == EVENTS_KEPT {
            kept.pop_front();
        }
        kept.push_back(event);
    }

    /// Tells `listener` what happens from now on, instead of another; the first one also what has happened so far.
    pub fn listen(&self, listener: Listener) {
        if self.events.listener.borrow().is_none() {
            self.events.kept.borrow().iter().for_each(|event| listener(event));
        }
        *self.events.listener.borrow_mut() = Some(listener);
    }

    /// What was remembered, oldest first.
    pub fn events(&self) -> Vec<EventView> {
        self.events.kept.borrow().iter().cloned().collect()
    }
}
