//! Finding records in a segment, and whether one is whole.

use base::BLOCK_BYTES;
use ondisk::segment::oldest_epoch;
use ondisk::{RecordHeader, crc32c};
use rt::Buf;

use super::RowReader;
use crate::canary::{Canary, planted};
use crate::row::Columns;

impl RowReader {
    /// The header of the record that begins at `row`, from its column or from the rest of its row.
    pub async fn read_header(&self, columns: &Columns, row: u32) -> Option<RecordHeader> {
        let fits = |block: &[u8]| self.header_in(columns, row, block);
        if let Some(block) = self.read_column(columns, 0, row, 1).await
            && let Some(header) = fits(&block)
        {
            return Some(header);
        }
        if planted(Canary::HeaderFromOneCopy) {
            return self.reconstruct(columns, &[0], 0, row, 1).await.and_then(|block| fits(&block));
        }
        let block = self.recover_block(columns, 0, row, |block| fits(block).is_some()).await?;
        fits(&block)
    }

    /// The header in `block`, if it is this array's, of this segment, of this row and of a life that counts: a drive may
    /// land an older one late.
    pub fn header_in(&self, columns: &Columns, row: u32, block: &[u8]) -> Option<RecordHeader> {
        let header = RecordHeader::decode(block).ok()?;
        let ours = header.array == self.ctx.shape.array
            && header.segment == columns.id
            && header.row == row
            && usize::from(header.k) == columns.scheme.k()
            && header.row + header.rows <= self.ctx.shape.zone_blocks
            && (header.epoch >= oldest_epoch(&columns.cuts, row) || planted(Canary::OlderHeaderBelieved));
        ours.then_some(header)
    }

    /// Whether the header of `row` can be told from its column or the rest of its row at all: when not, nobody knows
    /// whether a record begins there.
    pub async fn header_is_knowable(&self, columns: &Columns, row: u32) -> bool {
        self.read_column(columns, 0, row, 1).await.is_some()
            || self.reconstruct(columns, &[0], 0, row, 1).await.is_some()
    }

    /// Whether a record is whole: header and payload match, or can be made to from the redundancy. Puts right what is
    /// not, unreadable blocks too, when `mend` says so. `None` when too few members are here to tell.
    pub async fn record_is_whole(&self, columns: &Columns, header: &RecordHeader, mend: bool) -> Option<bool> {
        if planted(Canary::TornAccepted) {
            return Some(true);
        }
        let have = self.read_rows(columns, &[], header.row, header.rows).await;
        let width = columns.scheme.width();
        let k = columns.scheme.k();
        let mut image = vec![0; BLOCK_BYTES];
        header.encode(&mut image);
        // Column, row from the header, and what should be there.
        let mut wrong: Vec<(usize, u32, Buf)> = Vec::new();
        let mut expected: Vec<Vec<u32>> = vec![vec![0; header.rows as usize]; k];
        expected[0][0] = crc32c(&image);
        for (index, _, crc) in header.payload() {
            let (column, row) = header.payload_place(index);
            expected[column][(row - header.row) as usize] = crc;
        }
        for r in 0..header.rows {
            let block_ok = |c: usize, b: &[u8]| c >= k || crc32c(b) == expected[c][r as usize];
            let right = (0..width).map(|c| have.block(c, r).filter(|b| block_ok(c, b)));
            let blocks: Vec<Option<Buf>> = right.map(|b| b.map(Buf::from_slice)).collect();
            let Some(whole) = self.whole_row(columns, blocks, &block_ok) else {
                let tellable = columns.scheme.survives(|c| have.block(c, r).is_none());
                return tellable.then_some(false);
            };
            let differs = |(c, b): &(usize, Buf)| have.block(*c, r) != Some(&b[..]);
            wrong.extend(whole.into_iter().enumerate().filter(differs).map(|(c, block)| (c, r, block)));
        }
        if mend && !planted(Canary::MendForgotten) {
            for (c, r, block) in wrong {
                let Some((seat, zone)) = self.slot_seat(columns, c) else { continue };
                // When it fails its member is out.
                let _ =
                    self.health.write_to(&seat, seat.layout.zone_row(zone, header.row + r), vec![block.freeze()]).await;
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
                    erasure::encode(self.ctx.kernel, &sources, &mut targets);
                }
                data.extend(parity);
            }
        }
        Some(data)
    }

    /// The header at `row`: from `image`, the first column from row `first` on, or by all other ways.
    pub async fn header_at(
        &self,
        columns: &Columns,
        image: Option<&[u8]>,
        first: u32,
        row: u32,
    ) -> Option<RecordHeader> {
        let at = (row - first) as usize * base::BLOCK_BYTES;
        let block = image.and_then(|image| image.get(at..at + base::BLOCK_BYTES));
        match block.and_then(|block| self.header_in(columns, row, block)) {
            Some(header) => Some(header),
            None => self.read_header(columns, row).await,
        }
    }
}
