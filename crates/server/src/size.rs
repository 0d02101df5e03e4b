//! Sizes as people write them ("4G", "1.5T") and as they read them ("4.0 GiB"): always binary units.

use std::fmt;
use std::str::FromStr;

pub use base::units::human;
use base::units::parse_size;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes that reads and prints as a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        match parse_size(text)? {
            0 => Err(format!(
                "\"{text}\" is not a size: it must be greater than 0; write for instance 512M, 4G or 1.5T (binary units)"
            )),
            bytes => Ok(Size(bytes)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&human(self.0))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

/// From a number of bytes or from text.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Bytes(u64),
            Text(String),
        }
        match Raw::deserialize(d)? {
            Raw::Bytes(bytes) => Ok(Size(bytes)),
            Raw::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        assert_eq!("4GiB".parse(), Ok(Size(4 << 30)));
        for text in ["", "0", "0K", "4X"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
