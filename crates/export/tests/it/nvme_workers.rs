//! I/O queues of NVMe/TCP dealt to threads.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "threads are the subject")]

use std::{cell::Cell, pin::pin, rc::Rc, time::Duration};

use crate::support::{Puppet, nvme::NQN};
use export::nvme::{
    Access, Deal, Server, SubsystemList, Worker,
    client::{Disk, Host, Link, Wishes},
};
use futures::future::{join, join_all, select};
use rt::{Buf, Bytes, Rt, Task, net::Addr};

/// A server on this thread, and where it listens.
struct Served {
    rt: Rt,
    server: Server<SubsystemList<Puppet>>,
    address: Addr,
    puppet: Puppet,
}

impl Served {
    async fn host(&self, queues: u16, wishes: &Wishes) -> (Rc<Host>, Disk) {
        let host = Host::connect(&self.rt, &self.address, NQN, queues, wishes).await.unwrap();
        let disk = host.disk(1).await.unwrap();
        (Rc::new(host), disk)
    }

    async fn until(&self, dealt: &[usize]) {
        while self.server.dealt() != dealt {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
    }
}

fn dealing(workers: usize, deal: Deal) -> (Served, Vec<Worker>) {
    let rt = Rt::real().unwrap();
    let (list, puppet) = (SubsystemList::default(), Puppet::new("vol", 64 << 20));
    list.add(NQN, Access::Any);
    list.attach(NQN, 1, puppet.clone());
    let any_port = "tcp:127.0.0.1:0".parse().unwrap();
    let (server, workers) = Server::dealing(&rt, list, std::slice::from_ref(&any_port), &[], (workers, deal)).unwrap();
    let address = server.local_addrs()[0].clone();
    (Served { rt, server, address, puppet }, workers)
}

/// Has workers on threads of their own meanwhile; then the server stops, and the threads end.
fn on_threads(workers: usize, work: impl AsyncFnOnce(&Served)) {
    on_threads_by(workers, Deal::ToOthers, work);
}

fn on_threads_by(workers: usize, deal: Deal, work: impl AsyncFnOnce(&Served)) {
    let (served, workers) = dealing(workers, deal);
    let serve = |worker: Worker| {
        std::thread::spawn(move || {
            let rt = Rt::real().unwrap();
            rt.block_on(worker.serve(&rt));
        })
    };
    let threads: Vec<_> = workers.into_iter().map(serve).collect();
    served.rt.block_on(async {
        work(&served).await;
        served.server.stop().await;
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Tasks that write and read back, each in a MiB of its own, through each of the hosts.
fn lanes(served: &Served, hosts: &[(Rc<Host>, Disk)], rounds: u64) -> Vec<Task<()>> {
    let lane = |at: u64, disk: Disk| async move {
        for round in 0..rounds {
            let bytes = [4096, 1 << 20, 512, 128 << 10][round as usize % 4];
            let data = Buf::from_slice(&vec![(at >> 20) as u8 ^ round as u8; bytes]).freeze();
            disk.write(at, data.clone(), round % 7 == 0).await.unwrap();
            assert_eq!(disk.read(at, bytes as u32).await.unwrap(), data);
        }
    };
    let all = hosts.iter().enumerate().flat_map(|(n, (_, disk))| (0..24).map(move |lane| (n as u64 * 24 + lane, disk)));
    all.map(|(at, disk)| served.rt.spawn(lane(at << 20, disk.clone()))).collect()
}

#[test]
fn queues_are_dealt_evenly_and_all_data_is_right() {
    on_threads(3, async |served| {
        let wishes = Wishes { header_digest: true, data_digest: true, ..Wishes::default() };
        let mut hosts = vec![];
        for wishes in [&wishes, &Wishes::default()] {
            hosts.push(served.host(3, wishes).await);
        }
        assert_eq!(served.server.dealt(), [2, 2, 2]);
        let tasks = lanes(served, &hosts, 40);
        join_all(tasks).await;
        drop(hosts);
        served.until(&[0, 0, 0]).await;
        assert_eq!((served.server.connections(), served.server.controllers()), (0, 0));
    });
}

/// The controllers' core serves one queue, and the others share the rest; a queue that has ended makes room for the next.
#[test]
fn a_queue_is_placed_by_load() {
    on_threads_by(2, Deal::ByLoad, async |served| {
        let (lone, disk) = served.host(1, &Wishes::default()).await;
        assert_eq!(served.server.dealt(), [0, 0]);
        disk.write(0, Bytes::zeroed(4096), false).await.unwrap();
        let more = served.host(4, &Wishes::default()).await;
        assert_eq!(served.server.dealt(), [2, 2]);
        drop((lone, disk));
        while served.server.connections() > 5 {
            served.rt.sleep(Duration::from_millis(1)).await;
        }
        let next = served.host(1, &Wishes::default()).await;
        assert_eq!(served.server.dealt(), [2, 2]);
        join_all(lanes(served, &[more, next], 8)).await;
        served.until(&[0, 0]).await;
    });
}

/// Without a worker that is served, queues stay with the controllers.
#[test]
fn queues_without_a_worker() {
    let (served, workers) = dealing(1, Deal::ToOthers);
    let rt = served.rt.clone();
    rt.block_on(async {
        drop(workers);
        rt.sleep(Duration::from_millis(20)).await;
        let (_host, disk) = served.host(2, &Wishes::default()).await;
        assert_eq!(served.server.dealt(), [0]);
        disk.write(0, Bytes::zeroed(4096), false).await.unwrap();
        served.server.stop().await;
    });
}

#[test]
fn lone_commands_wake_both_threads() {
    // A wake that is lost would leave both asleep for ever.
    on_threads(1, async |served| {
        let (_host, disk) = served.host(1, &Wishes::default()).await;
        for n in 0..3_000u64 {
            let at = n % 512 * 4096;
            disk.write(at, Buf::from_slice(&[n as u8; 4096]).freeze(), false).await.unwrap();
            if n % 3 == 0 {
                assert_eq!(disk.read(at, 4096).await.unwrap()[..8], [n as u8; 8]);
            }
        }
    });
}

/// A host may connect a queue anew on the same controller before the thread that has the old connection says that it ended.
#[test]
fn a_queue_connects_again_at_once() {
    on_threads(1, async |served| {
        let (address, wishes) = (&served.address, Wishes::default());
        let mut host = Host::connect(&served.rt, address, NQN, 2, &wishes).await.unwrap();
        drop(host.queues.pop());
        for n in 0..300 {
            let again = Link::connect(&served.rt, address, &wishes, NQN, 2, Some(host.controller)).await;
            assert!(again.is_ok(), "the {n}th time: {:?}", again.map(drop));
        }
    });
}

#[test]
fn a_stop_finishes_what_was_begun() {
    on_threads(2, async |served| {
        let (_host, disk) = served.host(2, &Wishes::default()).await;
        served.puppet.hold();
        let tasks: Vec<Task<_>> = (0..8u64)
            .map(|n| {
                let disk = disk.clone();
                served.rt.spawn(async move { disk.write(n * 4096, Bytes::zeroed(4096), false).await })
            })
            .collect();
        while served.puppet.waiting() < 8 {
            served.rt.sleep(Duration::from_millis(1)).await;
        }
        let later = async {
            served.rt.sleep(Duration::from_millis(50)).await;
            served.puppet.release();
        };
        let ((), (), all) = futures::join!(served.server.stop(), later, join_all(tasks));
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    });
}

/// Stops while hosts connect, write and leave: it ends, and nothing is used afterwards.
#[test]
fn a_stop_at_any_time_ends() {
    for millis in 0..40 {
        let writes = Rc::new(Cell::new(0));
        let deal = if millis % 2 == 0 { Deal::ToOthers } else { Deal::ByLoad };
        on_threads_by(2, deal, async |served| {
            let guests = (0..3).map(|n| {
                let writes = writes.clone();
                async move {
                    loop {
                        let wishes = Wishes { in_capsule: n % 2 == 0, ..Wishes::default() };
                        let host = Host::connect(&served.rt, &served.address, NQN, 2, &wishes).await;
                        let Ok(host) = host else { return };
                        let Ok(disk) = host.disk(1).await else { return };
                        for at in 0..20u64 {
                            let data = Bytes::zeroed([4096, 512 << 10][at as usize % 2]);
                            if disk.write(at << 20, data, false).await.is_err() {
                                return;
                            }
                            writes.set(writes.get() + 1);
                        }
                    }
                }
            });
            let all = join_all(guests);
            let stop = async {
                served.rt.sleep(Duration::from_millis(millis)).await;
                served.server.stop().await;
                assert_eq!((served.puppet.waiting(), served.server.connections()), (0, 0));
            };
            join(all, stop).await;
        });
        assert!(millis < 25 || writes.get() > 0, "it was never used");
    }
}

/// A worker whose thread ends loses its connections; hosts that come again are served by the other.
#[test]
fn a_worker_that_is_gone() {
    let (served, mut workers) = dealing(2, Deal::ToOthers);
    let rt = served.rt.clone();
    let last = workers.pop().unwrap();
    let thread = std::thread::spawn(move || {
        let rt = Rt::real().unwrap();
        rt.block_on(async {
            let patience = rt.sleep(Duration::from_millis(300));
            select(pin!(last.serve(&rt)), pin!(patience)).await;
        });
    });
    let first = workers.pop().unwrap();
    rt.block_on(async {
        let of_worker = rt.clone();
        rt.spawn(async move { first.serve(&of_worker).await }).detach();
        let (lost, disk) = served.host(2, &Wishes::default()).await;
        assert_eq!(served.server.dealt(), [1, 1]);
        while !lost.queues.iter().any(Link::has_ended) {
            let _either = disk.write(0, Bytes::zeroed(4096), false).await;
            rt.sleep(Duration::from_millis(5)).await;
        }
        drop((lost, disk));
        let (_host, disk) = served.host(2, &Wishes::default()).await;
        served.until(&[2, 0]).await;
        disk.write(0, Bytes::zeroed(4096), false).await.unwrap();
        served.server.stop().await;
    });
    thread.join().unwrap();
}
