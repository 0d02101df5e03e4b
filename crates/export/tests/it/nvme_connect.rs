//! From ICReq to a queue: Connect, access, discovery, properties, queues, the end of controllers.

use std::time::Duration;

use crate::support::{
    Puppet,
    nvme::{NQN, Target, failed, with_target},
    until,
};
use export::nvme::{
    Access, DISCOVERY_NQN, Server, Status, SubsystemList,
    client::{Error, Host, Link, Opened, Wishes, connect_command},
    entry::{Sgl, Sqe, admin, fabrics, io},
    feature_id,
    limits::{
        ADMIN_CAPSULE_DATA_MAX, CONNECTIONS_MAX, H2C_DATA_MAX, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX, TRANSFER_BYTES_MAX,
    },
    pdu::{Initialize, kind},
    property::{self, cc, csts},
};
use export::uri::Namespace;
use futures::future::{join, join_all};
use rt::Bytes;
use rt::net::Addr;

/// Status and result of a Connect command that is refused.
async fn refused(link: &Link, sqe: Sqe, data: Bytes) -> (Status, u64) {
    match link.run(sqe, Some(data), 0).await {
        Err(Error::Failed { status, result }) => (status, result),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn icresp_tells_what_we_take() {
    with_target(async |target| {
        for digests in 0..4 {
            let raw = target.raw().await;
            raw.send(&Initialize { version: 0, alignment: 31, digests, limit: u32::MAX }.encode(kind::IC_REQ)).await;
            let expected = Initialize { version: 0, alignment: 0, digests, limit: H2C_DATA_MAX };
            assert_eq!(raw.receive(128).await, expected.encode(kind::IC_RESP));
        }
    });
}

#[test]
fn a_controller_is_connected_enabled_and_shut_down() {
    with_target(async |target| {
        let (admin, first) = target.admin(&target.wishes()).await.unwrap();
        let host = Host { admin, queues: vec![], controller: first };
        assert_eq!(host.property(property::offset::CAP, true).await, Ok(property::capabilities()));
        assert_eq!(host.property(property::offset::VS, false).await, Ok(u64::from(property::VERSION)));
        assert_eq!(host.property(property::offset::CSTS, false).await, Ok(0));
        assert_eq!(failed(host.identify(1, 0).await), Status::SEQUENCE_ERROR, "not enabled");
        host.enable().await.unwrap();
        host.identify(1, 0).await.unwrap();
        assert_eq!(failed(host.property(0x20, false).await), Status::INVALID_FIELD);
        assert_eq!(failed(host.set_property(property::offset::CSTS, 1).await), Status::INVALID_FIELD);
        target.puppet.calls();
        host.shut_down(&target.rt).await.unwrap();
        assert_eq!(target.puppet.calls(), ["flush"], "a shutdown makes all durable");
        host.set_property(property::offset::CC, 0).await.unwrap();
        assert_eq!(host.property(property::offset::CSTS, false).await, Ok(0));
        host.enable().await.unwrap();
        let second = target.host(0).await;
        assert_ne!(second.controller, first);
        drop((host, second));
        until(&target.rt, || target.server.controllers() == 0 && target.server.connections() == 0).await;
    });
}

#[test]
fn a_configuration_that_is_not_supported_is_fatal_until_reset() {
    with_target(async |target| {
        let (admin, controller) = target.admin(&target.wishes()).await.unwrap();
        let host = Host { admin, queues: vec![], controller };
        host.set_property(property::offset::CC, u64::from(cc::ENABLE)).await.unwrap();
        assert_eq!(host.property(property::offset::CSTS, false).await, Ok(u64::from(csts::FATAL)));
        assert_eq!(failed(host.identify(1, 0).await), Status::SEQUENCE_ERROR);
        host.set_property(property::offset::CC, 0).await.unwrap();
        host.enable().await.unwrap();
    });
}

#[test]
fn connect_names_what_is_wrong() {
    with_target(async |target| {
        let wishes = target.wishes();
        let link = Link::open(&target.rt, &target.address, &wishes).await.unwrap();
        let invalid = Status::CONNECT_INVALID_PARAMETERS;
        let in_data = |at: u64| 1 << 16 | at;
        let identify = Sqe::new(admin::IDENTIFY, 0);
        let first = link.run(identify, None, 4096).await;
        assert_eq!(failed(first), Status::SEQUENCE_ERROR, "Connect is the first command");
        let (good, data) = connect_command(&wishes, NQN, 0, None);
        let with = |wishes: &Wishes, nqn: &str, queue, controller| connect_command(wishes, nqn, queue, controller);
        let named = |host: &str| Wishes { host: host.to_owned(), ..target.wishes() };
        let sized = |entries| Wishes { entries, ..target.wishes() };
        for (name, (sqe, data), expected) in [
            ("another record format", (good.with(40, &[1]), data.clone()), (Status::CONNECT_INCOMPATIBLE_FORMAT, 0)),
            ("a queue of one entry", with(&sized(1), NQN, 0, None), (invalid, 44)),
            ("a queue that is too long", with(&sized(QUEUE_ENTRIES_MAX + 1), NQN, 0, None), (invalid, 44)),
            ("a queue of 65536", with(&sized(0), NQN, 0, None), (invalid, 44)),
            ("a host name of another kind", with(&named("iqn.x"), NQN, 0, None), (invalid, in_data(512))),
            ("no subsystem name", with(&wishes, "", 0, None), (invalid, in_data(256))),
            ("an unknown subsystem", with(&wishes, "nqn.none", 0, None), (invalid.retryable(), in_data(256))),
            ("a controller of its own choice", with(&wishes, NQN, 0, Some(7)), (invalid, in_data(16))),
            ("an I/O queue of no controller", with(&wishes, NQN, 1, Some(7)), (invalid, in_data(16))),
            (
                "half of the data",
                (good.with(32, &512u32.to_le_bytes()), data.slice(0..512)),
                (Status::DATA_LENGTH_INVALID, 0),
            ),
            ("keyed data", (good.with(39, &[0x40]), data.clone()), (Status::SGL_TYPE_INVALID, 0)),
            (
                "data by R2T",
                (good.with_sgl(Sgl::Transport { bytes: 1024 }), Bytes::default()),
                (Status::SGL_TYPE_INVALID, 0),
            ),
        ] {
            assert_eq!(refused(&link, sqe, data).await, expected, "{name}");
        }
        assert_eq!(target.server.controllers(), 0);
        link.run(good, Some(data.clone()), 0).await.unwrap();
        assert_eq!(refused(&link, good, data).await.0, Status::SEQUENCE_ERROR, "connected once");
    });
}

#[test]
fn io_queues_belong_to_a_controller_of_the_same_host() {
    with_target(async |target| {
        let wishes = target.wishes();
        let (admin, controller) = target.admin(&wishes).await.unwrap();
        let connect = |wishes: Wishes, queue| {
            let target = target.clone();
            async move { Link::connect(&target.rt, &target.address, &wishes, NQN, queue, Some(controller)).await }
        };
        assert_eq!(failed(connect(wishes.clone(), 1).await.map(drop)), Status::SEQUENCE_ERROR, "not enabled");
        let host = Host { admin, queues: vec![], controller };
        host.enable().await.unwrap();
        assert_eq!(host.set_feature(feature_id::QUEUES, 0x0001_0003).await, Ok(0x0001_0001));
        let others =
            [Wishes { host: "nqn.other".to_owned(), ..wishes.clone() }, Wishes { host_id: [2; 16], ..wishes.clone() }];
        for other in others {
            assert_eq!(failed(connect(other, 1).await.map(drop)), Status::CONNECT_INVALID_PARAMETERS);
        }
        assert_eq!(failed(connect(wishes.clone(), 3).await.map(drop)), Status::CONNECT_INVALID_PARAMETERS);
        let (link, _) = connect(wishes.clone(), 2).await.unwrap();
        assert_eq!(failed(connect(wishes.clone(), 2).await.map(drop)), Status::SEQUENCE_ERROR, "in use");
        assert_eq!(failed(host.set_feature(feature_id::QUEUES, 0).await), Status::SEQUENCE_ERROR, "too late");
        link.run(Sqe::new(io::FLUSH, 0).with_dword(1, 1), None, 0).await.unwrap();
        let property = Sqe::new(fabrics::OPCODE, 0).with(4, &[fabrics::PROPERTY_GET]);
        assert_eq!(
            failed(link.run(property, None, 0).await),
            Status::INVALID_OPCODE,
            "properties are the admin queue's"
        );
        let disconnect = Sqe::new(fabrics::OPCODE, 0).with(4, &[fabrics::DISCONNECT]);
        assert_eq!(failed(link.run(disconnect, None, 0).await), Status::INVALID_OPCODE);
        // A queue that is closed can be connected again; a reset closes all.
        drop(link);
        until(&target.rt, || target.server.connections() == 1).await;
        let (link, _) = connect(wishes, 2).await.unwrap();
        host.set_property(property::offset::CC, 0).await.unwrap();
        assert_eq!(link.ended(&target.rt).await, Error::Disconnected);
    });
}

#[test]
fn as_many_queues_as_there_may_be() {
    with_target(async |target| {
        let host = target.host(64).await;
        assert_eq!(host.queues.len(), usize::from(IO_QUEUES_MAX));
        let disk = host.disk(1).await.unwrap();
        for i in 0..64 {
            disk.write(i * 4096, Bytes::zeroed(4096), false).await.unwrap();
        }
        // The end of the admin queue is the end of all.
        let queues = host.queues.clone();
        drop(host);
        drop(disk);
        until(&target.rt, || target.server.connections() == 0).await;
        assert!(queues.iter().all(Link::has_ended));
    });
}

#[test]
fn nobody_may_in_unless_allowed() {
    let host = |name: &str| Wishes { host: name.to_owned(), ..Wishes::default() };
    for (access, allowed) in [
        (Access::default(), [false, false]),
        (Access::Hosts(vec!["nqn.a".to_owned()]), [true, false]),
        (Access::Any, [true, true]),
    ] {
        let target = Target::with(Puppet::new("vol", 1 << 20), access, (0, export::nvme::Deal::ToOthers));
        target.rt.clone().block_on(async {
            for (wishes, allowed) in [host("nqn.a"), host("nqn.b")].iter().zip(allowed) {
                let (_, seen) = Host::discover(&target.rt, &target.address, wishes).await.unwrap();
                assert_eq!(seen.len(), usize::from(allowed), "what may not be used is not seen");
                match target.admin(wishes).await {
                    Ok(_) => assert!(allowed),
                    Err(Error::Failed { status, .. }) => {
                        assert!(!allowed && status == Status::CONNECT_INVALID_HOST);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
}

#[test]
fn discovery_tells_addresses_and_changes() {
    with_target(async |target| {
        let wishes = target.wishes();
        let host = Host::connect(&target.rt, &target.address, DISCOVERY_NQN, 0, &wishes).await.unwrap();
        let (generation, entries) = host.discovery_log().await.unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!((&*entries[0].subsystem, format!("tcp:{}", entries[0].address)), (NQN, target.address.to_string()));
        host.set_feature(feature_id::EVENTS, 1 << 31).await.unwrap();
        let event = host.request_event();
        target.list.add("nqn.second", Access::Any);
        assert_eq!(event.completion().await.unwrap().cqe.result, 0x0070_f002);
        let (later, entries) = host.discovery_log().await.unwrap();
        assert!(later > generation && entries.len() == 2);
        for (name, refused) in [
            ("namespaces", host.identify(2, 0).await.map(drop)),
            ("health", host.log(2, 0, 512).await.map(drop)),
            ("queues", host.feature(feature_id::QUEUES).await.map(drop)),
        ] {
            failed_with_dnr(name, refused);
        }
        let io = Link::connect(&target.rt, &target.address, &wishes, DISCOVERY_NQN, 1, Some(host.controller)).await;
        assert_eq!(failed(io.map(drop)), Status::CONNECT_INVALID_PARAMETERS, "no I/O queues");
    });
}

fn failed_with_dnr(name: &str, result: Result<(), Error>) {
    let status = failed(result);
    assert_ne!(status, status.retryable(), "{name}: {status}");
}

#[test]
fn the_advertised_address_is_configurable() {
    let target = Target::new(Puppet::new("vol", 1 << 20));
    let any_port = "tcp:127.0.0.1:0".parse().unwrap();
    let advertised = ["10.0.2.2:4420".parse().unwrap(), "[fd00::2]:4420".parse().unwrap()];
    let list: SubsystemList<Puppet> = target.list.clone();
    let server = Server::start(&target.rt, list, &[any_port], &advertised).unwrap();
    target.rt.block_on(async {
        let (_, entries) = Host::discover(&target.rt, &server.local_addrs()[0], &target.wishes()).await.unwrap();
        assert_eq!(entries.iter().map(|e| e.address).collect::<Vec<_>>(), advertised);
    });
}

#[test]
fn a_host_that_is_silent_loses_its_controller() {
    with_target(async |target| {
        let wishes = Wishes { keep_alive_millis: 500, ..target.wishes() };
        let (silent, talking) = (target.host_with(1, &wishes).await, target.host_with(1, &wishes).await);
        assert_eq!(talking.feature(feature_id::KEEP_ALIVE).await, Ok(500));
        for _ in 0..40 {
            target.rt.sleep(Duration::from_millis(100)).await;
            // Any command counts.
            talking.queues[0].run(Sqe::new(io::FLUSH, 0).with_dword(1, 1), None, 0).await.unwrap();
        }
        assert!(silent.admin.has_ended() && silent.queues[0].has_ended());
        talking.keep_alive().await.unwrap();
        talking.set_feature(feature_id::KEEP_ALIVE, 0).await.unwrap();
        assert_eq!(target.server.controllers(), 1);
    });
}

#[test]
fn more_queues_than_fit_wait_a_little() {
    with_target(async |target| {
        let mut links = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            links.push(target.admin(&target.wishes()).await.unwrap());
        }
        let late = {
            let target = target.clone();
            target.rt.clone().spawn(async move { target.admin(&target.wishes()).await.is_ok() })
        };
        target.rt.sleep(Duration::from_millis(50)).await;
        assert!(!late.is_finished());
        links.pop();
        assert!(late.await);
    });
}

#[test]
fn stop_finishes_what_is_in_flight() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.hold();
        let write = {
            let disk = disk.clone();
            target.rt.spawn(async move { disk.write(0, Bytes::zeroed(ADMIN_CAPSULE_DATA_MAX as usize), false).await })
        };
        until(&target.rt, || target.puppet.waiting() == 1).await;
        let stopping = {
            let target = target.clone();
            target.rt.clone().spawn(async move { target.server.stop().await })
        };
        target.rt.sleep(Duration::from_millis(50)).await;
        assert!(!stopping.is_finished(), "a write is in flight");
        let late = disk.flush();
        target.puppet.release();
        assert_eq!(write.await, Ok(()));
        assert_eq!(late.await, Err(Error::Disconnected), "not begun, so that the host sends it again");
        stopping.await;
        assert!(host.admin.ended(&target.rt).await == Error::Disconnected);
        assert_eq!(target.puppet.calls().iter().filter(|c| *c == "flush").count(), 0);
    });
}

#[test]
fn a_namespace_is_opened_by_its_address_alone() {
    with_target(async |target| {
        let Addr::Tcp(address) = target.address.clone() else { panic!("{:?}", target.address) };
        let open = |at: &Namespace, in_flight| {
            let (rt, at) = (target.rt.clone(), at.clone());
            async move { Opened::open(&rt, &at, in_flight).await }
        };
        let bare = Namespace { address, subsystem: None, nsid: None, host: Some("nqn.2014-08.org.x:me".to_owned()) };
        let opened = open(&bare, 300).await.unwrap();
        assert_eq!((opened.at.subsystem.as_deref(), opened.at.nsid), (Some(NQN), Some(1)));
        assert_eq!(opened.host.queues.len(), 3, "127 requests are in flight in a queue of 128 entries");
        assert_eq!(opened.disk.transfer_bytes_max, Some(u64::from(TRANSFER_BYTES_MAX)));
        // More than a queue takes, at once; no queue is overrun.
        target.puppet.hold();
        let reads: Vec<_> = (0..381u64).map(|at| opened.disk.read(at * 4096, 4096)).collect();
        let all = join_all(reads);
        let let_go = async {
            target.rt.sleep(Duration::from_millis(50)).await;
            assert!(opened.host.queues.iter().all(|queue| queue.in_flight() == 127));
            target.puppet.release();
        };
        let (answers, ()) = join(all, let_go).await;
        assert!(answers.iter().all(Result::is_ok));
        let told = |error: Option<Error>| error.map(|e| e.to_string()).unwrap_or_default();
        let many = open(&bare, 127 * 16 + 1).await.err();
        assert!(told(many).contains("at most 2032"));
        let other = open(&Namespace { nsid: Some(9), ..bare.clone() }, 1).await.err();
        assert!(told(other).contains("no namespace 9; it has: 1"));
        target.list.attach(NQN, 4, Puppet::new("more", 1 << 20));
        assert!(told(open(&bare, 1).await.err()).contains("give nsid=N: 1, 4"));
        target.list.add("nqn.2014-08.org.x:more", Access::Any);
        assert!(told(open(&bare, 1).await.err()).contains("name one: "));
    });
}
