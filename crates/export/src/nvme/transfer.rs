//! Data on its way into commands: R2Ts that were sent, and the H2CData that answers them. NVMe/TCP 1.0, "Ready To
//! Transfer" and "Host To Controller Data Transfer".
//!
//! ```text
//!   begin -> R2T 0..n, R2T n..2n      at most `r2ts_max` of a command at once
//!   H2CData: expect (before its data is received) -> put -> the next R2T, or the command's data is whole
//! ```
//!
//! Invariants: pure; data is taken only where an R2T asked for it, in order, and once; memory for a command's data is
//! taken by whoever begins.

use std::collections::BTreeMap;

use rt::{Buf, Bytes};

use super::{
    limits::{H2C_DATA_MAX, R2TS_MAX},
    pdu::{DataHeader, Fatal, Fes, LENGTH_AT, OFFSET_AT, TAG_AT},
};

/// All transfers of one connection; each tells its `T` when it ends.
pub struct Transfers<T> {
    r2ts_max: u32,
    next_tag: u16,
    windows: BTreeMap<u16, Window>,
    commands: BTreeMap<u64, Arriving<T>>,
    next_key: u64,
}

/// What one R2T asked for.
struct Window {
    key: u64,
    command: u16,
    /// Where the next data goes.
    at: u32,
    end: u32,
}

/// A command whose data is on its way.
struct Arriving<T> {
    command: u16,
    bytes: u32,
    /// What has been asked for.
    asked: u32,
    /// What has arrived.
    arrived: u32,
    data: Option<Buf>,
    /// Whether every data digest matched.
    intact: bool,
    owner: T,
}

/// A command's data, whole.
pub struct Arrived<T> {
    /// The data.
    pub data: Bytes,
    /// Whether every data digest matched; else the data is not what the host meant.
    pub intact: bool,
    /// Whom to tell.
    pub owner: T,
}

/// What data that has arrived leads to.
pub enum Next<T> {
    /// Nothing yet.
    Wait,
    /// The next R2T.
    Ask(DataHeader),
    /// The command has all its data.
    Done(Arrived<T>),
}

impl<T> Transfers<T> {
    /// No transfers; the host takes `r2ts_max` R2Ts of a command at once.
    pub fn new(r2ts_max: u32) -> Self {
        assert!(r2ts_max > 0, "a host takes at least one");
        Transfers {
            r2ts_max: r2ts_max.min(R2TS_MAX),
            next_tag: 0,
            windows: BTreeMap::new(),
            commands: BTreeMap::new(),
            next_key: 0,
        }
    }

    /// Begins to ask for the data of a command; the R2Ts to send.
    pub fn begin(&mut self, command: u16, bytes: u32, owner: T) -> Vec<DataHeader> {
        assert!(bytes > 0, "a transfer of something");
        let key = self.next_key;
        self.next_key += 1;
        let arriving = Arriving { command, bytes, asked: 0, arrived: 0, data: None, intact: true, owner };
        self.commands.insert(key, arriving);
        (0..self.r2ts_max).map_while(|_| self.ask(key)).collect()
    }

    /// The next R2T of a command, if there is more to ask for.
    fn ask(&mut self, key: u64) -> Option<DataHeader> {
        let tag = self.free_tag();
        let single = self.r2ts_max == 1;
        let arriving = self.commands.get_mut(&key)?;
        let left = arriving.bytes - arriving.asked;
        if left == 0 {
            return None;
        }
        // A host that takes one R2T at a time is asked for all at once: it cuts its PDUs at MAXH2CDATA by itself.
        let length = if single { left } else { left.min(H2C_DATA_MAX) };
        let offset = arriving.asked;
        arriving.asked += length;
        let command = arriving.command;
        self.windows.insert(tag, Window { key, command, at: offset, end: offset + length });
        Some(DataHeader { command, tag, offset, length })
    }

    /// A tag that no R2T has: there are fewer than 65536 by far.
    fn free_tag(&mut self) -> u16 {
        while self.windows.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        tag
    }

    /// Checks an H2CData header before its data (`data` bytes by PLEN) is received.
    ///
    /// # Errors
    /// What the connection is terminated with.
    pub fn expect(&self, header: &DataHeader, data: u32, last: bool) -> Result<(), Fatal> {
        let window = self.windows.get(&header.tag).ok_or(Fatal::field(TAG_AT))?;
        if header.command != window.command {
            return Err(Fatal::field(8));
        }
        if header.length != data {
            return Err(Fatal::field(LENGTH_AT));
        }
        if header.offset != window.at {
            return Err(Fatal { fes: Fes::OutOfRange, information: OFFSET_AT });
        }
        if header.length > window.end - window.at {
            return Err(Fatal { fes: Fes::OutOfRange, information: LENGTH_AT });
        }
        // LAST_PDU says that the R2T is answered; it must be true.
        if last != (window.at + header.length == window.end) {
            return Err(Fatal::field(1));
        }
        Ok(())
    }

    /// Puts data that was expected, with whether its digest matched.
    pub fn put(&mut self, header: &DataHeader, part: Buf, intact: bool) -> Next<T> {
        let Some(window) = self.windows.get_mut(&header.tag) else {
            return Next::Wait;
        };
        let (key, at) = (window.key, window.at);
        window.at += part.len() as u32;
        let answered = window.at == window.end;
        if answered {
            self.windows.remove(&header.tag);
        }
        let arriving = self.commands.get_mut(&key).expect("a window belongs to a command");
        arriving.intact &= intact;
        arriving.arrived += part.len() as u32;
        if part.len() as u32 == arriving.bytes {
            arriving.data = Some(part);
        } else {
            let data = arriving.data.get_or_insert_with(|| Buf::for_overwrite(arriving.bytes as usize));
            data[at as usize..at as usize + part.len()].copy_from_slice(&part);
        }
        if arriving.arrived == arriving.bytes {
            let done = self.commands.remove(&key).expect("it was just there");
            let data = done.data.map(Buf::freeze).unwrap_or_default();
            return Next::Done(Arrived { data, intact: done.intact, owner: done.owner });
        }
        if answered { self.ask(key).map_or(Next::Wait, Next::Ask) } else { Next::Wait }
    }

    /// Forgets all transfers: their owners learn of it by being dropped.
    pub fn clear(&mut self) {
        self.windows.clear();
        self.commands.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    fn part(r2t: &DataHeader, from: u32, length: u32) -> (DataHeader, Buf) {
        let header = DataHeader { offset: r2t.offset + from, length, ..*r2t };
        let mut data = Buf::zeroed(length as usize);
        data.iter_mut().enumerate().for_each(|(i, b)| *b = ((header.offset as usize + i) / 512) as u8);
        (header, data)
    }

    #[test]
    fn one_r2t_for_all_when_the_host_takes_one() {
        let mut transfers = Transfers::new(1);
        let r2ts = transfers.begin(7, 1 << 20, "owner");
        assert_eq!(r2ts, [DataHeader { command: 7, tag: 0, offset: 0, length: 1 << 20 }]);
        for from in (0..1 << 20).step_by(H2C_DATA_MAX as usize) {
            let (header, data) = part(&r2ts[0], from, H2C_DATA_MAX);
            let last = from + H2C_DATA_MAX == 1 << 20;
            transfers.expect(&header, H2C_DATA_MAX, last).unwrap();
            match transfers.put(&header, data, true) {
                Next::Done(arrived) => {
                    assert!(last && arrived.intact);
                    assert_eq!((arrived.owner, arrived.data.len()), ("owner", 1 << 20));
                    assert!(arrived.data.chunks(512).enumerate().all(|(i, c)| c.iter().all(|b| *b == i as u8)));
                }
                Next::Wait => assert!(!last),
                Next::Ask(_) => panic!("all was asked for"),
            }
        }
    }

    #[test]
    fn several_r2ts_are_answered_in_any_order_and_followed_by_the_next() {
        let mut transfers = Transfers::new(3);
        let mut open = transfers.begin(7, 5 * H2C_DATA_MAX + 512, ());
        assert_eq!(open.len(), 3);
        let mut asked = 3;
        while let Some(r2t) = open.pop() {
            let (header, data) = part(&r2t, 0, r2t.length);
            transfers.expect(&header, r2t.length, true).unwrap();
            match transfers.put(&header, data, r2t.offset != H2C_DATA_MAX) {
                Next::Ask(next) => {
                    asked += 1;
                    open.insert(0, next);
                }
                Next::Wait => {}
                Next::Done(arrived) => {
                    assert!(open.is_empty() && !arrived.intact, "one digest was wrong");
                    assert!(arrived.data.chunks(512).enumerate().all(|(i, c)| c.iter().all(|b| *b == i as u8)));
                }
            }
        }
        assert_eq!(asked, 6);
        assert!(transfers.windows.is_empty() && transfers.commands.is_empty());
    }

    #[test]
    fn data_that_was_not_asked_for_is_refused() {
        let mut transfers = Transfers::new(1);
        let r2t = transfers.begin(7, 8192, ())[0];
        let range = |information| Err(Fatal { fes: Fes::OutOfRange, information });
        let good = DataHeader { length: 4096, ..r2t };
        assert_eq!(transfers.expect(&good, 4096, false), Ok(()));
        for (name, header, data, last, expected) in [
            ("another tag", DataHeader { tag: 1, ..good }, 4096, false, Err(Fatal::field(10))),
            ("another command", DataHeader { command: 8, ..good }, 4096, false, Err(Fatal::field(8))),
            ("another length than PLEN's", good, 4100, false, Err(Fatal::field(16))),
            ("a gap", DataHeader { offset: 512, ..good }, 4096, false, range(12)),
            ("too much", DataHeader { length: 8196, ..good }, 8196, true, range(16)),
            ("4 GiB", DataHeader { length: u32::MAX, ..good }, u32::MAX, true, range(16)),
            ("last too early", good, 4096, true, Err(Fatal::field(1))),
            ("no last", DataHeader { length: 8192, ..good }, 8192, false, Err(Fatal::field(1))),
        ] {
            assert_eq!(transfers.expect(&header, data, last), expected, "{name}");
        }
        let (header, data) = part(&r2t, 0, 4096);
        assert!(matches!(transfers.put(&header, data, true), Next::Wait));
        assert_eq!(transfers.expect(&good, 4096, false), range(12), "the same twice");
    }

    #[test]
    fn owners_learn_of_the_end() {
        let mut transfers = Transfers::new(1);
        let owner = Rc::new(());
        transfers.begin(7, 8192, owner.clone());
        transfers.clear();
        assert_eq!(Rc::strong_count(&owner), 1);
    }

    proptest! {
        #[test]
        fn any_header_is_expected_or_refused(headers: Vec<[u8; 16]>, r2ts_max in 1u32..5) {
            let mut transfers = Transfers::new(r2ts_max);
            transfers.begin(1, 1 << 20, ());
            for bytes in headers {
                let header = DataHeader::parse(&bytes);
                if transfers.expect(&header, header.length, bytes[15] & 1 != 0).is_ok() {
                    let _ = transfers.put(&header, Buf::zeroed(header.length as usize), true);
                }
            }
        }
    }
}
