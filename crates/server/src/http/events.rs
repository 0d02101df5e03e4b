//! What happened: a page of the journal, or a stream of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{Event, Events, Kind, Problem, WhichArrayEvents, WhichEvents};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::answer::{Path, Query, told};
use super::reads::{array, read};
use super::{Answer, Caller, Context};
use crate::journal::{Journal, events_of};
use crate::tokens::Tokens;

/// Streams at once.
pub const STREAMS_MAX: usize = 32;

/// A stream that has nothing to say says so: whoever has vanished is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What happened. With `Accept: text/event-stream` it goes on with what happens, behind `after` or the header Last-Event-ID,
/// else from now on.
#[utoipa::path(get, path = "/v1/events", tag = "server", params(WhichEvents),
    responses((status = 200, description = "Events", content((Events = "application/json"), (String = "text/event-stream")))))]
pub async fn list(
    State(c): State<Context>,
    Extension(caller): Extension<Caller>,
    Query(which): Query<WhichEvents>,
    headers: HeaderMap,
) -> Response {
    if let Err(problem) = possible(which.limit) {
        return told(&problem);
    }
    let wants_stream =
        headers.get(header::ACCEPT).is_some_and(|kinds| kinds.as_bytes().starts_with(b"text/event-stream"));
    if !wants_stream {
        return Answer::from(page(c.journal, which).await).into_response();
    }
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    match c.streams.clone().try_acquire_owned() {
        Ok(place) => Sse::new(
            follow(c.journal, WhichEvents { after: which.after.or(last), ..which }, place)
                .take_until(ended(c.tokens, caller)),
        )
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response(),
        Err(_) => {
            let why = format!("{STREAMS_MAX} streams are open already");
            told(&Problem::new(Kind::Refused, "too_many_requests", "the stream of events", why, "close one of them"))
        }
    }
}

fn possible(limit: Option<usize>) -> Result<(), Problem> {
    match limit {
        Some(limit) if !(1..=1000).contains(&limit) => {
            Err(Problem::usage("limit", format!("{limit} is not possible"), "give 1 to 1000"))
        }
        _ => Ok(()),
    }
}

/// What happened to an array: from its notebook, which follows it wherever it is opened; of one without, from the server's journal.
#[utoipa::path(get, path = "/v1/arrays/{array}/events", tag = "arrays", params(("array" = String, Path, description = "Its name or identity"), WhichArrayEvents),
    responses((status = 200, description = "Events", body = Events)))]
pub async fn of_array(
    State(c): State<Context>,
    Path(name): Path<String>,
    Query(which): Query<WhichArrayEvents>,
) -> Answer<Events> {
    let WhichArrayEvents { after, limit } = which;
    let page = async {
        possible(limit)?;
        let name = read(&c, |s| Ok(array(s, &name)?.name.clone())).await?;
        let own = WhichEvents { after, limit, array: None };
        if let Some(page) = noted(&c, &name, &own).await? {
            return Ok(page);
        }
        page(c.journal.clone(), WhichEvents { array: Some(name), ..own }).await
    };
    page.await.into()
}

/// Who reads the notebook of an array, and for how long.
static NOTEBOOK_READER: Semaphore = Semaphore::const_new(1);
const NOTEBOOK_MAX: Duration = Duration::from_secs(10);

/// A page of an array's notebook; none where it has none, or has not taken everything yet: then the server's journal knows more.
async fn noted(c: &Context, array: &str, which: &WhichEvents) -> Result<Option<Events>, Problem> {
    let Some(journal) = c.journal.of_array(array).filter(|journal| !journal.is_stuck()) else { return Ok(None) };
    if !journal.lacks_older(which) {
        return Ok(journal.page(&[], which));
    }
    let name = array.to_owned();
    let read = async {
        let _turn = NOTEBOOK_READER.acquire().await;
        c.data.ask(move |data| async move { data.notebook_images(&name).await }).await
    };
    let late = |_| Problem::failed(format!("the events of array {array}"), "it does not answer", "ask for newer ones");
    let Some((uuid, images)) = timeout(NOTEBOOK_MAX, read).await.map_err(late)?? else { return Ok(None) };
    let which = which.clone();
    let page = tokio::task::spawn_blocking(move || journal.page(&events_of(&images, uuid), &which));
    page.await.map_err(|e| Problem::failed("the events", e, "try again"))
}

/// When whoever asked may not any more: a token that is deleted ends its streams.
async fn ended(tokens: Tokens, caller: Caller) {
    match caller {
        Caller::Token(holder, _) => tokens.ended(&holder.id).await,
        Caller::User(_) => std::future::pending().await,
    }
}

/// Who reads the journal's file, which takes some 40 MB: one at a time.
static READER: Semaphore = Semaphore::const_new(1);

/// The journal may have to be read from its file.
async fn page(journal: Journal, which: WhichEvents) -> Result<Events, Problem> {
    let _turn = READER.acquire().await;
    let read = tokio::task::spawn_blocking(move || journal.read(&which));
    read.await.map_err(|e| Problem::failed("the journal of events", e, "try again"))
}

/// Where a stream is.
struct Place {
    journal: Journal,
    which: WhichEvents,
    newest: watch::Receiver<u64>,
    _place: Arc<OwnedSemaphorePermit>,
}

fn follow(
    journal: Journal,
    which: WhichEvents,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let newest = journal.newest();
    // One that is ahead of the journal knows another: it begins with what happens from now on.
    let after = which.after.unwrap_or(u64::MAX).min(*newest.borrow());
    let which = WhichEvents { after: Some(after), limit: Some(1000), ..which };
    let begin = Place { journal, which, newest, _place: Arc::new(place) };
    let pages = stream::unfold(begin, async |mut place| {
        let after = place.which.after.unwrap_or_default();
        // The journal ends with the server.
        place.newest.wait_for(|newest| *newest > after).await.ok()?;
        let events = page(place.journal.clone(), place.which.clone()).await.ok()?;
        place.which.after = Some(events.next.max(after));
        Some((stream::iter(events.events), place))
    });
    pages.flatten().map(|event: Event| {
        let said = sse::Event::default().id(event.seq.to_string()).event(event.what.code.clone());
        Ok(said.json_data(&event).unwrap_or_default())
    })
}

/// Places for streams.
pub fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(STREAMS_MAX))
}
