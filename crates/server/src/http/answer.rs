//! Bodies in and out: JSON, with problems as JSON too.

use api::{ErrorBody, Kind, Problem};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a route answers.
pub struct Answer<T>(pub Result<T, Problem>);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match self.0 {
            Ok(value) => json(StatusCode::OK, &value),
            Err(problem) => {
                let status = StatusCode::from_u16(problem.kind.http_status());
                json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &ErrorBody::from(problem))
            }
        }
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// A request's body.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bad =
            |e: String| Answer::<()>(Err(Problem::usage("the request's body", e, "see `ashlar help`"))).into_response();
        let bytes = Bytes::from_request(request, state).await.map_err(|e| bad(e.to_string()))?;
        serde_json::from_slice(&bytes).map(Body).map_err(|e| bad(e.to_string()))
    }
}

/// The answer to everything else.
pub async fn no_such_path(method: Method, uri: Uri) -> Answer<()> {
    Answer(Err(Problem::new(
        Kind::NotFound,
        "no_such_path",
        format!("{method} {}", uri.path()),
        "this Ashlar has no such request",
        "use an `ashlar` of the same version as the server",
    )))
}
