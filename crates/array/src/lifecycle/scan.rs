//! Finding records in a segment.

use base::BLOCK_BYTES;
use ondisk::{RecordHeader, crc32c};
use rt::Buf;

use crate::core::Core;
use crate::row::Columns;

impl Core {
    /// The header of the record that begins at `row`, from its column or from the rest of its row.
    pub async fn read_header(&self, columns: &Columns, row: u32) -> Option<RecordHeader> {
        let fits = |block: &[u8]| self.header_in(columns, row, block);
        if let Some(block) = self.read_column(columns, 0, row, 1).await
            && let Some(header) = fits(&block)
        {
            return Some(header);
        }
        let block = self.reconstruct(columns, &[0], 0, row, 1).await?;
        fits(&block)
    }

    /// The header in `block`, if it is this array's, of this segment and of this row.
    pub fn header_in(&self, columns: &Columns, row: u32, block: &[u8]) -> Option<RecordHeader> {
        let header = RecordHeader::decode(block).ok()?;
        let ours = header.array == self.shape.array
            && header.segment == columns.id
            && header.row == row
            && usize::from(header.k) == columns.scheme.k()
            && header.row + header.rows <= self.shape.zone_blocks;
        ours.then_some(header)
    }

    /// Whether the header of `row` can be told from its column or the rest of its row at all: when not, nobody knows
    /// whether a record begins there.
    pub async fn header_is_knowable(&self, columns: &Columns, row: u32) -> bool {
        self.read_column(columns, 0, row, 1).await.is_some()
            || self.reconstruct(columns, &[0], 0, row, 1).await.is_some()
    }

    /// Whether a record is whole: header and payload match, or can be made to from the redundancy. Puts right what is
    /// not, when `mend` says so. `None` when too few members are here to tell.
    pub async fn record_is_whole(&self, columns: &Columns, header: &RecordHeader, mend: bool) -> Option<bool> {
        let mut all = self.read_columns(columns, &[], header.row, header.rows).await;
        let width = columns.scheme.width();
        let k = columns.scheme.k();
        let mut image = vec![0; BLOCK_BYTES];
        header.encode(&mut image);
        let mut wrong: Vec<Vec<u32>> = vec![Vec::new(); width];
        let mut expected: Vec<Vec<u32>> = vec![vec![0; header.rows as usize]; k];
        expected[0][0] = crc32c(&image);
        for (index, _, crc) in header.payload() {
            let (column, row) = header.payload_place(index);
            expected[column][(row - header.row) as usize] = crc;
        }
        let at = |r: u32| r as usize * BLOCK_BYTES..(r as usize + 1) * BLOCK_BYTES;
        for r in 0..header.rows {
            let block_ok = |c: usize, b: &[u8]| c >= k || crc32c(b) == expected[c][r as usize];
            let mut blocks: Vec<Option<Buf>> =
                all.iter().map(|column| column.as_ref().map(|b| Buf::from_slice(&b[at(r)]))).collect();
            for (c, block) in blocks.iter_mut().enumerate() {
                if block.as_ref().is_some_and(|b| !block_ok(c, b)) {
                    *block = None;
                }
            }
            let Some(whole) = self.whole_row(columns, blocks, &block_ok) else {
                let tellable = columns.scheme.survives(|c| all[c].is_none());
                return tellable.then_some(false);
            };
            for c in 0..width {
                if let Some(column) = all[c].as_mut()
                    && column[at(r)] != whole[c][..]
                {
                    column[at(r)].copy_from_slice(&whole[c]);
                    wrong[c].push(r);
                }
            }
        }
        if mend {
            for (c, rows) in wrong.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                let Some((member, zone)) = columns.slots[c] else { continue };
                let (Some(seat), Some(column)) = (self.seat(member), all[c].take()) else { continue };
                let column = column.freeze();
                for &r in rows {
                    let done = seat.write(seat.layout.zone_row(zone, header.row + r), column.slice(at(r))).await;
                    if let Err(error) = done {
                        self.member_failed(member, &format!("could not be written in recovery: {error}"));
                        break;
                    }
                }
            }
        }
        Some(true)
    }

    /// All blocks of one row, made from those that are right; `None` when they cannot be. Parity that is there but
    /// does not go with the data is made anew.
    pub fn whole_row(
        &self,
        columns: &Columns,
        blocks: Vec<Option<Buf>>,
        ok: &impl Fn(usize, &[u8]) -> bool,
    ) -> Option<Vec<Buf>> {
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        let copy = |blocks: &[Option<Buf>]| -> Vec<Option<Buf>> {
            blocks.iter().map(|b| b.as_ref().map(|b| Buf::from_slice(b))).collect()
        };
        let mut data: Vec<Buf> = Vec::with_capacity(width);
        for c in 0..k {
            // A parity column may be wrong as well: try without each of them.
            let mut found = None;
            for suspect in std::iter::once(None).chain((k..width).map(Some)) {
                let mut trial = copy(&blocks);
                if let Some(s) = suspect {
                    trial[s] = None;
                }
                found = self.solve(columns.scheme, trial, c).filter(|b| ok(c, b));
                if found.is_some() {
                    break;
                }
            }
            data.push(found?);
        }
        match columns.scheme {
            ondisk::Scheme::Copies { .. } => {
                let copies: Vec<Buf> = (k..width).map(|c| Buf::from_slice(&data[c % k])).collect();
                data.extend(copies);
            }
            ondisk::Scheme::Parity { m, .. } => {
                let mut parity: Vec<Buf> = (0..m).map(|_| Buf::zeroed(BLOCK_BYTES)).collect();
                {
                    let sources: Vec<&[u8]> = data.iter().map(|b| &b[..]).collect();
                    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|b| &mut b[..]).collect();
                    erasure::encode(self.kernel, &sources, &mut targets);
                }
                data.extend(parity);
            }
        }
        Some(data)
    }
}
