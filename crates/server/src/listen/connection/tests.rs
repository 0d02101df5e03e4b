//! Connections that do not do what they are for. The clock is modelled: it goes on when nothing else happens.

use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::sleep;

use super::*;
use crate::front::ApiConfig;
use crate::http::User;
use crate::listen::Ends;
use crate::listen::places::{Key, Places};

/// What a timer may be late.
const LATE: Duration = Duration::from_secs(1);

fn routes() -> Router {
    // Longer than what sockets take unread.
    Router::new().route("/", get(async || "here")).route("/long", get(async || vec![0; 32 << 20]))
}

fn place() -> Place {
    Places::new((4, 4)).take(Key::User(1)).unwrap()
}

/// Serves a connection; the other end of it, and its end.
fn served() -> (UnixStream, impl Future<Output = Duration>, watch::Sender<bool>) {
    let (near, far) = UnixStream::pair().unwrap();
    let (stop, stopped) = watch::channel(false);
    let begun = Instant::now();
    let task = tokio::spawn(serve(Arrived::Unix(far, User::default()), routes(), None, place(), stopped));
    let ended = async move {
        task.await.unwrap();
        begun.elapsed()
    };
    (near, ended, stop)
}

fn is_about(took: Duration, wanted: Duration) {
    assert!(took >= wanted && took < wanted + LATE, "{took:?}, not {wanted:?}");
}

async fn all_of(stream: &mut UnixStream) -> String {
    let mut said = vec![];
    let _cut = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(start_paused = true)]
async fn one_that_says_nothing_ends() {
    let (mut near, ended, _stop) = served();
    is_about(ended.await, IDLE_MAX);
    assert!(!all_of(&mut near).await.contains("200"));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_in_drops_ends() {
    let (near, ended, _stop) = served();
    let (mut reads, mut writes) = near.into_split();
    tokio::spawn(async move {
        for byte in b"GET / HTTP/1.1\r\nx: ".iter().chain([b'y'; 100].iter()) {
            if writes.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_secs(10)).await;
        }
    });
    is_about(ended.await, IDLE_MAX);
    let _cut = reads.read_to_end(&mut vec![]).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_no_more_ends() {
    let (mut near, ended, _stop) = served();
    sleep(Duration::from_secs(20)).await;
    near.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    is_about(ended.await, Duration::from_secs(20) + IDLE_MAX);
    assert!(all_of(&mut near).await.ends_with("here"));
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_no_answer_ends() {
    let (mut near, ended, _stop) = served();
    near.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    is_about(ended.await, IDLE_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_long_is_refused() {
    let (mut near, ended, _stop) = served();
    let long = "y".repeat(HEAD_BYTES_MAX);
    let _cut = near.write_all(format!("GET / HTTP/1.1\r\nhost: x\r\nx: {long}\r\n\r\n").as_bytes()).await;
    let said = all_of(&mut near).await;
    assert!(said.starts_with(&format!("HTTP/1.1 {}", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16())), "{said}");
    ended.await;
}

#[tokio::test(start_paused = true)]
async fn the_stop_ends_one_that_waits() {
    let (mut near, ended, stop) = served();
    near.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut said = [0; 12];
    near.read_exact(&mut said).await.unwrap();
    stop.send(true).unwrap();
    assert!(ended.await < LATE);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_to_go_for_another_goes() {
    let places = Places::new((1, 1));
    let (_near, far) = UnixStream::pair().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let place = places.take(Key::User(1)).unwrap();
    let task = tokio::spawn(serve(Arrived::Unix(far, User::default()), routes(), None, place, stopped));
    tokio::task::yield_now().await;
    let begun = Instant::now();
    let _next = places.take(Key::User(2)).unwrap();
    task.await.unwrap();
    assert!(begun.elapsed() < LATE);
}

/// A handshake with what `client` sends; how long it lasted.
async fn handshake(client: &'static [u8]) -> (Duration, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let config = ApiConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ApiConfig::default() };
    let front = Front::open(&config, dir.path(), vec![]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut near = TcpStream::connect(at).await.unwrap();
    let (far, from) = listener.accept().await.unwrap();
    near.write_all(client).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    let begun = Instant::now();
    serve(Arrived::Tcp(far, Ends { from, to: at }), routes(), Some(front), place(), stopped).await;
    let took = begun.elapsed();
    let mut said = vec![];
    let _cut = near.read_to_end(&mut said).await;
    (took, said)
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_cut() {
    is_about(handshake(b"").await.0, HANDSHAKE_MAX);
    // The beginning of a ClientHello, and no more of it.
    is_about(handshake(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.0, HANDSHAKE_MAX);
}
