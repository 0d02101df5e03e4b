//! What goes wrong in the lab.

use std::io;
use std::path::PathBuf;

use crate::safety::Refusal;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{what}: {why}")]
    Format {
        /// The file, or the part of it.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The user asked for something that there is not, or that makes no sense.
    #[error("{what}: {why}")]
    Usage {
        /// What was asked for.
        what: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The target must not be written.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// A program failed.
    #[error("{program}: {why}")]
    Program {
        /// Which.
        program: String,
        /// What it said.
        why: String,
    },
}

impl Error {
    /// A file's error.
    pub fn file(path: impl Into<PathBuf>, error: io::Error) -> Error {
        Error::File { path: path.into(), error }
    }

    /// A file that does not hold what it should.
    pub fn format(what: impl Into<String>, why: impl ToString) -> Error {
        Error::Format { what: what.into(), why: why.to_string() }
    }

    /// A wish that cannot be met.
    pub fn usage(what: impl Into<String>, why: impl ToString) -> Error {
        Error::Usage { what: what.into(), why: why.to_string() }
    }
}
