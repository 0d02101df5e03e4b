//! Namespaces behind [`export::remote`], and NBD connections dealt to threads.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "threads are the subject")]

use std::{cell::RefCell, future::Future, rc::Rc, time::Duration};

use crate::support::Puppet;
use export::{
    Directory, Exports, Fault, Memory, Namespace, conformance,
    nbd::{Dealer, client::Client},
    remote::{Remote, RemoteNamespace, way},
};
use futures::future::join_all;
use rt::{Buf, Bytes, Rt, Task, net::Addr};

const NAMESPACE_BYTES: u64 = 16 << 20;

/// The two ends on one runtime.
fn both<N: Namespace>(rt: &Rt, exports: &Exports<N>) -> (Task<()>, Remote) {
    let (far, near) = way(rt);
    (far.serve(rt, exports.clone()), near.connect(rt))
}

async fn opened<N: Namespace>(rt: &Rt, namespace: N) -> (Task<()>, RemoteNamespace) {
    let (host, remote) = both(rt, &Exports::new([namespace]));
    let opened = remote.open("vol").await.unwrap();
    (host, opened)
}

#[test]
fn a_remote_namespace_conforms() {
    for seed in 0..4 {
        let rt = Rt::modelled(seed);
        rt.block_on(async {
            let (host, namespace) = opened(&rt, Puppet::new("vol", NAMESPACE_BYTES)).await;
            conformance::run(&namespace).await;
            drop(namespace);
            host.await;
        });
    }
}

#[test]
fn names_and_what_is_not_there() {
    let rt = Rt::modelled(1);
    rt.block_on(async {
        let exports = Exports::new([Memory::new("a", 4096), Memory::new("b", 8192)]);
        let (_host, remote) = both(&rt, &exports);
        assert_eq!(remote.names().await, ["a", "b"]);
        assert_eq!(remote.open("b").await.unwrap().info(), exports.open("b").await.unwrap().info());
        assert!(remote.open("c").await.is_none());
        assert!(remote.open("").await.is_none());
    });
}

#[test]
fn faults_cross() {
    let rt = Rt::modelled(1);
    rt.block_on(async {
        let puppet = Puppet::new("vol", NAMESPACE_BYTES);
        let (_host, namespace) = opened(&rt, puppet.clone()).await;
        for fault in [Fault::Medium, Fault::NoSpace, Fault::Gone] {
            puppet.fail(fault);
            assert_eq!(namespace.read(0, 4096).await, Err(fault));
            puppet.fail(fault);
            assert_eq!(namespace.write(0, Bytes::zeroed(4096), true).await, Err(fault));
            puppet.fail(fault);
            assert_eq!(namespace.extents(0, 4096, 1).await, Err(fault));
        }
        assert_eq!(puppet.calls()[..2], ["read 0 4096", "write 0 4096 true"]);
    });
}

/// Runs `future` for a random number of polls, then drops it.
async fn for_a_while<F: Future>(rt: &Rt, future: F) {
    let mut future = std::pin::pin!(future);
    let mut polls = rt.random() % 6;
    std::future::poll_fn(|cx| {
        let done = future.as_mut().poll(cx).is_ready() || polls == 0;
        polls = polls.saturating_sub(1);
        cx.waker().wake_by_ref();
        if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn requests_that_are_given_up_harm_nobody() {
    for seed in 0..200 {
        let rt = Rt::modelled(seed);
        rt.block_on(async {
            let exports = Exports::new([Memory::new("vol", NAMESPACE_BYTES)]);
            let (host, remote) = both(&rt, &exports);
            let namespace = remote.open("vol").await.unwrap();
            let tasks = (0..8u64).map(|n| {
                let (rt, remote, namespace) = (rt.clone(), remote.clone(), namespace.clone());
                rt.clone().spawn(async move {
                    let block = |round: u64| Buf::from_slice(&[(n * 31 + round) as u8; 4096]).freeze();
                    for round in 0..20 {
                        let other = (64 + rt.random() % 64) * 4096;
                        for_a_while(&rt, namespace.read(other, 8192)).await;
                        for_a_while(&rt, namespace.write(other, block(round), false)).await;
                        for_a_while(&rt, remote.open("vol")).await;
                        namespace.write(n * 4096, block(round), false).await.unwrap();
                        let read = namespace.read(n * 4096, 4096).await.unwrap();
                        assert_eq!(read, [block(round)], "seed {seed}");
                    }
                })
            });
            join_all(tasks).await;
            drop((remote, namespace));
            // The host ends when nobody is left: also those that opened it and never knew have closed it.
            host.await;
        });
    }
}

#[test]
fn when_the_host_is_gone_requests_end() {
    let rt = Rt::modelled(3);
    rt.block_on(async {
        let puppet = Puppet::new("vol", NAMESPACE_BYTES);
        let (host, namespace) = opened(&rt, puppet.clone()).await;
        puppet.hold();
        let pending = rt.spawn({
            let namespace = namespace.clone();
            async move { namespace.read(0, 4096).await }
        });
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(puppet.waiting(), 1);
        host.cancel();
        puppet.release();
        // What had begun is done to its end and answered; then nobody answers any more.
        assert!(pending.await.is_ok());
        assert_eq!(namespace.flush().await, Err(Fault::Gone));
        assert_eq!(namespace.read(0, 4096).await, Err(Fault::Gone));
    });
}

/// Serves memory by a dealer with workers on threads of their own, meanwhile.
fn dealt<T>(workers: usize, work: impl AsyncFnOnce(&Rt, &Addr, &Dealer, &Puppet) -> T) -> T {
    let rt = Rt::real().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let address = Addr::Unix(directory.path().join("nbd.sock"));
    let puppet = Puppet::new("vol", NAMESPACE_BYTES);
    let exports = Exports::new([puppet.clone()]);
    let (dealer, dealt) = Dealer::start(&rt, &exports, std::slice::from_ref(&address), workers).unwrap();
    let serve = |worker: export::nbd::Worker| {
        std::thread::spawn(move || {
            let rt = Rt::real().unwrap();
            rt.block_on(worker.serve(&rt, |dealt| dealt));
        })
    };
    let threads: Vec<_> = dealt.into_iter().map(serve).collect();
    let output = rt.block_on(async {
        let output = work(&rt, &address, &dealer, &puppet).await;
        dealer.stop().await;
        output
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    output
}

#[test]
fn connections_are_dealt_evenly_and_all_data_is_right() {
    let dealing = dealt(3, async |rt, address, dealer, _| {
        let mut clients = vec![];
        for _ in 0..6 {
            clients.push(Rc::new(Client::connect(rt, address, "vol").await.unwrap()));
        }
        let dealing = dealer.connections();
        let tasks = clients.iter().enumerate().flat_map(|(n, client)| {
            (0..8).map(move |lane| {
                let (rt, client) = (rt.clone(), client.clone());
                let at = (n as u64 * 8 + lane) * (128 << 10);
                rt.clone().spawn(async move {
                    for round in 0..50u64 {
                        let bytes = [4096, 128 << 10, 512][round as usize % 3];
                        let data = Buf::from_slice(&vec![(at >> 12) as u8 ^ round as u8; bytes]).freeze();
                        client.write(at, data.clone(), round % 7 == 0).await.unwrap();
                        assert_eq!(client.read(at, bytes as u32).await.unwrap(), data);
                    }
                })
            })
        });
        join_all(tasks).await;
        drop(clients);
        while dealer.connections() != [0, 0, 0] {
            rt.sleep(Duration::from_millis(1)).await;
        }
        dealing
    });
    assert_eq!(dealing, [2, 2, 2]);
}

#[test]
fn a_stop_finishes_what_was_begun() {
    let answers = Rc::new(RefCell::new(vec![]));
    let held = answers.clone();
    dealt(2, async move |rt, address, dealer, puppet| {
        let client = Rc::new(Client::connect(rt, address, "vol").await.unwrap());
        puppet.hold();
        let tasks: Vec<Task<_>> = (0..4u64)
            .map(|n| {
                let client = client.clone();
                rt.spawn(async move { client.write(n * 4096, Bytes::zeroed(4096), false).await })
            })
            .collect();
        while puppet.waiting() < 4 {
            rt.sleep(Duration::from_millis(1)).await;
        }
        let stop = dealer.stop();
        let later = async {
            rt.sleep(Duration::from_millis(50)).await;
            puppet.release();
        };
        let ((), (), all) = futures::join!(stop, later, join_all(tasks));
        *held.borrow_mut() = all.into_iter().map(|result| result.is_ok()).collect();
    });
    assert_eq!(*answers.borrow(), [true; 4]);
}

#[test]
fn lone_requests_wake_both_threads() {
    // A wake that is lost would leave both asleep for ever.
    dealt(1, async |rt, address, _, _| {
        let client = Client::connect(rt, address, "vol").await.unwrap();
        for n in 0..5_000u64 {
            let at = n % 512 * 4096;
            client.write(at, Buf::from_slice(&[n as u8; 4096]).freeze(), false).await.unwrap();
            if n % 3 == 0 {
                assert_eq!(client.read(at, 4096).await.unwrap()[..8], [n as u8; 8]);
            }
        }
    });
}
