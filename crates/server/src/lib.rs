//! The daemon, and everything that it and the offline verbs have in common: the room that joins `array` and
//! `export`.
//!
//! Invariants:
//! - a verb is one function in [`ops`]; the API calls it on an array that is being served, the command line on one
//!   that it opens itself, and the answer is the same object ([`api`]);
//! - everything that touches a drive runs on the data thread (one [`rt::Rt`]), or on the core of a part ([`cores`]); the
//!   control thread only sends closures to the data thread and waits for their answers;
//! - no drive is written before [`drives::checks`] has agreed to it.
//!
//! Not here: words for people beyond error texts (that is `ashlar`), protocols (that is `export`).

mod acknowledged;
pub mod blocks;
pub mod config;
pub mod cores;
pub mod daemon;
pub mod direct;
pub mod drives;
pub mod front;
pub mod guests;
pub mod hooks;
pub mod http;
pub mod journal;
pub mod lease;
pub mod listed;
pub mod listen;
pub mod memory;
pub mod metrics;
pub mod mistakes;
pub mod namespace;
pub mod nvmet;
pub mod ops;
pub mod parts;
pub mod paths;
pub mod placement;
pub mod problem;
pub mod registry;
pub mod routing;
pub mod scrubs;
pub mod secrets;
pub mod size;
pub mod smart;
pub mod snapshot;
pub mod subsystem;
pub mod tokens;
pub mod volumes;
