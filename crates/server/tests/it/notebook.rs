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

/// A served array gets another name: it is found by it, its events follow, and so does the list of known arrays.
#[test]
fn an_array_is_renamed_while_it_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (control, first) = server(dir.path(), "first");
    let (_, view) = control.get("/v1/arrays/ram");
    let uuid = view["uuid"].as_str().unwrap().to_owned();
    assert_eq!(control.ask("POST", "/v1/arrays/ram/upgrade", &Value::Null).0, 200);
    let refused = |path: &str, name: &str| {
        let (status, problem) = control.ask("PATCH", path, &json!({ "name": name }));
        (status, problem["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused("/v1/arrays/ram", "a b").0, 409);
    assert_eq!(refused("/v1/arrays/none", "gold").0, 404);
    let (status, same) = control.ask("PATCH", "/v1/arrays/ram", &json!({ "name": "ram" }));
    assert!(status == 200 && same["done"].as_str().unwrap().contains("has this name already"), "{same}");
    let (status, renamed) = control.ask("PATCH", "/v1/arrays/ram", &json!({ "name": "gold" }));
    assert_eq!((status, &renamed["name"], &renamed["uuid"]), (200, &json!("gold"), &json!(uuid)), "{renamed}");
    assert_eq!(control.get("/v1/arrays/ram").0, 404);
    assert_eq!(control.get("/v1/arrays/gold").1["uuid"], json!(uuid));
    assert_eq!(control.ask("POST", "/v1/arrays/gold/volumes", &json!({"name": "w", "bytes": 1 << 20})).0, 201);
    let noted = |said: &Value| said["kept_in"] == "array" && said.to_string().contains("Created volume gold/w");
    let own = control.once("/v1/arrays/gold/events", noted);
    assert!(codes(&own).contains(&"array.renamed".to_owned()), "{own}");
    let opened = codes(&own).iter().filter(|code| *code == "array.opened").count();
    assert_eq!(opened, 1, "told once: {own}");
    let known = std::fs::read_to_string(dir.path().join("first/arrays.toml")).unwrap();
    assert!(known.contains("name = \"gold\"") && !known.contains("\"ram\""), "{known}");
    stop(&control, first);
    // Who finds it by its labels, and who has it in a list under its old name, calls it so.
    let wish = settings(dir.path());
    let places = vec![dir.path().to_owned()];
    let wish = Settings { what: What::Places(places), state_dir: dir.path().join("second"), ..wish };
    let control = Control(wish.control.clone());
    let second = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/arrays/gold").1["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(control.ask("PATCH", "/v1/arrays/gold", &json!({ "name": "ram" })).0, 200);
    stop(&control, second);
    let known = std::fs::read_to_string(dir.path().join("first/arrays.toml")).unwrap();
    assert!(known.contains("name = \"gold\""), "{known}");
    let wish = Settings { what: What::Known, state_dir: dir.path().join("first"), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let third = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/arrays/ram").0, 200);
    let known = std::fs::read_to_string(dir.path().join("first/arrays.toml")).unwrap();
    assert!(known.contains("name = \"ram\"") && !known.contains("\"gold\""), "{known}");
    stop(&control, third);
}
