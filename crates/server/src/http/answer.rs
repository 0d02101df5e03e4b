//! Bodies in and out: JSON, with problems as `application/problem+json`.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use api::{Kind, Problem, ProblemBody, Resource};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Context;
use super::sentence::Sentence;
use crate::daemon::Data;

/// What a route answers.
pub struct Answer<T> {
    result: Result<T, Problem>,
    status: StatusCode,
    etag: Option<String>,
}

impl<T> From<Result<T, Problem>> for Answer<T> {
    fn from(result: Result<T, Problem>) -> Answer<T> {
        Answer { result, status: StatusCode::OK, etag: None }
    }
}

impl<T> Answer<Resource<T>> {
    /// An object with its version.
    pub fn of(result: Result<Resource<T>, Problem>) -> Answer<Resource<T>> {
        let etag = result.as_ref().ok().map(|resource| resource.etag.clone());
        Answer { result, status: StatusCode::OK, etag }
    }
}

impl<T> Answer<T> {
    /// What was made now, or was there already.
    pub fn made(result: Result<(T, bool), Problem>) -> Answer<T> {
        let is_new = result.as_ref().is_ok_and(|(_, is_new)| *is_new);
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Answer { result: result.map(|(made, _)| made), status, etag: None }
    }
}

/// What was done, beside an answer.
#[derive(Clone)]
pub struct Told(pub String);

impl<T: Serialize + Sentence> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let value = match self.result {
            Ok(value) => value,
            Err(problem) => return told(&problem),
        };
        let mut response = match serde_json::to_vec(&value) {
            Ok(body) => (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(e) => return told(&Problem::failed("the answer", e, "this is a bug: please report it")),
        };
        if let Some(sentence) = value.sentence() {
            response.extensions_mut().insert(Told(sentence));
        }
        let etag = self.etag.and_then(|etag| HeaderValue::try_from(format!("\"{etag}\"")).ok());
        if let Some(etag) = etag {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response
    }
}

/// A problem.
pub fn told(problem: &Problem) -> Response {
    let body = ProblemBody::from(problem);
    let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = serde_json::to_vec(&body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], text).into_response()
}

/// A body may take so long.
const BODY_MAX: Duration = Duration::from_secs(30);

/// A request's body.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bad =
            |e: String| told(&Problem::usage("the request's body", e, "GET /v1/openapi.json says what it may be"));
        let Ok(bytes) = timeout(BODY_MAX, Bytes::from_request(request, state)).await else {
            let why = format!("it was not there after {} s", BODY_MAX.as_secs());
            return Err(told(&Problem::new(Kind::Usage, "body_late", "the request's body", why, "send it at once")));
        };
        let bytes = bytes.map_err(|e| {
            let text = e.body_text();
            match e.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    let todo = format!("at most {} bytes", super::BODY_BYTES_MAX);
                    told(&Problem::new(Kind::Usage, "too_large", "the request's body", text, todo))
                }
                _ => bad(text),
            }
        })?;
        serde_json::from_slice(&bytes).map(Body).map_err(|e| bad(e.to_string()))
    }
}

/// The part of a URL behind the question mark.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let bad = |e: axum::extract::rejection::QueryRejection| {
            told(&Problem::usage("the request's parameters", e.body_text(), "GET /v1/openapi.json lists them"))
        };
        query.map(|axum::extract::Query(query)| Query(query)).map_err(bad)
    }
}

/// Names in a path.
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let bad = |e: axum::extract::rejection::PathRejection| {
            told(&Problem::usage("the request's path", e.body_text(), "write names as UTF-8, %-encoded"))
        };
        path.map(|axum::extract::Path(path)| Path(path)).map_err(bad)
    }
}

/// The version that a change is meant for, if the request names one.
#[derive(Default)]
pub struct IfMatch(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let given = parts.headers.get(header::IF_MATCH).map(|value| String::from_utf8_lossy(value.as_bytes()));
        Ok(IfMatch(given.filter(|value| value != "*").map(|value| value.into_owned())))
    }
}

impl IfMatch {
    /// Whether a version has to be looked at.
    pub fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses a change that is meant for another version than `etag`.
    ///
    /// # Errors
    /// When it is.
    pub fn agrees(&self, what: &str, etag: &str) -> Result<(), Problem> {
        let Some(wanted) = &self.0 else { return Ok(()) };
        if wanted.split(',').any(|tag| tag.trim().trim_matches('"') == etag) {
            return Ok(());
        }
        let why = "it has been changed since it was read";
        Err(Problem::refused("precondition_failed", what, why, "read it again, and decide again"))
    }
}

/// The answer to an unknown path.
pub async fn no_such_path(method: Method, uri: Uri) -> Answer<()> {
    unknown(Kind::NotFound, "no_such_path", &method, &uri, "this Ashlar has no such request")
}

/// The answer to an unknown method of a known path.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Answer<()> {
    unknown(Kind::Usage, "method_not_allowed", &method, &uri, "this path has no such method")
}

fn unknown(kind: Kind, code: &str, method: &Method, uri: &Uri, why: &str) -> Answer<()> {
    let todo = "GET /v1/openapi.json lists them; use an `ashlar` of the same version as the server";
    Answer::from(Err(Problem::new(kind, code, format!("{method} {}", uri.path()), why, todo)))
}

/// Runs `verb` on the data thread and puts what it did into the log.
pub async fn on_data<T, F, Fut>(c: &Context, verb: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce(Rc<Data>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, Problem>> + 'static,
{
    let result = c.data.ask(verb).await;
    match &result {
        Err(problem) if problem.kind == Kind::Failed => tracing::warn!("{}", problem.line()),
        // What a user may not do, or mistyped, is for the user alone.
        Err(problem) => tracing::info!("refused: {}", problem.line()),
        Ok(_) => {}
    }
    result
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let never = axum::body::Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let refused = Body::<serde_json::Value>::from_request(Request::new(never), &()).await.err().unwrap();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
