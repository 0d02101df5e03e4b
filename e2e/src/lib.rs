//! End-to-end tests: the shipped binary as processes, and clients as users have them.
//!
//! ```text
//!   bin/crashloop   SIGKILL again and again; every sector is accounted for
//!   bin/e2e         libnbd, qemu, fio, ext4, drives lost, refusals: one case per behaviour
//!   bin/kernel      a Linux kernel in QEMU as the host of NVMe/TCP
//!   bin/local       volumes as block devices of the machine that serves them, by ublk
//!   bin/drives      arrays on NVMe drives in that kernel: passthrough, polled, plain
//!   bin/storm       mutated PDUs of NVMe/TCP beside an honest host
//!      |
//!   ashlar, server  the binary's verbs; `ashlar serve` as a child that can be killed
//!   guest           that kernel, and a shell in it
//!   stepwise        a program that goes through steps with one world
//!   load            many overlapping requests over our own NBD client
//!   model           what each sector may hold, by what was answered and when
//!   linux           kernels for guests
//! ```
//!
//! Invariants: nothing here links the engine; all it knows comes from exit codes, `--json` and NBD. Processes are ended
//! by their id, and only those that were started here.

// This room is the outside world: processes, threads, files and clocks are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod ashlar;
pub mod failure;
pub mod fio;
pub mod guest;
pub mod linux;
pub mod load;
pub mod model;
pub mod readback;
pub mod server;
pub mod stepwise;
pub mod tools;

pub use failure::{Failure, OrFail, Result};
