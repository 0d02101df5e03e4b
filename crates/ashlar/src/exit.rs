//! How a verb ends: exit codes, and where an error is written.

use std::io;
use std::process::ExitCode;

use api::{ErrorBody, Problem};

use crate::output::{self, Standing};

/// The exit codes, for `--help`.
pub const CODES_HELP: &str = "\
Exit codes:
  0  done
  1  failed: an error of a drive, the network or the system, or of writing the output
  2  wrong usage: the command line or the configuration is not valid
  3  refused: the message says why, and what to do
  4  check found damage, or rescue could not read everything
`status --check` uses the codes of monitoring plug-ins: 0 OK, 1 warning, 2 critical, 3 unknown";

/// How a verb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing to say.
    Good,
    /// `check` found damage.
    Damage,
    /// `config check` found mistakes.
    Invalid,
    /// What `status --check` found.
    Health(Health),
}

/// How it is, as monitoring plug-ins tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing to do.
    Good,
    /// Something to do before long.
    Warning,
    /// Hosts are refused, or the next loss loses data.
    Critical,
    /// It could not be found out.
    Unknown,
}

impl Health {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Health::Good => 0,
            Health::Warning => 1,
            Health::Critical => 2,
            Health::Unknown => 3,
        }
    }

    /// The first word of the line.
    pub const fn word(self) -> &'static str {
        match self {
            Health::Good => "OK",
            Health::Warning => "WARNING",
            Health::Critical => "CRITICAL",
            Health::Unknown => "UNKNOWN",
        }
    }
}

/// What verbs return.
pub type Outcome = Result<Finding, Problem>;

/// Writes an error, and turns the outcome into the exit code.
pub fn report(json: bool, outcome: Outcome) -> ExitCode {
    let code = match outcome {
        Ok(Finding::Good) => 0,
        Ok(Finding::Invalid) => 2,
        Ok(Finding::Damage) => 4,
        Ok(Finding::Health(health)) => health.code(),
        Err(problem) => {
            output::complain(&format!("ashlar: {problem}"));
            let code = problem.kind.exit_code();
            if json {
                crate::text::print_json(&ErrorBody::from(problem));
            }
            code
        }
    };
    end(code)
}

/// Answers a command line that is no verb to carry out: one that makes no sense, or asks for help.
pub fn unparsed(said: &clap::Error) -> ExitCode {
    let text = said.render();
    let colours =
        if said.use_stderr() { output::takes_colours(&io::stderr()) } else { output::takes_colours(&io::stdout()) };
    let text = if colours { text.ansi().to_string() } else { text.to_string() };
    if said.use_stderr() {
        output::hint(&text);
    } else {
        output::bytes(text.as_bytes());
    }
    let code =
        if said.use_stderr() && is_check(std::env::args()) { Health::Unknown.code() } else { said.exit_code() as u8 };
    end(code)
}

/// Whether an object is wanted, where it is not known yet what the command line says.
pub fn wants_json(mut args: impl Iterator<Item = String>) -> bool {
    args.any(|a| a == "--json")
}

/// Whether the command line is one of `status --check`, whatever else is wrong with it: wrong usage is "not known" there.
fn is_check(args: impl Iterator<Item = String>) -> bool {
    let args: Vec<String> = args.collect();
    args.iter().any(|a| a == "status") && args.iter().any(|a| a == "--check")
}

/// The last word: what could not be written is an error too, unless there is a worse one.
fn end(code: u8) -> ExitCode {
    let code = match output::standing() {
        Standing::Whole | Standing::Unread => code,
        Standing::Failed(why) => {
            output::complain(&format!("ashlar: standard output cannot be written: {why}"));
            code.max(1)
        }
    };
    crate::log::end();
    ExitCode::from(code)
}
