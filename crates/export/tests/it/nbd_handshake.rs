//! The handshake, byte by byte: every option, accepted and refused.

use std::{cell::Cell, rc::Rc};

use crate::support::{Puppet, Raw, World, named, option_bytes, with_puppet, word};
use export::{
    Directory, Memory, Namespace, NamespaceInfo,
    nbd::{
        Server,
        client::{Client, Error, Wishes},
        wire::{opt, rep, transmission},
    },
};
use rt::{Addr, Rt, Stream};

/// The only reply to an option.
async fn answer(raw: &Raw, option: u32, data: &[u8]) -> u32 {
    raw.option(option, data).await;
    raw.option_reply(option).await.0
}

/// The connection still works.
async fn assert_alive(raw: &Raw) {
    raw.option(opt::LIST, &[]).await;
    assert_eq!(raw.option_reply(opt::LIST).await.0, rep::SERVER);
    assert_eq!(raw.option_reply(opt::LIST).await.0, rep::ACK);
}

#[test]
fn greeting_and_client_flags() {
    with_puppet(|world, _| async move {
        for (flags, good) in [(0, true), (1, true), (2, true), (3, true), (4, false), (1 << 31 | 3, false)] {
            let raw = world.raw().await;
            raw.greet(flags).await;
            if good {
                assert_alive(&raw).await;
            } else {
                assert!(raw.is_closed().await, "client flags {flags:#x}");
            }
        }
    });
}

#[test]
fn export_name_with_and_without_zeroes() {
    with_puppet(|world, _| async move {
        for (flags, zeroes) in [(1, 124), (3, 0)] {
            let raw = world.raw().await;
            raw.greet(flags).await;
            raw.option(opt::EXPORT_NAME, b"vol").await;
            let reply = raw.receive(10 + zeroes).await;
            assert_eq!(reply[..8], (64u64 << 20).to_be_bytes());
            assert!(reply[10..].iter().all(|b| *b == 0));
            raw.request(0, 0, 5, 0, 512).await;
            assert_eq!(raw.simple_reply().await, (0, 5));
        }
    });
}

#[test]
fn export_name_that_does_not_exist_closes() {
    with_puppet(|world, _| async move {
        for name in [&b"other"[..], b"vol\0", &[0xff], &[b'a'; 5000]] {
            let raw = world.raw().await;
            raw.greet(3).await;
            raw.option(opt::EXPORT_NAME, name).await;
            assert!(raw.is_closed().await);
        }
    });
}

#[test]
fn the_default_export() {
    let world = World::new([Puppet::new("only", 1 << 20)]);
    world.rt.block_on(async {
        assert_eq!(world.client("").await.export().name, "only");
        world.exports.add(Puppet::new("second", 1 << 20));
        let refused = Client::connect(&world.rt, &world.address, "").await.err().unwrap();
        assert!(matches!(refused, Error::Refused { reply: rep::ERR_UNKNOWN, .. }), "{refused}");
    });
}

#[test]
fn list_names_and_descriptions() {
    let world = World::new([Puppet::new("a", 1 << 20), Puppet::new("b", 2 << 20)]);
    world.rt.block_on(async {
        let list = Client::list(&world.rt, &world.address).await.unwrap();
        let names: Vec<_> = list.iter().map(|(name, description)| (name.as_str(), description.as_str())).collect();
        assert_eq!(names, [("a", "memory: gone with the process"), ("b", "memory: gone with the process")]);
    });
}

#[test]
fn list_of_nothing() {
    let world = World::new(Vec::<Memory>::new());
    world.rt.block_on(async {
        assert_eq!(Client::list(&world.rt, &world.address).await.unwrap(), []);
    });
}

#[test]
fn info_then_go() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        let data = [&named("")[..], &[0, 4, 0, 1, 0, 2, 0, 3, 0, 99]].concat();
        for option in [opt::INFO, opt::GO] {
            raw.option(option, &data).await;
            let mut items = Vec::new();
            loop {
                let (reply, data) = raw.option_reply(option).await;
                if reply == rep::ACK {
                    break;
                }
                assert_eq!(reply, rep::INFO);
                items.push(data);
            }
            assert_eq!(items[0][..10], [&[0, 0][..], &(64u64 << 20).to_be_bytes()].concat());
            assert_eq!(items[1], b"\0\x01vol", "the canonical name");
            assert_eq!(items[2], b"\0\x02memory: gone with the process");
            let sizes: Vec<u32> = items[3][2..].chunks(4).map(word).collect();
            assert_eq!((&items[3][..2], &sizes[..]), (&[0, 3][..], &[512, 4096, 32 << 20][..]));
            assert_eq!(items.len(), 4);
        }
        raw.request(0, 0, 6, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (0, 6));
    });
}

#[test]
fn an_unknown_export_is_refused_and_may_be_tried_again() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        for option in [opt::INFO, opt::GO] {
            assert_eq!(answer(&raw, option, &[&named("no")[..], &[0, 0]].concat()).await, rep::ERR_UNKNOWN);
        }
        assert_alive(&raw).await;
    });
}

#[test]
fn malformed_options_are_invalid() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        let lies = [&u32::MAX.to_be_bytes()[..], b"vol", &[0, 0]].concat();
        let truncated = [&named("vol")[..], &[0, 9, 0, 1]].concat();
        for option in [opt::INFO, opt::GO, opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
            for data in [&[][..], &[0], &lies, &truncated, &named("vol")] {
                assert_eq!(answer(&raw, option, data).await, rep::ERR_INVALID, "option {option} with {data:?}");
            }
        }
        for option in [opt::LIST, opt::STRUCTURED_REPLY, opt::STARTTLS] {
            assert_eq!(answer(&raw, option, b"data").await, rep::ERR_INVALID, "option {option} with data");
        }
        assert_alive(&raw).await;
    });
}

#[test]
fn tls_extended_headers_and_unknown_options_are_unsupported() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        for option in [opt::STARTTLS, opt::EXTENDED_HEADERS, 4, 12, 4711, u32::MAX] {
            assert_eq!(answer(&raw, option, &[]).await, rep::ERR_UNSUP, "option {option}");
        }
        assert_eq!(answer(&raw, 4711, &[7; 10_000]).await, rep::ERR_UNSUP, "its data is skipped");
        assert_alive(&raw).await;
    });
}

#[test]
fn an_option_that_is_too_long() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        assert_eq!(answer(&raw, opt::GO, &vec![0; 1 << 20]).await, rep::ERR_TOO_BIG);
        assert_alive(&raw).await;
        let mut header = option_bytes(opt::GO, &[]);
        header[12..].copy_from_slice(&u32::MAX.to_be_bytes());
        raw.send(&header).await;
        assert!(raw.is_closed().await, "4 GiB are not thrown away");
    });
}

#[test]
fn an_option_without_its_magic_closes() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        raw.send(b"WANTOPTS\0\0\0\x03\0\0\0\0").await;
        assert!(raw.is_closed().await);
    });
}

#[test]
fn abort_is_acknowledged() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        assert_eq!(answer(&raw, opt::ABORT, b"ignored").await, rep::ACK);
        assert!(raw.is_closed().await);
    });
}

#[test]
fn meta_contexts_need_structured_replies() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.greet(3).await;
        let query = |list: &[&str]| {
            let mut data = [&named("vol")[..], &(list.len() as u32).to_be_bytes()].concat();
            list.iter().for_each(|q| data.extend(named(q)));
            data
        };
        let allocation = query(&["base:allocation"]);
        assert_eq!(answer(&raw, opt::SET_META_CONTEXT, &allocation).await, rep::ERR_INVALID);
        assert_eq!(answer(&raw, opt::LIST_META_CONTEXT, &allocation).await, rep::ERR_INVALID);
        assert_eq!(answer(&raw, opt::STRUCTURED_REPLY, &[]).await, rep::ACK);
        for (option, list, found) in [
            (opt::LIST_META_CONTEXT, &[][..], true),
            (opt::LIST_META_CONTEXT, &["base:"], true),
            (opt::LIST_META_CONTEXT, &["x-a:b"], false),
            (opt::SET_META_CONTEXT, &["base:"], false),
            (opt::SET_META_CONTEXT, &["x-a:b", "base:allocation", "base:other"], true),
            (opt::SET_META_CONTEXT, &[], false),
        ] {
            raw.option(option, &query(list)).await;
            if found {
                let (reply, data) = raw.option_reply(option).await;
                assert_eq!((reply, &data[4..]), (rep::META_CONTEXT, &b"base:allocation"[..]), "{list:?}");
            }
            assert_eq!(raw.option_reply(option).await.0, rep::ACK, "{option} {list:?}");
        }
        let unknown = [&named("no")[..], &0u32.to_be_bytes()].concat();
        assert_eq!(answer(&raw, opt::SET_META_CONTEXT, &unknown).await, rep::ERR_UNKNOWN);
    });
}

#[test]
fn a_context_counts_for_its_export_and_until_set_again() {
    let world = World::new([Puppet::new("vol", 1 << 20), Puppet::new("other", 1 << 20)]);
    world.rt.block_on(async {
        for (names, good) in
            [(&["vol"][..], true), (&["other"], false), (&["vol", "no"], false), (&["other", "vol"], true)]
        {
            let raw = world.raw().await;
            raw.greet(3).await;
            assert_eq!(answer(&raw, opt::STRUCTURED_REPLY, &[]).await, rep::ACK);
            for name in names {
                let data = [&named(name)[..], &1u32.to_be_bytes(), &named("base:allocation")].concat();
                raw.option(opt::SET_META_CONTEXT, &data).await;
                while raw.option_reply(opt::SET_META_CONTEXT).await.0 == rep::META_CONTEXT {}
            }
            raw.option(opt::GO, &[&named("vol")[..], &[0, 0]].concat()).await;
            while raw.option_reply(opt::GO).await.0 != rep::ACK {}
            raw.request(7, 0, 1, 0, 4096).await;
            let (_, kind, _, _) = raw.chunk().await;
            assert_eq!(kind == 5, good, "contexts set for {names:?}");
        }
    });
}

#[test]
fn transmission_flags() {
    let read_only = NamespaceInfo { name: "ro".to_owned(), read_only: true, ..Memory::new("", 1 << 20).info() };
    let world = World::new([Memory::new("rw", 1 << 20), Memory::with_info(read_only)]);
    world.rt.block_on(async {
        use transmission::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let writes = SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        let simple = Wishes { structured: false, allocation: false, go: true };
        let old = Wishes { go: false, ..simple };
        assert_eq!(world.client("rw").await.export().flags, always | writes | SEND_DF);
        assert_eq!(world.client_with("rw", simple).await.export().flags, always | writes);
        assert_eq!(world.client_with("rw", old).await.export().flags, always | writes);
        assert_eq!(world.client("ro").await.export().flags, always | SEND_DF | READ_ONLY);
    });
}

#[test]
fn info_is_asked_anew() {
    let world = World::new([Memory::new("vol", 1 << 20)]);
    world.rt.block_on(async {
        let before = world.client("vol").await;
        world.exports.add(Memory::new("vol", 2 << 20));
        assert_eq!((before.export().bytes, world.client("vol").await.export().bytes), (1 << 20, 2 << 20));
    });
}

/// No exports; counts how often it is asked for them.
#[derive(Clone, Default)]
struct Asked(Rc<Cell<usize>>);

impl Directory for Asked {
    type N = Memory;

    async fn names(&self) -> Vec<String> {
        self.0.set(self.0.get() + 1);
        vec![]
    }

    async fn open(&self, _name: &str) -> Option<Memory> {
        None
    }
}

/// Options that are all there are answered one by one: whoever else is on this thread has a turn between two.
#[test]
fn options_without_end_leave_turns_to_others() {
    const OPTIONS: usize = 100;
    let rt = Rt::real().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let address = Addr::Unix(dir.path().join("nbd.sock"));
    let asked = Asked::default();
    let server = Server::start(&rt, asked.clone(), std::slice::from_ref(&address)).unwrap();
    rt.block_on(async {
        let raw = Raw { stream: Stream::connect(&rt, &address).await.unwrap() };
        raw.greet(3).await;
        raw.send(&option_bytes(opt::LIST, &[]).repeat(OPTIONS)).await;
        let (mut before, mut most) = (0, 0);
        while before < OPTIONS {
            rt.yield_now().await;
            let now = asked.0.get();
            (before, most) = (now, most.max(now - before));
        }
        assert!(most <= 2, "{most} options in one turn");
        server.stop().await;
    });
}
