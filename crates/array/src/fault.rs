//! The two kinds of wrong that this room reports: the world failed, or the user asked for something impossible.

use std::fmt;

use api::{Problem, Remedy};

/// The world failed: what a request gets instead of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// These blocks are lost until they are overwritten.
    #[error("medium error")]
    Medium,
    /// The array is full.
    #[error("no space left in the array")]
    NoSpace,
    /// The drives have no room where they lie.
    #[error("the file system or thin pool under the array's drives is full")]
    NoRoom,
    /// The array is open for reading only.
    #[error("the array is read-only")]
    ReadOnly,
    /// Beyond the end of the volume.
    #[error("beyond the end of the volume")]
    OutOfRange,
    /// Not a multiple of 512 bytes.
    #[error("offset and length must be multiples of 512 bytes")]
    Misaligned,
    /// More members are gone than the redundancy covers.
    #[error("the array is frozen: more members are gone than redundancy covers")]
    Frozen,
    /// Another server has the array.
    #[error("the array is frozen: another server has taken it over")]
    TakenOver,
    /// The array was closed, or the volume deleted.
    #[error("closed")]
    Closed,
}

impl Fault {
    /// All of them, in their order.
    pub(crate) const ALL: [Fault; 9] = [
        Fault::Medium,
        Fault::NoSpace,
        Fault::NoRoom,
        Fault::ReadOnly,
        Fault::OutOfRange,
        Fault::Misaligned,
        Fault::Frozen,
        Fault::TakenOver,
        Fault::Closed,
    ];

    /// In one word, for scripts.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Fault::Medium => "medium",
            Fault::NoSpace => "no_space",
            Fault::NoRoom => "no_room_below",
            Fault::ReadOnly => "read_only",
            Fault::OutOfRange => "out_of_range",
            Fault::Misaligned => "misaligned",
            Fault::Frozen => "frozen",
            Fault::TakenOver => "taken_over",
            Fault::Closed => "closed",
        }
    }
}

/// Why a request of the user was refused, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedCode {
    /// A name that cannot be, or is taken.
    Name,
    /// There is no such thing.
    NotFound,
    /// A size that cannot be.
    Size,
    /// Too few, too many or too small drives.
    Drives,
    /// A drive belongs to an array.
    InUse,
    /// Another server uses the drives.
    InUseElsewhere,
    /// A drive's history is not this array's.
    Diverged,
    /// Too few of the array's drives are here.
    MembersMissing,
    /// Would go beyond the redundancy.
    Redundancy,
    /// The array does not take writes now.
    NotWritable,
    /// What the drives hold cannot be used.
    Damaged,
    /// Written by a newer Ashlar.
    Format,
    /// A drive answered with an error.
    Io,
}

impl RefusedCode {
    /// In one word, as scripts see it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RefusedCode::Name => "name",
            RefusedCode::NotFound => "not_found",
            RefusedCode::Size => "size",
            RefusedCode::Drives => "drives",
            RefusedCode::InUse => "in_use",
            RefusedCode::InUseElsewhere => "in_use_elsewhere",
            RefusedCode::Diverged => "diverged",
            RefusedCode::MembersMissing => "members_missing",
            RefusedCode::Redundancy => "redundancy",
            RefusedCode::NotWritable => "not_writable",
            RefusedCode::Damaged => "damaged",
            RefusedCode::Format => "format",
            RefusedCode::Io => "io",
        }
    }
}

/// The user asked for something impossible, or the drives do not allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For scripts.
    pub code: RefusedCode,
    /// What was refused.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub todo: String,
    /// What does it, for who has a name for that.
    pub remedy: Option<Remedy>,
}

impl Refused {
    /// A refusal.
    pub fn new(code: RefusedCode, what: impl Into<String>, why: impl Into<String>, todo: impl Into<String>) -> Self {
        Refused { code, what: what.into(), why: why.into(), todo: todo.into(), remedy: None }
    }

    /// The same, with what does what there is to do.
    #[must_use]
    pub fn by(self, remedy: Remedy) -> Self {
        Refused { remedy: Some(remedy), ..self }
    }

    /// A drive's error while doing `what`.
    #[must_use]
    pub fn io(what: &str, error: rt::IoError) -> Self {
        if error == rt::IoError::Conflict {
            let todo = "Stop the server that has reserved it, or use another drive";
            return Self::new(RefusedCode::InUseElsewhere, what, error.to_string(), todo);
        }
        let todo = match error {
            rt::IoError::NoSpace => "Free space in the drive's file system or thin pool, then try again",
            _ => "Check the drive and its cabling, then try again",
        };
        Self::new(RefusedCode::Io, what, error.to_string(), todo)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}.", self.what, self.why, self.todo)
    }
}

impl std::error::Error for Refused {}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        let (code, todo) = match fault {
            Fault::ReadOnly | Fault::Closed => (RefusedCode::NotWritable, "Open the array for writing"),
            Fault::Frozen => (RefusedCode::Redundancy, "Reconnect the missing drives"),
            Fault::TakenOver => (RefusedCode::InUseElsewhere, "Use the other server, or stop it first"),
            Fault::NoSpace => (RefusedCode::Size, "Delete or deallocate data first"),
            Fault::NoRoom => (RefusedCode::NotWritable, "Free space there"),
            Fault::Medium | Fault::OutOfRange | Fault::Misaligned => (RefusedCode::Io, "See the array's events"),
        };
        let refused = Refused::new(code, "the array", fault.to_string(), todo);
        if fault == Fault::NoRoom { refused.by(Remedy::ListSeats) } else { refused }
    }
}

impl From<Refused> for Problem {
    fn from(r: Refused) -> Problem {
        let todo = lower_first(&r.todo);
        let todo = r.remedy.map_or_else(|| todo.clone(), |remedy| format!("{todo} ({})", remedy.words()));
        Problem::refused(r.code.word(), r.what, r.why, todo)
    }
}

/// Sentences of the engine begin with a capital, those here stand behind a colon.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(a), Some(b)) if b.is_lowercase() => a.to_lowercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}
