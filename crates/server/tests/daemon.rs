//! A server with an array in memory, asked over its control socket and stopped by it.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use export::nbd::client::Client;
use serde_json::{Value, json};
use server::config::{ArrayConfig, VolumeConfig};
use server::daemon::{self, NvmeSettings, Settings, What};
use server::size::Size;

fn settings(dir: &Path) -> Settings {
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
        linger: server::config::Linger::default(),
        congestion: rt::Congestion::default(),
        what: What::Configured(vec![array]),
        control: dir.join("control.sock"),
        state_dir: dir.join("state"),
        nbd: vec![format!("unix:{}", dir.join("nbd.sock").display()), "tcp:127.0.0.1:0".into()],
        nvme: NvmeSettings::default(),
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
        program: "test".into(),
    }
}

struct Control(PathBuf);

impl Control {
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
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
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &Value::Null)
    }
}

#[test]
fn a_server_lives_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let wish = settings(dir.path());
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));

    let (status, me) = control.get("/v1");
    assert_eq!((status, &me["version"], &me["arrays"]), (200, &json!(2), &json!(["ram"])));
    assert_eq!(me["nbd"].as_array().unwrap().len(), 2);

    let (status, all) = control.get("/v1/arrays/ram");
    assert_eq!(status, 200);
    assert_eq!(all["arrays"][0]["state"], "optimal");
    assert_eq!(all["arrays"][0]["volumes"][0]["name"], "v");

    // Verbs and their refusals.
    let (status, _) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!(status, 200);
    let (status, e) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!((status, &e["error"]["kind"]), (409, &json!("refused")));
    let (status, _) = control.ask("POST", "/v1/arrays/ram/volumes/w/rename", &json!({"to": "x"}));
    assert_eq!(status, 200);
    let (status, _) = control.ask("POST", "/v1/arrays/ram/volumes/x/limit", &json!({"iops": 500, "burst_ms": 10}));
    assert_eq!(status, 200);
    let (_, list) = control.get("/v1/arrays/ram/volumes");
    let limits = json!({"iops": 500, "bytes_per_second": 0, "burst_ms": 10});
    assert_eq!(list["volumes"].as_array().unwrap().iter().find(|v| v["name"] == "x").unwrap()["limits"], limits);
    let (status, _) = control.ask("POST", "/v1/arrays/ram/volumes/none/limit", &json!({"iops": 500}));
    assert_eq!(status, 409);
    let (status, _) = control.ask("DELETE", "/v1/arrays/ram/volumes/x", &Value::Null);
    assert_eq!(status, 200);
    let (status, e) = control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "9"}));
    assert_eq!((status, &e["error"]["code"]), (404, &json!("drive_not_a_member")));
    let (status, _) = control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"}));
    assert_eq!(status, 200);
    let (_, all) = control.get("/v1/arrays");
    assert_eq!(all["arrays"][0]["state"], "degraded");

    // What is not there, or makes no sense.
    assert_eq!(control.get("/v1/arrays/none").0, 404);
    assert_eq!(control.get("/v2").1["error"]["code"], "no_such_path");
    let (status, e) = control.ask("POST", "/v1/arrays", &json!({"nonsense": true}));
    assert_eq!((status, &e["error"]["kind"]), (400, &json!("usage")));

    // A second server does not take the socket away.
    let twin = daemon::run(settings(dir.path())).unwrap_err();
    assert_eq!(twin.code, "already_running");

    let (status, _) = control.ask("POST", "/v1/stop", &Value::Null);
    assert_eq!(status, 200);
    server.join().unwrap().unwrap();
    assert!(!dir.path().join("control.sock").exists(), "the socket is taken away");
    assert!(!dir.path().join("nbd.sock").exists());
}

#[test]
fn connections_on_cores_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let wish = Settings { cores: 3, ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1");
    let rt = rt::Rt::real().unwrap();
    let address: rt::Addr = me["nbd"][1].as_str().unwrap().parse().unwrap();
    let connect = async || Client::connect(&rt, &address, "ram/v").await.unwrap();
    let block = |n: u8| rt::Buf::from_slice(&[n; 4096]).freeze();
    rt.block_on(async {
        let (one, other) = (connect().await, connect().await);
        assert_eq!(control.get("/v1/placement").1["connections"], json!([1, 1]));
        for n in 0..64 {
            one.write(u64::from(n) * 4096, block(n), false).await.unwrap();
        }
        one.flush().await.unwrap();
        assert_eq!(control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"})).0, 200);
        for n in 0..64 {
            assert_eq!(other.read(u64::from(n) * 4096, 4096).await.unwrap(), block(n));
        }
        let list = Client::list(&rt, &address).await.unwrap();
        assert_eq!(list.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ram/v"]);
        // A volume that is deleted under its hosts is gone for them.
        assert_eq!(control.ask("DELETE", "/v1/arrays/ram/volumes/v?force=true", &Value::Null).0, 200);
        assert!(other.read(0, 4096).await.is_err());
    });
    assert_eq!(control.ask("POST", "/v1/stop", &Value::Null).0, 200);
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
