//! The NBD server and a client that sends any bytes: over a unix socket, as in life.
//!
//! Promises: the server never panics; when the client has said all, its connection ends; everything it was answered is
//! well formed, and there are no more answers than requests; others are served as if nothing had been.
//!
//! Input: the client's bytes from its flags on, as they are on the wire; the greeting is the server's.
//!
//! Not here: time-outs, peers that stall, several hostile peers at once (`export/tests`).

// A client that ends one direction only: `rt::net` has no such verb.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use export::nbd::client::Client;
use export::nbd::reply::{Chunk, OptionReply};
use export::nbd::wire::{EXPORT_NAME_ZEROES, FLAG_NO_ZEROES, INIT_MAGIC, OPTION_MAGIC, SIMPLE_REPLY_MAGIC, opt, rep};
use export::nbd::{Server, option, request};
use export::{Exports, Memory, NamespaceInfo};
use rt::{Addr, Bytes, Rt};

/// Names of the exports: one to write, one to read only.
pub const NAMES: [&str; 2] = ["vol", "ro"];

/// Bytes of each: small, so that reads of all of it are quick.
pub const EXPORT_BYTES: u64 = 64 << 10;

/// In which a connection ends when its client has said all; in life it takes microseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that goes on from input to input.
struct World {
    rt: Rt,
    server: Server<Exports<Memory>>,
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
        let export = |name: &str| {
            Memory::with_info(NamespaceInfo {
                name: name.to_owned(),
                uuid: NamespaceInfo::uuid_of_name(name),
                bytes: EXPORT_BYTES,
                min_block: 512,
                preferred_block: 4096,
                max_request: 32 << 20,
                read_only: name == NAMES[1],
                volatile_cache: true,
                description: "to be fuzzed".to_owned(),
            })
        };
        let exports = Exports::new(NAMES.map(export));
        let server = Server::start(&rt, exports, std::slice::from_ref(&address)).expect("the path is free");
        World { rt, server, address, path, _directory: directory }
    }
}

/// Sends `data` to a server and judges what it says.
pub fn body(data: &[u8]) {
    thread_local! {
        static WORLD: &'static World = Box::leak(Box::new(World::new()));
    }
    parse(data);
    WORLD.with(|world| {
        let answers = converse(world, data);
        judge(data, &answers);
        world.rt.block_on(async {
            let client = Client::connect(&world.rt, &world.address, NAMES[0]).await.expect("others are served");
            let block = Bytes::from_slice(&[7; 512]);
            client.write(0, block.clone(), true).await.expect("others are served");
            let read = client.read(0, 512).await.expect("others are served");
            assert_eq!(read[..], block[..], "others are served with what they wrote");
        });
        assert!(world.server.counters().iter().all(|(_, c)| c.in_flight == 0), "no request is left behind");
    });
}

/// The pure functions on the same bytes.
fn parse(data: &[u8]) {
    if let Some((header, rest)) = data.split_first_chunk()
        && let Some(header) = option::Header::parse(header)
    {
        let _ = option::parse(header.option, rest);
    }
    for option in 0..12 {
        let _ = option::parse(option, data);
    }
    if let Some((header, _)) = data.split_first_chunk()
        && let Some(request) = request::WireRequest::parse(header)
    {
        assert_eq!(request.encode(), *header, "a request has one form");
    }
}

/// Says all, then takes everything that is answered, to the end of the connection.
fn converse(world: &World, data: &[u8]) -> Vec<u8> {
    let mut socket = UnixStream::connect(&world.path).expect("the server listens");
    socket.set_nonblocking(true).expect("a socket can be");
    let mut answers = Vec::new();
    let mut rest = data;
    let mut room = vec![0; 64 << 10];
    world.rt.block_on(async {
        let since = world.rt.now();
        loop {
            if !rest.is_empty() {
                match socket.write(rest) {
                    Ok(n) => rest = &rest[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    // The server sent us away.
                    Err(_) => rest = &[],
                }
                if rest.is_empty() {
                    let _ = socket.shutdown(Shutdown::Write);
                }
            } else if answers.is_empty() && data.is_empty() {
                let _ = socket.shutdown(Shutdown::Write);
            }
            match socket.read(&mut room) {
                Ok(0) => return,
                Ok(n) => answers.extend_from_slice(&room[..n]),
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

/// The front of what is left of the answers.
struct Answers<'a>(&'a [u8]);

impl<'a> Answers<'a> {
    /// The next `n` bytes; nothing when the connection ended before them.
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        self.0.first_chunk().copied()
    }
}

/// Judges all answers. A connection that the server ended may end within one.
fn judge(data: &[u8], answers: &[u8]) {
    let mut answers = Answers(answers);
    let Some(greeting) = answers.array::<18>() else { return };
    assert_eq!(greeting[..8], INIT_MAGIC.to_be_bytes());
    assert_eq!(greeting[8..16], OPTION_MAGIC.to_be_bytes());
    let Some(structured) = judge_options(data, &mut answers) else { return };
    judge_replies(data, structured, &mut answers);
}

/// Judges the answers of the handshake; whether transmission follows, with structured replies or without.
fn judge_options(data: &[u8], answers: &mut Answers<'_>) -> Option<bool> {
    let no_zeroes = data.get(3).is_some_and(|flags| u16::from(*flags) & FLAG_NO_ZEROES != 0);
    let mut structured = false;
    loop {
        let next: [u8; 8] = answers.peek()?;
        if next == EXPORT_BYTES.to_be_bytes() {
            // The answer to EXPORT_NAME alone has no header.
            answers.take(10)?;
            if !no_zeroes {
                assert_eq!(answers.take(EXPORT_NAME_ZEROES)?, [0; EXPORT_NAME_ZEROES]);
            }
            return Some(structured);
        }
        let reply = OptionReply::parse(&answers.array()?).expect("an answer to an option has its magic");
        answers.take(reply.bytes as usize)?;
        if reply.reply == rep::ACK {
            structured |= reply.option == opt::STRUCTURED_REPLY;
            if reply.option == opt::GO {
                return Some(structured);
            }
        }
    }
}

/// Judges the answers of the transmission.
fn judge_replies(data: &[u8], structured: bool, answers: &mut Answers<'_>) {
    let requests_max = data.len() / export::nbd::wire::REQUEST_BYTES;
    let mut ended = 0;
    while let Some(magic) = answers.peek::<4>() {
        if u32::from_be_bytes(magic) == SIMPLE_REPLY_MAGIC {
            let Some(reply) = answers.array::<16>() else { return };
            ended += 1;
            // A simple reply to a read is followed by data, and does not say how much.
            if !structured && reply[4..8] == [0; 4] {
                return;
            }
        } else {
            assert!(structured, "no structured reply that was not asked for");
            let Some(header) = answers.array() else { return };
            let chunk = Chunk::parse(&header).expect("a reply has its magic");
            if answers.take(chunk.bytes as usize).is_none() {
                return;
            }
            ended += usize::from(chunk.done);
        }
        assert!(ended <= requests_max, "no more answers than requests");
    }
}
