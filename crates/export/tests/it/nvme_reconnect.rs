//! A host that has lost its connections and comes back: nothing that it sent before lands on what it writes now.

use std::{rc::Rc, time::Duration};

use crate::support::{
    nvme::{NQN, Target, failed, with_target},
    pattern, until,
};
use export::{
    Namespace,
    nvme::{
        Status,
        client::{Disk, Error, Host, Link, Wishes},
        entry::{Sgl, Sqe, io},
        limits::{CONNECTION_COMMANDS_MAX, SETTLE_SECONDS_MAX},
        pdu::{self, To, kind},
        property,
    },
};
use rt::{Bytes, Task};

/// Begins to connect.
fn connecting(target: &Rc<Target>, wishes: Wishes) -> Task<Result<Host, Error>> {
    let (rt, address) = (target.rt.clone(), target.address.clone());
    target.rt.spawn(async move { Host::connect(&rt, &address, NQN, 1, &wishes).await })
}

/// Sends a command without waiting for its answer.
fn send(link: &Link, sqe: Sqe, data: &[u8]) {
    let parts = [Bytes::from_slice(data)];
    let encoded = pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &parts, To::Controller, &link.terms());
    link.send_raw(&[&encoded.head[..], data].concat());
}

fn write(disk: &Disk, id: u16, data: &[u8]) -> Sqe {
    let bytes = data.len() as u32;
    let sqe =
        disk.command(io::WRITE, 0, u64::from(bytes), 0).with_dword(1, 1).with_sgl(Sgl::Capsule { offset: 0, bytes });
    sqe.with(2, &id.to_le_bytes())
}

#[test]
fn writes_of_lost_connections_are_waited_for() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.hold();
        send(&host.queues[0], write(&disk, 1, &pattern(1, 4096)), &pattern(1, 4096));
        until(&target.rt, || target.puppet.waiting() == 1).await;
        drop((host, disk));
        let again = connecting(&target, Wishes::default());
        let other = Wishes { host: "nqn.other".to_owned(), host_id: [9; 16], ..Wishes::default() };
        connecting(&target, other).await.unwrap();
        target.rt.sleep(Duration::from_millis(100)).await;
        assert!(!again.is_finished(), "the old write is in flight");
        target.puppet.release();
        let host = again.await.unwrap();
        let disk = host.disk(1).await.unwrap();
        disk.write(0, pattern(2, 4096), false).await.unwrap();
        assert!(target.puppet.memory.read(0, 4096).await.unwrap()[0] == pattern(2, 4096));
    });
}

/// One by one its ranges would go on for long after the host has written there again.
#[test]
fn a_deallocation_of_a_lost_connection_ends_before() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        disk.write(0, pattern(1, 4096), false).await.unwrap();
        target.puppet.hold();
        let ranges: Vec<(u64, u64)> = (0..256).rev().map(|i| (i * 4096, 4096)).collect();
        let task = {
            let disk = disk.clone();
            target.rt.spawn(async move { disk.deallocate(&ranges).await })
        };
        until(&target.rt, || target.puppet.waiting() == 1).await;
        task.cancel();
        drop((host, disk));
        let again = connecting(&target, Wishes::default());
        target.rt.sleep(Duration::from_millis(100)).await;
        target.puppet.calls();
        target.puppet.release();
        let host = again.await.unwrap();
        let disk = host.disk(1).await.unwrap();
        assert_eq!(target.puppet.calls().len(), 255, "all the other ranges");
        disk.write(0, pattern(2, 4096), false).await.unwrap();
        assert!(disk.read(0, 4096).await.unwrap() == pattern(2, 4096));
    });
}

/// What waits in the socket of a lost connection is never begun.
#[test]
fn commands_that_were_not_begun_are_dropped() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.calls();
        target.puppet.hold();
        let link = &host.queues[0];
        for i in 0..CONNECTION_COMMANDS_MAX {
            send(link, Sqe::new(io::FLUSH, i as u16).with_dword(1, 1), &[]);
        }
        send(link, write(&disk, 999, &pattern(1, 4096)), &pattern(1, 4096));
        until(&target.rt, || target.puppet.waiting() as u64 == CONNECTION_COMMANDS_MAX).await;
        drop((host, disk));
        // Flushes change nothing and are not waited for.
        let host = connecting(&target, Wishes::default()).await.unwrap();
        target.puppet.release();
        until(&target.rt, || target.server.connections() == 2).await;
        assert!(target.puppet.calls().iter().all(|call| call == "flush"));
        drop(host);
    });
}

#[test]
fn a_host_is_told_to_come_again_when_an_old_write_hangs() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.hold();
        send(&host.queues[0], write(&disk, 1, &[1; 512]), &[1; 512]);
        until(&target.rt, || target.puppet.waiting() == 1).await;
        drop((host, disk));
        let begun = target.rt.now();
        let refused = connecting(&target, Wishes::default()).await.map(drop);
        assert_eq!(failed(refused), Status::CONNECT_CONTROLLER_BUSY);
        assert!(target.rt.now() - begun >= Duration::from_secs(SETTLE_SECONDS_MAX));
        assert_eq!(Status::CONNECT_CONTROLLER_BUSY, Status::CONNECT_CONTROLLER_BUSY.retryable());
        target.puppet.release();
        connecting(&target, Wishes::default()).await.unwrap();
    });
}

/// A host with several controllers that is never idle.
#[test]
fn a_second_way_is_not_kept_waiting() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        let busy: Vec<Task<()>> = (0..8)
            .map(|i| {
                let disk = disk.clone();
                target.rt.spawn(async move { while disk.write(i << 20, pattern(3, 4096), false).await.is_ok() {} })
            })
            .collect();
        let begun = target.rt.now();
        let second = connecting(&target, Wishes::default()).await.unwrap();
        assert!(target.rt.now() - begun < Duration::from_secs(1));
        assert_eq!(target.server.controllers(), 2);
        busy.into_iter().for_each(|task| task.cancel());
        second.keep_alive().await.unwrap();
        host.keep_alive().await.unwrap();
    });
}

#[test]
fn a_reset_ends_when_its_commands_have() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.hold();
        send(&host.queues[0], write(&disk, 1, &[1; 512]), &[1; 512]);
        until(&target.rt, || target.puppet.waiting() == 1).await;
        let host = Rc::new(host);
        let resetting = {
            let host = host.clone();
            target.rt.spawn(async move { host.set_property(property::offset::CC, 0).await })
        };
        target.rt.sleep(Duration::from_millis(100)).await;
        assert!(!resetting.is_finished());
        target.puppet.release();
        resetting.await.unwrap();
        host.enable().await.unwrap();
        // Its number is free again at once.
        let wishes = target.wishes();
        let (link, _) =
            Link::connect(&target.rt, &target.address, &wishes, NQN, 1, Some(host.controller)).await.unwrap();
        link.run(Sqe::new(io::FLUSH, 0).with_dword(1, 1), None, 0).await.unwrap();
    });
}
