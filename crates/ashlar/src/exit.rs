//! How a verb ends: exit codes, and where an error is written.

use std::io;
use std::process::ExitCode;

use server::Problem;
use server::api::ErrorBody;

use crate::output::{self, Standing};

/// The exit codes, for `--help`.
pub const CODES_HELP: &str = "\
Exit codes:
  0  done
  1  failed: a drive, a network or the system did not do its part, or the output could not be written
  2  the command line makes no sense
  3  refused: the text says why, and what to do
  4  check found damage
  5  status --check: an array is degraded, frozen or absent";

/// How a verb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing to say.
    Good,
    /// `check` found damage.
    Damage,
    /// `status --check` found an array that is not whole.
    NotWhole,
}

/// What verbs return.
pub type Outcome = Result<Finding, Problem>;

/// Writes an error, and turns the outcome into the exit code.
pub fn report(json: bool, outcome: Outcome) -> ExitCode {
    let code = match outcome {
        Ok(Finding::Good) => 0,
        Ok(Finding::Damage) => 4,
        Ok(Finding::NotWhole) => 5,
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
    end(u8::try_from(said.exit_code()).unwrap_or(2))
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
