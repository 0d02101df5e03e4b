//! Sizes as people write them ("4G", "1.5T") and as they read them ("4.0 GiB"): always binary units.

use std::fmt;
use std::str::FromStr;

pub use base::units::human;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes that reads and prints as a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong =
            |why: &str| format!("\"{text}\" is not a size: {why}; write for instance 512M, 4G or 1.5T (binary units)");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let shift = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            "P" => 50,
            _ => return Err(wrong(&format!("unit \"{unit}\" is unknown (valid: K, M, G, T, P)"))),
        };
        if number.is_empty() {
            return Err(wrong("it must begin with a number"));
        }
        let bytes = match number.split_once('.') {
            None => {
                let whole: u64 = number.parse().map_err(|_| wrong("the number is too large"))?;
                whole.checked_shl(shift).filter(|b| b >> shift == whole).ok_or_else(|| wrong("it is too large"))?
            }
            Some(_) if shift == 0 => return Err(wrong("bytes have no fraction")),
            Some(_) => {
                let fraction: f64 = number.parse().map_err(|_| wrong("its number is not valid"))?;
                let bytes = fraction * (1u64 << shift) as f64;
                if bytes >= u64::MAX as f64 {
                    return Err(wrong("it is too large"));
                }
                // A size with a fraction means "about"; whole MiB keep it aligned for everything.
                (bytes as u64).next_multiple_of(1 << 20.min(shift))
            }
        };
        if bytes == 0 { Err(wrong("it must be greater than 0")) } else { Ok(Size(bytes)) }
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
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("4 gb", 4 << 30),
            ("2T", 2 << 40),
            ("1.5G", 3 << 29),
            ("0.3G", 308 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "G", "-4G", "4X", "1.5", "0", "99999999P", "4G4", "1.2.3G", "18446744073709551616"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
