//! Seeds by number: ranges, and single ones.

use std::fmt;
use std::str::FromStr;

/// Seeds as they are given: `0..200`, `7`, or several of these with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(Vec<(u64, u64)>);

impl Seeds {
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.0.clone().into_iter().flat_map(|(from, to)| from..to)
    }

    /// The only one, if there is no other.
    pub fn only(&self) -> Option<u64> {
        let mut seeds = self.iter();
        seeds.next().filter(|_| seeds.next().is_none())
    }

    /// From the first one on, without an end.
    pub fn on_from_first(&self) -> Self {
        Self(vec![(self.iter().next().unwrap_or(0), u64::MAX)])
    }
}

impl FromIterator<u64> for Seeds {
    fn from_iter<T: IntoIterator<Item = u64>>(seeds: T) -> Self {
        Self(seeds.into_iter().map(|seed| (seed, seed + 1)).collect())
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |text: &str| match text.split_once("..") {
            Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
            None => text.parse().ok().and_then(|seed: u64| Some((seed, seed.checked_add(1)?))),
        };
        let ranges: Option<Vec<(u64, u64)>> = text.split(',').map(one).collect();
        ranges
            .filter(|r| r.iter().all(|(from, to)| from < to))
            .map(Self)
            .ok_or_else(|| "give a range such as 0..200, a seed, or several of these with commas".to_owned())
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (from, to)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if from + 1 == *to { write!(f, "{comma}{from}")? } else { write!(f, "{comma}{from}..{to}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_seeds_are_read_and_told() {
        let seeds: Seeds = "3..6,9".parse().unwrap();
        assert_eq!((seeds.iter().collect::<Vec<_>>(), seeds.to_string()), (vec![3, 4, 5, 9], "3..6,9".to_owned()));
        assert_eq!((seeds.only(), "7".parse::<Seeds>().unwrap().only()), (None, Some(7)));
        for wrong in ["", "5..5", "6..5", "a", "1,", "-1"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
