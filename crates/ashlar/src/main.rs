//! The one binary: `ashlar VERB ...`, one file per noun or verb.
//!
//! A verb on an array first asks the control socket whether a running Ashlar serves it; if so, the verb goes there;
//! if not, it opens the drives itself ([`context`]). Both ways end in the same function of `server::ops`.
//!
//! Invariants: people read standard output and, when something is wrong, standard error; with `--json` standard output
//! holds exactly one object (or one per line where it repeats), also for an error; the exit code is one of
//! [`exit::CODES_HELP`]. All that is printed goes through [`output`].

mod alarms;
mod attach;
mod bench;
mod bundle;
mod check;
mod cli;
mod client;
mod clients;
mod completion;
mod config;
mod confirm;
mod context;
mod create;
mod demo;
mod destroy;
mod drive;
mod events;
mod exit;
mod export;
mod forget;
mod import;
mod inspect;
mod iostat;
mod jobs;
mod lab;
mod list;
mod log;
mod man;
mod nvmet;
mod output;
#[cfg(test)]
mod phrases;
mod progress;
mod quickstart;
mod rebuild;
mod rename;
mod rescue;
mod scrub;
mod serve;
mod status;
mod stop;
mod text;
#[cfg(test)]
mod texts;
mod token;
mod ublk;
mod upgrade;
mod version;
mod volume;
mod wipe;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    completion::answer();
    match cli::Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(said) => exit::unparsed(&said),
    }
}
