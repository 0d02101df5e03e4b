//! Comparing bytes with the model: a range is cut where changes begin and end; within a span all sectors have the same
//! candidates.

use std::fmt;
use std::ops::Range;

use super::content::{self, SECTOR, Strange};
use super::{Change, Kind, Model, ROW_SECTORS, Value, ZEROES};

/// Odd sectors that are explained one by one; the rest is counted.
const EXPLAINED_MAX: usize = 8;

/// One sector that holds what it must not.
#[derive(Clone, Debug)]
pub struct Odd {
    /// Which.
    pub sector: u64,
    /// What it may hold.
    pub allowed: Vec<String>,
    /// What it holds.
    pub found: String,
}

/// Sectors that hold what they must not.
#[derive(Clone, Debug, Default)]
pub struct Oddities {
    /// The first ones.
    pub first: Vec<Odd>,
    /// All of them.
    pub count: u64,
}

impl Oddities {
    /// Adds those of a further range.
    pub fn merge(&mut self, more: Oddities) {
        self.count += more.count;
        let room = EXPLAINED_MAX.saturating_sub(self.first.len());
        self.first.extend(more.first.into_iter().take(room));
    }
}

impl fmt::Display for Oddities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sector(s) hold what they must not", self.count)?;
        for odd in &self.first {
            let Odd { sector, allowed, found } = odd;
            let (block, part) = (sector / 8, sector % 8);
            write!(f, "\n  sector {sector} (block {block} part {part}, byte {})", sector * SECTOR as u64)?;
            write!(f, "\n    found    {found}")?;
            for (n, text) in allowed.iter().enumerate() {
                write!(f, "\n    {} {text}", if n == 0 { "expected" } else { "      or" })?;
            }
        }
        Ok(())
    }
}

/// Sectors with the same candidates.
struct Span {
    sectors: Range<u64>,
    /// Values that changes may have left.
    changes: Vec<u32>,
    /// Whether what was there before may still be.
    settled: bool,
}

impl Model {
    /// Compares `bytes`, read from sector `first` on, with what may be there when every answer with a stamp below
    /// `before` counts. `found` gets each sector's value.
    pub fn check(&self, first: u64, bytes: &[u8], before: u64, mut found: impl FnMut(u64, Value)) -> Option<Oddities> {
        let end = first + (bytes.len() / SECTOR) as u64;
        let mut odd = Oddities::default();
        let mut at = first;
        while at < end {
            let row_end = (at / ROW_SECTORS + 1) * ROW_SECTORS;
            let part = at..end.min(row_end);
            at = part.end;
            for span in self.spans(part, before) {
                for sector in span.sectors.clone() {
                    let from = (sector - first) as usize * SECTOR;
                    let value = content::identify(&bytes[from..from + SECTOR], self.salt, sector);
                    match value {
                        Ok(value) if self.may_hold(&span, sector, value) => found(sector, value),
                        value => self.note(&mut odd, &span, sector, value),
                    }
                }
            }
        }
        (odd.count > 0).then_some(odd)
    }

    fn value_of(&self, tag: u32) -> Value {
        match self.changes[tag as usize - 1].kind {
            Kind::Write => tag,
            Kind::Zeroes | Kind::Deallocate => ZEROES,
        }
    }

    fn may_hold(&self, span: &Span, sector: u64, value: Value) -> bool {
        let settled = self.settled[sector as usize];
        (span.settled && settled == value) || span.changes.iter().any(|&tag| self.value_of(tag) == value)
    }

    /// The spans of a range within one row.
    fn spans(&self, range: Range<u64>, before: u64) -> Vec<Span> {
        let row = &self.rows[(range.start / ROW_SECTORS) as usize];
        let overlapping: Vec<(u32, &Change)> = row
            .iter()
            .map(|&tag| (tag, &self.changes[tag as usize - 1]))
            .filter(|(_, c)| c.sectors.start < range.end && range.start < c.sectors.end)
            .collect();
        let mut cuts = vec![range.start, range.end];
        for (_, c) in &overlapping {
            cuts.extend([c.sectors.start, c.sectors.end].into_iter().filter(|cut| range.contains(cut)));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|cut| span(cut[0]..cut[1], &overlapping, before)).collect()
    }

    fn note(&self, odd: &mut Oddities, span: &Span, sector: u64, value: Result<Value, Strange>) {
        odd.count += 1;
        if odd.first.len() >= EXPLAINED_MAX {
            return;
        }
        let settled = span.settled.then(|| self.explain(self.settled[sector as usize]));
        let changes = span.changes.iter().map(|&tag| self.explain_change(tag));
        let found = match value {
            Ok(value) => self.explain(value),
            Err(Strange::Torn { tag, at }) => {
                format!("torn at byte {at}: {}, then something else", self.explain(tag))
            }
            Err(strange) => strange.to_string(),
        };
        odd.first.push(Odd { sector, allowed: settled.into_iter().chain(changes).collect(), found });
    }

    fn explain(&self, value: Value) -> String {
        if value == ZEROES { "zeroes".to_owned() } else { self.explain_change(value) }
    }

    fn explain_change(&self, tag: u32) -> String {
        let Some(c) = self.change(tag) else {
            return format!("write {tag}, which was never sent");
        };
        let answered = c.answered.map_or("not answered".to_owned(), |a| format!("answered at {a}"));
        format!(
            "{:?} {tag}{} of sectors {}..{} in cycle {}, sent at {}, {answered}",
            c.kind,
            if c.fua { " with FUA" } else { "" },
            c.sectors.start,
            c.sectors.end,
            c.cycle,
            c.sent,
        )
    }
}

/// The candidates of one span.
fn span(sectors: Range<u64>, overlapping: &[(u32, &Change)], before: u64) -> Span {
    let covering =
        || overlapping.iter().filter(|(_, c)| c.sectors.start <= sectors.start && sectors.end <= c.sectors.end);
    let last_sent = covering().filter(|(_, c)| c.answered.is_some_and(|a| a < before)).map(|(_, c)| c.sent).max();
    let may = |c: &Change| c.answered.is_none_or(|a| last_sent.is_none_or(|sent| a >= sent));
    let changes = covering().filter(|(_, c)| may(c)).map(|(tag, _)| *tag).collect();
    Span { sectors, changes, settled: last_sent.is_none() }
}
