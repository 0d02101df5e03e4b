//! The back end that keeps nothing: writes vanish, reads are zero. Measures a protocol without storage behind it.

use rt::Bytes;

use crate::namespace::{Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};

/// Length of the shared zeroes that reads are made of.
const ZEROES_BYTES: u32 = 1 << 20;

/// A namespace without contents.
#[derive(Clone)]
pub struct Null {
    name: String,
    bytes: u64,
    zeroes: Bytes,
}

impl Null {
    /// A namespace of `bytes`, rounded down to whole 512 B blocks.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Self {
        Null { name: name.to_owned(), bytes: bytes / 512 * 512, zeroes: Bytes::zeroed(ZEROES_BYTES as usize) }
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Fault::OutOfRange),
        }
    }
}

impl Namespace for Null {
    fn info(&self) -> NamespaceInfo {
        NamespaceInfo {
            name: self.name.clone(),
            uuid: NamespaceInfo::uuid_of_name(&self.name),
            bytes: self.bytes,
            min_block: 512,
            preferred_block: 4096,
            max_request: 32 << 20,
            read_only: false,
            volatile_cache: false,
            description: "null: keeps nothing, reads as zero".to_owned(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Read { offset, bytes } => {
                self.check(offset, u64::from(bytes))?;
                let whole = (0..bytes / ZEROES_BYTES).map(|_| self.zeroes.clone());
                let rest = bytes % ZEROES_BYTES;
                let rest = (rest > 0).then(|| self.zeroes.slice(0..rest as usize));
                Ok(Answer::Data(whole.chain(rest).collect()))
            }
            Request::Write { offset, data, .. } => self.check(offset, data.len() as u64).map(|()| Answer::Done),
            Request::WriteZeroes { offset, bytes, .. } | Request::Deallocate { offset, bytes, .. } => {
                self.check(offset, bytes).map(|()| Answer::Done)
            }
            Request::Flush => Ok(Answer::Done),
            Request::Extents { offset, bytes, .. } => {
                self.check(offset, bytes)?;
                Ok(Answer::Extents(vec![Extent { bytes, state: ExtentState::Hole }]))
            }
        }
    }
}
