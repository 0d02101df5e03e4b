//! Admin commands over loopback: Identify, log pages, features, events, abort.

use crate::support::{
    Puppet,
    nvme::{NQN, failed, with_target},
};
use export::{
    Fault, Memory, Namespace, NamespaceInfo,
    nvme::{
        Health, Status,
        bytes::{u16_at, u32_at, u64_at},
        client::log_command,
        cns,
        entry::{NSID_ALL, Sqe, admin},
        event_config, feature_id,
        limits::{EVENT_REQUESTS_MAX, NSID_MAX, TRANSFER_BYTES_MAX},
        log,
    },
};
use rt::Bytes;

#[test]
fn identify_tells_controller_and_namespaces() {
    with_target(async |target| {
        let host = target.host(1).await;
        let controller = host.identify(cns::CONTROLLER, 0).await.unwrap().data;
        assert_eq!(u16_at(&controller, 78), host.controller);
        assert_eq!(std::str::from_utf8(&controller[768..768 + NQN.len()]), Ok(NQN));
        assert_eq!(host.namespaces().await.unwrap(), [1]);
        let namespace = host.identify(cns::NAMESPACE, 1).await.unwrap().data;
        assert_eq!(u64_at(&namespace, 0) * 512, 64 << 20);
        let uuid = NamespaceInfo::uuid_of_name("vol");
        assert_eq!(namespace[104..120], uuid, "NGUID");
        let descriptors = host.identify(cns::DESCRIPTORS, 1).await.unwrap().data;
        assert_eq!((&descriptors[4..20], &descriptors[24..40]), (&uuid[..], &uuid[..]));
        assert_eq!(host.identify(cns::NAMESPACE_COMMON, 1).await.unwrap().data[14], 1, "ready");
        for structure in [cns::NAMESPACE, cns::NAMESPACE_COMMON, cns::NAMESPACE_OF_SET] {
            let inactive = host.identify(structure, 2).await.unwrap().data;
            assert!(inactive.iter().all(|b| *b == 0), "an inactive namespace is all zeroes");
            for nsid in [0, NSID_MAX + 1, NSID_ALL] {
                assert_eq!(failed(host.identify(structure, nsid).await), Status::INVALID_NAMESPACE);
            }
        }
        assert!(host.identify(cns::CONTROLLER_OF_SET, 0).await.unwrap().data.iter().all(|b| *b == 0));
        assert_eq!(failed(host.identify(cns::DESCRIPTORS, 2).await), Status::INVALID_NAMESPACE);
        assert_eq!(failed(host.identify(cns::ACTIVE, NSID_ALL).await), Status::INVALID_NAMESPACE);
        for absent in [0x04, 0x07, 0x10, 0x11, 0x13, 0x14, 0x1c, 0xff] {
            assert_eq!(failed(host.identify(absent, 1).await), Status::INVALID_FIELD, "CNS {absent:#x}");
        }
        let short = Sqe::new(admin::IDENTIFY, 0).with_dword(10, 1);
        assert_eq!(failed(host.admin.run(short, None, 512).await), Status::DATA_LENGTH_INVALID);
    });
}

#[test]
fn commands_that_are_absent() {
    with_target(async |target| {
        let host = target.host(0).await;
        for opcode in [0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x14, 0x15, 0x19, 0x1c, 0x80, 0x81, 0x84, 0xff] {
            let done = host.admin.run(Sqe::new(opcode, 0), None, 0).await;
            assert_eq!(failed(done), Status::INVALID_OPCODE, "{opcode:#x}");
        }
        let fused = Sqe::new(admin::KEEP_ALIVE, 0).with(1, &[0x41]);
        assert_eq!(failed(host.admin.run(fused, None, 0).await), Status::INVALID_FIELD);
        host.keep_alive().await.unwrap();
    });
}

#[test]
fn log_pages() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        let supported = host.log(log::SUPPORTED, 0, 1024).await.unwrap().data;
        let listed: Vec<usize> = (0..256).filter(|id| supported[id * 4] == 1).collect();
        assert_eq!(listed, [0, 1, 2, 3, 4, 5, 0x0c]);
        disk.write(0, Bytes::zeroed(4096), false).await.unwrap();
        disk.read(0, 4096).await.unwrap();
        let health = host.log(log::HEALTH, 0, 512).await.unwrap().data;
        assert_eq!([32, 48, 64, 80].map(|at| u64_at(&health, at)), [1, 1, 1, 1]);
        let of_one = log_command(log::HEALTH, 0, 512).with_dword(1, 1);
        assert_eq!(failed(host.admin.run(of_one, None, 512).await), Status::INVALID_FIELD, "of all namespaces only");
        let firmware = host.log(log::FIRMWARE, 0, 512).await.unwrap().data;
        assert_eq!((firmware[0], &firmware[8..11]), (1, &b"0.1"[..]));
        let effects = host.log(log::EFFECTS, 0, 4096).await.unwrap().data;
        assert_eq!([u32_at(&effects, 6 * 4), u32_at(&effects, 1024 + 4), u32_at(&effects, 1024 + 8)], [1, 3, 1]);
        let ana = host.log(log::ANA, 0, 52).await.unwrap().data;
        assert_eq!((u16_at(&ana, 8), u32_at(&ana, 16), u32_at(&ana, 20), ana[32], u32_at(&ana, 48)), (1, 1, 1, 1, 1));
        let groups = log_command(log::ANA, 0, 48);
        let groups = host.admin.run(groups.with_dword(10, groups.dword(10) | 1 << 8), None, 48).await.unwrap().data;
        assert_eq!(u32_at(&groups, 20), 0);
    });
}

#[test]
fn log_pages_in_pieces_and_beyond_their_end() {
    with_target(async |target| {
        let host = target.host(0).await;
        let whole = host.log(log::EFFECTS, 0, 4096).await.unwrap().data;
        let part = host.log(log::EFFECTS, 1028, 16).await.unwrap().data;
        assert_eq!(part[..], whole[1028..1044]);
        let beyond = host.log(log::EFFECTS, 4092, 64).await.unwrap().data;
        assert!(beyond[4..].iter().all(|b| *b == 0));
        assert!(
            host.log(log::FIRMWARE, 0, TRANSFER_BYTES_MAX).await.unwrap().data.len() == TRANSFER_BYTES_MAX as usize
        );
        assert_eq!(failed(host.log(log::EFFECTS, 4100, 4).await), Status::INVALID_FIELD);
        assert_eq!(failed(host.log(log::EFFECTS, 2, 4).await), Status::INVALID_FIELD);
        assert_eq!(failed(host.log(log::EFFECTS, u64::MAX - 3, 4).await), Status::INVALID_FIELD);
        assert_eq!(failed(host.log(log::EFFECTS, 0, TRANSFER_BYTES_MAX + 4).await), Status::INVALID_FIELD);
        for absent in [0x06, 0x07, 0x0d, 0x70, 0x80, 0x81, 0xff] {
            assert_eq!(failed(host.log(absent, 0, 512).await), Status::INVALID_LOG_PAGE, "{absent:#x}");
        }
        let by_index = log_command(log::ERROR, 0, 64).with_dword(14, 1 << 23);
        assert_eq!(failed(host.admin.run(by_index, None, 64).await), Status::INVALID_FIELD);
    });
}

#[test]
fn features() {
    with_target(async |target| {
        let host = target.host(0).await;
        assert_eq!(host.set_feature(feature_id::EVENTS, 0x1ff).await, Ok(0));
        assert_eq!(host.feature(feature_id::EVENTS).await, Ok(0x1ff));
        assert_eq!(failed(host.set_feature(feature_id::EVENTS, 1 << 31).await), Status::INVALID_FIELD);
        assert_eq!(host.set_feature(feature_id::KEEP_ALIVE, 90_000).await, Ok(0));
        assert_eq!(host.feature(feature_id::KEEP_ALIVE).await, Ok(90_000));
        assert_eq!(host.set_feature(feature_id::QUEUES, 0x0003_0003).await, Ok(0x0003_0003));
        assert_eq!(host.feature(feature_id::QUEUES).await, Ok(0x0003_0003));
        assert_eq!(failed(host.set_feature(feature_id::QUEUES, 0xffff).await), Status::INVALID_FIELD);
        assert_eq!(host.feature(feature_id::VOLATILE_CACHE).await, Ok(0));
        assert_eq!(host.set_feature(feature_id::VOLATILE_CACHE, 0).await, Ok(0));
        assert_eq!(failed(host.set_feature(feature_id::VOLATILE_CACHE, 1).await), Status::FEATURE_NOT_CHANGEABLE);
        let host_id = Sqe::new(admin::GET_FEATURES, 0).with_dword(10, u32::from(feature_id::HOST_ID)).with_dword(11, 1);
        assert_eq!(host.admin.run(host_id, None, 16).await.unwrap().data[..], [1; 16]);
        assert_eq!(failed(host.feature(feature_id::HOST_ID).await), Status::INVALID_FIELD, "64 bits");
        assert_eq!(failed(host.set_feature(feature_id::HOST_ID, 1).await), Status::SEQUENCE_ERROR);
        for absent in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0a, 0x0c, 0x0e, 0x10, 0x11, 0x16, 0x82, 0xff] {
            assert_eq!(failed(host.feature(absent).await), Status::INVALID_FIELD, "{absent:#x}");
            assert_eq!(failed(host.set_feature(absent, 0).await), Status::INVALID_FIELD, "{absent:#x}");
        }
        let default = Sqe::new(admin::GET_FEATURES, 0).with_dword(10, u32::from(feature_id::EVENTS) | 1 << 8);
        assert_eq!(failed(host.admin.run(default, None, 0).await), Status::INVALID_FIELD);
        let save = Sqe::new(admin::SET_FEATURES, 0).with_dword(10, u32::from(feature_id::EVENTS) | 1 << 31);
        assert_eq!(failed(host.admin.run(save, None, 0).await).0 & 0x7ff, 0x10d);
    });
}

#[test]
fn namespaces_that_come_change_and_go_are_told() {
    with_target(async |target| {
        let host = target.host(1).await;
        host.set_feature(feature_id::EVENTS, event_config::NAMESPACES).await.unwrap();
        let second = Puppet::from(Memory::new("second", 1 << 20));
        let changed = || async {
            let page = host.log(log::CHANGED_NAMESPACES, 0, 4096).await.unwrap().data;
            [u32_at(&page, 0), u32_at(&page, 4)]
        };
        let event = host.request_event();
        target.list.attach(NQN, 7, second);
        assert_eq!(event.completion().await.unwrap().cqe.result, 0x0004_0002);
        assert_eq!(changed().await, [7, 0]);
        assert_eq!(changed().await, [0, 0], "read once");
        assert_eq!(host.namespaces().await.unwrap(), [1, 7]);
        host.disk(7).await.unwrap().write(0, Bytes::zeroed(512), false).await.unwrap();
        // Grown: the same identity, another size.
        let event = host.request_event();
        let info = NamespaceInfo { bytes: 2 << 20, ..Memory::new("second", 1 << 20).info() };
        target.list.attach(NQN, 7, Puppet::from(Memory::with_info(info)));
        event.completion().await.unwrap();
        assert_eq!(changed().await, [7, 0]);
        let disk = host.disk(7).await.unwrap();
        assert_eq!(disk.bytes, 2 << 20);
        disk.write(1 << 20, Bytes::zeroed(512), false).await.unwrap();
        let event = host.request_event();
        target.list.detach(NQN, 7);
        event.completion().await.unwrap();
        assert_eq!(failed(disk.read(0, 512).await), Status::INVALID_NAMESPACE);
        assert_eq!((changed().await, host.namespaces().await.unwrap()), ([7, 0], vec![1]));
    });
}

#[test]
fn a_subsystem_that_is_not_well_warns() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        host.set_feature(feature_id::EVENTS, 0xff).await.unwrap();
        target.puppet.fail(Fault::Medium);
        assert_eq!(failed(disk.read(0, 512).await), Status::UNRECOVERED_READ);
        let event = host.request_event();
        target.list.set_health(NQN, Health { degraded: true, frozen: false });
        assert_eq!(event.completion().await.unwrap().cqe.result, 0x0002_0001);
        let page = host.log(log::HEALTH, 0, 512).await.unwrap().data;
        assert_eq!((page[0], u64_at(&page, 160)), (4, 1));
        let event = host.request_event();
        target.list.set_health(NQN, Health { degraded: true, frozen: true });
        event.completion().await.unwrap();
        assert_eq!(host.log(log::HEALTH, 0, 512).await.unwrap().data[0], 12);
    });
}

#[test]
fn event_requests_are_limited_and_can_be_aborted() {
    with_target(async |target| {
        let host = target.host(0).await;
        let mut waiting: Vec<_> = (0..EVENT_REQUESTS_MAX).map(|_| host.request_event()).collect();
        let one_more = host.request_event().completion().await.unwrap();
        assert_eq!(one_more.cqe.status, Status::EVENT_LIMIT_EXCEEDED);
        let abort = |queue: u32, command: u16| {
            host.admin.submit(Sqe::new(admin::ABORT, 0).with_dword(10, u32::from(command) << 16 | queue), None, 0)
        };
        let first = waiting.remove(0);
        let aborted = abort(0, first.command).completion().await.unwrap();
        assert_eq!((aborted.cqe.status, aborted.cqe.result), (Status::SUCCESS, 0));
        assert_eq!(first.completion().await.unwrap().cqe.status, Status::ABORT_REQUESTED);
        for (queue, command) in [(0, 0xfff0), (1, waiting[0].command), (9, 1)] {
            assert_eq!(abort(queue, command).completion().await.unwrap().cqe.result, 1, "not aborted");
        }
    });
}
