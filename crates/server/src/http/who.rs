//! Who asks, and what they may do.
//!
//! Over the unix socket the kernel says who it is: root and the user of the server are administrators, the others what their
//! groups say (ashlar-admin, ashlar-operate, ashlar-read).

use std::fmt;
use std::fs;

use api::{Kind, Problem};
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;

use super::Context;
use super::answer::told;

/// What somebody may do; the later ones may do all that the earlier ones may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See everything but secrets.
    Read,
    /// Volumes, jobs, limits.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    const ALL: [Role; 3] = [Role::Admin, Role::Operate, Role::Read];

    /// In one word.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// The group whose members have it.
    fn group(self) -> String {
        format!("ashlar-{}", self.word())
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its user; none when the kernel does not say.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
}

impl fmt::Display for Peer {
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

impl Peer {
    /// What it may do; none: nothing.
    fn role(&self) -> Option<Role> {
        let uid = self.uid?;
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            return Some(Role::Admin);
        }
        let (groups, users) = (read("/etc/group"), read("/etc/passwd"));
        Role::ALL.into_iter().find(|role| is_in(&role.group(), (uid, self.gid), &groups, &users))
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The group of those who may read, if this machine has one: it may connect.
#[must_use]
pub fn readers() -> Option<u32> {
    let (groups, name) = (read("/etc/group"), Role::Read.group());
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

async fn check(needed: Role, request: Request, next: Next) -> Response {
    let peer =
        request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| peer.clone()).unwrap_or_default();
    let what = format!("{} {}", request.method(), request.uri().path());
    match peer.role() {
        Some(role) if role >= needed => next.run(request).await,
        Some(role) => {
            let why = format!("it needs the role {}, and this user has {}", needed.word(), role.word());
            told(&Problem::new(Kind::Refused, "forbidden", what, why, format!("join the group {}", needed.group())))
        }
        None => {
            let why = "this user has no role";
            let todo = format!("join the group {}, or be root", needed.group());
            told(&Problem::new(Kind::Refused, "forbidden", what, why, todo))
        }
    }
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
    fn later_roles_may_do_what_earlier_ones_may() {
        assert!(Role::Admin > Role::Operate && Role::Operate > Role::Read);
        let of = |uid| Peer { uid, gid: None }.role();
        assert_eq!((of(Some(0)), of(None)), (Some(Role::Admin), None));
    }
}
