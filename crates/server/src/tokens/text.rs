//! The text of a token, and the hash that is kept of it.

use std::fmt::Write;

use api::Secret;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How each begins: searches for secrets in source and logs find it.
const MARK: &str = "ashlar_";

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Digits of an id, which is no secret.
const ID_DIGITS: usize = 8;

/// Digits of a secret: 43 of 62 kinds are 256 bits.
const SECRET_DIGITS: usize = 43;

/// The SHA-256 of a secret.
#[derive(Clone)]
pub struct Hash([u8; 32]);

impl Hash {
    fn of(secret: &str) -> Hash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        Hash(hash)
    }

    /// Whether it is that of `secret`, in a time that does not depend on how much of it is right.
    pub fn is_of(&self, secret: &str) -> bool {
        verify_slices_are_equal(&self.0, &Hash::of(secret).0).is_ok()
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hex = self.0.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes it");
            hex
        });
        serializer.serialize_str(&hex)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let no = || de::Error::custom("a hash has 64 hexadecimal digits");
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.is_ascii() {
            return Err(no());
        }
        for (n, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).map_err(|_| no())?;
        }
        Ok(Hash(hash))
    }
}

/// A new one: its id, its whole text, and the hash of its secret.
///
/// # Errors
/// When the system has no random numbers.
pub fn new() -> Result<(String, Secret, Hash), &'static str> {
    let mut text = String::with_capacity(MARK.len() + ID_DIGITS + 1 + SECRET_DIGITS);
    text.push_str(MARK);
    random(&mut text, ID_DIGITS)?;
    let id = text[MARK.len()..].to_owned();
    text.push('_');
    let at = text.len();
    random(&mut text, SECRET_DIGITS)?;
    let hash = Hash::of(&text[at..]);
    Ok((id, Secret::new(text), hash))
}

/// Adds `count` random digits, all equally likely.
fn random(text: &mut String, count: usize) -> Result<(), &'static str> {
    let end = text.len() + count;
    while text.len() < end {
        let mut byte = [0];
        rand::fill(&mut byte).map_err(|_| "the system has no random numbers")?;
        // 248 is the largest multiple of 62 in a byte.
        if byte[0] < 248 {
            text.push(char::from(DIGITS[usize::from(byte[0]) % DIGITS.len()]));
        }
    }
    Ok(())
}

/// The id and the secret of a token.
pub fn parts(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix(MARK)?.split_once('_')?;
    let fits = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (fits(id, ID_DIGITS) && fits(secret, SECRET_DIGITS)).then_some((id, secret))
}

/// Whether a token is somewhere in `text`.
#[must_use]
pub fn holds_one(text: &str) -> bool {
    let len = ID_DIGITS + 1 + SECRET_DIGITS;
    text.match_indices(MARK).any(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        rest.get(..len).is_some_and(|rest| parts(&format!("{mark}{rest}")).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_256_bits_and_is_found_again() {
        let (id, token, hash) = new().unwrap();
        assert!((DIGITS.len() as f64).log2() * SECRET_DIGITS as f64 >= 256.0);
        let token = token.reveal();
        let (same, secret) = parts(token).unwrap();
        assert_eq!((same, secret.len()), (id.as_str(), SECRET_DIGITS));
        assert!(hash.is_of(secret) && !hash.is_of(&secret[1..]));
        assert_ne!(token, new().unwrap().1.reveal());
        assert!(holds_one(&format!("/v1/arrays?token={token}&x=1")));
        for none in ["", "ashlar_", "ashlar_a_b", &token[..token.len() - 1], "/v1/arrays?name=ashlar_x_y", "ashlar_ü"]
        {
            assert!(!holds_one(none) && parts(none).is_none(), "{none}");
        }
        assert!(parts(&format!("{token}0")).is_none());
    }

    #[test]
    fn all_digits_are_used() {
        let mut text = String::new();
        random(&mut text, 20_000).unwrap();
        let most = DIGITS.iter().map(|digit| text.bytes().filter(|b| b == digit).count());
        // 322 of each on the mean, 18 the deviation: nine of them.
        assert!(most.into_iter().all(|n| (160..=490).contains(&n)));
    }
}
