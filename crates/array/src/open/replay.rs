//! Replay: the frontier's valid records, torn rows completed, into the memtable.
//!
//! A record beyond the highest durable row known may be torn: the first that is not whole ends its segment, and what
//! follows is void. Below that row nothing may be missing: there a lost header is damage and never a reason to cut.

use api::Remedy;
use base::{Epoch, MemberId, SegmentId};
use futures::future::join_all;
use ondisk::{Cut, Entry, Generation, MemberState, RecordHeader, SegmentState};

use super::recovering::Recovering;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::log::WINDOW_ROWS_MAX;
use crate::row::Columns;
use crate::space::segment::{Unmerged, pba};
use crate::space::segments::Remaining;

/// Rows looked through at once for what lies behind a gap.
const SEARCH_ROWS: u32 = 256;

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayHow {
    /// Complete torn rows on the drives (not in a frozen or read-only open).
    pub mend: bool,
    /// Go on over damage.
    pub accept_loss: bool,
    /// The epoch that begins.
    pub epoch: Epoch,
}

/// What replay found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Frontier segments read.
    pub segments: u64,
    /// Valid records.
    pub records: u64,
    /// Entries put into the memtable.
    pub entries: u64,
    /// Segments with void records behind their cut.
    pub cut_segments: u64,
    /// Records lost below the durable row.
    pub damaged: u64,
    /// Newest records may be on drives that are not here: what the map says may be old.
    pub uncertain: bool,
}

struct Scanned {
    id: SegmentId,
    end: u32,
    headers: Vec<RecordHeader>,
    torn: bool,
    damaged: u64,
    /// Too few members are here to tell what was acknowledged.
    unknown: bool,
}

impl Recovering<'_> {
    /// Reads the frontier of `generation`, refills the memtable, and leaves the segments ready to go on.
    pub async fn replay(&self, generation: &Generation, how: ReplayHow) -> Result<Replayed, Refused> {
        let mut done = Replayed::default();
        let mut scans = Vec::new();
        for line in generation.segments.iter().filter(|s| s.replay_row.is_some()) {
            let scanned = self.scan(generation, line, how).await?;
            done.segments += 1;
            done.records += scanned.headers.len() as u64;
            done.cut_segments += u64::from(scanned.torn);
            done.damaged += scanned.damaged;
            done.uncertain |= scanned.damaged > 0 || scanned.unknown;
            scans.push(scanned);
        }
        for s in &scans {
            self.continue_segment(s, how, generation);
        }
        let from = generation.replay_from[0];
        let mut records: Vec<&RecordHeader> = scans.iter().flat_map(|s| &s.headers).collect();
        // Of equal numbers the copy in the higher segment counts: it comes last.
        records.sort_by_key(|h| (h.epoch, h.first_seq, h.segment));
        let mut next_seq = from.seq;
        for header in records {
            next_seq = next_seq.max(header.end_seq());
            let facts = numbered(header);
            if facts == 0 || (header.epoch, base::Seq(header.first_seq.0 + facts - 1)) < (from.epoch, from.seq) {
                continue;
            }
            let places: Vec<_> = header
                .payload()
                .map(|(i, ..)| {
                    let (column, row) = header.payload_place(i);
                    pba(header.segment, column, row, self.rooms.ctx().shape.zone_blocks)
                })
                .collect();
            self.rooms.memory().remember(&header.entries, &places, self.rooms.streams().moving());
            done.entries += facts;
            let data = |e: &&Entry| matches!(e, Entry::Data { .. });
            self.rooms.memory().will_store(header.entries.iter().filter(data).count() as u64);
        }
        self.rooms.streams().begin_at(base::Seq(next_seq.0.max(1)));
        Ok(done)
    }

    /// The valid records of one segment from its replay row on.
    async fn scan(&self, g: &Generation, line: &ondisk::Segment, how: ReplayHow) -> Result<Scanned, Refused> {
        let columns = self.rooms.rows().columns(line.id).expect("the table was filled from the generation");
        let mut row = line.replay_row.unwrap_or(line.rows);
        // A member of it was out already: nothing was acknowledged there any more.
        let out = |m: MemberId| g.members.get(usize::from(m.0)).is_none_or(|m| m.state != MemberState::In);
        let broken = line.slots.iter().flatten().any(|(m, _)| out(*m));
        let sealed = line.state == SegmentState::Sealed || broken;
        let end_of_zone = if sealed { line.rows } else { self.rooms.ctx().shape.zone_blocks };
        let mut durable = line.rows;
        let mut scanned =
            Scanned { id: line.id, end: row, headers: Vec::new(), torn: false, damaged: 0, unknown: false };
        while row < end_of_zone {
            if let Some(header) = self.valid_header(g, &columns, row).await? {
                durable = durable.max(header.durable_row);
                row += header.rows;
                scanned.headers.push(header);
                continue;
            }
            scanned.unknown |= !g.clean && !self.rooms.rows().header_is_knowable(&columns, row).await;
            let behind = if g.clean { None } else { self.search(g, &columns, row, end_of_zone).await? };
            let known = behind.map_or(durable, |(_, d)| durable.max(d));
            if row >= known || planted(Canary::CutAtDamage) {
                break;
            }
            // Damage: this row was acknowledged and durable.
            if !how.accept_loss {
                return Err(Refused::new(
                    RefusedCode::Damaged,
                    "recovery stops",
                    format!("a record header of segment {} (row {row}) is lost beyond repair", line.id),
                    "Reconnect missing drives, or open it for reading only to copy out what is readable",
                )
                .by(Remedy::OpenReadOnly));
            }
            scanned.damaged += 1;
            match behind {
                Some((next, d)) => (row, durable) = (next, durable.max(d)),
                None => break,
            }
        }
        let mut whole_to = scanned.headers.len();
        for (i, header) in scanned.headers.iter().enumerate() {
            if header.row >= durable {
                match self.rooms.rows().record_is_whole(&columns, header, how.mend).await {
                    Some(true) => {}
                    Some(false) => {
                        whole_to = i;
                        break;
                    }
                    // It may have been acknowledged: its blocks read as lost, never as what was there before.
                    None => {}
                }
            } else if header.row >= line.rows && how.mend {
                // Durable, but a copy of it may be torn on a member that was slow: complete it.
                self.rooms.rows().record_is_whole(&columns, header, true).await;
            }
        }
        scanned.torn = whole_to < scanned.headers.len();
        scanned.headers.truncate(whole_to);
        scanned.end = scanned.headers.last().map_or(0, |h| h.row + h.rows).max(scanned.end).max(line.rows);
        Ok(scanned)
    }

    /// The header at `row`, if a record of a life that counts begins there.
    async fn valid_header(&self, g: &Generation, columns: &Columns, row: u32) -> Result<Option<RecordHeader>, Refused> {
        let header = self.rooms.rows().read_header(columns, row).await;
        header.iter().try_for_each(|h| known(g, h))?;
        Ok(header)
    }

    /// The first record behind a gap that says that rows of the gap were durable: its row, and up to where.
    async fn search(
        &self,
        g: &Generation,
        columns: &Columns,
        gap: u32,
        end: u32,
    ) -> Result<Option<(u32, u32)>, Refused> {
        let end = end.min(gap.saturating_add(2 * WINDOW_ROWS_MAX));
        let mut row = gap + 1;
        let mut first_found = None;
        let mut durable = 0;
        while row < end {
            let rows = SEARCH_ROWS.min(end - row);
            let chunk = match self.rooms.rows().read_column(columns, 0, row, rows).await {
                Some(chunk) => Some(chunk),
                None => self.rooms.rows().reconstruct(columns, &[0], 0, row, rows).await,
            };
            let headers: Vec<Option<RecordHeader>> = match &chunk {
                Some(chunk) => {
                    let blocks = (row..).zip(chunk.chunks_exact(base::BLOCK_BYTES));
                    blocks.map(|(at, block)| self.rooms.rows().header_in(columns, at, block)).collect()
                }
                None if planted(Canary::SearchByBatch) => Vec::new(),
                // One bad block does not hide the rows beside it.
                None => join_all((row..row + rows).map(|at| self.rooms.rows().read_header(columns, at))).await,
            };
            for (at, header) in (row..).zip(headers) {
                let Some(header) = header else { continue };
                known(g, &header)?;
                first_found.get_or_insert(at);
                durable = durable.max(header.durable_row);
            }
            row += rows;
        }
        Ok(first_found.filter(|_| durable > gap).map(|at| (at, durable)))
    }

    /// Leaves a segment ready: rows, unmerged records, and a cut that makes everything beyond void.
    fn continue_segment(&self, s: &Scanned, how: ReplayHow, g: &Generation) {
        let Some(cuts) = self.rooms.segments().read().segments.get(&s.id).map(|seg| seg.cuts.to_vec()) else { return };
        let from = g.replay_from[0];
        let unmerged = s
            .headers
            .iter()
            .filter(|h| numbered(h) > 0 && !matches!(h.entries.first(), Some(Entry::MapNode { .. })))
            .map(|h| Unmerged { row: h.row, last: (h.epoch, base::Seq(h.first_seq.0 + numbered(h) - 1)) })
            .filter(|u| u.last >= (from.epoch, from.seq))
            .collect();
        let full = s.end == self.rooms.ctx().shape.zone_blocks;
        let mut with_cut = cuts;
        let cuts = (full || cut(&mut with_cut, s.end, how.epoch)).then_some(with_cut);
        // Not mended: what lies beyond the durable row may be torn where it can be made whole.
        self.rooms.segments().go_on(s.id, Remaining { end: s.end, mended: how.mend, unmerged, full, cuts });
    }
}

/// Adds a cut; false when there is no room for another: the segment is sealed instead.
fn cut(cuts: &mut Vec<Cut>, row: u32, epoch: Epoch) -> bool {
    if planted(Canary::CutForgotten) {
        return true;
    }
    if let Some(last) = cuts.last_mut().filter(|last| last.row == row) {
        last.epoch = epoch;
        return true;
    }
    let room = cuts.len() < ondisk::CUTS_MAX || planted(Canary::CutsUnbounded);
    if room {
        cuts.push(Cut { row, epoch });
    }
    room
}

/// Entries that carry a number: all but the padding.
fn numbered(header: &RecordHeader) -> u64 {
    header.entries.iter().filter(|e| !matches!(e, Entry::Pad)).count() as u64
}

/// Whether a header is of a generation that is known.
fn known(g: &Generation, header: &RecordHeader) -> Result<(), Refused> {
    if (header.generation > g.number || header.epoch > g.epoch) && !planted(Canary::NewerGenerationIgnored) {
        return Err(Refused::new(
            RefusedCode::MembersMissing,
            "recovery stops",
            format!(
                "segment {} was written under generation {}, but the newest found is {}",
                header.segment, header.generation, g.number
            ),
            "Reconnect the missing drives: they hold a newer state of the array",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_cut_seals() {
        let mut cuts = Vec::new();
        for i in 0..4 {
            assert!(cut(&mut cuts, i, Epoch(i + 2)));
        }
        assert!(cut(&mut cuts, 3, Epoch(9)), "no progress, no new cut");
        assert_eq!(cuts.len(), 4);
        assert!(!cut(&mut cuts, 7, Epoch(10)));
    }
}
