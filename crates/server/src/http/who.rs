//! Who asks, and what they may do.
//!
//! Over the unix socket the kernel says who it is: root and the user of the server are administrators, the others what their
//! groups say (ashlar-admin, ashlar-operate, ashlar-read). Over TCP a token says it, in the header Authorization and nowhere else.
//!
//! Invariants: over TCP nothing but the answer "ok" and the certificate is told without a token, also on loopback; a token is in
//! no log, whatever part of a request it was in.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use api::{Event, EventCode, EventSeverity, Kind, Problem, Role};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;

use super::Context;
use super::answer::told;
use crate::journal::Journal;
use crate::listen::{Ends, Guest};
use crate::tokens::{Holder, Tokens, Why, holds_one};

/// The group whose members have a role.
fn group(role: Role) -> String {
    format!("ashlar-{}", role.word())
}

/// A user of this machine.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// Its user; none when the kernel does not say.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(uid) = self.uid else { return f.write_str("unknown") };
        let users = read("/etc/passwd");
        let named = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        match named.into_iter().find(|user| user.get(2).is_some_and(|id| *id == uid.to_string())) {
            Some(user) => write!(f, "{} (uid {uid})", user[0]),
            None => write!(f, "uid {uid}"),
        }
    }
}

impl User {
    /// Whether it is root, or who runs the server.
    #[must_use]
    pub fn is_root_or_own(&self) -> bool {
        self.uid.is_some_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw())
    }

    /// What it may do; none: nothing.
    fn role(&self) -> Option<Role> {
        let uid = self.uid?;
        if self.is_root_or_own() {
            return Some(Role::Admin);
        }
        let (groups, users) = (read("/etc/group"), read("/etc/passwd"));
        Role::ALL.into_iter().find(|role| is_in(&group(*role), (uid, self.gid), &groups, &users))
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The group of those who may read, if this machine has one: it may connect.
#[must_use]
pub fn readers() -> Option<u32> {
    let (groups, name) = (read("/etc/group"), group(Role::Read));
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|line| line.first().is_some_and(|found| *found == name))?.get(2)?.parse().ok()
}

/// Whether a user is in a group, as its own group or as one of those that the group lists.
fn is_in(group: &str, (uid, gid): (u32, Option<u32>), groups: &str, users: &str) -> bool {
    // name:password:uid:gid:..., and name:password:gid:member,member
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let name = users.lines().map(fields).find(|user| user.get(2).is_some_and(|id| *id == uid.to_string()));
    let Some(group) = groups.lines().map(fields).find(|line| line.first().is_some_and(|name| name == group)) else {
        return false;
    };
    let is_own = gid.is_some_and(|gid| group.get(2).is_some_and(|id| *id == gid.to_string()));
    let listed = group.get(3).map(String::as_str).unwrap_or_default();
    is_own || name.is_some_and(|user| listed.split(',').any(|member| member == user[0]))
}

/// These requests need `role`.
pub fn needs(router: OpenApiRouter<Context>, role: Role) -> OpenApiRouter<Context> {
    router.route_layer(from_fn(move |request: Request, next: Next| check(role, request, next)))
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A user of this machine.
    User(User),
    /// Whoever holds this token, at this address.
    Token(Holder, IpAddr),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::User(user) => user.fmt(f),
            Caller::Token(holder, from) => write!(f, "token {} ({}) from {from}", holder.name, holder.id),
        }
    }
}

async fn check(needed: Role, request: Request, next: Next) -> Response {
    if let Err(problem) = allows(request.extensions().get(), needed, &request) {
        return told(&problem);
    }
    if let Some(guest) = request.extensions().get::<Arc<Guest>>() {
        guest.is_known_now();
    }
    next.run(request).await
}

/// Whether this caller may ask for what needs a role.
fn allows(caller: Option<&Caller>, needed: Role, request: &Request) -> Result<(), Problem> {
    let join = format!("join the group {}", group(needed));
    let (whose, has, todo) = match caller {
        Some(Caller::User(user)) => ("this user", user.role(), format!("{join}, or be root")),
        Some(Caller::Token(holder, _)) => {
            let todo = format!("`ashlar token create NAME --role {}` on the server makes one that may", needed.word());
            ("this token", Some(holder.role), todo)
        }
        None => ("this connection", None, join),
    };
    let why = match has {
        Some(role) if role >= needed => return Ok(()),
        Some(role) => format!("it needs the role {}, and {whose} has {}", needed.word(), role.word()),
        None => format!("{whose} has no role"),
    };
    let what = format!("{} {}", request.method(), request.uri().path());
    Err(Problem::new(Kind::Refused, "forbidden", what, why, todo))
}

/// Paths over TCP that need no token.
pub const OPEN: [&str; 2] = ["/healthz", "/certificate.pem"];

/// Takes the token of a request over TCP for who asks.
pub async fn by_token(
    State((tokens, journal)): State<(Tokens, Journal)>,
    mut request: Request,
    next: Next,
) -> Response {
    // Where the path or the query has one it is in logs and histories by now, and is not repeated here.
    if request.uri().path_and_query().is_some_and(|all| holds_one(all.as_str())) {
        let todo = "send it in the header Authorization: Bearer; delete this one, which others may have seen";
        return told(&Problem::new(Kind::Usage, "token_in_url", "the request's path", "a token is in it", todo));
    }
    let Some(from) = request.extensions().get::<Ends>().map(|ends| ends.from.ip().to_canonical()) else {
        return told(&unauthenticated("the connection has no address"));
    };
    // It goes no further, right or not.
    let given = request.headers_mut().remove(header::AUTHORIZATION);
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Some(given) = given.as_ref().and_then(bearer) else {
        return with_header(told(&unauthenticated("there is no token")), header::WWW_AUTHENTICATE, "Bearer");
    };
    match tokens.check(given, from) {
        Ok(holder) => {
            request.extensions_mut().insert(Caller::Token(holder, from));
            next.run(request).await
        }
        Err(refused) => {
            if let Some(count) = refused.tell {
                tell(&journal, count, from, &refused.why);
            }
            match refused.wait {
                None => {
                    with_header(told(&unauthenticated("the token is not valid")), header::WWW_AUTHENTICATE, "Bearer")
                }
                Some(wait) => {
                    let (what, why) = ("the request", "too many tokens were wrong lately");
                    let seconds = wait.as_secs() + 1;
                    let todo = format!("try again after {seconds} s");
                    let answer = told(&Problem::new(Kind::Refused, "too_many_tries", what, why, todo));
                    with_header(answer, header::RETRY_AFTER, &seconds.to_string())
                }
            }
        }
    }
}

/// The token of a header; there is one scheme.
fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn unauthenticated(why: &str) -> Problem {
    let todo = "send a token in the header Authorization: Bearer; `ashlar token create` on the server makes one";
    Problem::new(Kind::Refused, "unauthenticated", "the request", why, todo)
}

fn with_header(mut answer: Response, name: HeaderName, value: &str) -> Response {
    if let Ok(value) = HeaderValue::try_from(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Tells of tokens that were refused, once a minute: never what was sent.
fn tell(journal: &Journal, count: u32, from: IpAddr, why: &Why) {
    let why = match why {
        Why::Unknown => "no token of this server".to_owned(),
        Why::Wrong(name) => format!("not the secret of token {name}"),
        Why::Ended(name) => format!("token {name} has ended"),
    };
    let text = match count {
        1 => format!("a token was refused, from {from}: {why}"),
        n => format!("{n} tokens were refused since this was last said; the last from {from}: {why}"),
    };
    tracing::warn!("{text}");
    journal.tell(Event::now(EventCode::TokenRefused, EventSeverity::Warning, None, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_give_roles() {
        let groups = "root:x:0:\nashlar-read:x:990:ann,bob\nashlar-admin:x:991:cid\n";
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:\nbob:x:1001:991::/:\ndora:x:1003:1003::/:\n";
        let is = |group, uid, gid| is_in(group, (uid, Some(gid)), groups, users);
        assert!(is("ashlar-read", 1000, 1000) && !is("ashlar-admin", 1000, 1000));
        assert!(is("ashlar-admin", 1001, 991), "by its own group");
        assert!(!is("ashlar-read", 1003, 1003) && !is("ashlar-operate", 1000, 1000));
        assert!(!is("ashlar-read", 4711, 4711), "a user that is not listed");
    }

    #[test]
    fn root_may_do_everything_and_who_is_not_known_nothing() {
        let of = |uid| User { uid, gid: None }.role();
        assert_eq!((of(Some(0)), of(None)), (Some(Role::Admin), None));
    }

    #[test]
    fn a_token_has_one_scheme() {
        let of = |text: &'static str| bearer(&HeaderValue::from_static(text)).map(str::to_owned);
        assert_eq!(of("Bearer x").as_deref(), Some("x"));
        assert_eq!(of("bearer  x ").as_deref(), Some("x"));
        for none in ["x", "Basic x", "Bearerx", ""] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
