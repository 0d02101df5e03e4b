//! How a namespace presents itself as a block device.

use rt::ublk::Parameters;

use super::UblkError;
use crate::namespace::NamespaceInfo;

/// Longest read or write: with 128 requests under way a device holds 32 MiB of payload at most.
pub(super) const REQUEST_BYTES_MAX: u32 = 256 << 10;

/// Longest discard or write of zeroes: one takes its tag no longer than a large write does, also where zeroes are written.
const ZERO_BYTES_MAX: u64 = 1 << 30;

/// The largest logical block of every kernel, and its page on most machines. A larger physical one misleads who makes file systems.
const BLOCK_MAX: u32 = 4096;

/// Parameters of a device for this namespace.
pub(super) fn of(info: &NamespaceInfo) -> Result<Parameters, UblkError> {
    if info.min_block > BLOCK_MAX {
        return Err(UblkError::Block { block: info.min_block, largest: BLOCK_MAX });
    }
    let request = REQUEST_BYTES_MAX.min(info.max_request);
    let preferred = info.preferred_block.clamp(info.min_block, REQUEST_BYTES_MAX);
    Ok(Parameters {
        bytes: info.bytes,
        logical_block: info.min_block,
        physical_block: preferred.min(BLOCK_MAX),
        preferred_block: preferred,
        // Whole pages, as the kernel wants it.
        request_bytes_max: (request - request % BLOCK_MAX).max(BLOCK_MAX),
        zero_bytes_max: ZERO_BYTES_MAX,
        read_only: info.read_only,
        volatile_cache: info.volatile_cache,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(min_block: u32, preferred_block: u32) -> NamespaceInfo {
        NamespaceInfo {
            name: "a/v".to_owned(),
            uuid: [1; 16],
            bytes: 1 << 40,
            min_block,
            preferred_block,
            max_request: 32 << 20,
            read_only: false,
            volatile_cache: true,
            description: String::new(),
        }
    }

    #[test]
    fn blocks() {
        for (min, preferred, expected) in
            [(512, 4096, (512, 4096, 4096)), (512, 512, (512, 512, 512)), (4096, 65536, (4096, 4096, 65536))]
        {
            let parameters = of(&info(min, preferred)).unwrap();
            let got = (parameters.logical_block, parameters.physical_block, parameters.preferred_block);
            assert_eq!(got, expected);
            assert_eq!((parameters.bytes, parameters.request_bytes_max), (1 << 40, 256 << 10));
            assert!(parameters.volatile_cache && !parameters.read_only);
        }
        assert_eq!(of(&info(8192, 8192)), Err(UblkError::Block { block: 8192, largest: 4096 }));
    }

    #[test]
    fn a_short_longest_request_is_kept() {
        let short = NamespaceInfo { max_request: 70_000, ..info(512, 4096) };
        assert_eq!(of(&short).unwrap().request_bytes_max, 69_632);
    }
}
