//! Back-pressure, stalled peers, connection limits, and the order of stopping.

use std::{cell::Cell, rc::Rc, time::Duration};

use crate::support::{World, pattern, request_bytes, until, with_puppet};
use export::{
    Memory,
    nbd::{
        Errno, Server,
        client::{Client, Error},
        limits::{CONNECTION_BYTES_MAX, CONNECTION_REQUESTS_MAX, CONNECTIONS_MAX, REQUEST_BYTES_MAX},
        wire::{cmd, opt, rep},
    },
};
use futures::future::join_all;
use rt::net::{Addr, Stream};

#[test]
fn more_requests_than_fit_wait_and_succeed() {
    with_puppet(|world, puppet| async move {
        let client = world.client("vol").await;
        puppet.hold();
        let count = CONNECTION_REQUESTS_MAX as usize * 3;
        let done = Rc::new(Cell::new(0));
        for i in 0..count {
            let (client, done) = (client.clone(), done.clone());
            world.rt.spawn(async move {
                client.write(i as u64 * 512, pattern(i as u8, 512), false).await.unwrap();
                done.set(done.get() + 1);
            });
        }
        until(&world.rt, || puppet.waiting() as u64 == CONNECTION_REQUESTS_MAX).await;
        world.rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(puppet.waiting() as u64, CONNECTION_REQUESTS_MAX, "no more than the limit are in flight");
        puppet.release();
        until(&world.rt, || done.get() == count).await;
    });
}

#[test]
fn bytes_in_flight_are_limited() {
    with_puppet(|world, puppet| async move {
        let client = world.client("vol").await;
        puppet.hold();
        let reads = join_all((0..6).map(|_| client.read(0, REQUEST_BYTES_MAX)));
        let checks = async {
            let fit = (CONNECTION_BYTES_MAX / u64::from(REQUEST_BYTES_MAX)) as usize;
            until(&world.rt, || puppet.waiting() == fit).await;
            world.rt.sleep(Duration::from_millis(50)).await;
            assert_eq!(puppet.waiting(), fit);
            puppet.release();
        };
        let (reads, ()) = futures::join!(reads, checks);
        assert!(reads.iter().all(Result::is_ok));
    });
}

/// A peer that asks for much and takes nothing holds its own limit, and nobody else notices.
#[test]
fn a_peer_that_takes_no_answers_stops_only_itself() {
    with_puppet(|world, puppet| async move {
        let greedy = world.raw().await;
        greedy.go(true).await;
        for cookie in 0..20 {
            greedy.request(cmd::READ, 0, cookie, 0, REQUEST_BYTES_MAX).await;
        }
        world.rt.sleep(Duration::from_millis(100)).await;
        let reads = puppet.calls().len();
        let in_outbox = (CONNECTION_BYTES_MAX / u64::from(REQUEST_BYTES_MAX)) as usize;
        assert!((in_outbox..in_outbox + 2).contains(&reads), "{reads} reads for a peer that takes no answers");
        let client = world.client("vol").await;
        client.write(0, pattern(1, 1 << 20), false).await.unwrap();
        assert!(client.read(0, 1 << 20).await.unwrap() == pattern(1, 1 << 20));
        // When it does take them it gets them all.
        for cookie in 0..20 {
            let (_, _, found, payload) = greedy.chunk().await;
            assert_eq!((found, payload.len()), (cookie, REQUEST_BYTES_MAX as usize + 8));
        }
    });
}

#[test]
fn many_refused_requests_without_taking_the_answers() {
    with_puppet(|world, _| async move {
        let raw = world.raw().await;
        raw.go(true).await;
        let flood: Vec<u8> = (0..20_000).flat_map(|cookie| request_bytes(99, 0, cookie, 0, 0)).collect();
        let stream = raw.stream.clone();
        let flooding = world.rt.spawn(async move {
            stream.send_all(vec![rt::Bytes::from_slice(&flood)]).await.unwrap();
        });
        world.rt.sleep(Duration::from_millis(50)).await;
        for cookie in 0..20_000 {
            assert_eq!(raw.error_chunk(cookie).await, 22);
        }
        flooding.await;
    });
}

#[test]
fn more_connections_than_fit_wait_a_little() {
    let world = World::new([Memory::new("vol", 1 << 20)]);
    world.rt.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            clients.push(world.client("vol").await);
        }
        let connected = Rc::new(Cell::new(false));
        let (rt, address, flag) = (world.rt.clone(), world.address.clone(), connected.clone());
        let late = world.rt.spawn(async move {
            let client = Client::connect(&rt, &address, "vol").await.unwrap();
            flag.set(true);
            client.flush().await.unwrap();
        });
        world.rt.sleep(Duration::from_millis(50)).await;
        assert!(!connected.get());
        clients.pop().unwrap().disconnect().await;
        late.await;
    });
}

#[test]
fn tcp_and_unix_at_once() {
    let world = World::new([Memory::new("vol", 1 << 20)]);
    world.rt.block_on(async {
        let any_port: Addr = "tcp:127.0.0.1:0".parse().unwrap();
        let unix = Addr::Unix(std::env::temp_dir().join(format!("nbd-both-{}.sock", std::process::id())));
        let server = Server::start(&world.rt, world.exports.clone(), &[any_port, unix]).unwrap();
        for address in server.local_addrs() {
            let client = Client::connect(&world.rt, address, "vol").await.unwrap();
            client.write(0, pattern(1, 4096), false).await.unwrap();
        }
        server.stop().await;
        for address in server.local_addrs() {
            assert!(Stream::connect(&world.rt, address).await.is_err(), "{address} is closed");
        }
    });
}

#[test]
fn stop_finishes_what_is_in_flight_and_refuses_what_is_later() {
    with_puppet(|world, puppet| async move {
        let client = world.client("vol").await;
        let in_handshake = world.raw().await;
        in_handshake.greet(3).await;
        puppet.hold();
        let early = client.write(0, pattern(1, 4096), false);
        let rest = async {
            until(&world.rt, || puppet.waiting() == 1).await;
            let server = world.server.clone();
            let stopped = world.rt.spawn(async move { server.stop().await });
            world.rt.sleep(Duration::from_millis(20)).await;
            assert!(Stream::connect(&world.rt, &world.address).await.is_err(), "no new connections");
            for kind in [cmd::WRITE, cmd::READ, cmd::FLUSH] {
                let bytes = if kind == cmd::FLUSH { 0 } else { 512 };
                let refused = client.raw(kind, 0, 0, bytes).await;
                assert!(matches!(refused, Err(Error::Failed { errno: Errno::Shutdown, .. })), "{refused:?}");
            }
            in_handshake.option(opt::LIST, &[]).await;
            assert_eq!(in_handshake.option_reply(opt::LIST).await.0, rep::ERR_SHUTDOWN);
            assert!(!stopped.is_finished(), "waits for the namespace");
            puppet.release();
            stopped.await;
        };
        let (early, ()) = futures::join!(early, rest);
        assert_eq!(early, Ok(()));
        assert_eq!(puppet.calls(), ["write 0 4096 false"]);
        assert_eq!(client.flush().await, Err(Error::Disconnected));
        assert!(in_handshake.is_closed().await);
    });
}

#[test]
fn stop_does_not_wait_for_a_peer_that_takes_no_answers() {
    with_puppet(|world, puppet| async move {
        let greedy = world.raw().await;
        greedy.go(false).await;
        for cookie in 0..4 {
            greedy.request(cmd::READ, 0, cookie, 0, REQUEST_BYTES_MAX).await;
        }
        until(&world.rt, || puppet.calls().len() >= 2).await;
        world.server.stop().await;
        assert_eq!(world.server.counters()[0].1.connections, 0);
    });
}

#[test]
fn stop_with_idle_connections() {
    with_puppet(|world, _| async move {
        let clients = [world.client("vol").await, world.client("vol").await];
        let silent = world.raw().await;
        silent.receive(18).await;
        world.server.stop().await;
        world.server.stop().await;
        assert_eq!(clients[0].flush().await, Err(Error::Disconnected));
        assert!(silent.is_closed().await);
    });
}
