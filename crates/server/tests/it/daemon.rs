//! A server with an array in memory, asked over its control socket and stopped by it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use export::nbd::client::Client;
use serde_json::{Value, json};
use server::config::{ArrayConfig, VolumeConfig};
use server::daemon::{self, NvmeSettings, Settings, What};
use server::memory::Memory;
use server::size::Size;

pub(super) fn settings(dir: &Path) -> Settings {
    let array = ArrayConfig {
        name: "ram".into(),
        create: true,
        raid: Some("5".into()),
        drives: vec!["mem:300M".into(); 4],
        volumes: vec![VolumeConfig { name: "v".into(), size: Size(64 << 20) }],
        ..ArrayConfig::default()
    };
    Settings {
        take_over: vec![],
        reserve: true,
        discard: array::Discard::Auto,
        linger: server::config::Linger::default(),
        congestion: rt::Congestion::default(),
        what: What::Configured(vec![array]),
        control: dir.join("control.sock"),
        state_dir: dir.join("state"),
        nbd: vec![format!("unix:{}", dir.join("nbd.sock").display()), "tcp:127.0.0.1:0".into()],
        nbd_insecure: false,
        guests: None,
        spares: vec![],
        nvme: NvmeSettings::default(),
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
        cores: 1,
        pin: false,
        stop_at_eof: false,
        notify: server::daemon::Notify::default(),
        reread: None,
        program: "test".into(),
    }
}

pub(super) struct Control(pub(super) PathBuf);

impl Control {
    pub(super) fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let begun = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(&self.0) {
                Ok(stream) => break stream,
                Err(e) => assert!(begun.elapsed() < Duration::from_secs(20), "no server: {e}"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Deletes what is there, by its identity.
    pub(super) fn delete(&self, path: &str, force: bool) -> (u16, Value) {
        let (_, there) = self.get(path);
        let uuid = there["uuid"].as_str().unwrap_or_default();
        self.ask("DELETE", &format!("{path}?confirm={uuid}&force={force}"), &Value::Null)
    }

    /// What is read once it is as it should be: a read is up to half a second old.
    pub(super) fn once(&self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (_, said) = self.get(path);
            if is(&said) {
                return said;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{path}: {said}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &Value::Null)
    }
}

#[test]
fn a_server_lives_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let wish = settings(dir.path());
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));

    let (status, me) = control.get("/v1/server");
    assert_eq!((status, &me["version"], &me["arrays"]), (200, &json!(2), &json!(["ram"])));
    assert_eq!(me["nbd"].as_array().unwrap().len(), 2);

    let (status, all) = control.get("/v1/arrays?name=ram");
    assert_eq!(status, 200);
    assert_eq!(all["arrays"][0]["state"], "optimal");
    assert_eq!(all["arrays"][0]["volumes"][0]["name"], "v");

    // Verbs and their refusals.
    let (status, _) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!(status, 201);
    // Creating is stating: the same again is no error, something else is.
    let (status, there) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!((status, &there["bytes"]), (200, &json!(1 << 20)));
    let (status, e) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 21}));
    assert_eq!((status, &e["kind"], &e["code"]), (409, &json!("refused"), &json!("differs")));
    assert_eq!((&e["status"], &e["type"]), (&json!(409), &json!("/problems/differs")));
    // What destroys wants the identity.
    let (status, e) = control.ask("DELETE", "/v1/arrays/ram/volumes/w", &Value::Null);
    assert_eq!((status, &e["code"]), (428, &json!("not_confirmed")));
    let (status, _) = control.ask("PATCH", "/v1/arrays/ram/volumes/w", &json!({"name": "x"}));
    assert_eq!(status, 200);
    let (status, _) =
        control.ask("PATCH", "/v1/arrays/ram/volumes/x", &json!({"limits": {"iops": 500, "burst_ms": 10}}));
    assert_eq!(status, 200);
    let (_, list) = control.get("/v1/arrays/ram/volumes");
    let limits = json!({"iops": 500, "bytes_per_second": 0, "burst_ms": 10});
    assert_eq!(list["volumes"].as_array().unwrap().iter().find(|v| v["name"] == "x").unwrap()["limits"], limits);
    let (status, _) = control.ask("PATCH", "/v1/arrays/ram/volumes/none", &json!({"limits": {"iops": 500}}));
    assert_eq!(status, 404);
    let (status, _) = control.delete("/v1/arrays/ram/volumes/x", false);
    assert_eq!(status, 200);
    let (status, e) = control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "9"}));
    assert_eq!((status, &e["code"]), (404, &json!("drive_not_a_member")));
    let (status, _) = control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"}));
    assert_eq!(status, 200);
    let (_, all) = control.get("/v1/arrays");
    // An array with next to nothing in it is whole again at once.
    assert_ne!(all["arrays"][0]["state"], "optimal");

    // What is not there, or makes no sense.
    assert_eq!(control.get("/v1/arrays/none").0, 404);
    assert_eq!(control.get("/v2").1["code"], "no_such_path");
    let (status, e) = control.ask("POST", "/v1/arrays", &json!({"nonsense": true}));
    assert_eq!((status, &e["kind"]), (400, &json!("usage")));

    // A second server does not take the socket away.
    let twin = daemon::run(settings(dir.path())).unwrap_err();
    assert_eq!(twin.code, "already_running");

    let (status, _) = control.ask("POST", "/v1/server/stop", &Value::Null);
    assert_eq!(status, 200);
    server.join().unwrap().unwrap();
    assert!(!dir.path().join("control.sock").exists(), "the socket is taken away");
    assert!(!dir.path().join("nbd.sock").exists());
}

#[test]
fn sizes_that_are_rounded_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let wish = settings(dir.path());
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let said = |method: &str, path: &str, body: Value| {
        let (status, done) = control.ask(method, path, &body);
        assert!(status == 200 || status == 201, "{done}");
        let is_said = |note: &Value| {
            let note = note.as_str().unwrap();
            note.contains("rounded up to") && note.contains("multiples of 4 KiB")
        };
        done["notes"].as_array().unwrap().iter().any(is_said)
    };
    assert!(said("POST", "/v1/arrays/ram/volumes", json!({"name": "odd", "bytes": 5000})));
    assert!(said("PATCH", "/v1/arrays/ram/volumes/odd", json!({"bytes": 10_001})));
    assert!(!said("PATCH", "/v1/arrays/ram/volumes/odd", json!({"bytes": 16_384})));
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn connections_on_cores_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let wish = Settings { cores: 3, ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1/server");
    let rt = rt::Rt::real().unwrap();
    let address: rt::Addr = me["nbd"][1].as_str().unwrap().parse().unwrap();
    let connect = async || Client::connect(&rt, &address, "ram/v").await.unwrap();
    let block = |n: u8| rt::Buf::from_slice(&[n; 4096]).freeze();
    rt.block_on(async {
        let (one, other) = (connect().await, connect().await);
        control.once("/v1/placement", |said| said["connections"] == json!([1, 1]));
        for n in 0..64 {
            one.write(u64::from(n) * 4096, block(n), false).await.unwrap();
        }
        one.flush().await.unwrap();
        let fail =
            |force: bool| control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1", "force": force}));
        // Without it no other may fail, and hosts are there.
        let (status, e) = fail(false);
        assert_eq!((status, &e["code"]), (409, &json!("clients_connected")));
        assert_eq!(fail(true).0, 200);
        for n in 0..64 {
            assert_eq!(other.read(u64::from(n) * 4096, 4096).await.unwrap(), block(n));
        }
        let list = Client::list(&rt, &address).await.unwrap();
        assert_eq!(list.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ram/v"]);
        // A volume that is deleted under its hosts is gone for them.
        assert_eq!(control.delete("/v1/arrays/ram/volumes/v", true).0, 200);
        assert!(other.read(0, 4096).await.is_err());
    });
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

/// What would cut a host off is refused until it has left, and it is named; by force it goes on.
fn hosts_are_not_cut_off_unasked(cores: usize) {
    let dir = tempfile::tempdir().unwrap();
    let wish = Settings { cores, ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1/server");
    let rt = rt::Rt::real().unwrap();
    let address: rt::Addr = me["nbd"][1].as_str().unwrap().parse().unwrap();
    let verbs = [
        ("DELETE", "/v1/arrays/ram/volumes/v"),
        ("POST", "/v1/arrays/ram/stop"),
        ("DELETE", "/v1/arrays/ram"),
        ("POST", "/v1/server/stop"),
    ];
    assert_eq!(control.get("/v1/clients").1["clients"], json!([]));
    let client = rt.block_on(Client::connect(&rt, &address, "ram/v")).unwrap();
    let all = control.once("/v1/clients?array=ram&volume=v", |said| said["clients"] != json!([]));
    let one = &all["clients"][0];
    assert_eq!((&one["array"], &one["volume"], &one["protocol"]), (&json!("ram"), &json!("v"), &json!("nbd")));
    let peer = one["peer"].as_str().unwrap().to_owned();
    assert!(peer.starts_with("tcp:127.0.0.1:") && one["since_unix_seconds"].as_u64().unwrap() > 1_700_000_000, "{all}");
    assert_eq!(control.get("/v1/clients?array=ram&volume=none").0, 404);
    for (method, path) in verbs {
        let (status, e) = match method {
            "DELETE" => control.delete(path, false),
            _ => control.ask(method, path, &Value::Null),
        };
        assert_eq!((status, &e["code"]), (409, &json!("clients_connected")), "{path}");
        assert!(e["why"].as_str().unwrap().contains(&format!("NBD {peer}, ram/v")), "{e}");
    }
    // A name that it has now, and another volume that nobody uses.
    let (status, _) = control.ask("PATCH", "/v1/arrays/ram/volumes/v", &json!({"name": "w"}));
    assert_eq!(status, 200);
    assert_eq!(control.get("/v1/clients").1["clients"][0]["volume"], "w");
    let made = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "idle", "bytes": 1 << 20}));
    assert_eq!(made.0, 201);
    assert_eq!(control.delete("/v1/arrays/ram/volumes/idle", false).0, 200);
    assert!(rt.block_on(client.read(0, 4096)).is_ok(), "nothing has happened to it");
    // One that has just left is not there any more.
    rt.block_on(client.disconnect());
    assert_eq!(control.delete("/v1/arrays/ram/volumes/w", false).0, 200);
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn hosts_of_the_data_core_are_not_cut_off_unasked() {
    hosts_are_not_cut_off_unasked(1);
}

#[test]
fn hosts_of_other_cores_are_not_cut_off_unasked() {
    hosts_are_not_cut_off_unasked(3);
}

#[test]
fn an_array_that_is_served_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let wish = settings(dir.path());
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let drives: Vec<String> = (0..3).map(|n| dir.path().join(format!("d/{n}")).display().to_string()).collect();
    let request = json!({"name": "ram", "raid": "5", "size_bytes": 300 << 20, "drives": drives});
    let (status, e) = control.ask("POST", "/v1/arrays", &request);
    assert_eq!((status, &e["code"]), (409, &json!("array_name_taken")));
    assert!(!dir.path().join("d").exists() && !dir.path().join("state/arrays.toml").exists(), "nothing was made");
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn nbd_is_not_open_to_others_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let open = Settings { nbd: vec!["tcp:0.0.0.0:0".into()], ..settings(dir.path()) };
    let problem = daemon::run(open.clone()).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.kind.exit_code()), ("nbd_open", 3));
    let control = Control(open.control.clone());
    let server = thread::spawn(move || daemon::run(Settings { nbd_insecure: true, ..open }));
    assert_eq!(control.get("/v1/server").0, 200);
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn the_first_array_that_lacks_a_drive_gets_the_spare() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = |name: &str| std::fs::File::create(path(name)).unwrap().set_len(300 << 20).unwrap();
    ["used", "spare"].into_iter().for_each(file);
    // What holds something is nobody's spare.
    std::fs::write(path("used"), [[0; 1080].as_slice(), &[0x53, 0xef], &[0; 300 << 10]].concat()).unwrap();
    let array = ArrayConfig {
        name: "lab".into(),
        create: true,
        raid: Some("5".into()),
        drives: (0..3).map(|n| path(&format!("d{n}"))).collect(),
        size: Some(Size(300 << 20)),
        ..ArrayConfig::default()
    };
    let (what, spares) = (What::Configured(vec![array]), vec![path("used"), path("spare")]);
    let wish = Settings { what, spares, ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/arrays").1["spares"], json!([path("used"), path("spare")]));
    assert_eq!(control.ask("POST", "/v1/arrays/lab/drives/fail", &json!({"drive": "1"})).0, 200);
    let begun = Instant::now();
    loop {
        let (_, all) = control.get("/v1/arrays");
        let members = all["arrays"][0]["members"].as_array().unwrap().clone();
        if members.iter().any(|m| m["drive"] == path("spare") && m["state"] == "in" && m["seat"] == 1) {
            assert_eq!(all["spares"], json!([path("used")]));
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{all}");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn no_core_is_too_few() {
    let dir = tempfile::tempdir().unwrap();
    for cores in [0, 6] {
        let problem = daemon::run(Settings { cores, ..settings(dir.path()) }).unwrap_err();
        assert_eq!(problem.what, "--cores");
    }
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let too_much = Some(Size(server::memory::of_machine().unwrap() + 1));
    let usual = Memory::default();
    for (memory, flag) in [
        (Memory { map: too_much, ..usual }, "--map-memory"),
        (Memory { buffers: too_much, ..usual }, "--buffer-memory"),
    ] {
        let wish = Settings { memory, ..settings(dir.path()) };
        let looked = daemon::look_at(&wish).unwrap_err();
        let begun = daemon::run(wish).unwrap_err();
        for refused in [looked, begun] {
            assert_eq!((refused.kind, refused.what.as_str()), (api::Kind::Usage, flag));
            assert!(refused.why.contains("more than this machine has"), "{}", refused.why);
        }
        assert!(!dir.path().join("control.sock").exists(), "it was not begun");
    }
}
