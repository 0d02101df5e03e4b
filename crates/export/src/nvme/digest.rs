//! Header and data digests: CRC-32C. NVMe/TCP 1.0, "PDU Header Digest and Data Digest Generation".

use crc_fast::{CrcAlgorithm, Digest};
use rt::Bytes;

/// Length of a digest.
pub const DIGEST_BYTES: usize = 4;

/// The digest of some bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The digest of parts that follow each other.
#[must_use]
pub fn digest_parts(parts: &[Bytes]) -> u32 {
    if let [one] = parts {
        return digest(one);
    }
    let mut state = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| state.update(part));
    state.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(digest(b"123456789"), 0xe306_9283);
        assert_eq!(digest(&[0; 32]), 0x8a91_36aa);
        assert_eq!(digest(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn parts_are_as_one() {
        let parts = [&b"1234"[..], b"", b"56789"].map(Bytes::from_slice);
        assert_eq!(digest_parts(&parts), digest(b"123456789"));
        assert_eq!(digest_parts(&[]), digest(b""));
    }
}
