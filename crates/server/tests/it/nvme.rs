//! A server with an array in files, used over NVMe/TCP: what hosts see follows the array and survives a restart.

use std::path::Path;
use std::thread::{self, JoinHandle};

use api::Problem;
use export::nvme::client::{Disk, Error, Host, Wishes};
use export::nvme::{Status, cns, event_config, feature_id};
use rt::{Addr, Buf, Bytes, Rt};
use server::config::{ArrayConfig, VolumeConfig};
use server::daemon::{self, NvmeSettings, Settings, What};
use server::registry::Registry;
use server::size::Size;
use server::subsystem::{AccessRules, Rule, nqn};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";

fn settings(dir: &Path, port: u16) -> Settings {
    let drives = (0..4).map(|i| dir.join(format!("d{i}")).display().to_string()).collect();
    let volume = |name: &str| VolumeConfig { name: name.into(), size: Size(16 << 20) };
    let array = ArrayConfig {
        name: "a".into(),
        create: true,
        raid: Some("5".into()),
        size: Some(Size(300 << 20)),
        drives,
        volumes: vec![volume("v"), volume("w")],
        ..ArrayConfig::default()
    };
    let hosts = vec![HOST.to_owned()];
    Settings {
        take_over: vec![],
        reserve: true,
        discard: array::Discard::Auto,
        linger: server::config::Linger::default(),
        congestion: rt::Congestion::default(),
        what: What::Configured(vec![array]),
        control: dir.join("control.sock"),
        state_dir: dir.join("state"),
        nbd: vec![format!("unix:{}", dir.join("nbd.sock").display())],
        nbd_insecure: false,
        guests: None,
        spares: vec![],
        nvme: NvmeSettings {
            addresses: vec![format!("tcp:127.0.0.1:{port}")],
            advertise: vec![],
            access: AccessRules { all: Rule { hosts, any: false }, ..AccessRules::default() },
            ..NvmeSettings::default()
        },
        metrics: None,
        api: server::front::ApiConfig::default(),
        hooks: vec![],
        read_only: false,
        degraded: false,
        force_diverged: false,
        accept_loss: false,
        memory: server::memory::Memory::default(),
        direct: vec![],
        ways: rt::Ways::Plain,
        cores: 2,
        pin: false,
        stop_at_eof: false,
        notify: server::daemon::Notify::default(),
        reread: None,
        program: "test".into(),
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let rt = Rt::real().unwrap();
    let listener = rt::Listener::bind(&rt, &"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    match listener.local_addr() {
        Addr::Tcp(address) => address.port(),
        Addr::Unix(_) => unreachable!("it was asked for TCP"),
    }
}

fn wishes() -> Wishes {
    Wishes { host: HOST.to_owned(), ..Wishes::default() }
}

/// Connects as soon as there is somebody.
async fn connect(rt: &Rt, address: &Addr, subsystem: &str) -> Host {
    for _ in 0..2000 {
        match Host::connect(rt, address, subsystem, 2, &wishes()).await {
            Ok(host) => return host,
            Err(Error::Io(_)) => rt.sleep(std::time::Duration::from_millis(10)).await,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no server");
}

async fn discovered(rt: &Rt, address: &Addr) -> String {
    for _ in 0..2000 {
        match Host::discover(rt, address, &wishes()).await {
            Ok((_, entries)) => {
                assert_eq!(entries.len(), 1);
                assert_eq!(Addr::Tcp(entries[0].address), *address);
                return entries[0].subsystem.clone();
            }
            Err(Error::Io(_)) => rt.sleep(std::time::Duration::from_millis(10)).await,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no server");
}

fn pattern(seed: u8, bytes: usize) -> Bytes {
    let mut buf = Buf::zeroed(bytes);
    buf.iter_mut().enumerate().for_each(|(i, b)| *b = (i >> 4) as u8 ^ seed);
    buf.freeze()
}

fn begin(dir: &Path, port: u16) -> JoinHandle<Result<(), Problem>> {
    let wish = settings(dir, port);
    thread::spawn(move || daemon::run(wish))
}

/// Asks for `verb` over the control socket; the body of the answer.
fn ask(dir: &Path, request: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(dir.join("control.sock")).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}content-type: application/json\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    answer
}

#[test]
fn volumes_are_namespaces_that_stay_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let address: Addr = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    let server = begin(dir.path(), port);
    let rt = Rt::real().unwrap();
    let (subsystem, identities) = rt.block_on(async {
        let subsystem = discovered(&rt, &address).await;
        let known = Registry::at(dir.path().join("state")).list().unwrap();
        assert_eq!(subsystem, nqn(known[0].uuid));
        let stranger = Host::connect(&rt, &address, &subsystem, 1, &Wishes::default()).await.map(drop);
        assert!(matches!(stranger, Err(Error::Failed { status: Status::CONNECT_INVALID_HOST, .. })), "{stranger:?}");

        let host = connect(&rt, &address, &subsystem).await;
        let identities = used(&host).await;
        grown(&host, dir.path()).await;
        (subsystem, identities)
    });
    ask(dir.path(), "POST /v1/server/stop?force=true", "null");
    server.join().unwrap().unwrap();

    let server = begin(dir.path(), port);
    rt.block_on(async {
        let host = connect(&rt, &address, &subsystem).await;
        assert_eq!(identities_of(&host).await, identities, "identities survive a restart");
        let disk = host.disk(host.namespaces().await.unwrap()[0]).await.unwrap();
        assert!(disk.read(4096, 1 << 20).await.unwrap() == pattern(1, 1 << 20));
    });
    ask(dir.path(), "POST /v1/server/stop?force=true", "null");
    server.join().unwrap().unwrap();
}

/// Number, and NGUID with UUID, of each namespace.
async fn identities_of(host: &Host) -> Vec<(u32, Vec<u8>)> {
    let mut identities = vec![];
    for nsid in host.namespaces().await.unwrap() {
        let descriptors = host.identify(cns::DESCRIPTORS, nsid).await.unwrap().data;
        identities.push((nsid, descriptors[..41].to_vec()));
    }
    identities
}

async fn used(host: &Host) -> Vec<(u32, Vec<u8>)> {
    let identities = identities_of(host).await;
    assert_eq!(identities.len(), 2);
    assert_ne!(identities[0].1, identities[1].1);
    let first: Disk = host.disk(identities[0].0).await.unwrap();
    let second = host.disk(identities[1].0).await.unwrap();
    assert_eq!((first.bytes, second.bytes), (16 << 20, 16 << 20));
    first.write(4096, pattern(1, 1 << 20), true).await.unwrap();
    second.write(4096, pattern(2, 1 << 20), false).await.unwrap();
    second.flush().await.unwrap();
    assert!(first.read(4096, 1 << 20).await.unwrap() == pattern(1, 1 << 20));
    second.compare(4096, pattern(2, 1 << 20)).await.unwrap();
    second.deallocate(&[(0, 8 << 20)]).await.unwrap();
    assert!(second.read(4096, 1 << 20).await.unwrap().iter().all(|b| *b == 0));
    identities
}

/// A volume grows and another is made while the host is connected.
async fn grown(host: &Host, dir: &Path) {
    host.set_feature(feature_id::EVENTS, event_config::NAMESPACES).await.unwrap();
    let event = host.request_event();
    ask(dir, "PATCH /v1/arrays/a/volumes/v", r#"{"bytes": 33554432}"#);
    event.completion().await.unwrap();
    let changed = host.log(export::nvme::log::CHANGED_NAMESPACES, 0, 4096).await.unwrap().data;
    let nsid = u32::from_le_bytes(changed[..4].try_into().unwrap());
    assert_eq!(host.disk(nsid).await.unwrap().bytes, 32 << 20);
    let event = host.request_event();
    let made = ask(dir, "POST /v1/arrays/a/volumes", r#"{"name": "x", "bytes": 1048576}"#);
    let made: serde_json::Value = serde_json::from_str(made.split_once("\r\n\r\n").unwrap().1).unwrap();
    let uuid = made["uuid"].as_str().unwrap();
    event.completion().await.unwrap();
    host.log(export::nvme::log::CHANGED_NAMESPACES, 0, 4096).await.unwrap();
    assert_eq!(host.namespaces().await.unwrap().len(), 3);
    let event = host.request_event();
    ask(dir, &format!("DELETE /v1/arrays/a/volumes/x?force=true&confirm={uuid}"), "null");
    event.completion().await.unwrap();
    assert_eq!(host.namespaces().await.unwrap().len(), 2);
}

#[test]
fn a_direct_drive_is_a_subsystem_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let address: Addr = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    let drive = dir.path().join("raw");
    std::fs::File::create(&drive).unwrap().set_len(8 << 20).unwrap();
    let direct = |drive: &Path| Settings {
        what: What::Places(vec![]),
        direct: vec![drive.display().to_string()],
        ..settings(dir.path(), port)
    };
    let rt = Rt::real().unwrap();
    let mut seen = vec![];
    for round in 0..2 {
        let wish = direct(&drive);
        let server = thread::spawn(move || daemon::run(wish));
        rt.block_on(async {
            seen.push(discovered(&rt, &address).await);
            let host = connect(&rt, &address, &seen[round]).await;
            let disk = host.disk(1).await.unwrap();
            assert_eq!((disk.bytes, disk.block), (8 << 20, 4096));
            if round == 0 {
                disk.write(4096, pattern(1, 1 << 20), true).await.unwrap();
            }
            assert!(disk.read(4096, 1 << 20).await.unwrap() == pattern(1, 1 << 20));
        });
        ask(dir.path(), "POST /v1/server/stop?force=true", "null");
        server.join().unwrap().unwrap();
    }
    assert_eq!(seen[0], seen[1], "its name survives a restart");
    let raw = std::fs::read(&drive).unwrap();
    assert_eq!(raw[4096..4096 + (1 << 20)], pattern(1, 1 << 20)[..], "with nothing between");

    let server = begin(dir.path(), port);
    rt.block_on(discovered(&rt, &address));
    ask(dir.path(), "POST /v1/server/stop?force=true", "null");
    server.join().unwrap().unwrap();
    let member = daemon::run(direct(&dir.path().join("d0")));
    let refused = member.unwrap_err().to_string();
    assert!(refused.contains("array a"), "members are not for hosts: {refused}");
}
