//! The boundary between protocols and back ends.
//!
//! Invariants: offsets and lengths are multiples of `min_block` and lengths are not zero when they reach a back end
//! (the protocol checks it); ranges are checked by both, because a volume knows its present length best; everything runs
//! on one thread, and many calls are in flight on one namespace.
//!
//! Not here: names of hosts, protocols' flags and codes.

use rt::Bytes;

/// What went wrong. Each protocol has one table from these to its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The data cannot be read or written: a medium error that redundancy could not repair.
    #[error("medium error")]
    Medium,
    /// No space is left for the write.
    #[error("no space left")]
    NoSpace,
    /// The namespace is read-only.
    #[error("the export is read-only")]
    ReadOnly,
    /// The range does not lie within the namespace.
    #[error("the range lies beyond the end of the export")]
    OutOfRange,
    /// The range is not made of whole blocks.
    #[error("offset and length are not multiples of the minimum block size")]
    Misaligned,
    /// The data is there, but cannot be served now (a frozen array); it may come back.
    #[error("the export is not available now")]
    Unavailable,
    /// The namespace exists no more.
    #[error("the export is gone")]
    Gone,
}

/// What a host learns about a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The name under which it is exported.
    pub name: String,
    /// Its identity: the same for ever, and of no other namespace.
    pub uuid: [u8; 16],
    /// Length in bytes, a multiple of `min_block`.
    pub bytes: u64,
    /// Unit of addressing, a power of two of at least 512.
    pub min_block: u32,
    /// Unit that needs no read-modify-write and is written wholly or not at all, also across a crash; a power of two.
    pub preferred_block: u32,
    /// Longest read or write.
    pub max_request: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes need a flush to be durable.
    pub volatile_cache: bool,
    /// A line for people.
    pub description: String,
}

impl NamespaceInfo {
    /// An identity made of a name, for namespaces that have nothing else: a UUID of version 8.
    #[must_use]
    pub fn uuid_of_name(name: &str) -> [u8; 16] {
        // FNV-1a with 128 bits.
        let step = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        let hash = name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step);
        let mut uuid = hash.to_be_bytes();
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

/// What is known about a run of bytes without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// Holds data.
    Allocated,
    /// Not allocated; reads as zero.
    Hole,
    /// Allocated or recorded as zero; reads as zero.
    Zero,
}

/// A run of bytes in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its length, not zero.
    pub bytes: u64,
    /// Its state.
    pub state: ExtentState,
}

/// A request to a namespace. `D` is what a write carries: its data; its length, where the data has not come yet; or what
/// crosses to another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<D = Bytes> {
    /// The bytes from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// Writes `data` at `offset`; with `fua` it is durable when this is answered.
    Write {
        /// First byte.
        offset: u64,
        /// What is written.
        data: D,
        /// Force unit access.
        fua: bool,
    },
    /// Everything that was answered before this was submitted is durable when this is answered.
    Flush,
    /// The range reads as zero afterwards. With `may_deallocate` it need not stay allocated, and the request costs less
    /// than writing zeroes; without, later writes to it cannot run out of space.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Whether the range need not stay allocated.
        may_deallocate: bool,
        /// Force unit access.
        fua: bool,
    },
    /// A hint that the contents are needed no more. Afterwards the range reads as some stable contents.
    Deallocate {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Force unit access.
        fua: bool,
    },
    /// The states of a range from its start on: at least one extent, at most `at_most`, together no longer than
    /// `bytes`, and as long when fewer than `at_most`.
    Extents {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Most extents.
        at_most: usize,
    },
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<D = Bytes> {
    /// Of a read: its bytes, in parts, in order.
    Data(Vec<D>),
    /// It is done.
    Done,
    /// Of a question for extents.
    Extents(Vec<Extent>),
}

impl<D> Request<D> {
    /// The same request with other data.
    pub fn with<E>(self, data_of: impl FnOnce(D) -> E) -> Request<E> {
        match self {
            Request::Read { offset, bytes } => Request::Read { offset, bytes },
            Request::Write { offset, data, fua } => Request::Write { offset, data: data_of(data), fua },
            Request::Flush => Request::Flush,
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                Request::WriteZeroes { offset, bytes, may_deallocate, fua }
            }
            Request::Deallocate { offset, bytes, fua } => Request::Deallocate { offset, bytes, fua },
            Request::Extents { offset, bytes, at_most } => Request::Extents { offset, bytes, at_most },
        }
    }
}

impl Request<u32> {
    /// Bytes that the host sends with it.
    #[must_use]
    pub fn bytes_sent(&self) -> u32 {
        match self {
            Request::Write { data, .. } => *data,
            Request::Read { .. }
            | Request::Flush
            | Request::WriteZeroes { .. }
            | Request::Deallocate { .. }
            | Request::Extents { .. } => 0,
        }
    }

    /// Bytes that it is answered with.
    #[must_use]
    pub fn bytes_read(&self) -> u32 {
        match self {
            Request::Read { bytes, .. } => *bytes,
            Request::Write { .. }
            | Request::Flush
            | Request::WriteZeroes { .. }
            | Request::Deallocate { .. }
            | Request::Extents { .. } => 0,
        }
    }
}

impl<D> Answer<D> {
    /// The same answer with other data.
    pub fn with<E>(self, data_of: impl FnMut(D) -> E) -> Answer<E> {
        match self {
            Answer::Data(parts) => Answer::Data(parts.into_iter().map(data_of).collect()),
            Answer::Done => Answer::Done,
            Answer::Extents(extents) => Answer::Extents(extents),
        }
    }
}

/// A run of bytes that a protocol serves. Handles are cheap to clone and stay on their thread.
///
/// What decorates another namespace says what is different in `info`, and submits to it what is submitted to it.
#[allow(async_fn_in_trait, reason = "single-threaded by design: no Send bound is wanted")]
pub trait Namespace: Clone + 'static {
    /// Asked anew at each handshake: a volume may have grown.
    fn info(&self) -> NamespaceInfo;

    /// The same for another client: between clients a back end shares fairly.
    #[must_use]
    fn apart(&self) -> Self {
        self.clone()
    }

    /// Does what is requested: a read is answered with data, a question for extents with extents, all else by being done.
    async fn submit(&self, request: Request) -> Result<Answer, Fault>;

    /// [`Request::Read`].
    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self.submit(Request::Read { offset, bytes }).await? {
            Answer::Data(parts) => Ok(parts),
            Answer::Done | Answer::Extents(_) => unreachable!("a read is answered with data"),
        }
    }

    /// [`Request::Write`].
    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        self.submit(Request::Write { offset, data, fua }).await.map(drop)
    }

    /// [`Request::Flush`].
    async fn flush(&self) -> Result<(), Fault> {
        self.submit(Request::Flush).await.map(drop)
    }

    /// [`Request::WriteZeroes`].
    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        self.submit(Request::WriteZeroes { offset, bytes, may_deallocate, fua }).await.map(drop)
    }

    /// [`Request::Deallocate`].
    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        self.submit(Request::Deallocate { offset, bytes, fua }).await.map(drop)
    }

    /// [`Request::Extents`].
    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        match self.submit(Request::Extents { offset, bytes, at_most }).await? {
            Answer::Extents(extents) => Ok(extents),
            Answer::Data(_) | Answer::Done => unreachable!("a question for extents is answered with extents"),
        }
    }
}

/// The namespaces that a server exports.
#[allow(async_fn_in_trait, reason = "single-threaded by design: no Send bound is wanted")]
pub trait Directory: Clone + 'static {
    /// Their type.
    type N: Namespace;

    /// All names, in the order to show them.
    async fn names(&self) -> Vec<String>;

    /// The namespace of that name. The empty name means the only one, if there is only one.
    async fn open(&self, name: &str) -> Option<Self::N>;
}
