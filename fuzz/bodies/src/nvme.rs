//! The NVMe/TCP server and a host that sends any bytes: over a unix socket, with the state that earlier bytes made.
//!
//! Promises: the server never panics; when the host has said all, its connection ends; every PDU that it was answered is
//! well formed, a termination is the last, and there are no more answers than commands; other hosts are served as if
//! nothing had been.
//!
//! Input: a byte that says how the connection begins, then the host's bytes from there on, as they are on the wire.
//!
//! ```text
//!   bits 1:0   0 nothing was said yet | 1 an admin queue, enabled | 2, 3 an I/O queue
//!   bits 3:2   header digests, data digests        bit 4   four R2Ts at once        bit 5   no flow control
//! ```
//!
//! Not here: time-outs, hosts that stall, several hostile hosts at once (`export/tests`).

// A host that ends one direction only: `rt::net` has no such verb.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use export::nvme::client::{Host, Wishes, connect_command};
use export::nvme::digest::digest;
use export::nvme::entry::{ConnectData, Cqe, Sqe, fabrics};
use export::nvme::pdu::{self, Common, Initialize, Terms, To, flag, kind};
use export::nvme::{Access, Server, SubsystemList, log, request};
use export::{Memory, Namespace};
use rt::{Addr, Bytes, Rt};

/// The subsystem.
pub const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:fuzz";

/// Bytes of its namespace: small, so that reads of all of it are quick.
pub const NAMESPACE_BYTES: u64 = 2 << 20;

/// In which a connection ends when its host has said all; in life it takes microseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Turns of the executor in which an answer to a PDU may come before the next one is sent.
const TURNS: u32 = 50;

/// A server that goes on from input to input.
struct World {
    rt: Rt,
    server: Server<SubsystemList<Memory>>,
    address: Addr,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let rt = Rt::real().expect("io_uring is to be had");
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let path = directory.path().join("s");
        let address = Addr::Unix(path.clone());
        let list = SubsystemList::default();
        list.add(NQN, Access::Any);
        list.attach(NQN, 1, Memory::new("vol", NAMESPACE_BYTES));
        let server = Server::start(&rt, list, std::slice::from_ref(&address), &[]).expect("the path is free");
        World { rt, server, address, path, _directory: directory }
    }
}

/// Sends `data` to a server and judges what it says.
pub fn body(data: &[u8]) {
    thread_local! {
        static WORLD: &'static World = Box::leak(Box::new(World::new()));
    }
    parse(data);
    let Some((how, data)) = data.split_first() else { return };
    WORLD.with(|world| {
        let wishes = wishes(*how);
        let admin = (how & 3 > 1).then(|| world.rt.block_on(host(world, 0)));
        let sent = [&beginning(*how & 3, &wishes, admin.as_ref())[..], data].concat();
        let answers = converse(world, &sent);
        judge(&sent, &answers);
        world.rt.block_on(async {
            let host = host(world, 1).await;
            let disk = host.disk(1).await.expect("others are served");
            let block = Bytes::from_slice(&[7; 512]);
            disk.write(0, block.clone(), true).await.expect("others are served");
            let read = disk.read(0, 512).await.expect("others are served");
            assert_eq!(read[..], block[..], "others are served with what they wrote");
        });
        assert!(world.server.counters().iter().all(|(_, c)| c.in_flight == 0), "no command is left behind");
    });
}

async fn host(world: &World, queues: u16) -> Host {
    let wishes = Wishes::default();
    Host::connect(&world.rt, &world.address, NQN, queues, &wishes).await.expect("others are served")
}

fn wishes(how: u8) -> Wishes {
    Wishes {
        header_digest: how & 4 != 0,
        data_digest: how & 8 != 0,
        r2ts: if how & 16 != 0 { 4 } else { 1 },
        flow_control: how & 32 == 0,
        ..Wishes::default()
    }
}

fn terms(wishes: &Wishes) -> Terms {
    Terms { header_digest: wishes.header_digest, data_digest: wishes.data_digest, alignment: 4, r2ts_max: wishes.r2ts }
}

/// A command with data in its capsule, as sent.
#[must_use]
pub fn capsule(sqe: &Sqe, data: &[u8], how: u8) -> Vec<u8> {
    let parts: Vec<Bytes> = (!data.is_empty()).then(|| Bytes::from_slice(data)).into_iter().collect();
    let encoded = pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &parts, To::Controller, &terms(&wishes(how)));
    [&encoded.head[..], data, &encoded.tail].concat()
}

/// What a host says first.
#[must_use]
pub fn initialize(how: u8) -> Vec<u8> {
    let digests = how >> 2 & 3;
    Initialize { version: 0, alignment: 0, digests, limit: wishes(how).r2ts - 1 }.encode(kind::IC_REQ)
}

/// What is said before the input.
fn beginning(kind: u8, wishes: &Wishes, admin: Option<&Host>) -> Vec<u8> {
    let how = u8::from(wishes.header_digest) << 2
        | u8::from(wishes.data_digest) << 3
        | u8::from(wishes.r2ts == 4) << 4
        | u8::from(!wishes.flow_control) << 5;
    match (kind, admin) {
        (0, _) => vec![],
        (_, Some(admin)) => {
            let (sqe, data) = connect_command(wishes, NQN, 1, Some(admin.controller));
            [initialize(how), capsule(&sqe, &data, how)].concat()
        }
        (_, None) => {
            let (sqe, data) = connect_command(wishes, NQN, 0, None);
            let enable = Sqe::new(fabrics::OPCODE, 1).with_dword(11, 0x14).with(48, &0x0046_0001u64.to_le_bytes());
            [initialize(how), capsule(&sqe, &data, how), capsule(&enable, &[], how)].concat()
        }
    }
}

/// The pure functions on the same bytes.
fn parse(data: &[u8]) {
    let info = Memory::new("vol", NAMESPACE_BYTES).info();
    if let Some((entry, rest)) = data.split_first_chunk() {
        let _ = request::check(&Sqe(*entry), &info, rest.len() as u32);
        let _ = request::ranges(&rest[..rest.len().min(4096)], 256, &info);
    }
    if let Some((data, _)) = data.split_first_chunk() {
        let _ = ConnectData::parse(data);
    }
    let _ = log::parse_discovery(data);
}

/// The length of the first PDU, as far as it says so.
fn first_pdu(bytes: &[u8]) -> usize {
    let stated = bytes.first_chunk().map_or(bytes.len(), |header| Common::parse(header).bytes as usize);
    stated.clamp(8, bytes.len().max(8)).min(bytes.len())
}

/// Says all, PDU by PDU, then takes everything that is answered, to the end of the connection.
fn converse(world: &World, data: &[u8]) -> Vec<u8> {
    let mut socket = UnixStream::connect(&world.path).expect("the server listens");
    socket.set_nonblocking(true).expect("a socket can be");
    let mut answers = Vec::new();
    let (mut now, mut later) = data.split_at(first_pdu(data));
    let mut turns = 0;
    let mut room = vec![0; 64 << 10];
    world.rt.block_on(async {
        let since = world.rt.now();
        let mut has_ended = false;
        loop {
            if !now.is_empty() {
                match socket.write(now) {
                    Ok(n) => now = &now[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    // The server sent us away.
                    Err(_) => (now, later) = (&[], &[]),
                }
                turns = 0;
            } else if !later.is_empty() {
                // What follows may answer what this leads to.
                if turns > TURNS {
                    (now, later) = later.split_at(first_pdu(later));
                }
            } else if !has_ended {
                has_ended = true;
                let _ = socket.shutdown(Shutdown::Write);
            }
            turns += 1;
            match socket.read(&mut room) {
                Ok(0) => return,
                Ok(n) => {
                    answers.extend_from_slice(&room[..n]);
                    turns = TURNS;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    assert!(world.rt.now() - since < PATIENCE, "the connection does not end");
                    world.rt.yield_now().await;
                }
                // A server that closes while we are still sending resets the connection.
                Err(_) => return,
            }
        }
    });
    answers
}

/// Judges all answers. A connection that the server ended may end within one.
fn judge(sent: &[u8], answers: &[u8]) {
    let Some((header, _)) = answers.split_first_chunk() else { return };
    let first = Common::parse(header);
    let mut rest = answers;
    let mut agreed = Terms { header_digest: false, data_digest: false, alignment: 4, r2ts_max: 1 };
    if first.kind == kind::IC_RESP {
        let Some((response, after)) = answers.split_at_checked(128) else { return };
        let body = response[8..].try_into().expect("120 bytes");
        let response = Initialize::parse(kind::IC_RESP, &first, body).expect("a good ICResp");
        agreed.header_digest = response.digests & 1 != 0;
        agreed.data_digest = response.digests & 2 != 0;
        // HPDA of the ICReq, which was taken.
        agreed.alignment = (u32::from(sent[10]) + 1) * 4;
        rest = after;
    }
    let commands_max = sent.len() / pdu::COMMAND_BYTES;
    let mut ended = 0;
    while let Some((header, _)) = rest.split_first_chunk() {
        let common = Common::parse(header);
        if common.kind == kind::C2H_TERM_REQ {
            pdu::check_term(&common).expect("a good termination");
            assert!(rest.len() <= common.bytes as usize, "a termination is the last");
            return;
        }
        let frame = pdu::check(&common, To::Host, &agreed).expect("a well-formed PDU");
        let Some((whole, after)) = rest.split_at_checked(common.bytes as usize) else { return };
        judge_pdu(&common, whole, frame.data as usize, &agreed);
        let is_answer = common.kind == kind::CAPSULE_RESP || common.flags & flag::SUCCESS != 0;
        ended += usize::from(is_answer);
        assert!(ended <= commands_max, "no more answers than commands");
        rest = after;
    }
}

fn judge_pdu(common: &Common, whole: &[u8], data: usize, agreed: &Terms) {
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().expect("four bytes"));
    let header = usize::from(common.header_bytes);
    if agreed.header_digest {
        assert_eq!(word(header), digest(&whole[..header]), "a header's digest");
    }
    if data > 0 {
        let at = usize::from(common.data_offset);
        assert_eq!(word(16) as usize, data, "DATAL and PLEN agree");
        if agreed.data_digest {
            assert_eq!(word(at + data), digest(&whole[at..at + data]), "the data's digest");
        }
    }
    if common.kind == kind::CAPSULE_RESP {
        let cqe = Cqe::parse(whole[8..24].try_into().expect("16 bytes"));
        assert_eq!(cqe.status.0 >> 15, 0, "a status has 15 bits");
    }
}
