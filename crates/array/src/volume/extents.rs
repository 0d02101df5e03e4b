//! Runs of bytes that are stored, holes or zeros.
//!
//! Not here: what blocks say (`spans`, `map`).

use base::{BLOCK_BYTES, BlockCount};
use ondisk::MapRef;

/// What a run of bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Stored.
    Allocated,
    /// Never written or deallocated: reads zeros.
    Hole,
    /// Written with zeros, nothing stored.
    Zero,
}

/// Adds blocks that say one thing; whether they fit into `at_most` extents.
pub fn add(extents: &mut Vec<(u64, ExtentKind)>, says: MapRef, blocks: u64, at_most: usize) -> bool {
    let kind = match says {
        MapRef::At(_) | MapRef::Bad => ExtentKind::Allocated,
        MapRef::Hole => ExtentKind::Hole,
        MapRef::Zero => ExtentKind::Zero,
    };
    let bytes = BlockCount(blocks).bytes();
    if let Some((len, _)) = extents.last_mut().filter(|(_, last)| *last == kind) {
        *len += bytes;
    } else if extents.len() == at_most {
        return false;
    } else {
        extents.push((bytes, kind));
    }
    true
}

/// Extents of whole blocks cut to the bytes asked for.
pub fn trim(mut extents: Vec<(u64, ExtentKind)>, offset: u64, bytes: u64) -> Vec<(u64, ExtentKind)> {
    let head = offset % BLOCK_BYTES as u64;
    if let Some(first) = extents.first_mut() {
        first.0 -= head;
    }
    let total: u64 = extents.iter().map(|e| e.0).sum();
    if let Some(last) = extents.last_mut() {
        last.0 -= total.saturating_sub(bytes);
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_cut_to_the_request() {
        use ExtentKind::{Allocated, Hole};
        assert_eq!(trim(vec![(4096, Hole), (4096, Allocated)], 512, 4096), [(3584, Hole), (512, Allocated)]);
        assert_eq!(trim(vec![(4096, Hole)], 1024, 512), [(512, Hole)]);
    }
}
