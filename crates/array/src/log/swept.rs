//! What is computed of a record's blocks: their checksums and the parity, in one pass, row by row, while a row is in the
//! processor's cache.
//!
//! Blocks fill a record's rows down one column after the other: the header, the payload, pads. So in each row pads, which are
//! zeros and add nothing to parity, are the last columns.

use base::BLOCK_BYTES;
use erasure::Kernel;
use ondisk::{Scheme, crc32c};
use rt::{Buf, Bytes};

/// Checksums of the payload, and the parity columns.
pub struct Swept<'a> {
    /// In the payload's order.
    pub crcs: Vec<u32>,
    parity: Vec<Buf>,
    /// The payload blocks of the header's row.
    first_row: Vec<&'a [u8]>,
}

impl<'a> Swept<'a> {
    /// Of these payload blocks, some with a checksum that is known, in `rows` rows; the header's row has its parity when the
    /// header is known.
    pub fn of(kernel: Kernel, scheme: Scheme, rows: usize, payload: &[(&'a [u8], Option<u32>)]) -> Swept<'a> {
        let m = match scheme {
            Scheme::Parity { m, .. } => usize::from(m),
            Scheme::Copies { .. } => 0,
        };
        if m == 0 {
            let crcs = payload.iter().map(|(block, known)| known.unwrap_or_else(|| crc32c(block))).collect();
            return Swept { crcs, parity: Vec::new(), first_row: Vec::new() };
        }
        let mut crcs = vec![0; payload.len()];
        let mut parity: Vec<Buf> = (0..m).map(|_| Buf::for_overwrite(rows * BLOCK_BYTES)).collect();
        let mut first_row = Vec::with_capacity(scheme.k());
        let mut blocks = Vec::with_capacity(scheme.k());
        for row in 0..rows {
            // The header is before the payload: block `i` of it is in place `i + 1`.
            let of_row = (row + rows * usize::from(row == 0)..=payload.len()).step_by(rows);
            blocks.clear();
            for place in of_row {
                let (block, known) = payload[place - 1];
                crcs[place - 1] = known.unwrap_or_else(|| crc32c(block));
                blocks.push(block);
            }
            if row == 0 {
                first_row.extend_from_slice(&blocks);
            } else {
                encode_row(kernel, row, &blocks, &mut parity);
            }
        }
        Swept { crcs, parity, first_row }
    }

    /// The parity of the header's row.
    pub fn add_header(&mut self, kernel: Kernel, header: &[u8]) {
        if !self.parity.is_empty() {
            let blocks: Vec<&[u8]> = std::iter::once(header).chain(self.first_row.iter().copied()).collect();
            encode_row(kernel, 0, &blocks, &mut self.parity);
        }
    }

    /// The parts of all columns, from those of the data columns.
    pub fn lay_out(self, scheme: Scheme, mut columns: Vec<Vec<Bytes>>) -> Vec<Vec<Bytes>> {
        let k = scheme.k();
        assert_eq!(columns.len(), k, "a record fills its rows");
        match scheme {
            Scheme::Parity { .. } => columns.extend(self.parity.into_iter().map(|p| vec![p.freeze()])),
            Scheme::Copies { copies, .. } => (1..copies).for_each(|_| columns.extend_from_within(..k)),
        }
        columns
    }
}

fn encode_row(kernel: Kernel, row: usize, blocks: &[&[u8]], parity: &mut [Buf]) {
    let of_row = row * BLOCK_BYTES..(row + 1) * BLOCK_BYTES;
    match parity {
        [p] => erasure::encode(kernel, blocks, &mut [&mut p[of_row]]),
        [p, q] => erasure::encode(kernel, blocks, &mut [&mut p[of_row.clone()], &mut q[of_row]]),
        _ => unreachable!("parity has one or two columns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parity over whole rows, pads and all.
    #[test]
    fn parity_is_that_of_whole_rows() {
        let kernel = Kernel::detect();
        for (k, m, payload) in [(4, 1, 1), (4, 1, 3), (4, 2, 7), (8, 2, 30), (8, 1, 239), (2, 1, 1), (3, 2, 4)] {
            let rows = (payload + 1usize).div_ceil(k);
            let block = |i: usize| vec![(i * 7 + 1) as u8; BLOCK_BYTES];
            let mut all: Vec<Vec<u8>> = (0..=payload).map(block).collect();
            all.resize(k * rows, vec![0; BLOCK_BYTES]);
            let blocks: Vec<(&[u8], Option<u32>)> = all[1..=payload].iter().map(|b| (&b[..], None)).collect();
            let scheme = Scheme::Parity { k: k as u8, m };
            let mut swept = Swept::of(kernel, scheme, rows, &blocks);
            swept.add_header(kernel, &all[0]);
            assert_eq!(swept.crcs, blocks.iter().map(|(b, _)| crc32c(b)).collect::<Vec<_>>());
            for row in 0..rows {
                let sources: Vec<&[u8]> = all[row..].iter().step_by(rows).map(|b| &b[..]).collect();
                let parity: Vec<&[u8]> =
                    swept.parity.iter().map(|p| &p[row * BLOCK_BYTES..(row + 1) * BLOCK_BYTES]).collect();
                assert!(erasure::matches(kernel, &sources, &parity), "row {row} of {payload} blocks in {k}+{m}");
            }
        }
    }
}
