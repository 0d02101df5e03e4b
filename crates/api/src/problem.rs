//! Why a verb did not do what was asked: what, why, and what to do about it; the same on every way out (text,
//! `--json`, HTTP).
//!
//! Invariant: each problem has a [`Kind`], and the kind alone decides the HTTP status and the exit code.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::VERSION;

/// What sort of "no" it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The world failed: I/O, a network, the other side.
    Failed,
    /// The request makes no sense.
    Usage,
    /// The request makes sense and must not or cannot be done.
    Refused,
    /// What was asked about is not known.
    NotFound,
}

impl Kind {
    /// The HTTP status that says so.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Kind::Failed => 500,
            Kind::Usage => 400,
            Kind::Refused => 409,
            Kind::NotFound => 404,
        }
    }

    /// The exit code that says so.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Refused | Kind::NotFound => 3,
        }
    }
}

/// Codes with an HTTP status of their own.
const STATUSES: &[(&str, u16)] = &[
    ("unauthenticated", 401),
    ("forbidden", 403),
    ("origin_refused", 403),
    ("method_not_allowed", 405),
    ("precondition_failed", 412),
    ("body_late", 408),
    ("too_large", 413),
    ("unsupported_media_type", 415),
    ("misdirected", 421),
    ("not_confirmed", 428),
    ("too_many_requests", 429),
    ("too_many_tries", 429),
    ("stopping", 503),
    ("core_silent", 503),
];

/// One problem, with the others of the same request behind it. Boxed, because every result carries room for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Problem(Box<Details>);

/// What a problem says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(no_recursion)]
pub struct Details {
    /// What sort of "no".
    pub kind: Kind,
    /// A name for scripts, in snake_case: stable, while the sentences may get better.
    pub code: String,
    /// What could not be done, with the name of the thing.
    pub what: String,
    /// Why.
    pub why: String,
    /// What the user can do about it.
    pub todo: String,
    /// More of the same request (the second bad drive).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Problem>,
}

impl Problem {
    /// A problem of `kind`, named `code` for scripts.
    pub fn new(
        kind: Kind,
        code: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        todo: impl Into<String>,
    ) -> Problem {
        let details = Details {
            kind,
            code: code.to_owned(),
            what: what.into(),
            why: why.into(),
            todo: todo.into(),
            others: vec![],
        };
        Problem(Box::new(details))
    }

    /// A refusal.
    pub fn refused(code: &str, what: impl Into<String>, why: impl Into<String>, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Refused, code, what, why, todo)
    }

    /// A failure of the world.
    pub fn failed(what: impl Into<String>, why: impl fmt::Display, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Failed, "failed", what, why.to_string(), todo)
    }

    /// A request that makes no sense.
    pub fn usage(what: impl Into<String>, why: impl fmt::Display, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Usage, "usage", what, why.to_string(), todo)
    }

    /// The HTTP status that says it: that of its code, where the code has one of its own, else that of its kind.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        let own = STATUSES.iter().find(|(code, _)| *code == self.code);
        own.map_or(self.kind.http_status(), |(_, status)| *status)
    }

    /// All of `problems` as one; `None` when there are none.
    #[must_use]
    pub fn all(mut problems: Vec<Problem>) -> Option<Problem> {
        if problems.is_empty() {
            return None;
        }
        let mut first = problems.remove(0);
        first.others.append(&mut problems);
        Some(first)
    }

    /// On one line, for the log.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{}: {}", self.what, self.why);
        if !self.todo.is_empty() {
            line.push_str(&format!(" (what to do: {})", self.todo));
        }
        for other in &self.others {
            line.push_str("; ");
            line.push_str(&other.line());
        }
        line
    }
}

/// What helps against a refusal; the engine says which, and has no command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A list of the array's volumes.
    ListVolumes,
    /// A list of the array's drives and seats.
    ListSeats,
    /// Another drive in the place of this one.
    ReplaceDrive,
    /// A further drive that takes part.
    AddDrive,
    /// A drive without its label.
    WipeDrive,
    /// The same with what the drives hold given up.
    Force,
    /// An open that writes nothing.
    OpenReadOnly,
    /// An open with half or fewer of the drives.
    OpenDegraded,
    /// An open that gives up what cannot be read.
    AcceptLoss,
    /// An open that ends another server's.
    TakeOver,
    /// A copy of what can be read.
    Rescue,
    /// The end of a scrub.
    StopScrub,
}

impl Remedy {
    /// The verb or the flag that does what the engine advises.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Remedy::ListVolumes => "`ashlar volume list` lists them",
            Remedy::ListSeats => "`ashlar status` with the array's name lists them",
            Remedy::ReplaceDrive => "`ashlar drive replace`",
            Remedy::AddDrive => "`ashlar drive add --grow`",
            Remedy::WipeDrive => "`ashlar wipe`",
            Remedy::Force => "--force",
            Remedy::OpenReadOnly => "--read-only",
            Remedy::OpenDegraded => "--degraded",
            Remedy::AcceptLoss => "--accept-loss",
            Remedy::TakeOver => "--take-over with the array's name",
            Remedy::Rescue => "`ashlar rescue`",
            Remedy::StopScrub => "`ashlar scrub stop`",
        }
    }
}

/// A problem on the wire and in `--json`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Version of this object.
    pub version: u32,
    /// The problem.
    pub error: Problem,
}

impl From<Problem> for ErrorBody {
    fn from(error: Problem) -> ErrorBody {
        ErrorBody { version: VERSION, error }
    }
}

impl Deref for Problem {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if !self.todo.is_empty() {
            write!(f, "\n  what to do: {}", self.todo)?;
        }
        for other in &self.others {
            write!(f, "\n{other}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_read_as_a_list() {
        let p = |n: &str| Problem::refused("drive_mounted", format!("drive {n}"), "mounted at /", "unmount it");
        let all = Problem::all(vec![p("a"), p("b")]).unwrap();
        assert_eq!(
            all.to_string(),
            "drive a: mounted at /\n  what to do: unmount it\ndrive b: mounted at /\n  what to do: unmount it"
        );
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), all);
        assert!(Problem::all(vec![]).is_none());
    }
}
