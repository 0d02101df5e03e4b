//! What a volume may hold: the history of every 512-byte sector.
//!
//! A write may be read as long as no other write began after it had ended and is itself known to count: for a
//! running array or a killed process, every acknowledged one; after a power cut, every one that was flushed.
//!
//! Each written sector names its write and itself, so that a wrong one explains itself.

use std::collections::BTreeMap;

use rt::Bytes;
use smallvec::{SmallVec, smallvec};

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// A write's number; 0 is the zeros before any.
pub type WriteId = u64;

/// A moment: counts beginnings and ends.
pub type Tick = u64;

#[derive(Clone, Copy, Debug)]
struct Write {
    id: WriteId,
    began: Tick,
    /// When the host had its answer, whatever it was.
    ended: Option<Tick>,
    acknowledged: bool,
    durable: bool,
}

/// What decides which writes must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading a running array, from this tick on.
    Running(Tick),
    /// The process died: acknowledged is there.
    Killed,
    /// Power was cut: flushed is there.
    PowerCut,
}

/// A sector's writes that may be read, the oldest first: nearly always one.
type History = SmallVec<[Write; 1]>;

/// One volume's expected contents.
#[derive(Clone)]
pub struct Model {
    sectors: Vec<History>,
    /// Writes with data (others set zeros).
    data: BTreeMap<WriteId, bool>,
    /// Reads in flight, by when they began.
    reads: Vec<Tick>,
    next: WriteId,
    tick: Tick,
    /// Writes with data that were acknowledged.
    acknowledged: u64,
}

impl Model {
    /// A volume of zeros.
    pub fn new(bytes: u64) -> Model {
        let zeros = Write { id: 0, began: 0, ended: Some(0), acknowledged: true, durable: true };
        Model {
            sectors: vec![smallvec![zeros]; bytes as usize / SECTOR],
            data: BTreeMap::new(),
            reads: Vec::new(),
            next: 1,
            tick: 1,
            acknowledged: 0,
        }
    }

    /// Now.
    pub fn now(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Tick {
        let now = self.now();
        self.reads.push(now);
        now
    }

    /// The read that began at `since` ended.
    pub fn end_read(&mut self, since: Tick) {
        self.reads.retain(|&r| r != since);
    }

    /// A write of these sectors begins.
    pub fn begin(&mut self, sectors: std::ops::Range<usize>, has_data: bool) -> WriteId {
        let (id, began) = (self.next, self.now());
        self.next += 1;
        self.data.insert(id, has_data);
        for sector in &mut self.sectors[sectors] {
            sector.push(Write { id, began, ended: None, acknowledged: false, durable: false });
        }
        id
    }

    /// It ended.
    pub fn end(&mut self, id: WriteId, sectors: std::ops::Range<usize>, acknowledged: bool, durable: bool) {
        let now = self.now();
        self.acknowledged += u64::from(acknowledged && self.data.get(&id) == Some(&true));
        for sector in &mut self.sectors[sectors] {
            for w in sector.iter_mut().filter(|w| w.id == id) {
                (w.ended, w.acknowledged, w.durable) = (Some(now), acknowledged, acknowledged && durable);
            }
            let oldest_read = self.reads.iter().min().copied().unwrap_or(now);
            let settled = |w: &Write| w.durable && w.ended.is_some_and(|e| e <= oldest_read);
            let settled: Vec<Write> = sector.iter().copied().filter(settled).collect();
            sector.retain(|w| !settled.iter().any(|s| w.ended.is_some_and(|e| e < s.began)));
        }
    }

    /// How many writes with data were acknowledged: what gives back what is not there asks no drive.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// A flush that began at `since` was acknowledged.
    pub fn flushed(&mut self, since: Tick) {
        for w in self.sectors.iter_mut().flat_map(|s| s.iter_mut()) {
            w.durable |= w.acknowledged && w.ended.is_some_and(|e| e <= since);
        }
    }

    /// The contents of a sector after write `id`.
    #[must_use]
    pub fn contents(&self, id: WriteId, sector: usize) -> [u8; SECTOR] {
        let mut block = [0; SECTOR];
        if !self.data.get(&id).copied().unwrap_or(false) {
            return block;
        }
        let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (sector as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        for (i, word) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *word = match i {
                0 => id.to_le_bytes(),
                1 => (sector as u64).to_le_bytes(),
                _ => state.to_le_bytes(),
            };
        }
        block
    }

    /// Data for write `id`.
    pub fn payload(&self, id: WriteId, sectors: std::ops::Range<usize>) -> Vec<u8> {
        let mut data = Vec::with_capacity(sectors.len() * SECTOR);
        sectors.for_each(|s| data.extend_from_slice(&self.contents(id, s)));
        data
    }

    fn counts(mode: Mode, w: &Write) -> bool {
        match mode {
            Mode::Running(since) => w.acknowledged && w.ended.is_some_and(|e| e <= since),
            Mode::Killed => w.acknowledged,
            Mode::PowerCut => w.durable,
        }
    }

    /// Which write was read, if it may have been.
    fn judge(&self, sector: usize, found: &[u8], mode: Mode) -> Result<WriteId, String> {
        let history = &self.sectors[sector];
        let overtaken = |w: &Write| {
            history.iter().any(|other| Self::counts(mode, other) && w.ended.is_some_and(|e| e < other.began))
        };
        let named = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        let may_match = |w: &Write| w.id == named || !self.data.get(&w.id).copied().unwrap_or(false);
        let matches = |w: &&Write| may_match(w) && self.contents(w.id, sector)[..] == *found;
        if let Some(w) = history.iter().filter(|w| !overtaken(w)).find(matches) {
            return Ok(w.id);
        }
        let place = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
        let what =
            if found.iter().all(|&b| b == 0) { "zeros".to_owned() } else { format!("write {named} of sector {place}") };
        let allowed: Vec<String> = history.iter().filter(|w| !overtaken(w)).map(|w| format!("{w:?}")).collect();
        Err(format!("sector {sector} ({mode:?}): found {what}, may be {allowed:?}"))
    }

    /// Compares what was read from `first` on.
    pub fn check(&self, first: usize, found: &[u8], mode: Mode) -> Result<(), String> {
        for (i, sector) in found.chunks_exact(SECTOR).enumerate() {
            self.judge(first + i, sector, mode)?;
        }
        Ok(())
    }

    /// After a restart: compares the whole volume, in parts; what was found is what it holds from here on.
    pub fn settle(&mut self, found: &[Bytes], mode: Mode) -> Result<(), String> {
        let now = self.now();
        self.reads.clear();
        for (i, sector) in found.iter().flat_map(|part| part.chunks_exact(SECTOR)).enumerate() {
            let id = self.judge(i, sector, mode)?;
            self.sectors[i] = smallvec![Write { id, began: 0, ended: Some(now), acknowledged: true, durable: true }];
        }
        Ok(())
    }

    /// Whether what `found` was settled with may be what this volume held: it lacks nothing that counts by now.
    pub fn had(&self, found: &Model, mode: Mode) -> Result<(), String> {
        for (i, history) in found.sectors.iter().enumerate() {
            let id = history.last().expect("a sector that was settled holds what was found").id;
            self.judge(i, &found.contents(id, i), mode)?;
        }
        Ok(())
    }

    /// It has this many bytes now; what is new are zeros.
    pub fn grow(&mut self, bytes: u64) {
        let zeros = Write { id: 0, began: 0, ended: Some(0), acknowledged: true, durable: true };
        self.sectors.resize(bytes as usize / SECTOR, smallvec![zeros]);
    }

    /// Sectors.
    pub fn sectors(&self) -> usize {
        self.sectors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_cuts_may_lose_what_was_not_flushed() {
        let mut m = Model::new(512);
        let a = m.begin(0..1, true);
        m.end(a, 0..1, true, false);
        let zeros = [0; SECTOR];
        let data = m.contents(a, 0);
        assert!(m.check(0, &zeros, Mode::PowerCut).is_ok());
        assert!(m.check(0, &zeros, Mode::Killed).is_err());
        assert!(m.check(0, &data, Mode::Killed).is_ok());
        let since = m.now();
        m.flushed(since);
        assert!(m.check(0, &zeros, Mode::PowerCut).is_err());
    }

    #[test]
    fn what_was_found_has_what_is_acknowledged_later() {
        let mut m = Model::new(1024);
        let early = m.begin(0..1, true);
        let mut found = m.clone();
        let sectors = [Bytes::from_slice(&m.contents(early, 0)), Bytes::from_slice(&[0; SECTOR])];
        found.settle(&sectors, Mode::Killed).unwrap();
        m.end(early, 0..1, true, false);
        assert!(m.had(&found, Mode::Killed).is_ok());
        let late = m.begin(1..2, true);
        assert!(m.had(&found, Mode::Killed).is_ok());
        m.end(late, 1..2, true, false);
        assert!(m.had(&found, Mode::Killed).is_err());
    }

    #[test]
    fn writes_at_once_may_end_either_way() {
        let mut m = Model::new(512);
        let (a, b) = (m.begin(0..1, true), m.begin(0..1, true));
        m.end(a, 0..1, true, true);
        m.end(b, 0..1, true, true);
        for id in [a, b] {
            assert!(m.check(0, &m.contents(id, 0), Mode::Killed).is_ok());
        }
        assert!(m.check(0, &[0; SECTOR], Mode::Killed).is_err());
    }
}
