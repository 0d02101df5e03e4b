//! The client against servers that answer in other ways than ours, or wrongly.

use crate::support::Raw;
use export::nbd::{
    Errno,
    client::{Client, Error, Wishes},
    reply,
    wire::{opt, rep},
};
use rt::{
    Rt,
    net::{Addr, Listener},
};

/// Connects a client to a server that grants structured replies or not, reads 4096 bytes at 8192 (cookie 1), and gets
/// `answer`.
fn read_answered_with(structured: bool, answer: Vec<u8>) -> Result<Vec<u8>, Error> {
    let rt = Rt::real().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let address = Addr::Unix(directory.path().join("fake.sock"));
    let listener = Listener::bind(&rt, &address).unwrap();
    rt.spawn(async move {
        let raw = Raw { stream: listener.accept().await.unwrap() };
        raw.send(b"NBDMAGICIHAVEOPT\0\x03").await;
        raw.receive(4).await;
        let mut out = Vec::new();
        if structured {
            raw.receive(16).await;
            reply::option(&mut out, opt::STRUCTURED_REPLY, rep::ACK, &[]);
            raw.send(&out).await;
        }
        raw.receive(16 + 4 + 3 + 2 + 6).await;
        out.clear();
        reply::option(&mut out, opt::GO, rep::INFO, &[&[0, 9], b"an information from the future"]);
        reply::option(&mut out, opt::GO, rep::INFO, &[&[0, 0], &(1u64 << 20).to_be_bytes(), &[0, 1]]);
        reply::option(&mut out, opt::GO, rep::ACK, &[]);
        raw.send(&out).await;
        raw.receive(28).await;
        raw.send(&answer).await;
        raw.receive(28).await;
    });
    rt.block_on(async {
        let wishes = Wishes { structured, allocation: false, go: true };
        let client = Client::connect_with(&rt, &address, "vol", wishes).await.unwrap();
        client.read(8192, 4096).await.map(|data| data.to_vec())
    })
}

fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let mut out = 0x668e_33efu32.to_be_bytes().to_vec();
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend(payload);
    out
}

fn data(flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(flags, 1, 1, &[&offset.to_be_bytes(), bytes])
}

fn hole(flags: u16, offset: u64, bytes: u32) -> Vec<u8> {
    chunk(flags, 2, 1, &[&offset.to_be_bytes(), &bytes.to_be_bytes()])
}

#[test]
fn chunks_and_holes_in_any_order() {
    let answer = [
        data(0, 8192 + 3072, &[3; 1024]),
        hole(0, 8192 + 1024, 1024),
        data(0, 8192, &[1; 1024]),
        hole(0, 8192 + 2048, 1024),
        chunk(1, 0, 1, &[]),
    ];
    let expected = [[1; 1024], [0; 1024], [0; 1024], [3; 1024]].concat();
    assert_eq!(read_answered_with(true, answer.concat()), Ok(expected));
    assert_eq!(read_answered_with(true, hole(1, 8192, 4096)), Ok(vec![0; 4096]));
}

#[test]
fn errors_after_data_are_errors() {
    let error = |kind| chunk(1, kind, 1, &[&28u32.to_be_bytes(), &4u16.to_be_bytes(), b"full", &[0; 8]]);
    for kind in [0x8001, 0x8002, 0x8077] {
        let answer = [data(0, 8192, &[1; 4096]), error(kind)].concat();
        let expected = Error::Failed { errno: Errno::NoSpace, message: "full".to_owned() };
        assert_eq!(read_answered_with(true, answer), Err(expected), "{kind:#x}");
    }
}

#[test]
fn answers_that_break_the_protocol_end_the_connection() {
    let mut simple = Vec::new();
    reply::simple(&mut simple, 1, None);
    simple.extend([0; 4096]);
    for (what, structured, answer) in [
        ("garbage", true, vec![0x55; 64]),
        ("a cookie that was not used", true, chunk(1, 0, 77, &[])),
        ("a simple reply to a read", true, simple),
        ("a structured reply that was not agreed on", false, data(1, 8192, &[1; 4096])),
        ("too little", true, data(1, 8192, &[1; 512])),
        ("nothing but success", true, chunk(1, 0, 1, &[])),
        ("data beyond the request", true, data(1, 8192, &[1; 4608])),
        ("data before the request", true, data(1, 7680, &[1; 4096])),
        ("data twice", true, [data(0, 8192, &[1; 4096]), data(1, 8192, &[1; 512])].concat()),
        ("an empty hole", true, [hole(0, 8192, 0), data(1, 8192, &[1; 4096])].concat()),
        ("a huge hole", true, hole(1, 8192, u32::MAX)),
        ("an unknown chunk", true, chunk(1, 9, 1, &[])),
        ("block status to a read", true, chunk(1, 5, 1, &[&[0; 12]])),
        ("an error without a code", true, chunk(1, 0x8001, 1, &[&[0; 6]])),
        ("an error that is too short", true, chunk(1, 0x8001, 1, &[&[0; 3]])),
        ("an end that is not the end", true, chunk(0, 0, 1, &[])),
    ] {
        assert_eq!(read_answered_with(structured, answer), Err(Error::Disconnected), "{what}");
    }
}

#[test]
fn servers_that_are_none() {
    for greeting in [&b"HTTP/1.1 400 Bad"[..], b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53", b"NBDMAGICIHAVEOPT\0\0"] {
        let rt = Rt::real().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let address = Addr::Unix(directory.path().join("fake.sock"));
        let listener = Listener::bind(&rt, &address).unwrap();
        rt.spawn(async move {
            let raw = Raw { stream: listener.accept().await.unwrap() };
            raw.send(greeting).await;
            raw.receive(1).await;
        });
        let error = rt.block_on(Client::connect(&rt, &address, "vol")).err();
        assert!(matches!(error, Some(Error::Protocol(_))), "{error:?}");
    }
}
