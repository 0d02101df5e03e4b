//! Tokens: what is asked for, and what is told of them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroize;

/// A role: what its holder may do. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See everything but secrets.
    #[default]
    Read,
    /// Volumes, jobs, limits.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them, the mightiest first.
    pub const ALL: [Role; 3] = [Role::Admin, Role::Operate, Role::Read];

    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

/// Something that is shown once: it does not print, and is zeroed when it is dropped.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// This one.
    #[must_use]
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// Its text, for whoever shows or sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A token that is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// Its name, which no other token has: 1 to 64 letters, digits, dots, dashes and underscores.
    pub name: String,
    /// What who has it may do.
    pub role: Role,
    /// How long it is good, in seconds; without end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub expires_in_seconds: Option<u64>,
}

/// A token, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// By which it is deleted.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What who has it may do.
    pub role: Role,
    /// When it was made.
    pub created_unix_seconds: u64,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_seconds: Option<u64>,
    /// When it was used last, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_unix_seconds: Option<u64>,
}

/// A token that was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// Version of this object.
    pub version: u32,
    /// What is sent in the header `Authorization: Bearer`. It is told here and never again.
    pub token: Secret,
    /// The rest.
    #[serde(flatten)]
    pub view: TokenView,
}

/// All tokens, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// Version of this object.
    pub version: u32,
    /// Each of them.
    pub tokens: Vec<TokenView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let made = TokenCreated { token: Secret::new("ashlar_a_b".into()), ..TokenCreated::default() };
        assert!(!format!("{made:?}").contains("ashlar_a_b"));
        assert!(serde_json::to_string(&made).unwrap().contains("ashlar_a_b"), "but it is told");
    }

    #[test]
    fn later_roles_may_do_what_earlier_ones_may() {
        assert!(Role::Admin > Role::Operate && Role::Operate > Role::Read);
    }
}
