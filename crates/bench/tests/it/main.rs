//! Tests of the bench: loads, models, tables. One program: each program of tests is linked with all that it uses.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod flash;
mod generator;
mod neighbours;
mod overwrite;
mod rebuild;
mod sequential;
mod team;
