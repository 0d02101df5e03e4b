//! Messages of a front end, from bytes. Vhost-user protocol, "Message Specification" and "Front-end message types".
//!
//! ```text
//!   request u32 | flags u32 | size u32 | payload of `size` bytes      numbers in the machine's order; descriptors come beside
//! ```
//!
//! Invariants: a header is judged before its payload is received; what comes out has the numbers and the one descriptor, or as many
//! as there are regions, that its kind has.
//!
//! Not here: what a message does (`session`).

use rt::guest::{Foreign, Region};

/// Bytes of a header.
pub const HEADER: usize = 12;
/// Longest payload: a configuration space of 256 bytes behind its head, or 32 regions.
pub(super) const PAYLOAD_MAX: usize = 2048;
/// Longest part of a configuration space (`VHOST_USER_MAX_CONFIG_SIZE`).
pub(super) const CONFIG_MAX: u32 = 256;
/// Regions of a memory table.
const TABLE_MAX: u64 = 8;

const VERSION_MASK: u32 = 3;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// No descriptor comes with it (`VHOST_USER_VRING_NOFD_MASK`).
const NO_DESCRIPTOR: u64 = 1 << 8;

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, of a back end.
const CONFIG_CHANGE: u32 = 2;

/// Why a message is not understood. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another protocol, or what no front end sends.
    #[error("a message of flags {flags:#x} and {bytes} bytes is none of version 1")]
    Header {
        /// Its flags.
        flags: u32,
        /// Its length.
        bytes: u32,
    },
    /// A number that is not served.
    #[error("message {0} is not supported")]
    Unknown(u32),
    /// A payload of another length than its kind has, or of numbers out of their ranges.
    #[error("message {0} has a payload that is not one of its kind")]
    Payload(u32),
    /// More or fewer descriptors than its kind has.
    #[error("message {0} comes with another number of descriptors than its kind has")]
    Descriptors(u32),
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub request: u32,
    flags: u32,
    /// Length of its payload.
    pub bytes: u32,
}

impl Header {
    /// A header that a front end sends.
    ///
    /// # Errors
    /// When it is of another version, a reply, or longer than any message.
    pub fn parse(raw: &[u8; HEADER]) -> Result<Header, MessageError> {
        let header = Header { request: u32_at(raw, 0), flags: u32_at(raw, 4), bytes: u32_at(raw, 8) };
        let is_one = header.flags & VERSION_MASK == VERSION && header.flags & REPLY == 0;
        if is_one && header.bytes as usize <= PAYLOAD_MAX {
            return Ok(header);
        }
        Err(MessageError::Header { flags: header.flags, bytes: header.bytes })
    }

    /// Whether an answer is asked for where the kind has none.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// An answer to it.
    #[must_use]
    pub fn answer(&self, payload: &[u8]) -> Vec<u8> {
        message(self.request, VERSION | REPLY, payload)
    }
}

/// What tells a front end that the configuration space is another now.
#[must_use]
pub(super) fn config_change() -> Vec<u8> {
    message(CONFIG_CHANGE, VERSION, &[])
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let head = [request, flags, payload.len() as u32];
    head.iter().flat_map(|number| number.to_ne_bytes()).chain(payload.iter().copied()).collect()
}

/// Where the parts of a ring are, in the front end's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlaces {
    /// The table of descriptors.
    pub descriptors: u64,
    /// What is given back.
    pub used: u64,
    /// What is asked.
    pub available: u64,
}

/// What a front end says or asks.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names of the specification")]
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetMemTable(Vec<(Region, Foreign)>),
    GetMaxMemSlots,
    AddMemReg(Region, Foreign),
    RemMemReg(Region),
    SetLogBase { bytes: u64, offset: u64, file: Foreign },
    SetLogFd,
    SetVringNum { queue: u32, size: u32 },
    SetVringBase { queue: u32, next: u32 },
    SetVringAddr { queue: u32, places: RingPlaces },
    GetVringBase { queue: u32 },
    SetVringKick { queue: u32, event: Option<Foreign> },
    SetVringCall { queue: u32, event: Option<Foreign> },
    SetVringErr,
    SetVringEnable { queue: u32, enabled: bool },
    GetConfig { offset: u32, bytes: u32 },
    SetConfig,
    SetBackendReqFd(Foreign),
    GetInflightFd { queues: u16, size: u16 },
    SetInflightFd { bytes: u64, offset: u64, queues: u16, size: u16, file: Foreign },
    ResetDevice,
}

impl Message {
    /// A message from its parts.
    ///
    /// # Errors
    /// When it is not one that is served.
    pub fn parse(request: u32, payload: &[u8], passed: Vec<Foreign>) -> Result<Message, MessageError> {
        let wrong = MessageError::Payload(request);
        let mut passed = Passed { request, descriptors: passed };
        let sized = |bytes: usize| if payload.len() == bytes { Ok(payload) } else { Err(wrong) };
        let number = || Ok(u64_at(sized(8)?, 0));
        let state = || Ok((u32_at(sized(8)?, 0), u32_at(payload, 4)));
        let message = match request {
            1 => Message::GetFeatures,
            2 => Message::SetFeatures(number()?),
            3 => Message::SetOwner,
            4 => Message::ResetOwner,
            5 => Message::SetMemTable(table(payload, &mut passed).ok_or(wrong)??),
            6 => {
                let (bytes, offset) = (u64_at(sized(16)?, 0), u64_at(payload, 8));
                Message::SetLogBase { bytes, offset, file: passed.one()? }
            }
            // An event for what is noted: the front end looks by itself.
            7 => passed.one().map(|_| Message::SetLogFd)?,
            8 => state().map(|(queue, size)| Message::SetVringNum { queue, size })?,
            9 => {
                let at = |at| u64_at(payload, at);
                let queue = u32_at(sized(40)?, 0);
                let places = RingPlaces { descriptors: at(8), used: at(16), available: at(24) };
                Message::SetVringAddr { queue, places }
            }
            10 => state().map(|(queue, next)| Message::SetVringBase { queue, next })?,
            11 => state().map(|(queue, _)| Message::GetVringBase { queue })?,
            12..=14 => {
                let word = number()?;
                let queue = (word & 0xff) as u32;
                let event = if word & NO_DESCRIPTOR == 0 { Some(passed.one()?) } else { None };
                match request {
                    12 => Message::SetVringKick { queue, event },
                    13 => Message::SetVringCall { queue, event },
                    _ => Message::SetVringErr,
                }
            }
            15 => Message::GetProtocolFeatures,
            16 => Message::SetProtocolFeatures(number()?),
            17 => Message::GetQueueNum,
            18 => state().map(|(queue, enabled)| Message::SetVringEnable { queue, enabled: enabled != 0 })?,
            21 => Message::SetBackendReqFd(passed.one()?),
            24 | 25 => {
                let (offset, bytes) = payload.get(..12).map(|head| (u32_at(head, 0), u32_at(head, 4))).ok_or(wrong)?;
                let is_within = offset.checked_add(bytes).is_some_and(|end| end <= CONFIG_MAX);
                if !is_within || payload.len() != 12 + bytes as usize {
                    return Err(wrong);
                }
                if request == 24 { Message::GetConfig { offset, bytes } } else { Message::SetConfig }
            }
            31 => {
                let (_, _, queues, size) = inflight(payload).ok_or(wrong)?;
                Message::GetInflightFd { queues, size }
            }
            32 => {
                let (bytes, offset, queues, size) = inflight(payload).ok_or(wrong)?;
                Message::SetInflightFd { bytes, offset, queues, size, file: passed.one()? }
            }
            34 => Message::ResetDevice,
            36 => Message::GetMaxMemSlots,
            37 => Message::AddMemReg(one_region(payload).ok_or(wrong)?, passed.one()?),
            38 => {
                let region = one_region(payload).ok_or(wrong)?;
                // Some front ends pass the file once more, others do not.
                passed.descriptors.truncate(0);
                Message::RemMemReg(region)
            }
            _ => return Err(MessageError::Unknown(request)),
        };
        passed.none()?;
        Ok(message)
    }
}

/// The descriptors of a message.
struct Passed {
    request: u32,
    descriptors: Vec<Foreign>,
}

impl Passed {
    fn one(&mut self) -> Result<Foreign, MessageError> {
        if self.descriptors.len() != 1 {
            return Err(MessageError::Descriptors(self.request));
        }
        self.descriptors.pop().ok_or(MessageError::Descriptors(self.request))
    }

    fn none(&self) -> Result<(), MessageError> {
        if self.descriptors.is_empty() { Ok(()) } else { Err(MessageError::Descriptors(self.request)) }
    }
}

/// A memory table: None when it is no such payload.
fn table(payload: &[u8], passed: &mut Passed) -> Option<Result<Vec<(Region, Foreign)>, MessageError>> {
    let regions = u64_at(payload.get(..8)?, 0);
    if !(1..=TABLE_MAX).contains(&regions) || payload.len() != 8 + regions as usize * 32 {
        return None;
    }
    let descriptors = std::mem::take(&mut passed.descriptors);
    if descriptors.len() != regions as usize {
        return Some(Err(MessageError::Descriptors(passed.request)));
    }
    Some(Ok(payload[8..].chunks_exact(32).map(region).zip(descriptors).collect()))
}

fn one_region(payload: &[u8]) -> Option<Region> {
    (payload.len() == 40).then(|| region(&payload[8..]))
}

fn region(raw: &[u8]) -> Region {
    Region { guest: u64_at(raw, 0), bytes: u64_at(raw, 8), user: u64_at(raw, 16), offset: u64_at(raw, 24) }
}

/// Of the memory of requests in flight: its length, its place in its file, queues, and their size. 20 bytes, or 24 by front ends that
/// send a structure with its padding.
fn inflight(payload: &[u8]) -> Option<(u64, u64, u16, u16)> {
    let two = |at: usize| u16::from_ne_bytes([payload[at], payload[at + 1]]);
    matches!(payload.len(), 20 | 24).then(|| (u64_at(payload, 0), u64_at(payload, 8), two(16), two(18)))
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(raw[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: u32, flags: u32, bytes: u32) -> [u8; HEADER] {
        let mut raw = [0; HEADER];
        raw[..4].copy_from_slice(&request.to_ne_bytes());
        raw[4..8].copy_from_slice(&flags.to_ne_bytes());
        raw[8..].copy_from_slice(&bytes.to_ne_bytes());
        raw
    }

    fn null() -> Foreign {
        rt::guest::sealed_memory(1).unwrap().into()
    }

    #[test]
    fn headers() {
        for (flags, bytes, is_one) in
            [(1, 8, true), (9, 0, true), (1, 2048, true), (1, 2049, false), (5, 8, false), (0, 8, false), (2, 8, false)]
        {
            assert_eq!(Header::parse(&head(1, flags, bytes)).is_ok(), is_one, "{flags} {bytes}");
        }
        let header = Header::parse(&head(15, 9, 0)).unwrap();
        assert!(header.wants_answer());
        assert_eq!(header.answer(&[7; 8])[..], [&head(15, 5, 8)[..], &[7; 8]].concat());
    }

    #[test]
    fn payloads_of_any_length_and_number_are_answered() {
        for request in 0..64 {
            for bytes in 0..=300 {
                for fill in [0_u8, 1, 8, 0xff] {
                    for descriptors in 0..3 {
                        let passed = (0..descriptors).map(|_| null()).collect();
                        drop(Message::parse(request, &vec![fill; bytes], passed));
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_and_descriptors() {
        let parse = |request, payload: &[u8], passed| Message::parse(request, payload, passed);
        assert!(matches!(parse(2, &5_u64.to_ne_bytes(), vec![]), Ok(Message::SetFeatures(5))));
        assert!(matches!(parse(2, &[0; 7], vec![]), Err(MessageError::Payload(2))));
        assert!(matches!(parse(2, &[0; 8], vec![null()]), Err(MessageError::Descriptors(2))));
        let kick = |word: u64, passed| parse(12, &word.to_ne_bytes(), passed);
        assert!(matches!(kick(3, vec![null()]), Ok(Message::SetVringKick { queue: 3, event: Some(_) })));
        assert!(matches!(kick(0x103, vec![]), Ok(Message::SetVringKick { queue: 3, event: None })));
        assert!(matches!(kick(3, vec![]), Err(MessageError::Descriptors(12))));
        assert!(matches!(kick(3, vec![null(), null()]), Err(MessageError::Descriptors(12))));
        let config = |offset: u32, bytes: u32, len: usize| {
            let mut payload = vec![0; 12 + len];
            payload[..4].copy_from_slice(&offset.to_ne_bytes());
            payload[4..8].copy_from_slice(&bytes.to_ne_bytes());
            parse(24, &payload, vec![])
        };
        assert!(matches!(config(0, 60, 60), Ok(Message::GetConfig { offset: 0, bytes: 60 })));
        assert!(config(0, 60, 61).is_err() && config(200, 57, 57).is_err() && config(u32::MAX, 2, 2).is_err());
        let mut table = 1_u64.to_ne_bytes().to_vec();
        for number in [0x1000_u64, 0x2000, 0x7000, 0x3000] {
            table.extend(number.to_ne_bytes());
        }
        let region = Region { guest: 0x1000, bytes: 0x2000, user: 0x7000, offset: 0x3000 };
        assert!(matches!(parse(5, &table, vec![null()]), Ok(Message::SetMemTable(all)) if all[0].0 == region));
        assert!(matches!(parse(5, &table, vec![]), Err(MessageError::Descriptors(5))));
        assert!(matches!(parse(5, &0_u64.to_ne_bytes(), vec![]), Err(MessageError::Payload(5))));
        assert!(matches!(parse(6, &[], vec![]), Err(MessageError::Payload(6))));
        let log = parse(6, &[8_u64.to_ne_bytes(), 0_u64.to_ne_bytes()].concat(), vec![null()]);
        assert!(matches!(log, Ok(Message::SetLogBase { bytes: 8, offset: 0, .. })));
        assert!(matches!(parse(35, &[], vec![]), Err(MessageError::Unknown(35))));
    }
}
