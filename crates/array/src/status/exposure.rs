//! Exposure: what may fail now, computed from the segment that is worst off.
//!
//! What the generation in effect lists counts as well as what is in memory: a loss may come with a power cut, and whoever
//! opens the array then knows the generation alone.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposure {
    /// Drives that may fail now, whichever they are, and nothing is lost.
    pub may_fail: usize,
    /// Drives that may fail when nothing is out.
    pub tolerates: usize,
    /// Whether what one more loss takes has a place on the drives that are left, or a spare waits.
    pub rebuild_place: bool,
    /// Seats whose drive failed, and that no other drive took.
    pub failed: Vec<u16>,
    /// Seats whose drive is not here, and that no other drive took.
    pub missing: Vec<u16>,
}

impl Exposure {
    /// "1 drive failed or is missing".
    pub fn gone_words(failed: &[u16], missing: &[u16]) -> String {
        match failed.len() + missing.len() {
            1 => "1 drive failed or is missing".to_owned(),
            n => format!("{n} drives failed or are missing"),
        }
    }

    /// That of an array that consists of parts, of which `other` is one more.
    pub fn add(&mut self, other: &Exposure) {
        self.may_fail = self.may_fail.min(other.may_fail);
        self.rebuild_place &= other.rebuild_place;
    }
}
