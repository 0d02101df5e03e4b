//! The one checksum of the format: CRC-32C (Castagnoli), as in iSCSI and NVMe/TCP.

/// CRC-32C of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// CRC-32C of one block of zeros.
pub const ZERO_BLOCK_CRC32C: u32 = 0x98f9_4189;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0; 4096]), ZERO_BLOCK_CRC32C);
    }
}
