//! Figures that could lie: what a counter goes on from, and what a wait is counted as.

use std::thread;
use std::time::{Duration, Instant};

use export::nbd::client::Client;
use serde_json::{Value, json};
use server::config::{ArrayConfig, VolumeConfig};
use server::daemon::{self, Settings, What};
use server::size::Size;

use super::daemon::{Control, settings};

/// The figures of now.
fn figures(control: &Control) -> Vec<(String, f64)> {
    let said = super::api::get(control, "/metrics", "");
    let lines = said.lines().filter(|line| line.starts_with("ashlar_"));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, n)| (name.to_owned(), n.parse().unwrap())).collect()
}

/// The one whose name begins so and has all these labels.
fn figure(control: &Control, name: &str, labels: &[&str]) -> Option<f64> {
    let all = figures(control);
    let is_it = |said: &&(String, f64)| {
        said.0.starts_with(&format!("{name}{{")) && labels.iter().all(|label| said.0.contains(label))
    };
    all.iter().find(is_it).map(|(_, n)| *n)
}

/// Requests that wait for a limit are counted as such; a drive in another's seat goes on from nothing, and so does an array that is
/// opened anew.
#[test]
fn a_counter_is_of_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let array = ArrayConfig {
        name: "lab".into(),
        create: true,
        raid: Some("5".into()),
        drives: (0..3).map(|n| path(&format!("d{n}"))).collect(),
        size: Some(Size(300 << 20)),
        volumes: vec![VolumeConfig { name: "v".into(), size: Size(64 << 20) }],
        ..ArrayConfig::default()
    };
    let wish = Settings { what: What::Configured(vec![array]), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1/server");
    let rt = rt::Rt::real().unwrap();
    let address: rt::Addr = me["nbd"][1].as_str().unwrap().parse().unwrap();
    let read = |times: usize| {
        let client = rt.block_on(Client::connect(&rt, &address, "lab/v")).unwrap();
        (0..times).for_each(|_| drop(rt.block_on(client.read(0, 4096)).unwrap()));
        rt.block_on(client.disconnect());
    };
    let once = |what: &str, is: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {:?}", figures(&control));
            thread::sleep(Duration::from_millis(50));
        }
    };
    let reads = || figure(&control, "ashlar_volume_requests_total", &["volume=\"v\"", "op=\"read\""]);

    // What waits for a limit is told beside how long requests took.
    read(3);
    once("reads", &|| reads() == Some(3.0));
    let waited = || figure(&control, "ashlar_volume_limited_seconds_total", &["volume=\"v\""]);
    assert_eq!(waited(), Some(0.0));
    let limit = |iops: u64| control.ask("PATCH", "/v1/arrays/lab/volumes/v", &json!({"limits": {"iops": iops}})).0;
    assert_eq!(limit(20), 200);
    read(5);
    once("a wait", &|| waited().is_some_and(|n| n > 0.05));
    assert!(figure(&control, "ashlar_volume_limited_requests_total", &["volume=\"v\""]).is_some_and(|n| n >= 1.0));
    assert_eq!(limit(0), 200);

    // A drive in another's seat.
    let written = |drive: &str| {
        let serial = format!("/{drive}\"");
        figure(&control, "ashlar_drive_bytes_total", &["seat=\"1\"", "op=\"write\"", &serial])
    };
    assert!(written("d1").is_some_and(|n| n > 0.0), "{:?}", figures(&control));
    assert_eq!(control.ask("POST", "/v1/arrays/lab/drives/fail", &json!({"drive": "1"})).0, 200);
    let with = json!({"drive": "1", "with": path("new"), "size_bytes": 300u64 << 20});
    assert_eq!(control.ask("POST", "/v1/arrays/lab/drives/replace", &with).0, 200);
    once("the new drive", &|| written("new").is_some() && written("d1").is_none());

    // An array that is opened anew counts anew, and says so by the number of its opens.
    let opens = || figure(&control, "ashlar_array_opens_total", &["array=\"lab\""]);
    let before = opens().unwrap();
    assert_eq!(control.ask("POST", "/v1/arrays/lab/stop", &Value::Null).0, 200);
    let places = json!({"places": [dir.path().display().to_string()], "array": "lab"});
    let (status, said) = control.ask("POST", "/v1/import", &places);
    assert_eq!(status, 200, "{said}");
    once("the next open", &|| opens().is_some_and(|n| n > before));
    assert_eq!(reads(), Some(0.0));
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}
