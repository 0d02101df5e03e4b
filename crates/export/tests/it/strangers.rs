//! Connections that have not shown who they are, and what those who have leave to others.

use std::{rc::Rc, time::Duration};

use crate::support::{Puppet, nvme::Target, nvme::with_target, until};
use export::{
    Exports, Memory,
    nbd::{
        self, Server,
        client::{Client, Error},
    },
    nvme::{
        DISCOVERY_NQN, Status,
        client::{self, Host, Link},
        limits::{CONNECT_SECONDS_MAX, CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_MAX, STRANGERS_MAX},
        pdu::{Initialize, kind},
    },
};
use rt::{
    Rt,
    net::{Addr, Stream, raise_descriptor_limit},
};

/// Those who keep silent, or stop half way.
async fn strangers(rt: &Rt, address: &Addr, count: u64, hello: &[u8]) -> Vec<Stream> {
    let mut all = vec![];
    for _ in 0..count {
        let stream = Stream::connect(rt, address).await.unwrap();
        if !hello.is_empty() {
            let _gone = stream.send_all(vec![rt::Bytes::from_slice(hello)]).await;
        }
        all.push(stream);
    }
    all
}

/// How many the server has sent away.
fn sent_away(strangers: &[Stream]) -> usize {
    strangers.iter().filter(|stream| stream.is_closed_by_peer()).count()
}

#[test]
fn silent_hosts_keep_no_host_out() {
    raise_descriptor_limit().unwrap();
    let initialize = Initialize { version: 0, alignment: 0, digests: 0, limit: 0 }.encode(kind::IC_REQ);
    for hello in [&[][..], &initialize] {
        with_target(async |target| {
            let begun = target.rt.now();
            let silent = strangers(&target.rt, &target.address, STRANGERS_MAX + 100, hello).await;
            for _ in 0..3 {
                let host = target.host(1).await;
                assert_eq!(host.namespaces().await.unwrap(), [1]);
            }
            let patience = Duration::from_secs(CONNECT_SECONDS_MAX);
            assert!(target.rt.now() - begun < patience, "before the time of a single stranger was over");
            until(&target.rt, || sent_away(&silent) >= 100).await;
            assert!(!silent.last().unwrap().is_closed_by_peer(), "the oldest go first");
            assert!(sent_away(&silent) < 110, "and no more than must");
        });
    }
}

#[test]
fn silent_clients_keep_no_client_out() {
    raise_descriptor_limit().unwrap();
    let rt = Rt::real().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let unix = Addr::Unix(dir.path().join("nbd.sock"));
    let tcp: Addr = "tcp:127.0.0.1:0".parse().unwrap();
    let server = Server::start(&rt, Exports::new([Memory::new("vol", 1 << 20)]), &[tcp, unix]).unwrap();
    rt.block_on(async {
        for address in server.local_addrs() {
            let begun = rt.now();
            let silent = strangers(&rt, address, nbd::limits::STRANGERS_MAX + 100, &[]).await;
            for address in server.local_addrs() {
                let client = Client::connect(&rt, address, "vol").await.unwrap();
                client.flush().await.unwrap();
                client.disconnect().await;
            }
            let patience = Duration::from_secs(nbd::limits::HANDSHAKE_SECONDS_MAX);
            assert!(rt.now() - begun < patience, "before the time of a single stranger was over");
            until(&rt, || sent_away(&silent) >= 100).await;
        }
        server.stop().await;
    });
}

/// Clients of one address that use all they may get: what is left to others.
#[test]
fn an_address_leaves_clients_places() {
    raise_descriptor_limit().unwrap();
    let rt = Rt::real().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let unix = Addr::Unix(dir.path().join("nbd.sock"));
    let [v4, v6] = ["tcp:127.0.0.1:0", "tcp:[::1]:0"].map(|text| text.parse::<Addr>().unwrap());
    let server = Server::start(&rt, Exports::new([Memory::new("vol", 1 << 20)]), &[v4, v6, unix]).unwrap();
    let [v4, v6, unix] = server.local_addrs() else { panic!("three addresses") };
    rt.block_on(async {
        let mut loud = vec![];
        for _ in 0..nbd::limits::CONNECTIONS_MAX {
            loud.push(Client::connect(&rt, v4, "vol").await.unwrap());
        }
        let refused = Client::connect(&rt, v4, "vol").await.err();
        let text = format!("{refused:?}");
        assert!(matches!(refused, Some(Error::Refused { .. })) && text.contains("places"), "an answer: {text}");
        for address in [v6, unix] {
            Client::connect(&rt, address, "vol").await.unwrap().flush().await.unwrap();
        }
        loud.pop().unwrap().disconnect().await;
        loud.push(Client::connect(&rt, v4, "vol").await.unwrap());
        drop(loud);
        server.stop().await;
    });
}

/// The same of hosts, and of those who only look what there is.
#[test]
fn an_address_leaves_hosts_places() {
    raise_descriptor_limit().unwrap();
    let target = Rc::new(Target::new(Puppet::new("vol", 1 << 20)));
    let addresses = ["tcp:127.0.0.1:0", "tcp:[::1]:0"].map(|text| text.parse().unwrap());
    let server = export::nvme::Server::start(&target.rt, target.list.clone(), &addresses, &[]).unwrap();
    let [v4, v6] = server.local_addrs() else { panic!("two addresses") };
    let (rt, wishes) = (&target.rt, target.wishes());
    rt.block_on(async {
        let admin = async |address: &Addr, nqn: &str| Link::connect(rt, address, &wishes, nqn, 0, None).await;
        let mut loud = vec![];
        for _ in 0..CONNECTIONS_MAX {
            loud.push(admin(v4, crate::support::nvme::NQN).await.unwrap());
        }
        match admin(v4, crate::support::nvme::NQN).await.map(drop) {
            Err(client::Error::Failed { status, .. }) => assert_eq!(status, Status::CONNECT_CONTROLLER_BUSY),
            other => panic!("an answer: {other:?}"),
        }
        admin(v6, crate::support::nvme::NQN).await.unwrap();
        let mut looking = vec![];
        for _ in 0..DISCOVERY_CONNECTIONS_MAX + 3 {
            looking.push(admin(v4, DISCOVERY_NQN).await.unwrap());
        }
        until(rt, || looking.iter().filter(|(link, _)| link.has_ended()).count() == 3).await;
        assert!(looking[..3].iter().all(|(link, _)| link.has_ended()), "the oldest");
        let (_, found) = Host::discover(rt, v6, &wishes).await.unwrap();
        assert_eq!(found.len(), 2, "a subsystem by two addresses");
        assert!(loud.iter().all(|(link, _)| !link.has_ended()), "who works is not sent away");
        loud.clear();
        server.stop().await;
    });
}
