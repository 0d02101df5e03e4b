//! What a written sector looks like: it names its write and its place, and every byte depends on both.
//!
//! ```text
//!   0   "e2e-sect"
//!   8   tag of the write, u32    12  salt of the volume, u32
//!   16  sector, u64
//!   24  61 words that follow from tag, salt and sector: a sector that is half of another shows
//! ```

use std::fmt;

/// Bytes of a sector: the least a request can change.
pub const SECTOR: usize = 512;

/// Tells volumes apart.
pub type Salt = u32;

const MAGIC: &[u8; 8] = b"e2e-sect";
const HEADER: usize = 24;
/// Odd, with its bits well spread (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A sector that is neither zeroes nor whole in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strange {
    /// Whole, of another volume or place.
    Misplaced {
        /// Whose.
        salt: Salt,
        /// Where it belongs.
        sector: u64,
        /// Of which write.
        tag: u32,
    },
    /// Begins as this write's, does not go on so.
    Torn {
        /// The write.
        tag: u32,
        /// The first byte that is wrong.
        at: usize,
    },
    /// Nothing of ours.
    Garbage([u8; 16]),
}

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strange::Misplaced { salt, sector, tag } => {
                write!(f, "sector {sector} of volume {salt:#x}, write {tag}")
            }
            Strange::Torn { tag, at } => {
                write!(f, "write {tag} up to byte {at}, then something else")
            }
            Strange::Garbage(bytes) => write!(f, "bytes of nobody: {bytes:02x?}..."),
        }
    }
}

fn seed(salt: Salt, sector: u64, tag: u32) -> u64 {
    let x = (sector ^ u64::from(salt) << 40).wrapping_mul(SPREAD) ^ u64::from(tag).wrapping_mul(SPREAD).rotate_left(29);
    (x ^ x >> 32).wrapping_mul(SPREAD)
}

fn word(seed: u64, n: usize) -> [u8; 8] {
    (seed ^ (n as u64).wrapping_mul(SPREAD)).to_le_bytes()
}

/// Fills sectors from `first` on with what the write `tag` leaves; a tag of 0 leaves zeroes.
pub fn fill(bytes: &mut [u8], salt: Salt, first: u64, tag: u32) {
    if tag == 0 {
        return bytes.fill(0);
    }
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&tag.to_le_bytes());
        bytes[12..16].copy_from_slice(&salt.to_le_bytes());
        bytes[16..HEADER].copy_from_slice(&sector.to_le_bytes());
        let seed = seed(salt, sector, tag);
        for (n, eight) in bytes[HEADER..].chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&word(seed, n));
        }
    }
}

/// The tag of the write that left `bytes` in `sector`; 0 for zeroes.
///
/// # Errors
/// What else it is.
pub fn identify(bytes: &[u8], salt: Salt, sector: u64) -> Result<u32, Strange> {
    assert_eq!(bytes.len(), SECTOR, "one sector");
    if bytes[0] == 0 && bytes.iter().fold(0, |all, b| all | b) == 0 {
        return Ok(0);
    }
    let mut head = [0; 16];
    head.copy_from_slice(&bytes[..16]);
    if &bytes[..8] != MAGIC {
        return Err(Strange::Garbage(head));
    }
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (tag, its_salt) = (u32_at(8), u32_at(12));
    let its_sector = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
    if tag == 0 {
        return Err(Strange::Garbage(head));
    }
    let its_seed = seed(its_salt, its_sector, tag);
    let body = bytes[HEADER..].chunks_exact(8).enumerate();
    let differs = body
        .fold(0u8, |all, (n, eight)| all | eight.iter().zip(word(its_seed, n)).fold(0, |all, (a, b)| all | (a ^ b)));
    if differs != 0 {
        let mut whole = [0; SECTOR];
        fill(&mut whole, its_salt, its_sector, tag);
        let at = bytes.iter().zip(whole).position(|(a, b)| *a != b).unwrap_or(SECTOR);
        return Err(Strange::Torn { tag, at });
    }
    if (its_salt, its_sector) != (salt, sector) {
        return Err(Strange::Misplaced { salt: its_salt, sector: its_sector, tag });
    }
    Ok(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_names_its_write() {
        let mut two = vec![1; 2 * SECTOR];
        fill(&mut two, 5, 40, 9);
        assert_eq!(identify(&two[..SECTOR], 5, 40), Ok(9));
        assert_eq!(identify(&two[SECTOR..], 5, 41), Ok(9));
        let strange = Err(Strange::Misplaced { salt: 5, sector: 41, tag: 9 });
        assert_eq!(identify(&two[SECTOR..], 5, 40), strange);
        assert_eq!(identify(&two[SECTOR..], 6, 41), strange);
        let mut torn = two[..SECTOR].to_vec();
        fill(&mut two, 5, 40, 10);
        torn[256..].copy_from_slice(&two[256..SECTOR]);
        assert_eq!(identify(&torn, 5, 40), Err(Strange::Torn { tag: 9, at: 256 }));
        torn[SECTOR - 1] ^= 1;
        assert!(identify(&torn, 5, 40).is_err());
        fill(&mut two, 5, 40, 0);
        assert_eq!(identify(&two[..SECTOR], 5, 40), Ok(0));
        two[100] = 1;
        assert!(matches!(identify(&two[..SECTOR], 5, 40), Err(Strange::Garbage(_))));
    }
}
