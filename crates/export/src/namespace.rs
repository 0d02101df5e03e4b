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

/// A run of bytes that a protocol serves. Handles are cheap to clone and stay on their thread.
#[allow(async_fn_in_trait, reason = "single-threaded by design: no Send bound is wanted")]
pub trait Namespace: Clone + 'static {
    /// Asked anew at each handshake: a volume may have grown.
    fn info(&self) -> NamespaceInfo;

    /// The same for another client: between clients a back end shares fairly.
    #[must_use]
    fn apart(&self) -> Self {
        self.clone()
    }

    /// The bytes from `offset`, in parts, in order; together `bytes` long.
    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault>;

    /// Writes `data` at `offset`; with `fua` it is durable when this returns.
    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault>;

    /// Everything that completed before the call is durable when this returns.
    async fn flush(&self) -> Result<(), Fault>;

    /// The range reads as zero afterwards. With `may_deallocate` it need not stay allocated, and the call costs less
    /// than writing zeroes; without, later writes to it cannot run out of space.
    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault>;

    /// A hint that the contents are needed no more. Afterwards the range reads as some stable contents.
    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault>;

    /// The states of a range from its start on: at least one extent, at most `at_most`, together no longer than
    /// `bytes`, and as long when fewer than `at_most`.
    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault>;
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
