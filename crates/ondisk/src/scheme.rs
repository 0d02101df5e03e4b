//! How a segment's redundancy is made, and the level a whole array asks for.

use std::fmt;
use std::str::FromStr;

/// One segment's redundancy: data columns, redundancy columns, and how the second follow from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `k` data columns and `m` (0, 1: XOR; 2: P+Q) parity columns.
    Parity {
        /// Data columns.
        k: u8,
        /// Parity columns.
        m: u8,
    },
    /// `k` data columns, each with `copies` equal columns in all.
    Copies {
        /// Data columns.
        k: u8,
        /// Equal columns of each (2 or 3).
        copies: u8,
    },
}

/// The most columns a segment can have.
pub const WIDTH_MAX: usize = 64;

impl Scheme {
    /// Data columns.
    #[must_use]
    pub const fn k(self) -> usize {
        match self {
            Scheme::Parity { k, .. } | Scheme::Copies { k, .. } => k as usize,
        }
    }

    /// Redundancy columns.
    #[must_use]
    pub const fn redundancy_columns(self) -> usize {
        match self {
            Scheme::Parity { m, .. } => m as usize,
            Scheme::Copies { k, copies } => k as usize * (copies as usize - 1),
        }
    }

    /// All columns.
    #[must_use]
    pub const fn width(self) -> usize {
        self.k() + self.redundancy_columns()
    }

    /// Columns of one row that may be lost, whichever they are.
    #[must_use]
    pub const fn tolerates(self) -> usize {
        match self {
            Scheme::Parity { m, .. } => m as usize,
            Scheme::Copies { copies, .. } => copies as usize - 1,
        }
    }

    /// Whether every data column can be had when exactly the columns for which `lost` says so are gone.
    pub fn survives(self, lost: impl Fn(usize) -> bool) -> bool {
        self.to_spare(lost).is_some()
    }

    /// Columns that may be lost, whichever they are, when exactly the columns for which `lost` says so are gone; `None` when
    /// a data column cannot be had any more.
    pub fn to_spare(self, lost: impl Fn(usize) -> bool) -> Option<usize> {
        match self {
            Scheme::Parity { m, .. } => (m as usize).checked_sub((0..self.width()).filter(|&c| lost(c)).count()),
            Scheme::Copies { k, copies } => {
                let k = k as usize;
                let copies_left = |c| (0..copies as usize).filter(|j| !lost(c + j * k)).count();
                (0..k).map(copies_left).min()?.checked_sub(1)
            }
        }
    }

    /// The same scheme with another number of data columns.
    #[must_use]
    pub const fn with_k(self, new_k: usize) -> Scheme {
        match self {
            Scheme::Parity { m, .. } => Scheme::Parity { k: new_k as u8, m },
            Scheme::Copies { copies, .. } => Scheme::Copies { k: new_k as u8, copies },
        }
    }

    /// Columns that go with one data column into a segment: `k` grows by one when the width grows by this.
    #[must_use]
    pub const fn width_step(self) -> usize {
        match self {
            Scheme::Parity { .. } => 1,
            Scheme::Copies { copies, .. } => copies as usize,
        }
    }

    /// Packed as in the format: tag, k, m or copies.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        match self {
            Scheme::Parity { k, m } => [1, k, m],
            Scheme::Copies { k, copies } => [2, k, copies],
        }
    }

    /// The reverse of [`Scheme::to_bytes`]; `None` for what no array can have.
    #[must_use]
    pub fn from_bytes(raw: [u8; 3]) -> Option<Scheme> {
        let scheme = match raw {
            [1, k, m @ 0..=2] => Scheme::Parity { k, m },
            [2, k, copies @ 2..=3] => Scheme::Copies { k, copies },
            _ => return None,
        };
        (scheme.k() >= 1 && scheme.width() <= WIDTH_MAX).then_some(scheme)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Parity { k, m } => write!(f, "{k}+{m}"),
            Scheme::Copies { k, copies } => write!(f, "{k}x{copies}"),
        }
    }
}

/// What an array was created as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// No redundancy.
    Raid0,
    /// Equal copies (2 or 3 in all).
    Raid10 {
        /// Equal copies in all.
        copies: u8,
    },
    /// One parity column.
    Raid5,
    /// Two parity columns.
    Raid6,
}

impl Level {
    /// Members that may be lost, whichever they are.
    #[must_use]
    pub const fn tolerates(self) -> usize {
        match self {
            Level::Raid0 => 0,
            Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid10 { copies } => copies as usize - 1,
        }
    }

    /// The scheme of this level with `k` data columns.
    #[must_use]
    pub const fn scheme(self, k: usize) -> Scheme {
        let k = k as u8;
        match self {
            Level::Raid0 => Scheme::Parity { k, m: 0 },
            Level::Raid5 => Scheme::Parity { k, m: 1 },
            Level::Raid6 => Scheme::Parity { k, m: 2 },
            Level::Raid10 { copies } => Scheme::Copies { k, copies },
        }
    }

    /// The scheme of this level over `width` columns; `None` when it does not fit.
    #[must_use]
    pub const fn scheme_of_width(self, width: usize) -> Option<Scheme> {
        let k = match self {
            Level::Raid0 => width,
            Level::Raid5 => width.saturating_sub(1),
            Level::Raid6 => width.saturating_sub(2),
            Level::Raid10 { copies } => width / copies as usize,
        };
        if k == 0 || width > WIDTH_MAX { None } else { Some(self.scheme(k)) }
    }

    /// Packed as in the format.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            Level::Raid0 => [0, 0],
            Level::Raid10 { copies } => [10, copies],
            Level::Raid5 => [5, 0],
            Level::Raid6 => [6, 0],
        }
    }

    /// The reverse of [`Level::to_bytes`].
    #[must_use]
    pub const fn from_bytes(raw: [u8; 2]) -> Option<Level> {
        match raw {
            [0, 0] => Some(Level::Raid0),
            [10, copies @ 2..=3] => Some(Level::Raid10 { copies }),
            [5, 0] => Some(Level::Raid5),
            [6, 0] => Some(Level::Raid6),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Raid0 => f.write_str("RAID 0"),
            Level::Raid10 { copies: 2 } => f.write_str("RAID 10"),
            Level::Raid10 { copies } => write!(f, "RAID 10 ({copies} copies)"),
            Level::Raid5 => f.write_str("RAID 5"),
            Level::Raid6 => f.write_str("RAID 6"),
        }
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().trim_start_matches("raid").trim() {
            "0" => Ok(Level::Raid0),
            "10" => Ok(Level::Raid10 { copies: 2 }),
            "10x3" => Ok(Level::Raid10 { copies: 3 }),
            "5" => Ok(Level::Raid5),
            "6" => Ok(Level::Raid6),
            other => Err(format!("unknown RAID level \"{other}\"; valid: 0, 10, 10x3, 5, 6")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_survive_by_pairs() {
        let s = Scheme::Copies { k: 3, copies: 2 };
        assert_eq!((s.width(), s.tolerates()), (6, 1));
        assert!(s.survives(|c| c == 0 || c == 1 || c == 5));
        assert!(!s.survives(|c| c == 1 || c == 4));
    }

    #[test]
    fn what_is_to_spare_is_what_the_worst_column_has() {
        let lost = |columns: &'static [usize]| move |c: usize| columns.contains(&c);
        let raid6 = Scheme::Parity { k: 3, m: 2 };
        assert_eq!(
            [lost(&[]), lost(&[4]), lost(&[0, 4]), lost(&[0, 1, 4])].map(|l| raid6.to_spare(l)),
            [Some(2), Some(1), Some(0), None]
        );
        let three = Scheme::Copies { k: 2, copies: 3 };
        assert_eq!(
            [lost(&[]), lost(&[0]), lost(&[0, 1]), lost(&[0, 2]), lost(&[0, 2, 4])].map(|l| three.to_spare(l)),
            [Some(2), Some(1), Some(1), Some(0), None]
        );
    }

    #[test]
    fn packed_schemes_come_back() {
        for s in [Scheme::Parity { k: 1, m: 0 }, Scheme::Parity { k: 62, m: 2 }, Scheme::Copies { k: 21, copies: 3 }] {
            assert_eq!(Scheme::from_bytes(s.to_bytes()), Some(s));
        }
        for raw in [[1, 0, 1], [1, 64, 1], [1, 3, 3], [2, 33, 2], [2, 1, 1], [9, 1, 1]] {
            assert_eq!(Scheme::from_bytes(raw), None, "{raw:?}");
        }
    }

    #[test]
    fn levels_parse() {
        assert_eq!("raid6".parse(), Ok(Level::Raid6));
        assert_eq!("10".parse(), Ok(Level::Raid10 { copies: 2 }));
        assert!("7".parse::<Level>().is_err());
    }
}
