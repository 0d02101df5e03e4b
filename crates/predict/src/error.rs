//! What can be wrong with what was asked.

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file is not what it should be.
    #[error("{what}: {why}")]
    File {
        /// Which.
        what: String,
        /// What is wrong, and what is valid.
        why: String,
    },
    /// A word that is not known.
    #[error("unknown {kind} {given:?}; valid: {valid}")]
    Unknown {
        /// Of what.
        kind: &'static str,
        /// What was given.
        given: String,
        /// What is valid.
        valid: String,
    },
    /// A system or a load that cannot be.
    #[error("{0}")]
    Impossible(String),
}

impl Error {
    /// A file is wrong.
    pub(crate) fn file(what: &str, why: impl ToString) -> Error {
        Error::File { what: what.to_owned(), why: why.to_string() }
    }

    /// A word is not known.
    pub(crate) fn unknown(kind: &'static str, given: &str, valid: impl Into<String>) -> Error {
        Error::Unknown { kind, given: given.to_owned(), valid: valid.into() }
    }
}
