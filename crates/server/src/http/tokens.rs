//! Requests about tokens.

use api::{Done, EventCode, Problem, TokenCreate, TokenCreated, Tokens};
use axum::Extension;
use axum::extract::State;

use super::answer::{Body, Path};
use super::{Answer, Caller, Context};

/// All tokens, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", responses((status = 200, description = "Tokens", body = Tokens)))]
pub async fn list(State(c): State<Context>) -> Answer<Tokens> {
    c.tokens.list().into()
}

/// Make a token. What is sent as `Authorization: Bearer` is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = TokenCreate,
    responses((status = 201, description = "It was made", body = TokenCreated)))]
pub async fn create(
    State(c): State<Context>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<TokenCreate>,
) -> Answer<TokenCreated> {
    let made = c.tokens.make(&wish).await;
    if let Ok(made) = &made {
        let end = if made.view.expires_unix_seconds.is_some() { ", which ends by itself" } else { "" };
        let text = format!("token {} ({}) was made: role {}{end}", made.view.name, made.view.id, made.view.role.word());
        tell(&c, &caller, EventCode::TokenMade, text);
    }
    Answer::made(made.map(|made| (made, true)))
}

/// Delete a token: it is refused from now on.
#[utoipa::path(delete, path = "/v1/tokens/{token}", tag = "tokens", params(("token" = String, Path, description = "Its id")),
    responses((status = 200, description = "It was deleted", body = Done)))]
pub async fn delete(
    State(c): State<Context>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<Deleted> {
    let deleted = |token: api::TokenView| {
        let text = format!("token {} ({}) was deleted", token.name, token.id);
        tell(&c, &caller, EventCode::TokenDeleted, text.clone());
        Deleted(Done::new(text))
    };
    let gone: Result<_, Problem> = c.tokens.delete(&id).await;
    gone.map(deleted).into()
}

/// That one was deleted, which the journal has by another code.
#[derive(serde::Serialize)]
#[serde(transparent)]
pub struct Deleted(Done);

impl super::sentence::Sentence for Deleted {
    fn sentence(&self) -> Option<String> {
        None
    }
}

fn tell(c: &Context, caller: &Caller, code: EventCode, text: String) {
    tracing::info!("{text}");
    c.journal.note(code, None, Some(&caller.to_string()), text);
}
