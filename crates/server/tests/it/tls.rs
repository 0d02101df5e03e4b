//! The API over TLS, as somebody on another machine sees it: with a token, without one, and with bad intentions.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::daemon;
use server::front::ApiConfig;
use tls::{Certificate, Connector, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::daemon::{Control, settings};

/// The API over TLS.
struct Remote {
    at: SocketAddr,
    pem: Vec<u8>,
}

/// What it has answered.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Remote {
    /// What it answers to these bytes within TLS.
    fn raw(&self, request: &str) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(self.at).await.unwrap();
            let connector = Connector::new(&Trust::This(&self.pem)).unwrap();
            let mut stream = connector.connect("localhost", stream).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut said = vec![];
            // The connection may end without a goodbye.
            let _cut = stream.read_to_end(&mut said).await;
            said
        });
        Answer::of(&String::from_utf8_lossy(&said))
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let (at, n) = (self.at, body.len());
        let host = if headers.contains("host:") { String::new() } else { format!("host: {at}\r\n") };
        let head = format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {n}\r\n{headers}");
        self.raw(&format!("{head}\r\n{body}"))
    }

    fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask("GET", path, headers, "")
    }

    fn get_with(&self, path: &str, token: &str) -> Answer {
        self.get(path, &bearer(token))
    }

    fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.ask("POST", path, &format!("{}content-type: application/json\r\n", bearer(token)), &body.to_string())
    }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn api() -> ApiConfig {
    ApiConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        names: vec!["nas.example".to_owned()],
        ..ApiConfig::default()
    }
}

/// Makes a token over the control socket; its text and its id.
fn token(control: &Control, name: &str, role: &str) -> (String, String) {
    let (status, made) = control.ask("POST", "/v1/tokens", &json!({"name": name, "role": role}));
    assert_eq!(status, 201, "{made}");
    (made["token"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
}

/// What all servers of this program have logged since somebody looks for secrets in it.
static LOG: Mutex<Vec<u8>> = Mutex::new(vec![]);

struct Logged;

impl Write for Logged {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log_from_now_on() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let level = tracing::Level::DEBUG;
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(|| Logged).init();
    });
}

/// Runs `test` beside a server with an array in memory.
fn served(test: impl FnOnce(&Control, &Remote, &Path)) {
    log_from_now_on();
    let dir = tempfile::tempdir().unwrap();
    let wish = daemon::Settings { api: api(), ..settings(dir.path()) };
    let (control, state) = (Control(wish.control.clone()), wish.state_dir.clone());
    let server = thread::spawn(move || daemon::run(wish));
    let (_, me) = control.get("/v1/server");
    let pem = fs::read(state.join("api.crt")).unwrap();
    let shown = Certificate::first_of(&pem).unwrap().fingerprint().to_string();
    assert_eq!(me["certificate_sha256"], json!(shown));
    test(&control, &Remote { at: me["api"][0].as_str().unwrap().parse().unwrap(), pem }, &state);
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

/// Events with this code.
fn events(control: &Control, code: &str) -> Vec<Value> {
    let (_, all) = control.get("/v1/events?limit=1000");
    all["events"].as_array().unwrap().iter().filter(|event| event["code"] == code).cloned().collect()
}

/// The text is in no file below `dir`, in no event, and not in the log.
fn is_nowhere(secret: &str, control: &Control, dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()), "{}", entry.path().display());
    }
    assert!(!control.get("/v1/events?limit=1000").1.to_string().contains(secret));
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let log = String::from_utf8_lossy(&log);
    assert!(!log.is_empty(), "it is kept");
    assert!(!log.contains(secret), "it is in the log");
}

#[test]
fn nothing_is_told_without_a_token_but_that_it_is_there() {
    served(|control, remote, state| {
        for path in ["/v1/server", "/v1/arrays", "/v1/events", "/metrics", "/v1/openapi.json", "/v1/tokens", "/nowhere"]
        {
            let answer = remote.get(path, "");
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"), "{path}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
            assert!(!answer.body.contains("ram"), "{path}: {}", answer.body);
        }
        assert_eq!(remote.ask("POST", "/v1/server/stop", "", "").status, 401);
        let answer = remote.get("/healthz", "");
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
        let answer = remote.get("/certificate.pem", "");
        assert_eq!((answer.status, answer.body.as_bytes()), (200, &remote.pem[..]));
        let (token, _) = token(control, "ann", "read");
        assert_eq!(remote.get_with("/v1/arrays", &token).status, 200);
        let secret = token.rsplit('_').next().unwrap();
        is_nowhere(secret, control, state);
        // One scheme, one place.
        assert_eq!(remote.get("/v1/arrays", &format!("authorization: Basic {token}\r\n")).status, 401);
        assert_eq!(remote.get("/v1/arrays", &format!("cookie: token={token}\r\nx-token: {token}\r\n")).status, 401);
    });
}

#[test]
fn who_is_wrong_too_often_waits_and_is_told_of_once() {
    served(|control, remote, _| {
        let (right, id) = token(control, "ann", "read");
        let wrong = format!("ashlar_{id}_{}", "x".repeat(43));
        for n in 0..5 {
            let answer = remote.get_with("/v1/arrays", if n == 0 { "nonsense" } else { &wrong });
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"), "{n}");
        }
        for token in [&wrong, &right] {
            let answer = remote.get_with("/v1/arrays", token);
            assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_tries"), "{}", answer.body);
            let wait = answer.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
            assert!((1..=61).contains(&wait.trim().parse::<u64>().unwrap()), "{wait}");
        }
        let told = events(control, "token.refused");
        assert_eq!((told.len(), &told[0]["severity"]), (1, &json!("warning")), "{told:?}");
        let text = told[0]["text"].as_str().unwrap();
        assert!(text.contains("127.0.0.1") && !text.contains("nonsense"), "{text}");
        // Without one it was not wrong.
        assert_eq!(remote.get("/v1/arrays", "").status, 401);
    });
}

#[test]
fn a_token_may_do_what_its_role_may() {
    served(|control, remote, _| {
        let [(read, _), (operate, _), (admin, _)] = ["read", "operate", "admin"].map(|role| token(control, role, role));
        let volume = json!({"name": "w", "bytes": 1 << 20});
        assert_eq!(remote.get_with("/metrics", &read).status, 200);
        assert_eq!(remote.get_with("/v1/openapi.json", &read).status, 200);
        for (token, path, status) in [
            (&read, "/v1/arrays/ram/volumes", 403),
            (&read, "/v1/server/stop", 403),
            (&read, "/v1/tokens", 403),
            (&operate, "/v1/server/stop", 403),
            (&operate, "/v1/tokens", 403),
            (&operate, "/v1/arrays/ram/volumes", 201),
        ] {
            let answer = remote.post(path, token, &volume);
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
        }
        assert_eq!(remote.get_with("/v1/tokens", &operate).status, 403);
        // What was done is noted behind the answer.
        let begun = Instant::now();
        let mut done = events(control, "request.done");
        while done.is_empty() && begun.elapsed() < Duration::from_secs(10) {
            done = events(control, "request.done");
        }
        assert!(done[0]["who"].as_str().unwrap().starts_with("token operate ("), "{done:?}");
        assert!(done[0]["who"].as_str().unwrap().ends_with("from 127.0.0.1"), "{done:?}");
        let answer = remote.post("/v1/tokens", &admin, &json!({"name": "made", "role": "read"}));
        assert_eq!(answer.status, 201, "{}", answer.body);
        let made: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(remote.get_with("/v1/server", made["token"].as_str().unwrap()).status, 200);
        assert_eq!(events(control, "token.made").len(), 4);
        let (_, listed) = control.get("/v1/tokens");
        assert_eq!(listed["tokens"].as_array().unwrap().len(), 4);
        assert!(!listed.to_string().contains("ashlar_"), "{listed}");
        assert_eq!(control.ask("POST", "/v1/tokens", &json!({"name": "read", "role": "admin"})).0, 409);
    });
}

#[test]
fn a_token_that_is_deleted_ends_what_it_opened() {
    served(|control, remote, _| {
        let (token, id) = token(control, "ann", "read");
        thread::scope(|scope| {
            let headers = format!("{}accept: text/event-stream\r\n", bearer(&token));
            let stream = scope.spawn(move || remote.get("/v1/events?after=0", &headers));
            let (_, gone) = loop {
                // Once the stream is there.
                let (_, listed) = control.get("/v1/tokens");
                if listed["tokens"][0]["used_unix_seconds"].is_u64() {
                    break control.ask("DELETE", &format!("/v1/tokens/{id}"), &Value::Null);
                }
                thread::sleep(Duration::from_millis(10));
            };
            assert!(gone["done"].as_str().unwrap().contains("deleted"), "{gone}");
            assert_eq!(stream.join().unwrap().status, 200, "it was open, and has ended");
        });
        assert_eq!(remote.get_with("/v1/events", &token).status, 401);
        assert_eq!(control.ask("DELETE", &format!("/v1/tokens/{id}"), &Value::Null).0, 404);
        assert_eq!(events(control, "token.deleted").len(), 1);
    });
}

#[test]
fn only_own_names_and_own_pages_are_answered() {
    served(|control, remote, _| {
        let (token, _) = token(control, "ann", "read");
        let (at, port) = (remote.at, remote.at.port());
        let with = |headers: &str| remote.get("/v1/server", &format!("{}{headers}", bearer(&token)));
        for host in [format!("{at}"), format!("localhost:{port}"), "nas.example".into(), format!("NAS.example:{port}")]
        {
            let answer = with(&format!("host: {host}\r\n"));
            assert_eq!(answer.status, 200, "{host}: {}", answer.body);
            assert!(!answer.head.contains("access-control"), "{}", answer.head);
        }
        for host in
            ["rebound.example", "127.0.0.1.rebound.example", "127.0.0.2", "[::1]", "localhost.rebound.example", ""]
        {
            let answer = with(&format!("host: {host}\r\n"));
            assert_eq!((answer.status, answer.code().as_str()), (421, "misdirected"), "{host}");
        }
        assert_eq!(with(&format!("host: {at}\r\nhost: rebound.example\r\n")).status, 421, "two");
        let request = format!("GET https://rebound.example/v1/server HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n");
        assert_eq!(remote.raw(&format!("{request}{}\r\n", bearer(&token))).status, 421, "in the target");
        assert_eq!(remote.get("/healthz", "host: rebound.example\r\n").status, 421);

        assert_eq!(with(&format!("origin: https://{at}\r\n")).status, 200, "its own");
        for origin in [format!("http://{at}"), "https://rebound.example".into(), "null".into(), String::new()] {
            let answer = with(&format!("origin: {origin}\r\n"));
            assert_eq!((answer.status, answer.code().as_str()), (403, "origin_refused"), "{origin}");
        }
        let stream = "accept: text/event-stream\r\norigin: https://rebound.example\r\n";
        let answer = remote.get("/v1/events", &format!("{}{stream}", bearer(&token)));
        assert_eq!((answer.status, answer.code().as_str()), (403, "origin_refused"), "a stream");
        let preflight = remote.ask(
            "OPTIONS",
            "/v1/server",
            "origin: https://x.example\r\naccess-control-request-method: POST\r\n",
            "",
        );
        assert_eq!(preflight.status, 403);
        assert!(!preflight.head.contains("access-control"), "{}", preflight.head);
    });
}

#[test]
fn a_form_of_another_site_changes_nothing() {
    served(|control, remote, _| {
        let (token, _) = token(control, "cid", "admin");
        for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"] {
            let headers = format!("{}content-type: {kind}\r\n", bearer(&token));
            let form = |more: &str| remote.ask("POST", "/v1/server/stop", &format!("{headers}{more}"), "a=b");
            assert_eq!(form("").status, 415, "{kind}");
            assert_eq!(form("origin: https://other.example\r\n").status, 403, "{kind}");
        }
        assert_eq!(control.get("/v1/server").0, 200);
    });
}

#[test]
fn a_token_in_a_url_is_not_taken_and_not_repeated() {
    served(|control, remote, state| {
        let (token, _) = token(control, "cid", "admin");
        for path in [format!("/v1/arrays?token={token}"), format!("/v1/arrays/{token}"), format!("/{token}")] {
            for headers in [String::new(), bearer(&token)] {
                let answer = remote.get(&path, &headers);
                assert_eq!((answer.status, answer.code().as_str()), (400, "token_in_url"));
                assert!(!answer.body.contains(&token) && !answer.head.contains(&token.to_ascii_lowercase()));
            }
        }
        assert_eq!(remote.get("/v1/arrays?access_token=x", "").status, 401);
        is_nowhere(token.rsplit('_').next().unwrap(), control, state);
    });
}

#[test]
fn arrays_are_served_without_a_certificate_and_without_addresses() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let made = tls::Identity::made_for(&["localhost".to_owned()]).unwrap();
    let (certificate, key) = (dir.path().join("api.crt"), dir.path().join("api.key"));
    fs::write(&certificate, made.chain()).unwrap();
    fs::write(&key, made.key()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let api = ApiConfig { certificate: Some(certificate), key: Some(key.clone()), ..api() };
    let wish = || daemon::Settings { api: api.clone(), ..settings(dir.path()) };
    let looked = daemon::look_at(&wish()).unwrap_err();
    assert_eq!(
        (looked.kind, looked.why.as_str()),
        (api::Kind::Usage, "others may read it (mode 644)"),
        "`config check`"
    );
    // Addresses that somebody else has.
    let (api_at, metrics_at) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let metrics = Some(metrics_at.local_addr().unwrap());
    let taken = ApiConfig { listen: vec![api_at.local_addr().unwrap()], ..self::api() };
    for (wish, codes, why) in [
        (wish(), &["api_closed"][..], "others may read it (mode 644)"),
        (
            daemon::Settings { api: taken, metrics, ..settings(dir.path()) },
            &["api_closed", "metrics_closed"],
            "Address already in use",
        ),
    ] {
        let control = Control(wish.control.clone());
        let server = thread::spawn(move || daemon::run(wish));
        assert_eq!(control.get("/v1/arrays/ram").0, 200, "it is served");
        let (_, alarms) = control.get("/v1/alarms");
        let alarms = alarms["alarms"].as_array().unwrap();
        let raised: Vec<&str> = alarms.iter().map(|alarm| alarm["code"].as_str().unwrap()).collect();
        assert_eq!(raised, codes, "{alarms:?}");
        assert!(alarms.iter().all(|alarm| alarm["what"].as_str().unwrap().contains(why)), "{alarms:?}");
        assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
        server.join().unwrap().unwrap();
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    daemon::look_at(&wish()).unwrap();
}

#[test]
fn what_is_not_tls_gets_nothing() {
    served(|control, remote, _| {
        let (token, _) = token(control, "ann", "read");
        let request = format!("GET /v1/server HTTP/1.1\r\nhost: {}\r\n{}\r\n", remote.at, bearer(&token));
        for bytes in [request.as_bytes(), &[0x16, 3, 1, 0, 0], &[0x80; 300], &[0; 70_000]] {
            let mut stream = TcpStream::connect(remote.at).unwrap();
            let _cut = stream.write_all(bytes);
            let mut said = vec![];
            let _cut = stream.read_to_end(&mut said);
            // An alert at the most.
            assert!(said.len() <= 7, "{said:?}");
        }
        assert_eq!(remote.get_with("/v1/server", &token).status, 200);
    });
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    served(|control, remote, _| {
        let (token, _) = token(control, "ann", "read");
        let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(remote.at).unwrap()).collect();
        assert_eq!(remote.get_with("/v1/server", &token).status, 200);
        are_cut(silent.iter(), 200 - 32, |stream| {
            stream.set_nonblocking(true).unwrap();
            (&*stream).read(&mut [0])
        });
    });
}

/// At least so many of them end: the server has closed them.
fn are_cut<'a, S: 'a>(
    streams: impl Iterator<Item = &'a S> + Clone,
    wanted: usize,
    read: impl Fn(&'a S) -> std::io::Result<usize>,
) {
    let begun = Instant::now();
    loop {
        let still = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
        let cut = streams.clone().filter(|stream| !read(stream).as_ref().is_err_and(still)).count();
        if cut >= wanted {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{cut} are closed, not {wanted}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The control socket and the address of the metrics have limits, too.
#[test]
fn connections_on_this_machine_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wish = daemon::Settings { metrics: Some(metrics), ..settings(dir.path()) };
    let control = Control(wish.control.clone());
    let server = thread::spawn(move || daemon::run(wish));
    assert_eq!(control.get("/v1/server").0, 200);
    let silent: Vec<_> = (0..200).map(|_| UnixStream::connect(&control.0).unwrap()).collect();
    assert_eq!(control.get("/v1/server").0, 200);
    are_cut(silent.iter(), 200 - 64, |stream| {
        stream.set_nonblocking(true).unwrap();
        (&*stream).read(&mut [0])
    });
    let silent: Vec<_> = (0..60).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream
        .write_all(format!("GET /healthz HTTP/1.1\r\nhost: {metrics}\r\nconnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("ok\n"), "{said}");
    are_cut(silent.iter(), 60 - 16, |stream| {
        stream.set_nonblocking(true).unwrap();
        (&*stream).read(&mut [0])
    });
    assert_eq!(control.ask("POST", "/v1/server/stop", &Value::Null).0, 200);
    server.join().unwrap().unwrap();
}

/// Programs and addresses that are told of events come from the file alone: whoever may use the API could run a program else.
#[test]
fn no_request_makes_a_hook() {
    let document = serde_json::to_value(server::http::openapi()).unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.iter().all(|path| !path.contains("hook")), "{paths:?}");
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                found.push(name.clone());
                names(value, found);
            }),
            Value::Array(values) => values.iter().for_each(|value| names(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = vec![];
    names(&document["components"]["schemas"], &mut found);
    for key in ["hook", "hooks", "exec", "url", "key_file", "command"] {
        assert!(!found.iter().any(|name| name == key), "{key} is a field of the API");
    }
}
