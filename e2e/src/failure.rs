//! Why a test or a cycle ended: what was being done, and what was wrong with it.

use std::fmt;

/// A test's result.
pub type Result<T> = std::result::Result<T, Failure>;

/// What failed, and how it showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done.
    pub what: String,
    /// What was wrong.
    pub why: String,
}

impl Failure {
    /// `what` failed: `why`.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure { what: what.into(), why: why.to_string() }
    }

    /// The same failure, seen from further out.
    #[must_use]
    pub fn within(self, outer: &str) -> Failure {
        Failure { what: format!("{outer}: {}", self.what), why: self.why }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Failure {}

/// Gives a foreign error the name of what was being done.
pub trait OrFail<T> {
    /// The value, or a [`Failure`] of `what`.
    ///
    /// # Errors
    /// When `self` is one.
    fn or_fail(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: fmt::Display> OrFail<T> for std::result::Result<T, E> {
    fn or_fail(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|e| Failure::new(what, e))
    }
}

/// Fails with `what` and `why` unless `holds`.
///
/// # Errors
/// When it does not hold.
pub fn require(holds: bool, what: &str, why: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Failure::new(what, why())) }
}
