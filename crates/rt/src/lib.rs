//! The one door to the world: executor, clocks, randomness, buffers, drives, sockets and signals.
//!
//! Two worlds stand behind one [`Rt`]: the real one (io_uring, the machine's clocks) and the modelled one, where
//! time is virtual and a seed decides everything. The engine is the same code in both.
//!
//! Invariants:
//! - one [`Rt`] belongs to one thread; everything else on other threads speaks to it through a mailbox;
//! - a drive comes to another thread's runtime as a [`SentDrive`], and has handles of its own there;
//! - an operation owns its buffers until the kernel has answered, also when its future was dropped;
//! - in the modelled world nothing depends on anything but the seed and the program.
//!
//! Not here: bytes on a drive (`ondisk`), redundancy (`array`), protocols (`export`).

// This crate is where the clocks, sockets, files and threads that clippy.toml forbids elsewhere are allowed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod buf;
pub mod cross;
pub mod drive;
pub mod environment;
pub mod executor;
pub mod guest;
pub mod host;
mod lengths;
pub mod mailbox;
pub mod model;
pub mod net;
mod pages;
pub mod payload;
pub mod probe;
mod queue;
mod random;
mod ring;
mod share;
mod signal;
pub mod task;
mod ticks;
pub mod time;
pub mod topology;
mod turns;
pub mod ublk;

pub use buf::{Buf, Bytes};
pub use drive::{
    Access, Drive, DriveInfo, DriveKind, IoError, OpenDrive, OpenError, Place, Reserve, ReserveError, Reserved,
    SentDrive, Ways,
};
pub use executor::Rt;
pub use host::Host;
pub use lengths::TurnLengths;
pub use mailbox::{MailReceiver, MailSender};
pub use net::{Addr, Congestion, Listener, Stream};
pub use payload::{Payload, Trade};
pub use signal::Hangups;
pub use task::Task;
pub use time::Nanos;
pub use turns::{Party, TURN_COST};
