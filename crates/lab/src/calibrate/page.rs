//! `docs/model.md`.

use std::fmt::Write as _;

/// The page.
pub fn page() -> String {
    let mut out = String::new();
    let _ = write!(out, "");
    out
}
