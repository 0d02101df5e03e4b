//! Tokens: who may ask over TCP, and what for. `tokens.toml` in the state directory has them, without what is secret of them.
//!
//! A token is `ashlar_ID_SECRET`. Its secret is random and long, so a plain hash of it is kept: there is nothing to guess.
//!
//! Invariants:
//! - a secret is told once, when its token is made; the file and the memory have its SHA-256 alone;
//! - hashes are compared in constant time;
//! - a token that was deleted, or has ended, is refused from then on, and streams that it opened end;
//! - a file that is damaged lets nobody in, and is not overwritten; the server goes on without it.
//!
//! Not here: what a role may do, how often one may be wrong ([`tries`]).

mod text;
mod tries;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::{Kind, Problem, Role, TokenCreate, TokenCreated, TokenView, VERSION};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::secrets;
use text::Hash;
pub use text::holds_one;
use tries::Tries;
pub use tries::{Refused, Why, network};

/// Tokens at once.
const TOKENS_MAX: usize = 256;

/// Letters of a name.
const NAME_MAX: usize = 64;

/// How often the file gets to know when tokens were used last.
pub const USES_KEPT: Duration = Duration::from_secs(60);

const FILE_VERSION: u32 = 1;
const HEADING: &str = "# Tokens of the API, by the SHA-256 of their secrets. Written by ashlar: `ashlar token`.\n";

/// One token, as the file has it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    id: String,
    name: String,
    role: Role,
    sha256: Hash,
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
}

impl Token {
    fn has_ended(&self) -> bool {
        self.expires.is_some_and(|at| at <= now())
    }

    fn view(&self) -> TokenView {
        TokenView {
            id: self.id.clone(),
            name: self.name.clone(),
            role: self.role,
            created_unix_seconds: self.created,
            expires_unix_seconds: self.expires,
            used_unix_seconds: self.used,
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    #[serde(default, rename = "token")]
    tokens: Vec<Token>,
}

/// Who holds a token that was right.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The token's.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// All of them. Clones are the same.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// What is wrong with the file.
    broken: Option<Problem>,
    kept: Mutex<Kept>,
    /// Who writes the file; its state lasts while it waits for a disk.
    writing: tokio::sync::Mutex<()>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    tokens: Vec<Token>,
    /// Used since the file was written.
    used: BTreeSet<String>,
    tries: Tries,
}

impl Tokens {
    /// Those in the directory `dir`. What is wrong with the file is told by each use of it, and returned here once.
    #[must_use]
    pub fn open(dir: &Path) -> (Tokens, Option<Problem>) {
        let path = dir.join("tokens.toml");
        let (tokens, broken) = match read(&path) {
            Ok(tokens) => (tokens, None),
            Err(problem) => (vec![], Some(problem)),
        };
        let kept = Mutex::new(Kept { tokens, ..Kept::default() });
        let (changed, _) = watch::channel(0);
        let inner = Inner { path, broken: broken.clone(), kept, writing: tokio::sync::Mutex::default(), changed };
        (Tokens(Arc::new(inner)), broken)
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn list(&self) -> Result<api::Tokens, Problem> {
        self.usable()?;
        let mut tokens: Vec<TokenView> = self.kept().tokens.iter().map(Token::view).collect();
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(api::Tokens { version: VERSION, tokens })
    }

    /// Makes one.
    ///
    /// # Errors
    /// When there is one of this name, or the file cannot be written.
    pub async fn make(&self, wish: &TokenCreate) -> Result<TokenCreated, Problem> {
        self.usable()?;
        let what = format!("token \"{}\"", wish.name);
        if !is_name(&wish.name) {
            let why = format!("a name has 1 to {NAME_MAX} letters, digits, dots, dashes and underscores");
            return Err(Problem::usage(what, why, "choose another name"));
        }
        let expires = match wish.expires_in_seconds {
            Some(0) => return Err(Problem::usage(what, "it would end at once", "give at least 1 second")),
            Some(seconds) => Some(now().saturating_add(seconds).min(i64::MAX as u64)),
            None => None,
        };
        let _turn = self.0.writing.lock().await;
        let mut tokens = self.kept().tokens.clone();
        // One that has ended leaves its name to the next.
        tokens.retain(|token| token.name != wish.name || !token.has_ended());
        if tokens.iter().any(|token| token.name == wish.name) {
            let todo = "choose another name, or delete that one: `ashlar token list` shows its id";
            return Err(Problem::refused(
                "token_exists",
                what,
                "there is one already, and its secret is told once",
                todo,
            ));
        }
        if tokens.len() >= TOKENS_MAX {
            let why = format!("there are {TOKENS_MAX} tokens already");
            return Err(Problem::refused("too_many_tokens", what, why, "delete some: `ashlar token list` shows them"));
        }
        let (id, secret, sha256) = loop {
            let new = text::new().map_err(|why| Problem::failed(what.clone(), why, "try again"))?;
            if tokens.iter().all(|token| token.id != new.0) {
                break new;
            }
        };
        let new = Token { id, name: wish.name.clone(), role: wish.role, sha256, created: now(), expires, used: None };
        let view = new.view();
        tokens.push(new);
        self.write(tokens).await?;
        Ok(TokenCreated { version: VERSION, token: secret, view })
    }

    /// Deletes the one with this id.
    ///
    /// # Errors
    /// When there is none, or the file cannot be written.
    pub async fn delete(&self, id: &str) -> Result<TokenView, Problem> {
        self.usable()?;
        let _turn = self.0.writing.lock().await;
        let mut tokens = self.kept().tokens.clone();
        let Some(at) = tokens.iter().position(|token| token.id == id) else {
            let todo = "`ashlar token list` shows the ids";
            return Err(Problem::new(Kind::NotFound, "token_unknown", "the token", "there is none with this id", todo));
        };
        let gone = tokens.remove(at);
        self.write(tokens).await?;
        Ok(gone.view())
    }

    /// Whose `given` is, which came from this address.
    ///
    /// # Errors
    /// When it is nobody's, or too many were wrong lately.
    pub fn check(&self, given: &str, from: IpAddr) -> Result<Holder, Refused> {
        let (at, mut kept) = (Instant::now(), self.kept());
        kept.tries.may_try(from, at)?;
        let parts = text::parts(given);
        let mut why = Why::Unknown;
        if let Some((id, secret)) = parts
            && let Some(token) = kept.tokens.iter_mut().find(|token| token.id == id)
        {
            why = match (token.sha256.is_of(secret), token.has_ended()) {
                (true, false) => {
                    token.used = Some(now());
                    let holder = Holder { id: token.id.clone(), name: token.name.clone(), role: token.role };
                    kept.used.insert(holder.id.clone());
                    return Ok(holder);
                }
                (true, true) => Why::Ended(token.name.clone()),
                (false, true | false) => Why::Wrong(token.name.clone()),
            };
        }
        Err(kept.tries.was_wrong(from, why, at))
    }

    /// Returns when the token with this id is no longer good.
    pub async fn ended(&self, id: &str) {
        let mut changed = self.0.changed.subscribe();
        loop {
            let token = self.kept().tokens.iter().find(|token| token.id == id).cloned();
            let Some(token) = token.filter(|token| !token.has_ended()) else { return };
            // Clocks are set: it is looked at again now and then.
            let left = token.expires.map_or(u64::MAX, |at| at.saturating_sub(now())).clamp(1, 60);
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(left)) => {}
            }
        }
    }

    /// Writes when tokens were used, if some were.
    pub async fn keep_uses(&self) {
        let _turn = self.0.writing.lock().await;
        let tokens = {
            let mut kept = self.kept();
            if std::mem::take(&mut kept.used).is_empty() {
                return;
            }
            kept.tokens.clone()
        };
        if let Err(problem) = self.write(tokens).await {
            tracing::warn!("{}", problem.line());
        }
    }

    fn usable(&self) -> Result<(), Problem> {
        self.0.broken.clone().map_or(Ok(()), Err)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What a thread that panicked left is whole: it is changed in one step.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes these, and takes them for the tokens from now on; whoever does it has the turn.
    async fn write(&self, tokens: Vec<Token>) -> Result<(), Problem> {
        let contents = Contents { version: FILE_VERSION, tokens };
        let path = self.0.path.clone();
        let failed = |e: &dyn std::fmt::Display| {
            let todo = "see that the server may write its state directory";
            Problem::failed(path.display().to_string(), format!("cannot be written: {e}"), todo)
        };
        let text = toml::to_string(&contents).map_err(|e| failed(&e))?;
        let to = path.clone();
        let written = tokio::task::spawn_blocking(move || secrets::replace(&to, format!("{HEADING}{text}").as_bytes()));
        written.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
        let mut kept = self.kept();
        let before = std::mem::replace(&mut kept.tokens, contents.tokens);
        // One that was used meanwhile keeps that.
        for token in &mut kept.tokens {
            let used = before.iter().find(|b| b.id == token.id).and_then(|b| b.used);
            token.used = token.used.max(used);
        }
        drop(kept);
        self.0.changed.send_modify(|n| *n += 1);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<Token>, Problem> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Ok(_) | Err(_) => {}
    }
    let what = || format!("tokens in {}", path.display());
    let todo = "fix it, or move it away and make new tokens; until then no token is taken";
    let text = secrets::read("tokens in", path)?;
    let text = std::str::from_utf8(&text).map_err(|e| Problem::failed(what(), e, todo))?;
    let contents: Contents = toml::from_str(text).map_err(|e| Problem::failed(what(), e.message(), todo))?;
    if contents.version != FILE_VERSION {
        let why = format!("its version is {}, this program reads version {FILE_VERSION}", contents.version);
        return Err(Problem::failed(what(), why, todo));
    }
    Ok(contents.tokens)
}

fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_fine)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
