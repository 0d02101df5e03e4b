//! Asynchronous events: what a host wants to hear, and what it has been told. NVMe Base 2.0, 5.2.
//!
//! Invariants: pure; an event that was told is not told again until its log page has been read; an event waits when no
//! request waits for it, once.

use std::collections::{BTreeSet, VecDeque};

use crate::nvme::{limits::EVENT_REQUESTS_MAX, log, status::Status};

/// Something a host may want to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Health: the reliability of the subsystem is reduced.
    Reliability,
    /// Notice: namespaces have come, gone or changed.
    Namespaces,
    /// Notice: the discovery log has changed.
    Discovery,
}

/// Bits of the asynchronous event configuration. 5.27.1.8.
pub mod config {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const HEALTH_ALL: u32 = 0xff;
    pub const HEALTH_RELIABILITY: u32 = 1 << 2;
    pub const HEALTH_READ_ONLY: u32 = 1 << 3;
    pub const NAMESPACES: u32 = 1 << 8;
    pub const ANA: u32 = 1 << 11;
    pub const DISCOVERY: u32 = 1 << 31;
}

impl Event {
    /// The log page that tells more, and that must be read before the next one.
    fn log(self) -> u8 {
        match self {
            Event::Reliability => log::HEALTH,
            Event::Namespaces => log::CHANGED_NAMESPACES,
            Event::Discovery => log::DISCOVERY,
        }
    }

    /// Completion dword 0: type in 2:0, information in 15:8, log page in 23:16.
    fn result(self) -> u32 {
        let (kind, information) = match self {
            Event::Reliability => (1, 0x00),
            Event::Namespaces => (2, 0x00),
            Event::Discovery => (2, 0xf0),
        };
        kind | information << 8 | u32::from(self.log()) << 16
    }

    fn wanted_by(self, configuration: u32) -> bool {
        let bits = match self {
            Event::Reliability => config::HEALTH_RELIABILITY | config::HEALTH_READ_ONLY,
            Event::Namespaces => config::NAMESPACES,
            Event::Discovery => config::DISCOVERY,
        };
        configuration & bits != 0
    }
}

/// The events of one controller.
#[derive(Debug, Default)]
pub struct Events {
    /// What the host wants to hear.
    pub configuration: u32,
    requests: VecDeque<u16>,
    pending: BTreeSet<Event>,
    /// Log pages to be read before their events are told again.
    masked: BTreeSet<u8>,
}

impl Events {
    /// A request to be told, by its command identifier.
    ///
    /// # Errors
    /// More than may wait.
    pub fn request(&mut self, command: u16) -> Result<(), Status> {
        if self.requests.len() >= usize::from(EVENT_REQUESTS_MAX) {
            return Err(Status::EVENT_LIMIT_EXCEEDED);
        }
        self.requests.push_back(command);
        Ok(())
    }

    /// Takes a request back; whether it was there.
    pub fn abort(&mut self, command: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|c| *c != command);
        self.requests.len() < before
    }

    /// Something has happened.
    pub fn happened(&mut self, event: Event) {
        if event.wanted_by(self.configuration) {
            self.pending.insert(event);
        }
    }

    /// A log page was read, and its events are to be told again.
    pub fn read(&mut self, log: u8) {
        self.masked.remove(&log);
        self.pending.retain(|event| event.log() != log);
    }

    /// An event to tell: the request's command identifier and dword 0 of its completion.
    pub fn next(&mut self) -> Option<(u16, u32)> {
        let event = *self.pending.iter().find(|event| !self.masked.contains(&event.log()))?;
        let command = self.requests.pop_front()?;
        self.pending.remove(&event);
        self.masked.insert(event.log());
        Some((command, event.result()))
    }

    /// Forgets requests and events: the controller is reset.
    pub fn reset(&mut self) {
        *self = Events::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_until_its_log_is_read() {
        let mut events = Events { configuration: config::NAMESPACES, ..Events::default() };
        events.happened(Event::Namespaces);
        assert_eq!(events.next(), None, "nobody asks");
        events.request(1).unwrap();
        events.request(2).unwrap();
        assert_eq!(events.next(), Some((1, 0x0004_0002)));
        events.happened(Event::Namespaces);
        assert_eq!(events.next(), None, "until the log page is read");
        events.read(log::CHANGED_NAMESPACES);
        assert_eq!(events.next(), None, "what the host has read is not told");
        events.happened(Event::Namespaces);
        assert_eq!(events.next(), Some((2, 0x0004_0002)));
    }

    #[test]
    fn only_what_is_wanted() {
        let mut events = Events::default();
        events.request(1).unwrap();
        events.happened(Event::Discovery);
        events.configuration = config::DISCOVERY | config::HEALTH_RELIABILITY;
        assert_eq!(events.next(), None);
        events.happened(Event::Discovery);
        assert_eq!(events.next(), Some((1, 0x0070_f002)));
        events.request(2).unwrap();
        events.happened(Event::Reliability);
        assert_eq!(events.next(), Some((2, 0x0002_0001)));
    }

    #[test]
    fn requests_are_limited_and_can_be_taken_back() {
        let mut events = Events::default();
        for command in 0..u16::from(EVENT_REQUESTS_MAX) {
            events.request(command).unwrap();
        }
        assert_eq!(events.request(9), Err(Status::EVENT_LIMIT_EXCEEDED));
        assert!(events.abort(2) && !events.abort(2));
        assert_eq!(events.request(9), Ok(()));
        events.reset();
        assert!(!events.abort(9));
    }
}
