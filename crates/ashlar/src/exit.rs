//! How a verb ends: exit codes, and where an error is written.

use std::process::ExitCode;

use server::Problem;
use server::api::ErrorBody;

/// The exit codes, for `--help`.
pub const CODES_HELP: &str = "\
Exit codes:
  0  done
  1  failed: a drive, a network or the system did not do its part
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
    match outcome {
        Ok(Finding::Good) => ExitCode::SUCCESS,
        Ok(Finding::Damage) => ExitCode::from(4),
        Ok(Finding::NotWhole) => ExitCode::from(5),
        Err(problem) => {
            eprintln!("ashlar: {problem}");
            let code = problem.kind.exit_code();
            if json {
                crate::text::print_json(&ErrorBody::from(problem));
            }
            ExitCode::from(code)
        }
    }
}
