//! What holds for every request, whatever it asks for.

use std::sync::Arc;

use api::{EventCode, Kind, Problem};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use percent_encoding::percent_decode_str;

use super::Caller;
use super::answer::{Told, told};
use super::turns::{Taken, Turns};
use crate::front::Front;
use crate::journal::Journal;
use crate::listen::Ends;
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
    let who = request.extensions().get::<Caller>().map(Caller::to_string);
    let turn = request.extensions().get::<Turn>().cloned();
    let array = of_array(&snapshots, request.uri().path()).await;
    // What is begun is done and noted, also when the client has gone meanwhile.
    let done = tokio::spawn(async move {
        let _turn = turn;
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
    let first_of = |rest: &str| {
        let first = rest.split('/').next().unwrap_or_default();
        percent_decode_str(first).decode_utf8().ok().map(|name| name.into_owned())
    };
    if let Some(alarm) = path.strip_prefix("/v1/alarms/") {
        let id = first_of(alarm)?;
        return id.split(':').next().filter(|array| !array.is_empty()).map(str::to_owned);
    }
    let said = first_of(path.strip_prefix("/v1/arrays/")?)?;
    let Ok(uuid) = said.parse::<uuid::Uuid>() else { return Some(said) };
    let snapshot = snapshots.latest().await?;
    snapshot.status.arrays.iter().find(|array| array.uuid == uuid).map(|array| array.name.clone())
}

/// A place among the requests in flight: whoever goes on with one holds it.
#[derive(Clone)]
struct Turn {
    _place: Arc<Taken>,
}

/// Takes no more requests at once than there are `turns`.
pub async fn in_flight(State(turns): State<Arc<Turns>>, mut request: Request, next: Next) -> Response {
    let place = match turns.take(&request) {
        Ok(place) => place,
        Err(why) => {
            let problem = Problem::new(Kind::Refused, "too_many_requests", "the request", why, "try again in a second");
            let mut answer = told(&problem);
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return answer;
        }
    };
    let turn = place.map(|place| Turn { _place: Arc::new(place) });
    if let Some(turn) = &turn {
        request.extensions_mut().insert(turn.clone());
    }
    let answer = next.run(request).await;
    drop(turn);
    answer
}

/// The name in a Host header, which may have a port behind it.
fn name_of(host: &str) -> &str {
    let has_port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    // An address of IPv6 without brackets is none here.
    has_port.map_or(host, |(name, _)| name)
}

/// Over TLS only who calls the server by a name of its own is answered, and no page of another site.
pub async fn own_name(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let Some(at) = request.extensions().get::<Ends>().map(|ends| ends.to.ip()) else {
        return misdirected("", "the connection has no address");
    };
    let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().ok()).collect();
    let host = match hosts[..] {
        [Some(host)] => host,
        [] | [None] | [_, _, ..] => return misdirected("", "a request names one host"),
    };
    // A target that is a whole URL names a host, too.
    let named = request.uri().authority().map_or(host, |authority| authority.as_str());
    if !front.is_called(name_of(host), at) || !named.eq_ignore_ascii_case(host) {
        return misdirected(host, "the server has no such name");
    }
    let own = format!("https://{host}");
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    if !origins.all(|origin| origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())) {
        let (what, why) = ("the request", "a page of another site has sent it (Origin)");
        return told(&Problem::new(Kind::Refused, "origin_refused", what, why, "ask from elsewhere than a browser"));
    }
    next.run(request).await
}

fn misdirected(host: &str, why: &str) -> Response {
    let todo = "ask by an address that it listens at, localhost, or a name in `names` of its configuration";
    told(&Problem::new(Kind::Refused, "misdirected", format!("host \"{host}\""), why, todo))
}

/// Only who calls loopback by its own name is answered: a page of another site that has its name resolved to loopback does
/// not read what is here.
pub async fn loopback_alone(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = name_of(host);
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn no_more_requests_are_worked_on_than_there_are_turns() {
        let (go, waits) = oneshot::channel::<()>();
        let waits = Arc::new(tokio::sync::Mutex::new(Some(waits)));
        let slow = async move || {
            if let Some(waits) = waits.lock().await.take() {
                waits.await.unwrap();
            }
        };
        let turns = Turns::of(1);
        let routes = Router::new().route("/", get(slow)).layer(from_fn_with_state(turns, in_flight));
        let service = TowerToHyperService::new(routes);
        let ask = || service.call(Request::get("/").body(Body::empty()).unwrap());
        let first = tokio::spawn(ask());
        tokio::task::yield_now().await;
        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    }

    #[test]
    fn hosts_have_names() {
        for (host, name) in [
            ("nas.example:9460", "nas.example"),
            ("nas.example", "nas.example"),
            ("[::1]:9460", "[::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("localhost:evil", "localhost:evil"),
            ("", ""),
        ] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }
}
