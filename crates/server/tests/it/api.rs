//! The API as clients see it: what it describes, what it refuses, what it tells.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use api::EventCode;
use export::nbd::client::Client;
use serde_json::{Value, json};
use server::daemon;

use super::daemon::{Control, settings};
use super::reference_doc::page;

/// What the server answers to bytes, whole.
fn raw(control: &Control, request: &str) -> String {
    let mut stream = UnixStream::connect(&control.0).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![];
    // One that refuses a body may close before it has read all of it.
    let _cut = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(super) fn get(control: &Control, path: &str, headers: &str) -> String {
    raw(control, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"))
}

/// Runs `test` beside a server with an array in memory.
fn served(test: impl FnOnce(&Control)) {
    let dir = tempfile::tempdir().unwrap();
    let wish = settings(dir.path());
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/server").0, 200);
    test(&control);
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn the_document_is_that_of_the_program() {
    let path = format!("{}/../../docs/openapi.json", env!("CARGO_MANIFEST_DIR"));
    let now = format!("{}\n", serde_json::to_string_pretty(&server::http::openapi()).unwrap());
    if std::env::var_os("ASHLAR_RENEW_TEXTS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == now, "docs/openapi.json differs: ASHLAR_RENEW_TEXTS=1 renews it");
    let document: Value = serde_json::from_str(&now).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for reference in now.split("\"$ref\": \"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(reference).is_some(), "{reference} is nowhere");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(["read", "operate", "admin"].iter().any(|role| operation["x-role"] == *role), "{method} {path}");
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
        }
    }
}

#[test]
fn the_reference_has_every_path_and_every_code() {
    let text = page("api.md");
    for code in EventCode::ALL {
        assert!(text.contains(&format!("| `{}` |", code.word())), "docs/reference/api.md lacks {}", code.word());
    }
    let document = serde_json::to_value(server::http::openapi()).unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        let short = path
            .replace("{array}", "A")
            .replace("{volume}", "V")
            .replace("{job}", "J")
            .replace("{alarm}", "X")
            .replace("{token}", "T")
            .replace("{address}", "ADDRESS");
        let (stem, last) = short.rsplit_once('/').unwrap();
        let is_there = text.contains(&format!("`{short}`"))
            || text.contains(&format!("`{short}?"))
            || (text.contains(&format!("`{stem}/`")) && text.contains(&format!("`{last}`")));
        assert!(is_there, "docs/reference/api.md lacks {short}");
    }
}

#[test]
fn bad_requests_get_problems() {
    served(|control| {
        let is = |answer: &str, status: &str, code: &str| {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert!(answer.contains("content-type: application/problem+json"), "{answer}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(
                (&body["code"], &body["status"]),
                (&json!(code), &json!(status.parse::<u16>().unwrap())),
                "{answer}"
            );
        };
        let post = |headers: &str, body: &str| {
            let n = body.len();
            let head =
                format!("POST /v1/arrays HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {n}\r\n{headers}");
            raw(control, &format!("{head}\r\n{body}"))
        };
        let is_json = "content-type: application/json\r\n";
        is(&post("content-type: application/x-www-form-urlencoded\r\n", "name=x"), "415", "unsupported_media_type");
        is(&post("content-type: text/plain\r\n", "{}"), "415", "unsupported_media_type");
        is(&post("", "{}"), "415", "unsupported_media_type");
        is(&post(is_json, "{"), "400", "usage");
        is(&post(is_json, &" ".repeat(70_000)), "413", "too_large");
        is(&get(control, "/v1/arrays?nam=x", ""), "400", "usage");
        is(&get(control, "/v1/arrays/%ff", ""), "400", "usage");
        is(&get(control, "/v1/events?limit=0", ""), "400", "usage");
        is(&get(control, "/v1/jobs/none", ""), "404", "job_unknown");
        is(
            &raw(control, "PUT /v1/arrays HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
            "405",
            "method_not_allowed",
        );
    });
}

#[test]
fn a_change_meant_for_another_version_is_refused() {
    served(|control| {
        let (_, before) = control.get("/v1/arrays/ram/volumes/v");
        let etag = before["etag"].as_str().unwrap();
        assert!(get(control, "/v1/arrays/ram/volumes/v", "").contains(&format!("etag: \"{etag}\"")));
        let grow = |bytes: u64, etag: &str| {
            let body = json!({ "bytes": bytes }).to_string();
            let head = "PATCH /v1/arrays/ram/volumes/v HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
            raw(control, &format!("{head}\r\nif-match: \"{etag}\"\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
        };
        assert!(grow(65 << 20, etag).starts_with("HTTP/1.1 200"));
        // Each thing that is changed is in the journal, also what was done before something is refused.
        let two = json!({"limits": {"iops": 700}, "name": "u"});
        assert_eq!(control.ask("PATCH", "/v1/arrays/ram/volumes/v", &two).0, 200);
        let bad = json!({"limits": {"iops": 800}, "bytes": 1 << 20});
        assert!(control.ask("PATCH", "/v1/arrays/ram/volumes/u", &bad).0 >= 400);
        for done in ["700 requests/s", "Renamed volume ram/v to ram/u", "800 requests/s"] {
            control.once("/v1/events?array=ram", |noted| noted.to_string().contains(done));
        }
        assert_eq!(control.ask("PATCH", "/v1/arrays/ram/volumes/u", &json!({"name": "v"})).0, 200);
        let late = grow(66 << 20, etag);
        assert!(late.starts_with("HTTP/1.1 412") && late.contains("precondition_failed"), "{late}");
        let (_, now) = control.get(before["self"].as_str().unwrap());
        assert_eq!(now["bytes"], json!(65 << 20), "by its identity, and as the first change left it");
    });
}

/// A stream of events goes on where its client was, and every change is in it, with who made it.
#[test]
fn events_follow_each_other() {
    served(|control| {
        let (_, first) = control.get("/v1/events");
        assert_eq!(first["events"][0]["code"], "server.began");
        let next = first["next"].as_u64().unwrap();
        let mut stream = UnixStream::connect(&control.0).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let ask =
            format!("GET /v1/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nlast-event-id: {next}\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
        control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"}));
        let (begun, mut said) = (Instant::now(), String::new());
        while !(said.contains("event: drive.out") && said.contains("event: request.done")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{said}");
            let mut some = [0; 4096];
            let n = stream.read(&mut some).unwrap();
            assert!(n > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&some[..n]));
        }
        assert!(
            said.contains("content-type: text/event-stream") && said.contains(&format!("id: {}", next + 1)),
            "{said}"
        );
        drop(stream);
        let (_, after) = control.get(&format!("/v1/events?after={next}&array=ram"));
        let done = after["events"].as_array().unwrap().iter().find(|e| e["code"] == "request.done").unwrap();
        assert!(done["text"].as_str().unwrap().contains("Created volume ram/w"), "{done}");
        assert!(done["who"].as_str().unwrap().contains("uid "), "{done}");
    });
}

#[test]
fn metrics_are_figures_of_now_and_all_are_in_the_reference() {
    let text = page("metrics.md");
    served(|control| {
        control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"}));
        let said = get(control, "/metrics", "");
        assert!(said.contains("application/openmetrics-text") && said.contains("# EOF"), "{said}");
        assert!(said.contains("ashlar_array_state{array=\"ram\""), "{said}");
        assert!(
            said.contains("ashlar_drive_state{array=\"ram\",seat=\"1\"") && said.contains("state=\"failed\""),
            "{said}"
        );
        assert!(said.contains("ashlar_volume_request_seconds_bucket{le=\"0.000008192\""), "{said}");
        assert!(!said.contains("celsius{"), "a drive of memory has no temperature");
        for name in said.lines().filter_map(|line| line.strip_prefix("# HELP ")).filter_map(|l| l.split(' ').next()) {
            assert!(text.contains(&format!("`{name}")), "docs/reference/metrics.md lacks {name}");
        }
        assert!(get(control, "/healthz", "").ends_with("ok\n"));
    });
}

#[test]
fn a_job_is_a_view_of_what_is_done() {
    served(|control| {
        assert_eq!(control.get("/v1/jobs").1["jobs"], json!([]));
        let (status, _) = control.ask("POST", "/v1/arrays/ram/scrub/start", &json!({"parity": true}));
        assert_eq!(status, 200);
        let begun = Instant::now();
        loop {
            let (_, all) = control.get("/v1/jobs");
            if let Some(job) = all["jobs"].as_array().unwrap().iter().find(|job| job["kind"] == "scrub") {
                assert_eq!((&job["array"], &job["subject"]), (&json!("ram"), &json!("parity")));
                let id = job["id"].as_str().unwrap();
                assert_eq!(control.get(&format!("/v1/jobs/{id}")).1["id"], id);
                if job["state"] == "done" {
                    let (status, e) = control.ask("POST", &format!("/v1/jobs/{id}/cancel"), &Value::Null);
                    assert_eq!((status, &e["code"]), (409, &json!("job_cannot")));
                    break;
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{all}");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Writes so many MiB to the volume, at its beginning.
fn write(control: &Control, mib: u64) {
    let (_, me) = control.get("/v1/server");
    let address: rt::Addr = me["nbd"][1].as_str().unwrap().parse().unwrap();
    let rt = rt::Rt::real().unwrap();
    rt.block_on(async {
        let client = Client::connect(&rt, &address, "ram/v").await.unwrap();
        for at in 0..mib {
            client.write(at << 20, rt::Buf::from_slice(&vec![at as u8 + 1; 1 << 20]).freeze(), false).await.unwrap();
        }
        client.flush().await.unwrap();
    });
}

#[test]
fn a_job_does_what_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new");
    served(|control| {
        let job = |kind: &str, state: &str| {
            let is = |job: &Value| job["kind"] == kind && job["state"] == state;
            let found = |all: &Value| all["jobs"].as_array().unwrap().iter().find(|job| is(job)).cloned();
            found(&control.once("/v1/jobs", |all| found(all).is_some())).unwrap()
        };
        let tell = |job: &Value, verb: &str| {
            let path = format!("/v1/jobs/{}/{verb}", job["id"].as_str().unwrap());
            control.ask("POST", &path, &Value::Null)
        };
        write(control, 48);
        // So slow that it is seen.
        let slow = json!({"priority": "100K"});
        assert_eq!(control.ask("POST", "/v1/arrays/ram/rebuild", &slow).0, 200);
        assert_eq!(control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1", "force": true})).0, 200);
        let new = json!({"drive": "1", "with": file, "size_bytes": 300 << 20});
        let (status, said) = control.ask("POST", "/v1/arrays/ram/drives/replace", &new);
        assert_eq!(status, 200, "{said}");
        let running = job("rebuild", "running");
        assert_eq!(running["can"], json!(["pause"]));
        assert_eq!(tell(&running, "pause").0, 200);
        let paused = job("rebuild", "paused");
        assert_eq!((&paused["id"], &paused["can"]), (&running["id"], &json!(["resume"])));
        assert_eq!(tell(&paused, "pause").1["code"], "job_cannot");
        assert_eq!(tell(&paused, "resume").0, 200);
        assert_eq!(job("rebuild", "running")["id"], running["id"]);
        assert_eq!(control.ask("POST", "/v1/arrays/ram/rebuild", &json!({"priority": "high"})).0, 200);
        control.once("/v1/arrays/ram", |array| array["state"] == "optimal");

        assert_eq!(control.ask("POST", "/v1/arrays/ram/scrub/schedule", &json!({"bytes_per_second": 100_000})).0, 200);
        assert_eq!(control.ask("POST", "/v1/arrays/ram/scrub/start", &json!({"parity": true})).0, 200);
        let scrub = job("scrub", "running");
        assert_eq!(tell(&scrub, "cancel").0, 200);
        assert_eq!(job("scrub", "cancelled")["id"], scrub["id"]);
        assert_eq!(tell(&scrub, "cancel").1["code"], "job_cannot");
    });
}

/// Prometheus reads over loopback; a page of a browser, whose name was made to lead there, does not.
#[test]
fn metrics_on_loopback_are_for_who_calls_it_so() {
    let dir = tempfile::tempdir().unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wish = daemon::Settings { metrics: Some(address), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/server").0, 200);
    let ask = |path: &str, headers: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let own = format!("host: {address}\r\n");
    assert!(ask("/metrics", &own).contains("ashlar_array_state"));
    assert!(ask("/metrics", "host: localhost\r\n").contains("ashlar_array_state"));
    assert!(ask("/metrics", "host: rebound.example\r\n").starts_with("HTTP/1.1 421"));
    assert!(ask("/metrics", &format!("{own}origin: http://rebound.example\r\n")).starts_with("HTTP/1.1 421"));
    for path in ["/v1/arrays", "/v1/openapi.json", "/v1/server/stop"] {
        assert!(ask(path, &own).starts_with("HTTP/1.1 404"), "{path}");
    }
    let open = daemon::Settings { metrics: Some("0.0.0.0:0".parse().unwrap()), ..settings(&dir.path().join("x")) };
    assert_eq!(daemon::run(open).unwrap_err().kind, api::Kind::Usage);
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

/// Who has seen to an alarm is said as long as it stands, also after a restart; not of one that is not raised.
#[test]
fn alarms_are_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let wish = settings(dir.path());
        let control = Control(wish.control.clone());
        let server = thread::spawn(move || daemon::run(wish));
        assert_eq!(control.get("/v1/server").0, 200);
        (control, server)
    };
    let fail = |control: &Control| {
        assert_eq!(control.ask("POST", "/v1/arrays/ram/drives/fail", &json!({"drive": "1"})).0, 200);
        control.once("/v1/alarms", |said| said.to_string().contains("ram:drive_failed:1"))
    };
    let (control, server) = start();
    fail(&control);
    let of = |said: &Value, id: &str| {
        let alarms = said["alarms"].as_array().unwrap();
        alarms.iter().find(|alarm| alarm["id"] == id).map(|alarm| alarm["acknowledged"].clone()).unwrap_or_default()
    };
    let path = "/v1/alarms/ram:drive_failed:1/acknowledge";
    let (status, done) = control.ask("POST", path, &json!({"note": "on Monday"}));
    assert_eq!((status, &done["done"]), (200, &json!("Alarm ram:drive_failed:1 is acknowledged")));
    let (_, said) = control.get("/v1/alarms");
    let by = of(&said, "ram:drive_failed:1");
    assert!(by["note"] == "on Monday" && by["who"].as_str().unwrap().contains("uid "), "{said}");
    assert!(of(&said, "ram:no_redundancy").is_null(), "{said}");
    let (_, array) = control.get("/v1/arrays/ram");
    assert!(array["alarms"].to_string().contains("on Monday"), "{array}");
    assert_eq!(control.ask("POST", "/v1/alarms/ram:full/acknowledge", &json!({})).0, 404);
    assert_eq!(control.ask("POST", path, &json!({"note": "x".repeat(201)})).0, 400);
    let said = "Alarm ram:drive_failed:1 is acknowledged";
    control.once("/v1/events?array=ram", |noted| noted.to_string().contains(said));
    // It waits for its array, of which the next one, in memory, is another; the alarm of that one is not raised.
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
    let kept = || fs::read_to_string(dir.path().join("state/acknowledged.toml")).unwrap();
    assert!(kept().contains("on Monday"), "{}", kept());
    let (control, server) = start();
    control.once("/v1/alarms", |_| !kept().contains("on Monday"));
    assert!(of(&fail(&control), "ram:drive_failed:1").is_null());
    control.ask("POST", path, &json!({}));
    assert!(of(&control.get("/v1/alarms").1, "ram:drive_failed:1").is_object());
    control.ask("POST", path, &json!({"withdraw": true}));
    assert!(of(&control.get("/v1/alarms").1, "ram:drive_failed:1").is_null());
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

/// Found by requests that were made from the description: a name that the kernel has never seen the like of is the caller's mistake.
#[test]
fn a_name_with_a_nul_byte_is_a_wrong_request() {
    served(|control| {
        let drive = "/tmp/a\0b";
        for (path, body) in [
            ("/v1/import", json!({ "places": [drive], "all": true })),
            ("/v1/plan", json!({ "name": "x", "raid": "5", "drives": [drive] })),
            ("/v1/arrays", json!({ "name": "x", "raid": "5", "drives": [drive] })),
            ("/v1/arrays/ram/drives/add", json!({ "with": drive })),
        ] {
            let (status, problem) = control.ask("POST", path, &body);
            assert_eq!((status, &problem["code"]), (400, &json!("usage")), "{path}: {problem}");
        }
        let (status, found) = control.ask("POST", "/v1/find", &json!({ "places": [drive] }));
        assert_eq!(status, 200, "{found}");
    });
}
