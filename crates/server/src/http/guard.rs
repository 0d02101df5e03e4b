//! What holds for every request, whatever it asks for.

use api::{EventCode, Kind, Problem};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::Response;

use super::Peer;
use super::answer::{Told, told};
use crate::journal::Journal;
use crate::snapshot::Snapshots;

/// Whether a request changes nothing.
fn reads(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
}

/// What was changed is seen by who reads next, and is in the journal and the log, with who did it.
pub async fn note_change(
    State((snapshots, journal)): State<(Snapshots, Journal)>,
    request: Request,
    next: Next,
) -> Response {
    if reads(&request) {
        return next.run(request).await;
    }
    let who = request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.to_string());
    let array = of_array(&snapshots, request.uri().path()).await;
    // What is begun is done and noted, also when the client has gone meanwhile.
    let done = tokio::spawn(async move {
        let response = next.run(request).await;
        snapshots.changed();
        if let Some(Told(sentence)) = response.extensions().get() {
            tracing::info!("{sentence}");
            journal.note(EventCode::RequestDone, array.as_deref(), who.as_deref(), sentence);
        }
        response
    });
    done.await.unwrap_or_else(|e| told(&Problem::failed("the request", e, "see the server's log")))
}

/// The name of the array that a path is about, also where it is given by its identity.
async fn of_array(snapshots: &Snapshots, path: &str) -> Option<String> {
    let said = path.strip_prefix("/v1/arrays/")?.split('/').next()?;
    let Ok(uuid) = said.parse::<uuid::Uuid>() else { return Some(said.to_owned()) };
    let snapshot = snapshots.latest().await?;
    snapshot.status.arrays.iter().find(|array| array.uuid == uuid).map(|array| array.name.clone())
}

/// Only who calls loopback by its own name is answered: a page of another site that has its name resolved to loopback does
/// not read what is here.
pub async fn loopback_alone(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let is_own =
        matches!(name, "localhost" | "[::1]") || name.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    if is_own && !request.headers().contains_key(header::ORIGIN) {
        return next.run(request).await;
    }
    let (what, why) =
        (format!("host \"{host}\""), "this address answers as localhost only, and to no page of a browser");
    told(&Problem::new(Kind::Refused, "misdirected", what, why, "ask 127.0.0.1 or localhost"))
}

/// Bodies are JSON, and say so: a form of another site cannot.
pub async fn json_alone(request: Request, next: Next) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    let is_json =
        |kind: &[u8]| kind.split(|b| *b == b';').next().is_some_and(|k| k.trim_ascii() == b"application/json");
    let has_body = request.headers().get(header::CONTENT_LENGTH).is_some_and(|n| n != "0")
        || request.headers().contains_key(header::TRANSFER_ENCODING);
    let fine = match kind {
        Some(kind) => is_json(&kind),
        None => reads(&request) || !has_body,
    };
    if fine {
        return next.run(request).await;
    }
    let (what, todo) = ("the request's body", "send JSON with Content-Type: application/json");
    told(&Problem::new(Kind::Usage, "unsupported_media_type", what, "it is not said to be JSON", todo))
}
