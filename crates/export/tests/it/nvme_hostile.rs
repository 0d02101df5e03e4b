//! Hosts that lie, stall, flood and leave: each gets what the protocol has for it, and nobody else notices.

use std::{cell::Cell, collections::VecDeque, pin::pin, rc::Rc, time::Duration};

use crate::support::{
    Raw,
    nvme::{NQN, Target, termination, with_digest, with_target},
    pattern, until,
};
use export::nvme::{
    client::{Wishes, connect_command},
    entry::{Cqe, Sgl, Sqe, fabrics, io},
    limits::{
        ASKED_BYTES_MAX, CONNECTION_BYTES_MAX, CONNECTION_COMMANDS_MAX, H2C_DATA_MAX, IO_CAPSULE_DATA_MAX,
        QUEUE_ENTRIES_MAX, TRANSFER_BYTES_MAX,
    },
    pdu::{self, Common, DataHeader, Initialize, Terms, To, kind},
    status::Status,
};
use futures::{
    future::{Either, select},
    join,
};
use rt::Bytes;

const PLAIN: Terms = Terms { header_digest: false, data_digest: false, alignment: 4, r2ts_max: 1 };

/// A capsule with a command and data, as sent.
fn capsule(sqe: &Sqe, data: &[u8], terms: &Terms) -> Vec<u8> {
    let parts: Vec<Bytes> = (!data.is_empty()).then(|| Bytes::from_slice(data)).into_iter().collect();
    let encoded = pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &parts, To::Controller, terms);
    [&encoded.head[..], data, &encoded.tail].concat()
}

/// An H2CData PDU, as sent.
fn h2c_data(header: DataHeader, last: bool, data: &[u8]) -> Vec<u8> {
    let parts = [Bytes::from_slice(data)];
    let flags = if last { pdu::flag::LAST } else { 0 };
    let encoded = pdu::encode(kind::H2C_DATA, flags, &header.encode(), &parts, To::Controller, &PLAIN);
    [&encoded.head[..], data].concat()
}

async fn response(raw: &Raw) -> Cqe {
    let bytes = raw.receive(24).await;
    assert_eq!(bytes[0], kind::CAPSULE_RESP);
    Cqe::parse(bytes[8..].try_into().unwrap())
}

async fn command(raw: &Raw, sqe: &Sqe, data: &[u8]) -> Cqe {
    raw.send(&capsule(sqe, data, &PLAIN)).await;
    response(raw).await
}

/// An I/O queue of raw bytes, and the admin queue that it needs.
async fn raw_queue(target: &Target) -> (Raw, Raw) {
    let wishes = Wishes::default();
    let admin = target.raw_initialized(0).await;
    let (sqe, data) = connect_command(&wishes, NQN, 0, None);
    let controller = command(&admin, &sqe, &data).await.result as u16;
    let enable = Sqe::new(fabrics::OPCODE, 0).with_dword(11, 0x14).with(48, &0x0046_0001u64.to_le_bytes());
    assert!(command(&admin, &enable, &[]).await.status.is_success());
    let raw = target.raw_initialized(0).await;
    let (sqe, data) = connect_command(&wishes, NQN, 1, Some(controller));
    assert!(command(&raw, &sqe, &data).await.status.is_success());
    (admin, raw)
}

fn write(bytes: u32, id: u16) -> Sqe {
    Sqe::new(io::WRITE, id).with_dword(1, 1).with_dword(12, bytes / 512 - 1).with_sgl(Sgl::Transport { bytes })
}

async fn r2t(raw: &Raw) -> DataHeader {
    let bytes = raw.receive(24).await;
    assert_eq!((bytes[0], bytes[2], bytes[4]), (kind::R2T, 24, 24));
    DataHeader::parse(bytes[8..].try_into().unwrap())
}

#[test]
fn a_bad_icreq_is_terminated() {
    with_target(async |target| {
        let good = Initialize { version: 0, alignment: 0, digests: 3, limit: 0 }.encode(kind::IC_REQ);
        for (name, at, value, fes, information) in [
            ("another PDU first", 0, kind::CAPSULE_CMD, 2, 0),
            ("a response", 0, kind::IC_RESP, 2, 0),
            ("another header length", 2, 24, 1, 2),
            ("too long", 5, 1, 1, 4),
            ("another version", 8, 1, 6, 8),
            ("an alignment that does not exist", 10, 32, 1, 10),
        ] {
            let raw = target.raw().await;
            let mut bytes = good.clone();
            bytes[at] = value;
            raw.send(&bytes).await;
            let (found, where_, header) = termination(&raw).await;
            assert_eq!((found, where_), (fes, information), "{name}");
            assert_eq!(header[..8], bytes[..8], "{name}");
        }
    });
}

#[test]
fn bad_headers_are_terminated() {
    with_target(async |target| {
        let good = capsule(&Sqe::new(io::FLUSH, 1), &[0; 512], &PLAIN);
        for (name, at, value, fes, information) in [
            ("a type that does not exist", 0, 0x0b, 1, 0),
            ("an ICReq again", 0, kind::IC_REQ, 2, 0),
            ("an answer", 0, kind::CAPSULE_RESP, 2, 0),
            ("an R2T", 0, kind::R2T, 2, 0),
            ("data to the host", 0, kind::C2H_DATA, 2, 0),
            ("a digest that was not agreed on", 1, 1, 1, 1),
            ("a data digest that was not agreed on", 1, 2, 1, 1),
            ("another header length", 2, 73, 1, 2),
            ("data within the header", 3, 8, 1, 3),
            ("data not aligned", 3, 74, 1, 3),
            ("more data than a capsule takes", 6, 1, 5, 4),
            ("gigabytes", 7, 0x80, 5, 4),
        ] {
            let raw = target.raw_initialized(0).await;
            let mut bytes = good.clone();
            bytes[at] = value;
            raw.send(&bytes).await;
            let (found, where_, header) = termination(&raw).await;
            assert_eq!((found, where_, &header[..]), (fes, information, &bytes[..8]), "{name}");
        }
        let short = target.raw_initialized(0).await;
        short
            .send(&Common { kind: kind::CAPSULE_CMD, flags: 0, header_bytes: 72, data_offset: 0, bytes: 71 }.encode())
            .await;
        assert_eq!(termination(&short).await.0, 1);
    });
}

#[test]
fn a_wrong_header_digest_is_terminated() {
    with_target(async |target| {
        let raw = target.raw_initialized(1).await;
        let terms = Terms { header_digest: true, ..PLAIN };
        let (sqe, data) = connect_command(&Wishes::default(), NQN, 0, None);
        let mut bytes = capsule(&sqe, &data, &terms);
        assert_eq!(bytes[..76], with_digest(&bytes[..72]));
        bytes[75] ^= 1;
        let received = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
        raw.send(&bytes).await;
        let (fes, information, header) = termination(&raw).await;
        assert_eq!((fes, information, &header[..]), (3, received, &bytes[..72]));
        assert_eq!(target.server.controllers(), 0);
    });
}

#[test]
fn a_host_that_terminates_is_closed_without_an_answer() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&pdu::encode_term(kind::H2C_TERM_REQ, pdu::Fatal::field(1), &[0; 8])).await;
        assert!(raw.is_closed().await);
        let raw = target.raw_initialized(0).await;
        let mut bytes = pdu::encode_term(kind::H2C_TERM_REQ, pdu::Fatal::field(1), &[0; 128]);
        bytes[4] = 255;
        raw.send(&bytes).await;
        assert_eq!(termination(&raw).await.0, 1, "a termination that is too long");
    });
}

#[test]
fn data_that_was_not_asked_for_is_terminated() {
    with_target(async |target| {
        let length = 3 * H2C_DATA_MAX;
        let data = vec![7; 4096];
        for (name, change, last, fes, information) in [
            ("another tag", (|h| DataHeader { tag: h.tag + 1, ..h }) as fn(DataHeader) -> DataHeader, false, 1, 10),
            ("another command", |h| DataHeader { command: 9, ..h }, false, 1, 8),
            ("a gap", |h| DataHeader { offset: 4096, ..h }, false, 4, 12),
            ("far away", |h| DataHeader { offset: u32::MAX - 3, ..h }, false, 4, 12),
            ("a length that is not PLEN's", |h| DataHeader { length: 4100, ..h }, false, 1, 16),
            ("last, and it is not", |h| h, true, 1, 1),
        ] {
            let (_admin, raw) = raw_queue(&target).await;
            target.puppet.calls();
            raw.send(&capsule(&write(length, 5), &[], &PLAIN)).await;
            let asked = r2t(&raw).await;
            assert_eq!((asked.command, asked.offset, asked.length), (5, 0, length));
            raw.send(&h2c_data(change(DataHeader { length: 4096, ..asked }), last, &data)).await;
            let (found, where_, _) = termination(&raw).await;
            assert_eq!((found, where_), (fes, information), "{name}");
            assert!(target.puppet.calls().is_empty(), "{name}");
        }
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&h2c_data(DataHeader { command: 1, tag: 0, offset: 0, length: 4096 }, true, &data)).await;
        assert_eq!(termination(&raw).await.0, 1, "without any R2T");
    });
}

#[test]
fn data_beyond_what_was_asked_for_is_terminated() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&capsule(&write(65_536, 5), &[], &PLAIN)).await;
        let asked = r2t(&raw).await;
        raw.send(&h2c_data(DataHeader { length: 65_540, ..asked }, true, &vec![0; 65_540])).await;
        assert_eq!(termination(&raw).await.0, 4);
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&capsule(&write(TRANSFER_BYTES_MAX, 5), &[], &PLAIN)).await;
        let asked = r2t(&raw).await;
        let header = pdu::Common {
            kind: kind::H2C_DATA,
            flags: 0,
            header_bytes: 24,
            data_offset: 24,
            bytes: 24 + H2C_DATA_MAX + 4,
        };
        raw.send(&[&header.encode()[..], &asked.encode()].concat()).await;
        assert_eq!(termination(&raw).await.0, 5, "more than MAXH2CDATA");
    });
}

/// A write whose data comes in pieces, the host's other commands between them.
#[test]
fn data_in_pieces_between_other_commands() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&capsule(&write(65_536, 5), &[], &PLAIN)).await;
        let asked = r2t(&raw).await;
        let data = pattern(9, 65_536);
        for at in (0..65_536).step_by(8192) {
            let header = DataHeader { offset: at, length: 8192, ..asked };
            raw.send(&h2c_data(header, at + 8192 == 65_536, &data[at as usize..][..8192])).await;
            let flush = command(&raw, &Sqe::new(io::FLUSH, 77).with_dword(1, 1), &[]).await;
            if at + 8192 == 65_536 {
                let other = response(&raw).await;
                assert_eq!([flush.command.min(other.command), flush.command.max(other.command)], [5, 77]);
            } else {
                assert_eq!(flush.command, 77);
            }
        }
        let (_host, disk) = target.disk().await;
        assert!(disk.read(0, 65_536).await.unwrap() == data);
    });
}

/// The host is not asked for the data of all its writes at once, and for all of it in the end.
#[test]
fn writes_are_asked_for_at_a_pace() {
    const BYTES: u32 = H2C_DATA_MAX;
    const AT_ONCE: u16 = (ASKED_BYTES_MAX / BYTES as u64) as u16;
    with_target(async |target| {
        let (admin, raw) = raw_queue(&target).await;
        for id in 0..3 * AT_ONCE {
            raw.send(&capsule(&write(BYTES, id), &[], &PLAIN)).await;
        }
        let mut asked = VecDeque::new();
        for _ in 0..AT_ONCE {
            asked.push_back(r2t(&raw).await);
        }
        let flush = command(&raw, &Sqe::new(io::FLUSH, 77).with_dword(1, 1), &[]).await;
        assert_eq!(flush.command, 77, "no more R2Ts");
        let (data, mut answered) = (pattern(9, BYTES as usize), 0);
        while answered < 3 * AT_ONCE {
            if let Some(next) = asked.pop_front() {
                raw.send(&h2c_data(next, true, &data)).await;
            }
            let bytes = raw.receive(24).await;
            match bytes[0] {
                kind::R2T => asked.push_back(DataHeader::parse(bytes[8..].try_into().unwrap())),
                kind::CAPSULE_RESP => answered += 1,
                other => panic!("a PDU of type {other}"),
            }
        }
        // A host that leaves while writes wait to be asked for leaves nothing behind.
        for id in 0..3 * AT_ONCE {
            raw.send(&capsule(&write(BYTES, id), &[], &PLAIN)).await;
        }
        r2t(&raw).await;
        drop((raw, admin));
        until(&target.rt, || target.server.connections() == 0).await;
    });
}

/// More commands than a queue has entries, and none of their answers taken.
#[test]
fn a_flood_stops_only_itself() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        target.puppet.hold();
        let one = capsule(&Sqe::new(io::FLUSH, 3).with_dword(1, 1), &[], &PLAIN);
        let stream = raw.stream.clone();
        let flood = Bytes::from_slice(&one.repeat(20_000));
        let flooding = target.rt.spawn(async move { stream.send_all(vec![flood]).await.is_ok() });
        until(&target.rt, || target.puppet.waiting() as u64 == CONNECTION_COMMANDS_MAX).await;
        target.rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(target.puppet.waiting() as u64, CONNECTION_COMMANDS_MAX, "no more than the limit");
        target.puppet.release();
        let (_host, disk) = target.disk().await;
        disk.write(0, pattern(1, 1 << 20), false).await.unwrap();
        for _ in 0..20_000 {
            assert_eq!(response(&raw).await.command, 3);
        }
        assert!(flooding.await);
    });
}

/// Hosts that ask for much and take nothing hold their own limits, and nobody else notices.
#[test]
fn a_host_that_takes_no_answers_stops_only_itself() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        let read = Sqe::new(io::READ, 4)
            .with_dword(1, 1)
            .with_dword(12, 2047)
            .with_sgl(Sgl::Transport { bytes: TRANSFER_BYTES_MAX });
        target.puppet.calls();
        raw.send(&capsule(&read, &[], &PLAIN).repeat(100)).await;
        target.rt.sleep(Duration::from_millis(200)).await;
        let reads = target.puppet.calls().len() as u64;
        let most = CONNECTION_BYTES_MAX / u64::from(TRANSFER_BYTES_MAX);
        // A batch that has gone into the socket gives its memory back.
        assert!((most..most + 8).contains(&reads), "{reads} reads for a host that takes no answers");
        let (_host, disk) = target.disk().await;
        disk.write(0, pattern(1, 1 << 20), false).await.unwrap();
        assert!(disk.read(0, 1 << 20).await.unwrap() == pattern(1, 1 << 20));
        for _ in 0..100 {
            let header = raw.receive(24).await;
            assert_eq!(header[0], kind::C2H_DATA);
            raw.receive(TRANSFER_BYTES_MAX as usize).await;
            assert!(response(&raw).await.status.is_success());
        }
    });
}

/// Writes that are never sent hold memory; the host's own later commands but writes of that kind, and those of others, go on.
#[test]
fn writes_whose_data_does_not_come_stop_nobody() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&capsule(&write(TRANSFER_BYTES_MAX, 5), &[], &PLAIN).repeat(40)).await;
        for _ in 0..ASKED_BYTES_MAX / u64::from(TRANSFER_BYTES_MAX) {
            assert_eq!(r2t(&raw).await.length, TRANSFER_BYTES_MAX);
        }
        let flush = Sqe::new(io::FLUSH, 6).with_dword(1, 1);
        assert_eq!(command(&raw, &flush, &[]).await.command, 6);
        let (_host, disk) = target.disk().await;
        disk.write(0, pattern(1, 1 << 20), false).await.unwrap();
        drop(raw);
        until(&target.rt, || target.server.connections() == 3).await;
    });
}

/// What comes in long capsules behind such writes needs none of their memory, and is done: of both halves of a compare, too.
#[test]
fn long_capsules_go_on_behind_writes_whose_data_does_not_come() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        raw.send(&capsule(&write(TRANSFER_BYTES_MAX, 5), &[], &PLAIN).repeat(40)).await;
        for _ in 0..ASKED_BYTES_MAX / u64::from(TRANSFER_BYTES_MAX) {
            assert_eq!(r2t(&raw).await.length, TRANSFER_BYTES_MAX);
        }
        let data = vec![7; IO_CAPSULE_DATA_MAX as usize];
        let write = write(IO_CAPSULE_DATA_MAX, 6).with_sgl(Sgl::Capsule { offset: 0, bytes: IO_CAPSULE_DATA_MAX });
        for sqe in [write, write.with(0, &[io::COMPARE])] {
            // More than the reserve holds at once.
            let all = capsule(&sqe, &data, &PLAIN).repeat(20);
            join!(raw.send(&all), async {
                for _ in 0..20 {
                    let cqe = response(&raw).await;
                    assert_eq!((cqe.command, cqe.status), (6, Status::SUCCESS));
                }
            });
        }
    });
}

#[test]
fn a_capsule_with_too_much_data_is_terminated() {
    with_target(async |target| {
        let (_admin, raw) = raw_queue(&target).await;
        let bytes = IO_CAPSULE_DATA_MAX + 4;
        let long = capsule(&write(bytes, 6), &vec![0; bytes as usize], &PLAIN);
        raw.send(&long[..72]).await;
        assert_eq!(termination(&raw).await, (5, 4, long[..8].to_vec()));
    });
}

/// As many writes without data as there may be commands: one more, and nobody would see that the host has left.
#[test]
fn more_writes_than_a_queue_has_end_the_connection() {
    with_target(async |target| {
        for (writes, stays) in [(QUEUE_ENTRIES_MAX, true), (QUEUE_ENTRIES_MAX + 1, false), (1000, false)] {
            let (admin, raw) = raw_queue(&target).await;
            raw.send(&capsule(&write(512, 5), &[], &PLAIN).repeat(usize::from(writes))).await;
            if stays {
                let flush = Sqe::new(io::FLUSH, 6).with_dword(1, 1);
                raw.send(&capsule(&flush, &[], &PLAIN)).await;
                for _ in 0..writes {
                    assert_eq!(r2t(&raw).await.length, 512);
                }
                assert_eq!(response(&raw).await.command, 6);
            } else {
                until(&target.rt, || target.server.connections() == 1).await;
            }
            drop((raw, admin));
            until(&target.rt, || target.server.connections() == 0).await;
        }
        target.server.stop().await;
    });
}

/// Writes without data that have all the memory, and behind them all the commands that there may be: what would free
/// them stands behind one more, and so does the host's end.
#[test]
fn commands_behind_writes_without_data_end_the_connection() {
    with_target(async |target| {
        let (admin, raw) = raw_queue(&target).await;
        let writes = CONNECTION_BYTES_MAX / u64::from(TRANSFER_BYTES_MAX);
        let read = write(4096, 6).with(0, &[io::READ]);
        let mut all = capsule(&write(TRANSFER_BYTES_MAX, 5), &[], &PLAIN).repeat(writes as usize);
        all.extend(capsule(&read, &[], &PLAIN).repeat((CONNECTION_COMMANDS_MAX - writes) as usize));
        raw.send(&all).await;
        target.rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(target.server.connections(), 2, "as many as there may be");
        raw.send(&capsule(&read, &[], &PLAIN)).await;
        until(&target.rt, || target.server.connections() == 1).await;
        drop(admin);
        target.server.stop().await;
    });
}

/// Hosts that send commands all the time do not keep a server from stopping.
#[test]
fn a_stop_under_floods_ends() {
    const FLOODS: u64 = 16;
    with_target(async |target| {
        let mut queues = vec![];
        for _ in 0..FLOODS {
            queues.push(raw_queue(&target).await);
        }
        target.puppet.hold();
        let one = capsule(&Sqe::new(io::FLUSH, 3).with_dword(1, 1), &[], &PLAIN);
        let flood = Bytes::from_slice(&one.repeat(1000));
        let ended = Rc::new(Cell::new(false));
        for (_, raw) in &queues {
            let (stream, flood, ended) = (raw.stream.clone(), flood.clone(), ended.clone());
            let send = async move { while !ended.get() && stream.send_all(vec![flood.clone()]).await.is_ok() {} };
            target.rt.spawn(send).detach();
        }
        let waiting = FLOODS * CONNECTION_COMMANDS_MAX;
        until(&target.rt, || target.puppet.waiting() as u64 == waiting).await;
        let released = async {
            target.rt.sleep(Duration::from_millis(50)).await;
            target.puppet.release();
        };
        let stopped = async {
            let patience = target.rt.sleep(Duration::from_secs(10));
            matches!(select(pin!(target.server.stop()), pin!(patience)).await, Either::Left(_))
        };
        let ((), stopped) = futures::join!(released, stopped);
        assert!(stopped);
        ended.set(true);
    });
}

#[test]
fn a_host_that_leaves_in_the_middle() {
    with_target(async |target| {
        let whole = capsule(&write(4096, 5).with_sgl(Sgl::Capsule { offset: 0, bytes: 4096 }), &[5; 4096], &PLAIN);
        for cut in [1, 7, 8, 40, 71, 72, 73, 4000, whole.len() - 1] {
            let (admin, raw) = raw_queue(&target).await;
            target.puppet.calls();
            raw.send(&whole[..cut]).await;
            drop((raw, admin));
            until(&target.rt, || target.server.connections() == 0).await;
            assert!(target.puppet.calls().is_empty(), "cut at {cut}");
        }
    });
}

/// Mutated sessions: no panic, no hang, no write of anything but what was sent, and others are served.
#[test]
fn mutated_sessions_do_no_harm() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        disk.write(32 << 20, pattern(7, 4096), false).await.unwrap();
        let session = {
            let (connect, data) = connect_command(&Wishes::default(), NQN, 0, None);
            let enable = Sqe::new(fabrics::OPCODE, 1).with_dword(11, 0x14).with(48, &0x0046_0001u64.to_le_bytes());
            let identify = Sqe::new(6, 2).with_dword(10, 1).with_sgl(Sgl::Transport { bytes: 4096 });
            [
                Initialize { version: 0, alignment: 0, digests: 0, limit: 0 }.encode(kind::IC_REQ),
                capsule(&connect, &data, &PLAIN),
                capsule(&enable, &[], &PLAIN),
                capsule(&identify, &[], &PLAIN),
                capsule(&Sqe::new(12, 3), &[], &PLAIN),
            ]
            .concat()
        };
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        let ended = Rc::new(Cell::new(0));
        for _ in 0..400 {
            let mut bytes = session.clone();
            for _ in 0..=next(4) {
                // Headers more often than the zeroes between them.
                let at = if next(2) == 0 {
                    next(bytes.len())
                } else {
                    [0, 128, 128 + 8, 128 + 72, 1224, 1296][next(6)] + next(8)
                };
                bytes[at] = next(256) as u8;
            }
            let raw = target.raw().await;
            raw.try_send(&bytes).await;
            let (stream, ended) = (raw.stream.clone(), ended.clone());
            target.rt.spawn(async move {
                while matches!(stream.recv(rt::Buf::zeroed(4096)).await.0, Ok(n) if n > 0) {}
                ended.set(ended.get() + 1);
            });
            drop(raw);
            if next(8) == 0 {
                disk.read(32 << 20, 4096).await.unwrap();
            }
        }
        assert!(disk.read(32 << 20, 4096).await.unwrap() == pattern(7, 4096));
        assert!(target.server.controllers() >= 1);
        host.keep_alive().await.unwrap();
        target.server.stop().await;
        until(&target.rt, || ended.get() == 400).await;
        assert_eq!((target.server.controllers(), target.server.connections()), (0, 0));
    });
}
