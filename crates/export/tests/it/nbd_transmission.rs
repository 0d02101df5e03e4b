//! Commands, flags, errors and counters of the transmission phase; malformed and hostile requests.

use crate::support::{MIB, Puppet, World, named, option_bytes, pattern, request_bytes, until, with_puppet};
use export::{
    Extent, ExtentState, Fault, Memory, Namespace, NamespaceInfo,
    nbd::{
        Errno,
        client::{Error, Wishes, Zeroes},
        wire::{cmd, cmd_flag, opt},
    },
};
use futures::future::join_all;

fn errno(result: Result<(), Error>) -> Option<Errno> {
    match result {
        Ok(()) => None,
        Err(Error::Failed { errno, .. }) => Some(errno),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn each_command_reaches_the_namespace_once() {
    with_puppet(|world, puppet| async move {
        let client = world.client("vol").await;
        client.write(4096, pattern(1, 8192), false).await.unwrap();
        client.write(4096, pattern(2, 8192), true).await.unwrap();
        assert!(client.read(4096, 8192).await.unwrap() == pattern(2, 8192));
        client.flush().await.unwrap();
        client.trim(0, 4096, false).await.unwrap();
        client.trim(0, 4096, true).await.unwrap();
        let zeroes = Zeroes::default();
        client.write_zeroes(0, 512, zeroes).await.unwrap();
        client.write_zeroes(0, 512, Zeroes { no_hole: true, fua: true, ..zeroes }).await.unwrap();
        client.write_zeroes(0, 512, Zeroes { fast: true, ..zeroes }).await.unwrap();
        client.cache(0, 4096).await.unwrap();
        let calls = [
            "write 4096 8192 false",
            "write 4096 8192 true",
            "read 4096 8192",
            "flush",
            "deallocate 0 4096 false",
            "deallocate 0 4096 true",
            "write_zeroes 0 512 true false",
            "write_zeroes 0 512 false true",
            "write_zeroes 0 512 true false",
        ];
        assert_eq!(puppet.calls(), calls);
    });
}

#[test]
fn refused_requests_do_not_reach_the_namespace() {
    with_puppet(|world, puppet| async move {
        let end = 64u64 << 20;
        let both = cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO;
        for structured in [true, false] {
            let wishes = Wishes { structured, allocation: structured, go: true };
            let client = world.client_with("vol", wishes).await;
            for (kind, flags, offset, bytes, expected) in [
                (cmd::READ, 0, end, 512, Errno::Invalid),
                (cmd::READ, 0, 1, 512, Errno::Invalid),
                (cmd::READ, 0, 0, 511, Errno::Invalid),
                (cmd::READ, 0, 0, 0, Errno::Invalid),
                (cmd::READ, cmd_flag::REQ_ONE, 0, 512, Errno::Invalid),
                (cmd::WRITE, 0, end - 512, 1024, Errno::NoSpace),
                (cmd::WRITE, 0, u64::MAX - 511, 512, Errno::NoSpace),
                (cmd::WRITE, 0, 3, 512, Errno::Invalid),
                (cmd::WRITE, 1 << 5, 0, 512, Errno::Invalid),
                (cmd::WRITE, 0, 0, 33 * MIB, Errno::Invalid),
                (cmd::TRIM, 0, end, 512, Errno::Invalid),
                (cmd::TRIM, cmd_flag::NO_HOLE, 0, 512, Errno::Invalid),
                (cmd::WRITE_ZEROES, 0, end, 512, Errno::NoSpace),
                (cmd::WRITE_ZEROES, both, 0, 512, Errno::NotSup),
                (cmd::CACHE, 0, end, 512, Errno::Invalid),
                (cmd::CACHE, 1 << 9, 0, 512, Errno::Invalid),
                (cmd::FLUSH, 0, 0, 512, Errno::Invalid),
                (cmd::BLOCK_STATUS, 0, end, 512, Errno::Invalid),
                (8, 0, 0, 512, Errno::Invalid),
                (u16::MAX, 0, 0, 0, Errno::Invalid),
            ] {
                let what =
                    format!("kind {kind} flags {flags:#x} offset {offset} bytes {bytes} structured {structured}");
                assert_eq!(errno(client.raw(kind, flags, offset, bytes).await), Some(expected), "{what}");
            }
            client.flush().await.unwrap();
            assert_eq!(puppet.calls(), ["flush"], "nothing else arrived");
        }
        let live = world.server.counters().remove(0).1;
        assert_eq!((live.errors, live.flushes, live.reads, live.writes), (40, 2, 0, 0));
    });
}

#[test]
fn a_read_that_is_too_long() {
    let world = World::new([Memory::new("vol", 1 << 30)]);
    world.rt.block_on(async {
        let client = world.client("vol").await;
        assert_eq!(errno(client.read(0, 33 * MIB).await.map(drop)), Some(Errno::Overflow));
        let wishes = Wishes { structured: false, allocation: false, go: true };
        let client = world.client_with("vol", wishes).await;
        assert_eq!(errno(client.read(0, 33 * MIB).await.map(drop)), Some(Errno::Invalid));
    });
}

#[test]
fn read_only_exports_refuse_writes() {
    let info = NamespaceInfo { read_only: true, ..Memory::new("ro", 1 << 20).info() };
    let puppet = Puppet::from(Memory::with_info(info));
    let world = World::new([puppet.clone()]);
    world.rt.block_on(async {
        let client = world.client("ro").await;
        assert_eq!(errno(client.write(0, pattern(1, 512), false).await), Some(Errno::Perm));
        assert_eq!(errno(client.trim(0, 512, false).await), Some(Errno::Perm));
        assert_eq!(errno(client.write_zeroes(0, 512, Zeroes::default()).await), Some(Errno::Perm));
        assert_eq!(puppet.calls(), Vec::<String>::new());
        client.read(0, 512).await.unwrap();
    });
}

#[test]
fn faults_become_errors() {
    with_puppet(|world, puppet| async move {
        let client = world.client("vol").await;
        for (fault, expected) in [
            (Fault::Medium, Errno::Io),
            (Fault::NoSpace, Errno::NoSpace),
            (Fault::ReadOnly, Errno::Perm),
            (Fault::OutOfRange, Errno::Invalid),
            (Fault::Misaligned, Errno::Invalid),
            (Fault::Unavailable, Errno::Io),
            (Fault::Gone, Errno::Shutdown),
        ] {
            for kind in [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS] {
                puppet.fail(fault);
                assert_eq!(errno(client.raw(kind, 0, 0, 4096).await), Some(expected), "{kind} {fault:?}");
            }
            puppet.fail(fault);
            let Err(Error::Failed { errno, message }) = client.flush().await else { panic!("{fault:?}") };
            assert_eq!((errno, message), (expected, fault.to_string()));
        }
        client.read(0, 4096).await.unwrap();
    });
}

#[test]
fn replies_come_as_they_are_ready() {
    with_puppet(|world, puppet| async move {
        let raw = world.raw().await;
        raw.go(true).await;
        puppet.hold();
        raw.request(cmd::READ, 0, 1, 0, 512).await;
        until(&world.rt, || puppet.waiting() == 1).await;
        raw.request(cmd::CACHE, 0, 2, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (0, 2), "the later request is answered first");
        puppet.release();
        let (flags, kind, cookie, payload) = raw.chunk().await;
        assert_eq!((flags, kind, cookie, payload.len()), (1, 1, 1, 520));
    });
}

#[test]
fn structured_reads_are_one_chunk_with_or_without_df() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.go(true).await;
        for flags in [0, cmd_flag::DF] {
            raw.request(cmd::READ, flags, 9, 1 << 20, 3 << 20).await;
            let (flags, kind, cookie, payload) = raw.chunk().await;
            assert_eq!((flags, kind, cookie, payload.len()), (1, 1, 9, (3 << 20) + 8));
            assert_eq!(payload[..8], (1u64 << 20).to_be_bytes());
        }
    });
}

#[test]
fn simple_replies_only_when_nothing_else_was_agreed() {
    with_puppet(|world, puppet| async move {
        let raw = world.raw().await;
        raw.go(false).await;
        raw.send(&request_bytes(cmd::WRITE, 0, 1, 0, 512)).await;
        raw.send(&pattern(3, 512)).await;
        assert_eq!(raw.simple_reply().await, (0, 1));
        raw.request(cmd::READ, 0, 2, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (0, 2));
        assert_eq!(raw.receive(512).await, pattern(3, 512)[..]);
        puppet.fail(Fault::Medium);
        raw.request(cmd::READ, 0, 3, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (5, 3), "no data after an error");
        raw.request(cmd::READ, cmd_flag::DF, 4, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (22, 4));
        raw.request(cmd::BLOCK_STATUS, 0, 5, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (22, 5));
    });
}

#[test]
fn block_status() {
    with_puppet(|world, puppet| async move {
        use ExtentState::{Allocated, Hole};
        let client = world.client("vol").await;
        client.write(1 << 20, pattern(1, 1 << 20), false).await.unwrap();
        let extents = |list: &[(u64, ExtentState)]| -> Vec<Extent> {
            list.iter().map(|(bytes, state)| Extent { bytes: *bytes, state: *state }).collect()
        };
        let all = client.block_status(0, 4 << 20, false).await.unwrap();
        assert_eq!(all, extents(&[(1 << 20, Hole), (1 << 20, Allocated), (2 << 20, Hole)]));
        let one = client.block_status(0, 4 << 20, true).await.unwrap();
        assert_eq!(one, extents(&[(1 << 20, Hole)]));
        let short = client.block_status((1 << 20) + 512, 512, true).await.unwrap();
        assert_eq!(short, extents(&[(512, Allocated)]), "no longer than the request");
        puppet.calls();
        client.block_status(0, 4096, true).await.unwrap();
        client.block_status(0, 4096, false).await.unwrap();
        assert_eq!(puppet.calls(), ["extents 0 4096 1", "extents 0 4096 4096"]);
    });
}

#[test]
fn the_largest_requests() {
    with_puppet(|world, _| async move {
        let client = world.client("vol").await;
        let data = pattern(5, 32 << 20);
        client.write(0, data.clone(), false).await.unwrap();
        client.write(32 << 20, data.clone(), false).await.unwrap();
        let reads = join_all([client.read(0, 32 * MIB), client.read(32 << 20, 32 * MIB)]).await;
        assert!(reads.into_iter().all(|read| read.unwrap() == data));
        client.trim(0, 64 * MIB, false).await.unwrap();
        client.write_zeroes(0, 64 * MIB, Zeroes::default()).await.unwrap();
    });
}

#[test]
fn disconnect_finishes_what_is_in_flight() {
    with_puppet(|world, puppet| async move {
        let raw = world.raw().await;
        raw.go(false).await;
        puppet.hold();
        raw.request(cmd::FLUSH, 0, 1, 0, 0).await;
        raw.request(cmd::DISC, 0, 2, 0, 0).await;
        until(&world.rt, || puppet.waiting() == 1).await;
        puppet.release();
        assert_eq!(raw.simple_reply().await, (0, 1));
        assert!(raw.is_closed().await);
    });
}

#[test]
fn a_request_without_its_magic_closes_and_touches_nothing() {
    with_puppet(|world, puppet| async move {
        for garbage in [vec![0; 28], vec![0xff; 4096], b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec()] {
            let raw = world.raw().await;
            raw.go(true).await;
            raw.send(&garbage).await;
            assert!(raw.is_closed().await);
        }
        assert_eq!(puppet.calls(), Vec::<String>::new());
    });
}

#[test]
fn a_refused_write_keeps_the_stream_in_step() {
    with_puppet(|world, puppet| async move {
        let raw = world.raw().await;
        raw.go(true).await;
        let mut stream = Vec::new();
        for (cookie, offset, length) in [(1, 1, 512), (2, 64 << 20, 70_000), (3, 0, 40 << 20), (4, 0, 0)] {
            stream.extend(request_bytes(cmd::WRITE, 0, cookie, offset, length));
            // A payload that looks like requests.
            let lure = request_bytes(cmd::TRIM, 0, 99, 0, 4096);
            stream.extend(lure.iter().copied().cycle().take(length as usize));
        }
        stream.extend(request_bytes(cmd::FLUSH, 0, 5, 0, 0));
        raw.send(&stream).await;
        // 70 000 is no multiple of 512, which is found before its range is.
        for (cookie, expected) in [(1, 22), (2, 22), (3, 22), (4, 22)] {
            assert_eq!(raw.error_chunk(cookie).await, expected, "write {cookie}");
        }
        assert_eq!(raw.simple_reply().await, (0, 5));
        assert_eq!(puppet.calls(), ["flush"]);
    });
}

#[test]
fn a_write_of_4_gib_closes() {
    with_puppet(|world, puppet| async move {
        let raw = world.raw().await;
        raw.go(true).await;
        raw.request(cmd::WRITE, 0, 1, 0, u32::MAX).await;
        assert!(raw.is_closed().await);
        assert_eq!(puppet.calls(), Vec::<String>::new());
    });
}

#[test]
fn a_peer_that_leaves_in_the_middle() {
    with_puppet(|world, puppet| async move {
        let whole = [request_bytes(cmd::WRITE, 0, 1, 0, 4096), pattern(1, 4096).to_vec()].concat();
        for cut in [1, 27, 28, 29, 4000, whole.len() - 1] {
            let raw = world.raw().await;
            raw.go(true).await;
            raw.send(&whole[..cut]).await;
            raw.stream.shutdown();
        }
        let connections = || world.server.counters().first().map(|c| c.1.connections);
        until(&world.rt, || connections() == Some(0)).await;
        assert_eq!(puppet.calls(), Vec::<String>::new(), "half a write is no write");
        let raw = world.raw().await;
        raw.greet(3).await;
        raw.send(&b"IHAVEOPT"[..5]).await;
        raw.stream.shutdown();
        world.client("vol").await.flush().await.unwrap();
    });
}

/// Good sessions with some bits turned: whatever they mean then, the server stays whole and writes nothing that was not
/// asked for.
#[test]
fn mutated_sessions_do_no_harm() {
    with_puppet(|world, puppet| async move {
        let mut session = 3u32.to_be_bytes().to_vec();
        session.extend(option_bytes(opt::STRUCTURED_REPLY, &[]));
        session.extend(option_bytes(opt::GO, &[&named("vol")[..], &[0, 0]].concat()));
        for cookie in 0..4 {
            session.extend(request_bytes(cmd::READ, 0, cookie, 4096 * cookie, 4096));
            session.extend(request_bytes(cmd::BLOCK_STATUS, 0, cookie, 0, 4096));
            session.extend(request_bytes(cmd::FLUSH, 0, cookie, 0, 0));
        }
        let mut random = 88_172_645_463_325_252u64;
        for _ in 0..300 {
            let mut mutated = session.clone();
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let bit = random as usize % (mutated.len() * 8);
                mutated[bit / 8] ^= 1 << (bit % 8);
            }
            let raw = world.raw().await;
            raw.try_send(&mutated).await;
            let end = raw.stream.clone();
            let rt = world.rt.clone();
            world.rt.spawn(async move {
                rt.sleep(std::time::Duration::from_millis(20)).await;
                end.shutdown();
            });
        }
        let connections = || world.server.counters().iter().map(|c| c.1.connections).sum::<u64>();
        until(&world.rt, || connections() == 0).await;
        world.client("vol").await.read(0, 4096).await.unwrap();
        let writes = puppet.calls().iter().filter(|c| c.starts_with("write ")).count();
        assert_eq!(writes, 0, "a turned bit makes no payload");
    });
}

#[test]
fn requests_cut_into_single_bytes() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.go(false).await;
        let message = [request_bytes(cmd::WRITE, 0, 7, 512, 512), pattern(4, 512).to_vec()].concat();
        for byte in message.chunks(1).take(100).chain([&message[100..]]) {
            raw.send(byte).await;
        }
        assert_eq!(raw.simple_reply().await, (0, 7));
        assert!(world.client("vol").await.read(512, 512).await.unwrap() == pattern(4, 512));
    });
}

#[test]
fn counters() {
    with_puppet(|world, puppet| async move {
        assert!(world.server.counters().is_empty());
        let client = world.client("vol").await;
        let second = world.client("vol").await;
        client.write(0, pattern(1, 8192), false).await.unwrap();
        client.read(0, 4096).await.unwrap();
        second.read(0, 512).await.unwrap();
        client.flush().await.unwrap();
        client.trim(0, 1024, false).await.unwrap();
        client.write_zeroes(0, 2048, Zeroes::default()).await.unwrap();
        puppet.fail(Fault::Medium);
        assert!(client.read(0, 512).await.is_err());
        let (name, c) = world.server.counters().remove(0);
        assert_eq!(name, "vol");
        assert_eq!((c.reads, c.bytes_read, c.writes, c.bytes_written), (2, 4608, 1, 8192));
        assert_eq!((c.flushes, c.deallocates, c.bytes_deallocated, c.errors), (1, 2, 3072, 1));
        assert_eq!((c.connections, c.connections_total, c.in_flight), (2, 2, 0));
        client.disconnect().await;
        drop(second);
        until(&world.rt, || world.server.counters()[0].1.connections == 0).await;
        assert_eq!(world.server.counters()[0].1.connections_total, 2);
    });
}
