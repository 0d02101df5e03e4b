//! Connections of mutated PDUs, from a thread that takes half a core at most.
//!
//! A connection begins well: ICReq, Connect, for an I/O queue also an admin queue. Then come PDUs that are nearly good, eight
//! and then a good Flush: when that is answered the server has taken all of them, and they count; when the connection ends
//! first, one counts, the one that ended it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use export::nvme::client::{Host, Wishes, connect_command};
use export::nvme::digest::digest;
use export::nvme::entry::{Sgl, Sqe};
use export::nvme::pdu::{self, COMMON_BYTES, Common, DataHeader, Initialize, Terms, To, flag, kind};
use futures::future::{Either, select};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Addr, Buf, Bytes, Rt, Stream};

use crate::half_core::HalfCore;

/// PDUs between two good ones.
const BATCH: u64 = 8;
/// Batches of one connection, if the server goes along.
const BATCHES: u64 = 32;
/// The command identifier of the good Flush; mutated commands have others, most of the time.
const MARK: u16 = 0xfffe;
/// How long the good one may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// After a connection that could not be made.
const RETRY: Duration = Duration::from_millis(10);
/// Edges at which arithmetic goes wrong.
const EDGES: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// What has happened so far.
#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    connections: AtomicU64,
    terminated: AtomicU64,
    stop: AtomicBool,
}

/// The thread.
pub struct Flood {
    counts: Arc<Counts>,
    thread: std::cell::Cell<Option<JoinHandle<()>>>,
}

impl Flood {
    /// Begins.
    pub fn start(address: Addr, subsystem: String, seed: u64) -> Flood {
        let counts = Arc::<Counts>::default();
        let shared = counts.clone();
        let thread = thread::spawn(move || {
            let rt = Rt::real().expect("there was one already");
            let random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut flooder = Flooder { rt: rt.clone(), address, subsystem, random, counts: shared };
            rt.block_on(flooder.run());
        });
        Flood { counts, thread: std::cell::Cell::new(Some(thread)) }
    }

    /// Ends.
    pub fn stop(&self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }

    /// PDUs that the server has taken.
    pub fn taken(&self) -> u64 {
        self.counts.taken.load(Ordering::Relaxed)
    }

    /// Connections.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Those that the server has ended.
    pub fn terminated(&self) -> u64 {
        self.counts.terminated.load(Ordering::Relaxed)
    }
}

struct Flooder {
    rt: Rt,
    address: Addr,
    subsystem: String,
    random: Xoshiro256PlusPlus,
    counts: Arc<Counts>,
}

impl Flooder {
    async fn run(&mut self) {
        let mut half = HalfCore::new(&self.rt);
        while !self.counts.stop.load(Ordering::Relaxed) {
            // When the server is gone, the one who watches it says so.
            if self.connection().await.is_none() {
                self.rt.sleep(RETRY).await;
            }
            half.rest(&self.rt).await;
        }
    }

    async fn connection(&mut self) -> Option<()> {
        let digests: u8 = if self.random.random_range(0..4) == 0 { self.random.random_range(0..4) } else { 0 };
        let r2ts = [1, 4][self.random.random_range(0..2)];
        let terms =
            Terms { header_digest: digests & 1 != 0, data_digest: digests & 2 != 0, alignment: 4, r2ts_max: r2ts };
        let wishes = Wishes { flow_control: self.random.random(), ..Wishes::default() };
        // An I/O queue, three times of four.
        let admin = if self.random.random_range(0..4) > 0 {
            Some(Host::connect(&self.rt, &self.address, &self.subsystem, 0, &wishes).await.ok()?)
        } else {
            None
        };
        let stream = Stream::connect(&self.rt, &self.address).await.ok()?;
        let begin = Initialize { version: 0, alignment: 0, digests, limit: r2ts - 1 }.encode(kind::IC_REQ);
        let (sqe, data) = match &admin {
            Some(admin) => connect_command(&wishes, &self.subsystem, 1, Some(admin.controller)),
            None => connect_command(&wishes, &self.subsystem, 0, None),
        };
        stream.send_all(vec![Bytes::from_slice(&begin)]).await.ok()?;
        stream.recv_exact(Buf::zeroed(128)).await.0.ok()?;
        stream.send_all(vec![Bytes::from_slice(&capsule(&sqe, &data, &terms))]).await.ok()?;
        next_answer(&stream).await?;
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        // Of an admin queue that is not enabled the mark fails, which is an answer as well.
        for _ in 0..BATCHES {
            let mut bytes: Vec<u8> = (0..BATCH).flat_map(|_| self.pdu(&terms)).collect();
            let mark = Sqe::new(0, MARK).with_dword(1, 1);
            bytes.extend(capsule(&mark, &[], &terms));
            let sent = stream.send_all(vec![Bytes::from_slice(&bytes)]);
            let answered = async {
                while next_answer(&stream).await? != MARK {}
                Some(())
            };
            let both = Box::pin(futures::future::join(sent, answered));
            let ended = match select(both, Box::pin(self.rt.sleep(ANSWER_MAX))).await {
                Either::Left(((_, Some(())), _)) => false,
                // Part of the mark may have been taken for data of a mutated PDU: then both sides wait.
                Either::Left(((_, None), _)) | Either::Right(_) => true,
            };
            self.counts.taken.fetch_add(if ended { 1 } else { BATCH }, Ordering::Relaxed);
            if ended {
                self.counts.terminated.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        stream.shutdown();
        Some(())
    }

    /// A PDU that is nearly good.
    fn pdu(&mut self, terms: &Terms) -> Vec<u8> {
        match self.random.random_range(0..1000) {
            // Most: a good header around a mutated command, so that the connection goes on.
            0..=979 => {
                let (sqe, data) = self.command();
                let at_most = if self.random.random_range(0..8) == 0 { 64 } else { 2 };
                let changes = self.random.random_range(0..=at_most);
                let sqe = self.mutated(sqe, changes);
                capsule(&sqe, &data, terms)
            }
            980..=987 => {
                let header = DataHeader {
                    command: self.random.random_range(0..16),
                    tag: self.random.random_range(0..4),
                    offset: self.edge(),
                    length: 512,
                };
                let data = [Bytes::zeroed(512)];
                let encoded = pdu::encode(kind::H2C_DATA, flag::LAST, &header.encode(), &data, To::Controller, terms);
                [&encoded.head[..], &data[0], &encoded.tail].concat()
            }
            988 => pdu::encode_term(kind::H2C_TERM_REQ, pdu::Fatal::field(1), &[0; 8]),
            // Anything may be changed.
            _ => {
                let (sqe, data) = self.command();
                let mut bytes = capsule(&sqe, &data, terms);
                for _ in 0..self.random.random_range(1..4) {
                    let at = self.random.random_range(0..bytes.len().min(80));
                    bytes[at] = self.random.random();
                }
                bytes
            }
        }
    }

    /// A good command of any kind, and the data of its capsule.
    fn command(&mut self) -> (Sqe, Vec<u8>) {
        const OPCODES: [u8; 14] = [0, 1, 1, 2, 2, 5, 8, 9, 6, 0x0a, 0x0c, 0x18, 0x7f, 0x08];
        let opcode = OPCODES[self.random.random_range(0..OPCODES.len())];
        let id = self.random.random_range(0..256);
        let bytes = 512 << self.random.random_range(0..5u32);
        let by_capsule = self.random.random_range(0..4) > 0 && matches!(opcode, 1 | 5 | 9) && bytes <= 8192;
        let sgl = if by_capsule { Sgl::Capsule { offset: 0, bytes } } else { Sgl::Transport { bytes } };
        let sqe = Sqe::new(opcode, id)
            .with_dword(1, 1)
            .with_sgl(sgl)
            .with_dword(10, self.random.random_range(0..1024))
            .with_dword(12, bytes / 4096);
        (sqe, if by_capsule { vec![0xa5; bytes as usize] } else { vec![] })
    }

    fn mutated(&mut self, sqe: Sqe, changes: u32) -> Sqe {
        (0..changes).fold(sqe, |sqe, _| match self.random.random_range(0..3) {
            0 => sqe.with_dword(self.random.random_range(1..16), self.edge()),
            1 => sqe.with(self.random.random_range(0..64), &[self.random.random()]),
            _ => {
                let at = self.random.random_range(0..64);
                sqe.with(at, &[sqe.0[at] ^ 1 << self.random.random_range(0..8)])
            }
        })
    }

    fn edge(&mut self) -> u32 {
        EDGES[self.random.random_range(0..EDGES.len())].wrapping_add(self.random.random_range(0..3)).wrapping_sub(1)
    }
}

/// A command with data in its capsule, as sent.
fn capsule(sqe: &Sqe, data: &[u8], terms: &Terms) -> Vec<u8> {
    let parts: Vec<Bytes> = (!data.is_empty()).then(|| Bytes::from_slice(data)).into_iter().collect();
    let encoded = pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &parts, To::Controller, terms);
    debug_assert!(!terms.header_digest || encoded.head[72..76] == digest(&encoded.head[..72]).to_le_bytes());
    [&encoded.head[..], data, &encoded.tail].concat()
}

/// The command that the next response is for; nothing at the end.
async fn next_answer(stream: &Stream) -> Option<u16> {
    loop {
        let (done, header) = stream.recv_exact(Buf::zeroed(COMMON_BYTES)).await;
        done.ok()?;
        let common = Common::parse(header[..].try_into().ok()?);
        let rest = (common.bytes as usize).checked_sub(COMMON_BYTES)?;
        let (done, body) = stream.recv_exact(Buf::zeroed(rest)).await;
        done.ok()?;
        match common.kind {
            kind::CAPSULE_RESP => return Some(u16::from_le_bytes([body[12], body[13]])),
            kind::C2H_TERM_REQ => return None,
            _ => {}
        }
    }
}
