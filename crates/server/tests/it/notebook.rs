//! What happens to an array with a notebook is found wherever the array is opened.

use std::fs::File;
use std::path::Path;
use std::thread::{self, JoinHandle};

use api::Problem;
use serde_json::{Value, json};
use server::config::ArrayConfig;
use server::daemon::{self, Settings, What};

use super::daemon::{Control, settings};

/// A server with a state directory of its own, of an array on files in `dir`.
fn server(dir: &Path, state: &str) -> (Control, JoinHandle<Result<(), Problem>>) {
    let drives: Vec<String> = (0..4).map(|i| dir.join(format!("d{i}")).display().to_string()).collect();
    for drive in &drives {
        File::options().create(true).append(true).open(drive).unwrap().set_len(300 << 20).unwrap();
    }
    let wish = settings(dir);
    let What::Configured(arrays) = &wish.what else { unreachable!("it is configured so") };
    let array = ArrayConfig { drives, ..arrays[0].clone() };
    let wish = Settings { what: What::Configured(vec![array]), state_dir: dir.join(state), ..wish };
    let control = Control(wish.control.clone());
    (control, thread::spawn(move || daemon::run(wish)))
}

fn codes(events: &Value) -> Vec<String> {
    events["events"].as_array().unwrap().iter().map(|e| e["code"].as_str().unwrap().to_owned()).collect()
}

fn stop(control: &Control, server: JoinHandle<Result<(), Problem>>) {
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn events_follow_an_array() {
    let dir = tempfile::tempdir().unwrap();
    let (control, first) = server(dir.path(), "first");
    assert_eq!(control.get("/v1/arrays/ram/events").1["kept_in"], "server");
    let (_, view) = control.get("/v1/arrays/ram");
    assert_eq!((&view["features"], &view["features_available"]), (&json!([]), &json!(["notebook"])));
    let uuid = view["uuid"].as_str().unwrap();
    let (status, upgraded) = control.ask("POST", &format!("/v1/arrays/{uuid}/upgrade"), &Value::Null);
    assert_eq!((status, &upgraded["features"]), (200, &json!(["notebook"])));
    let (status, again) = control.ask("POST", "/v1/arrays/ram/upgrade", &Value::Null);
    assert_eq!(status, 200);
    assert!(again["done"].as_str().unwrap().contains("already"), "{again}");
    let made = control.ask("POST", "/v1/arrays/%72am/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!(made.0, 201);
    let noted = |said: &Value| said["kept_in"] == "array" && said.to_string().contains("Created volume ram/w");
    let own = control.once(&format!("/v1/arrays/{uuid}/events"), noted);
    // With what had happened before, and whatever way its name was written.
    assert_eq!((&codes(&own)[0][..], &codes(&own)[1][..]), ("array.opened", "array.upgraded"), "{own}");
    // The notebook is nobody's volume.
    let (_, volumes) = control.get("/v1/arrays/ram/volumes");
    assert_eq!(volumes["volumes"].as_array().unwrap().len(), 2);
    // What is asked for by identity is the array's, too.
    let (_, all) = control.get("/v1/events?array=ram");
    assert!(all.to_string().contains("has got: notebook"), "{all}");
    stop(&control, first);

    let (control, second) = server(dir.path(), "second");
    let opened = |said: &Value| codes(said).iter().filter(|code| *code == "array.opened").count() == 2;
    let own = control.once("/v1/arrays/ram/events?after=0", opened);
    assert!(own.to_string().contains("Created volume ram/w"), "{own}");
    let numbers: Vec<u64> = own["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let (_, page) = control.get("/v1/arrays/ram/events?after=1&limit=2");
    assert_eq!((page["events"].as_array().unwrap().len(), &page["next"]), (2, &json!(3)));
    let (_, others) = control.get("/v1/events?array=ram");
    assert!(!others.to_string().contains("Created volume ram/w"), "the server's own journal begins anew: {others}");
    assert_eq!(control.get("/v1/arrays/none/events").0, 404);
    assert_eq!(control.get("/v1/arrays/ram/events?limit=0").0, 400);
    stop(&control, second);
}
