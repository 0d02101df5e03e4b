//! The API: HTTP/1.1 and JSON below /v1. `GET /v1/openapi.json` lists every request; so does docs/openapi.json.
//!
//! ```text
//!   listen -> guard: in flight, name and origin (TLS) -> who: token (TLS) -> guard: media type -> who: role -> route
//!   route -> snapshot (reads), or a closure on the data thread (changes) -> answer
//! ```
//!
//! Invariants:
//! - reads are answered from a [snapshot](crate::snapshot);
//! - the role that a request needs is part of its declaration ([`routes`]);
//! - what destroys wants the identity of what is lost; what would cut hosts off is refused while some are connected, unless
//!   force=true is said;
//! - a problem is an `application/problem+json` (RFC 9457).

mod alarms;
mod answer;
mod arrays;
mod blocks;
mod document;
mod drives;
mod events;
mod guard;
mod jobs;
mod nvmet;
mod reads;
mod sentence;
mod tokens;
mod turns;
mod volumes;
mod who;

use std::sync::Arc;

use api::Role;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use rt::MailSender;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::acknowledged::Acknowledged;
use crate::daemon::DataHandle;
use crate::front::Front;
use crate::journal::Journal;
use crate::snapshot::Snapshots;
use crate::tokens::Tokens;
use answer::Answer;
pub use document::openapi;
use turns::Turns;
use who::needs;
pub use who::{Caller, User, readers};

/// The largest body.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What every route knows.
#[derive(Clone)]
pub struct Context {
    data: DataHandle,
    stop_now: MailSender<&'static str>,
    snapshots: Snapshots,
    journal: Journal,
    streams: Arc<Semaphore>,
    tokens: Tokens,
    acknowledged: Acknowledged,
    front: Option<Arc<Front>>,
}

/// What the routes are made of.
pub struct Parts {
    /// The data thread.
    pub data: DataHandle,
    /// Gets the reason when the server shall stop.
    pub stop_now: MailSender<&'static str>,
    /// What happened.
    pub journal: Journal,
    /// Who may ask over TCP.
    pub tokens: Tokens,
    /// Alarms that somebody has seen to.
    pub acknowledged: Acknowledged,
    /// What is shown there, if it is.
    pub front: Option<Arc<Front>>,
}

/// The routes of each way in.
pub struct Routers {
    /// Of the control socket: the caller is known.
    pub control: Router,
    /// For Prometheus alone, on loopback, which asks nobody who it is.
    pub metrics: Router,
    /// Over TLS.
    pub tls: Option<Router>,
}

/// All requests, by the role that they need.
fn routes() -> OpenApiRouter<Context> {
    let read = OpenApiRouter::new()
        .routes(routes!(reads::server))
        .routes(routes!(reads::arrays))
        .routes(routes!(reads::array_view))
        .routes(routes!(reads::volumes))
        .routes(routes!(reads::volume_view))
        .routes(routes!(reads::drives))
        .routes(routes!(alarms::list))
        .routes(routes!(reads::iostat))
        .routes(routes!(reads::clients))
        .routes(routes!(reads::placement))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::one))
        .routes(routes!(events::list))
        .routes(routes!(events::of_array))
        .routes(routes!(reads::metrics));
    let operate = OpenApiRouter::new()
        .routes(routes!(volumes::create))
        .routes(routes!(volumes::change))
        .routes(routes!(alarms::acknowledge))
        .routes(routes!(drives::locate))
        .routes(routes!(drives::rebuild))
        .routes(routes!(drives::scrub_start))
        .routes(routes!(drives::scrub_stop))
        .routes(routes!(drives::scrub_schedule))
        .routes(routes!(jobs::pause))
        .routes(routes!(jobs::resume))
        .routes(routes!(jobs::cancel));
    let admin = OpenApiRouter::new()
        .routes(routes!(arrays::stop_server))
        .routes(routes!(arrays::create))
        .routes(routes!(arrays::plan))
        .routes(routes!(arrays::find))
        .routes(routes!(arrays::import))
        .routes(routes!(arrays::stop))
        .routes(routes!(arrays::export))
        .routes(routes!(arrays::destroy))
        .routes(routes!(arrays::forget))
        .routes(routes!(arrays::change))
        .routes(routes!(arrays::upgrade))
        .routes(routes!(volumes::delete))
        .routes(routes!(blocks::attach, blocks::detach))
        .routes(routes!(nvmet::export, nvmet::remove))
        .routes(routes!(drives::fail))
        .routes(routes!(drives::replace))
        .routes(routes!(drives::add))
        .routes(routes!(drives::retire))
        .routes(routes!(tokens::list))
        .routes(routes!(tokens::create))
        .routes(routes!(tokens::delete));
    OpenApiRouter::with_openapi(document::heading())
        .merge(document::role(needs(read, Role::Read), Role::Read))
        .merge(document::role(needs(operate, Role::Operate), Role::Operate))
        .merge(document::role(needs(admin, Role::Admin), Role::Admin))
}

/// All routes, served on the calling runtime of tokio.
#[must_use]
pub fn routers(parts: Parts) -> Routers {
    let Parts { data, stop_now, journal, tokens, acknowledged, front } = parts;
    let snapshots = Snapshots::start(data.clone(), acknowledged.clone());
    let noted = (snapshots.clone(), journal.clone());
    let streams = events::places();
    let (known, shown) = ((tokens.clone(), journal.clone()), front.clone());
    let context = Context { data, stop_now, snapshots, journal, streams, tokens, acknowledged, front };
    let metrics = Router::new()
        .route("/metrics", get(reads::metrics))
        .route("/healthz", get(reads::healthz))
        .fallback(answer::no_such_path)
        .layer(from_fn(guard::loopback_alone))
        .layer(from_fn_with_state(Turns::here(), guard::in_flight))
        .with_state(context.clone());
    let (routes, document) = routes().split_for_parts();
    let document = document::finished(document);
    let all = routes
        .route("/v1/openapi.json", get(async move || axum::Json(document)))
        .route("/healthz", get(reads::healthz))
        .route("/certificate.pem", get(reads::certificate))
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::method_not_allowed)
        .layer(from_fn_with_state(noted, guard::note_change))
        .layer(from_fn(guard::json_alone))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(context);
    // The last layer is the first that a request comes to.
    let tls = shown.map(|front| {
        let named = all.clone().layer(from_fn_with_state(known, who::by_token));
        let named = named.layer(from_fn_with_state(front, guard::own_name));
        named.layer(from_fn_with_state(Turns::over_tcp(), guard::in_flight))
    });
    let control = all.layer(from_fn_with_state(Turns::here(), guard::in_flight));
    Routers { control, metrics, tls }
}

#[cfg(test)]
mod tests {
    use axum::extract::State;
    use axum::http::StatusCode;
    use rt::Rt;
    use rt::cross::submissions;

    use super::*;

    /// What is asked of it is taken, and never done.
    #[tokio::test(start_paused = true)]
    async fn a_first_core_that_hangs_is_not_healthy() {
        let dir = tempfile::tempdir().unwrap();
        let rt = Rt::modelled(1);
        let (submitter, _never_served) = submissions(&rt);
        let (stop_now, _stopped) = rt.mailbox();
        let data = DataHandle(submitter);
        let acknowledged = Acknowledged::default();
        let context = Context {
            snapshots: Snapshots::start(data.clone(), acknowledged.clone()),
            data,
            stop_now,
            journal: Journal::open(dir.path()).unwrap().0,
            streams: events::places(),
            tokens: Tokens::open(dir.path()).0,
            acknowledged,
            front: None,
        };
        for _ in 0..2 {
            assert_eq!(reads::healthz(State(context.clone())).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    }
}
