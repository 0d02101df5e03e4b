//! Tests of the server: daemon, verbs, refusals, and what the reference says of it. One program: each program of tests is linked with all that it uses.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod advice;
mod api;
mod daemon;
mod guests;
mod notebook;
mod numbers;
mod nvme;
mod packaged;
mod reference_doc;
mod refusals;
mod routing;
mod tls;
