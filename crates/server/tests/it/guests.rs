//! Sockets for guests: when they are there, and what they are in the way of.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Value, json};
use server::daemon;

use crate::daemon::{Control, settings};

fn socket_of(control: &Control, path: &str) -> PathBuf {
    let volume = control.once(path, |volume| volume["guest_socket"].is_string());
    volume["guest_socket"].as_str().unwrap().into()
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())
}

#[test]
fn each_volume_has_a_socket_for_as_long_as_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let guests = dir.path().join("guests");
    let wish = daemon::Settings { guests: Some(guests.clone()), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1/server");
    assert_eq!(me["guests"], json!(guests));
    let first = socket_of(&control, "/v1/arrays/ram/volumes/v");
    let (status, made) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    let second: PathBuf = made["guest_socket"].as_str().unwrap().into();
    assert!(status == 201 && is_socket(&first) && is_socket(&second) && first != second);

    // It keeps its path, whatever it is called.
    assert_eq!(control.ask("PATCH", "/v1/arrays/ram/volumes/w", &json!({"name": "x"})).0, 200);
    assert_eq!(control.ask("PATCH", "/v1/arrays/ram", &json!({"name": "rim"})).0, 200);
    assert_eq!(socket_of(&control, "/v1/arrays/rim/volumes/x"), second);

    // Who is connected is told, and in the way of what would cut it off.
    let machine = UnixStream::connect(&second).unwrap();
    let client =
        control.once("/v1/clients?array=rim&volume=x", |all| all["clients"][0].is_object())["clients"][0].clone();
    assert_eq!(
        (&client["protocol"], &client["array"], &client["volume"]),
        (&json!("vhost_user"), &json!("rim"), &json!("x"))
    );
    assert!(client["peer"].as_str().unwrap().starts_with("unix:pid "), "{client}");
    for (method, path) in [("POST", "/v1/arrays/rim/stop"), ("POST", "/v1/server/stop")] {
        let (status, refused) = control.ask(method, path, &Value::Null);
        assert_eq!((status, &refused["code"]), (409, &json!("clients_connected")), "{path}");
    }
    let (status, refused) = control.delete("/v1/arrays/rim/volumes/x", false);
    assert_eq!((status, &refused["code"]), (409, &json!("clients_connected")));
    assert_eq!(control.delete("/v1/arrays/rim/volumes/x", true).0, 200);
    assert!(is_socket(&first) && !second.exists(), "a deleted volume has none");
    drop(machine);

    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
    assert_eq!(guests.read_dir().unwrap().count(), 0, "sockets are taken away");
}

#[test]
fn a_socket_that_cannot_be_opened_is_an_alarm_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let guests = dir.path().join("guests");
    let wish = daemon::Settings { guests: Some(guests.clone()), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let first = socket_of(&control, "/v1/arrays/ram/volumes/v");
    std::fs::rename(&guests, dir.path().join("elsewhere")).unwrap();
    let (status, made) = control.ask("POST", "/v1/arrays/ram/volumes", &json!({"name": "w", "bytes": 1 << 20}));
    assert_eq!((status, &made["guest_socket"]), (201, &Value::Null));
    let alarmed = |all: &Value| all["alarms"].as_array().unwrap().iter().any(|a| a["code"] == "guests_closed");
    control.once("/v1/arrays", alarmed);
    std::fs::rename(dir.path().join("elsewhere"), &guests).unwrap();
    control.once("/v1/arrays", |all| !alarmed(all));
    assert!(is_socket(&socket_of(&control, "/v1/arrays/ram/volumes/w")) && is_socket(&first));
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

#[test]
fn a_directory_that_cannot_be_is_refused_before_arrays_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let problem = daemon::run(daemon::Settings { guests: Some(file), ..settings(dir.path()) }).unwrap_err();
    assert!(problem.to_string().contains("--guests"), "{problem}");
}
