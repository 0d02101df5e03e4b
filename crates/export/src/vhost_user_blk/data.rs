//! A request's parts in a guest's memory: its head, its status, and its data between them. Virtio 1.2, 5.2.6 and 2.7.4.
//!
//! Invariants: how a guest cuts its request into descriptors means nothing; what is copied in is copied once, into memory of ours.

use rt::guest::OutOfMemory;
use rt::{Buf, Bytes};

use super::memory::Memory;
use super::request::{Asked, HEAD, gives_ranges};
use super::ring::{Chain, RingError, Segment};

/// A request, and where its data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What it asks.
    pub asked: Asked,
    /// Where the data is that it gives.
    pub given: Vec<Segment>,
    /// Where there is room for data.
    pub room: Vec<Segment>,
    /// Where its status goes.
    pub status_at: u64,
}

impl Parts {
    /// Reads the head of a request, and its range, if it has one.
    ///
    /// # Errors
    /// When there is no head, no room for a status, or they are not in the guest's memory.
    pub fn of(memory: &Memory, chain: Chain) -> Result<Parts, RingError> {
        let Chain { mut given, mut room } = chain;
        let mut head = [0; HEAD];
        if length(&given) < HEAD as u64 {
            return Err(RingError::Short);
        }
        copy(memory, &given, &mut head)?;
        cut(&mut given, HEAD as u64);
        room.retain(|segment| segment.bytes > 0);
        let last = room.last_mut().ok_or(RingError::Short)?;
        last.bytes -= 1;
        let status_at = last.at.checked_add(u64::from(last.bytes)).ok_or(RingError::Address)?;
        if !memory.has(status_at, 1) {
            return Err(RingError::Address);
        }
        let mut range = [0; HEAD];
        let sent = length(&given);
        if gives_ranges(&head) && sent == HEAD as u64 {
            copy(memory, &given, &mut range)?;
        }
        let asked = Asked { head, sent, room: length(&room), range };
        Ok(Parts { asked, given, room, status_at })
    }
}

/// Bytes of all.
fn length(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.bytes)).sum()
}

/// Takes the first bytes off, which have been copied, so their addresses do not wrap.
fn cut(segments: &mut Vec<Segment>, bytes: u64) {
    let mut left = bytes;
    segments.retain_mut(|segment| {
        let off = left.min(u64::from(segment.bytes));
        left -= off;
        segment.at = segment.at.wrapping_add(off);
        segment.bytes -= off as u32;
        segment.bytes > 0
    });
}

fn copy(memory: &Memory, from: &[Segment], into: &mut [u8]) -> Result<(), OutOfMemory> {
    let mut rest = into;
    for segment in from {
        let bytes = rest.len().min(segment.bytes as usize);
        if bytes == 0 {
            continue;
        }
        let (now, then) = rest.split_at_mut(bytes);
        memory.read(segment.at, now)?;
        rest = then;
    }
    Ok(())
}

/// A copy of what a guest gives. Its length was judged.
///
/// # Errors
/// When it is not in the guest's memory.
pub fn copy_in(memory: &Memory, given: &[Segment], bytes: u32) -> Result<Bytes, OutOfMemory> {
    assert_eq!(length(given), u64::from(bytes), "what was judged is what is there");
    let mut buf = Buf::for_overwrite(bytes as usize);
    copy(memory, given, &mut buf)?;
    Ok(buf.freeze())
}

/// Copies the answer to where there is room; how many bytes.
///
/// # Errors
/// When the room is not in the guest's memory.
pub fn copy_out(memory: &Memory, parts: &[Bytes], room: &[Segment]) -> Result<u32, OutOfMemory> {
    let mut rooms = room.iter().copied().filter(|segment| segment.bytes > 0);
    let mut now = rooms.next();
    let mut copied = 0;
    for part in parts {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let Some(segment) = &mut now else { return Ok(copied) };
            let bytes = rest.len().min(segment.bytes as usize);
            memory.write(segment.at, &rest[..bytes])?;
            copied += bytes as u32;
            rest = &rest[bytes..];
            if bytes == segment.bytes as usize {
                now = rooms.next();
            } else {
                *segment = Segment { at: segment.at + bytes as u64, bytes: segment.bytes - bytes as u32 };
            }
        }
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use rt::guest::{GuestMemory, Region, sealed_memory};

    use super::*;

    fn memory() -> Memory {
        let region = Region { guest: 0, bytes: 1 << 16, user: 0, offset: 0 };
        GuestMemory::map(vec![(region, sealed_memory(1 << 16).unwrap())]).unwrap().into()
    }

    fn at(at: u64, bytes: u32) -> Segment {
        Segment { at, bytes }
    }

    #[test]
    fn a_request_cut_in_any_way() {
        let memory = memory();
        let bytes: Vec<u8> = (0..100).collect();
        memory.write(1000, &bytes).unwrap();
        for cuts in [vec![100], vec![16, 84], vec![1, 0, 14, 2, 83], vec![50, 50, 0]] {
            let mut from = 1000;
            let given = cuts.iter().map(|bytes| {
                let segment = at(from, *bytes);
                from += u64::from(*bytes);
                segment
            });
            let chain = Chain { given: given.collect(), room: vec![at(2000, 30), at(3000, 1), at(4000, 0)] };
            let parts = Parts::of(&memory, chain).unwrap();
            assert_eq!(parts.asked.head[..], bytes[..16]);
            assert_eq!((parts.asked.sent, parts.asked.room, parts.status_at), (84, 30, 3000));
            assert_eq!(copy_in(&memory, &parts.given, 84).unwrap()[..], bytes[16..]);
            let answer = [Bytes::from_slice(&bytes[..7]), Bytes::from_slice(&bytes[7..30])];
            assert_eq!(copy_out(&memory, &answer, &parts.room), Ok(30));
            let mut back = [0; 30];
            memory.read(2000, &mut back).unwrap();
            assert_eq!(back[..], bytes[..30]);
        }
    }

    #[test]
    fn the_status_is_the_last_byte_of_the_room() {
        let memory = memory();
        let chain = Chain { given: vec![at(0, 16)], room: vec![at(100, 5), at(200, 4)] };
        let parts = Parts::of(&memory, chain).unwrap();
        assert_eq!((parts.asked.room, parts.status_at), (8, 203));
        assert_eq!(copy_out(&memory, &[Bytes::from_slice(&[9; 8])], &parts.room), Ok(8));
        let mut back = [0; 4];
        memory.read(200, &mut back).unwrap();
        assert_eq!(back, [9, 9, 9, 0]);
        // An answer that is longer than the room stays within it.
        assert_eq!(copy_out(&memory, &[Bytes::from_slice(&[9; 80])], &parts.room), Ok(8));
    }

    #[test]
    fn requests_that_are_none() {
        let memory = memory();
        for (given, room, expected) in [
            (vec![at(0, 15)], vec![at(100, 1)], RingError::Short),
            (vec![], vec![at(100, 1)], RingError::Short),
            (vec![at(0, 16)], vec![], RingError::Short),
            (vec![at(0, 16)], vec![at(100, 0)], RingError::Short),
            (vec![at(65530, 16)], vec![at(100, 1)], RingError::Address),
            (vec![at(u64::MAX - 3, 16)], vec![at(100, 1)], RingError::Address),
            (vec![at(0, 16)], vec![at(65536, 1)], RingError::Address),
            (vec![at(0, 16)], vec![at(u64::MAX, u32::MAX)], RingError::Address),
        ] {
            assert_eq!(Parts::of(&memory, Chain { given, room }), Err(expected));
        }
        let beyond = [at(65000, 1000)];
        assert_eq!(copy_in(&memory, &beyond, 1000), Err(OutOfMemory));
        assert_eq!(copy_out(&memory, &[Bytes::from_slice(&[1; 1000])], &beyond), Err(OutOfMemory));
    }
}
