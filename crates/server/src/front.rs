//! What the API shows over TCP: its addresses, its names, its certificate.
//!
//! Without a certificate in the configuration it has one of its own: made once, kept in the state directory, and known to people
//! by its fingerprint.
//!
//! Invariant: a certificate that cannot be used changes nothing: the one before goes on. At the start there is none before:
//! nothing is shown until a reload finds one.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use api::Problem;
use serde::Deserialize;
use tls::{Acceptor, Fingerprint, Identity};

use crate::secrets;

/// A longer file is no certificate.
const CHAIN_BYTES_MAX: u64 = 1 << 20;

/// The API over TCP, as the file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Addresses, "ADDRESS:PORT"; none: the control socket only.
    pub listen: Vec<SocketAddr>,
    /// Names and addresses by which others ask for it, beside those of `listen`.
    pub names: Vec<String>,
    /// A file with its certificate, and those above it (PEM).
    pub certificate: Option<PathBuf>,
    /// A file with the private key (PEM).
    pub key: Option<PathBuf>,
}

impl ApiConfig {
    /// What is wrong with it, as far as it alone and its files tell.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), Problem> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
        if let Some(name) = self.names.iter().find(|name| name.is_empty() || !name.chars().all(is_fine)) {
            let why = "it is neither a host name nor an address";
            return Err(Problem::usage(
                format!("name \"{name}\" of the API"),
                why,
                "give names such as nas.example.com",
            ));
        }
        self.files().transpose().map(drop)
    }

    /// What its files hold, if it names some.
    fn files(&self) -> Option<Result<Identity, Problem>> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(of_files(certificate, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let why = "a certificate and its key are needed together";
                Some(Err(Problem::usage("certificate of the API", why, "set both, or none for a self-made one")))
            }
        }
    }
}

fn of_files(certificate: &Path, key: &Path) -> Result<Identity, Problem> {
    let what = || format!("certificate {}", certificate.display());
    let no = |why: String| Problem::usage(what(), why, "PEM files of a certificate and of its key");
    let meta = fs::metadata(certificate).map_err(|e| no(e.to_string()))?;
    if !meta.is_file() || meta.len() > CHAIN_BYTES_MAX {
        return Err(no("it is not a regular file of at most 1 MiB".to_owned()));
    }
    let chain = fs::read(certificate).map_err(|e| no(e.to_string()))?;
    let secret = secrets::read("key file", key)?;
    let with = |e: tls::Error| no(format!("it cannot be used with the key {}: {e}", key.display()));
    Identity::new(chain, secret).map_err(with)
}

/// What clients are shown now.
struct Shown {
    acceptor: Acceptor,
    chain: Vec<u8>,
    fingerprint: Fingerprint,
    names: Vec<String>,
}

/// What clients see of the API over TCP.
pub struct Front {
    addresses: Vec<SocketAddr>,
    state_dir: PathBuf,
    /// Nothing: why.
    shown: RwLock<Result<Arc<Shown>, Problem>>,
}

/// What a reload will show; see [`Front::next`].
pub struct Next(Shown);

impl Front {
    /// At these addresses.
    #[must_use]
    pub fn open(config: &ApiConfig, state_dir: &Path, addresses: Vec<SocketAddr>) -> Arc<Front> {
        let shown = config.check().and_then(|()| Shown::of(config, state_dir, &addresses)).map(Arc::new);
        Arc::new(Front { addresses, state_dir: state_dir.to_owned(), shown: RwLock::new(shown) })
    }

    /// Why it shows nothing; none when it does.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).as_ref().err().cloned()
    }

    /// Reads what `config` names, again: what is shown once [`Front::show`] gets it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn next(&self, config: &ApiConfig) -> Result<Next, Problem> {
        Shown::of(config, &self.state_dir, &self.addresses).map(Next)
    }

    /// Connections that come from now on see this.
    pub fn show(&self, next: Next) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Ok(Arc::new(next.0));
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The certificate, and those above it (PEM).
    #[must_use]
    pub fn chain(&self) -> Option<Vec<u8>> {
        Some(self.shown()?.chain.clone())
    }

    /// The certificate's.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        Some(self.shown()?.fingerprint)
    }

    /// What does handshakes.
    #[must_use]
    pub fn acceptor(&self) -> Option<Acceptor> {
        Some(self.shown()?.acceptor.clone())
    }

    /// Whether somebody who reached it at the address `at` may call it `name`.
    #[must_use]
    pub fn is_called(&self, name: &str, at: IpAddr) -> bool {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>()
            && address.to_canonical() == at.to_canonical()
        {
            return true;
        }
        let bare = bare.trim_end_matches('.');
        let is_own = |shown: Arc<Shown>| shown.names.iter().any(|own| own.eq_ignore_ascii_case(bare));
        bare.eq_ignore_ascii_case("localhost") || self.shown().is_some_and(is_own)
    }

    fn shown(&self) -> Option<Arc<Shown>> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).as_ref().ok().cloned()
    }
}

impl Shown {
    fn of(config: &ApiConfig, state_dir: &Path, addresses: &[SocketAddr]) -> Result<Shown, Problem> {
        let identity = match config.files() {
            Some(of_files) => of_files?,
            None => own(state_dir, &config.names, addresses)?,
        };
        let failed = |e: tls::Error| Problem::failed("TLS of the API", e, "see that certificate and key are valid");
        let acceptor = Acceptor::new(&identity).map_err(failed)?;
        let names = config.names.iter().map(|name| name.trim_end_matches('.').to_owned()).collect();
        Ok(Shown { acceptor, chain: identity.chain().to_vec(), fingerprint: identity.fingerprint(), names })
    }
}

/// The self-made certificate, which is made if there is none yet.
fn own(state_dir: &Path, names: &[String], addresses: &[SocketAddr]) -> Result<Identity, Problem> {
    let (certificate, key) = (state_dir.join("api.crt"), state_dir.join("api.key"));
    if certificate.exists() && fs::symlink_metadata(&key).is_ok() {
        return of_files(&certificate, &key);
    }
    let failed = |e: &dyn std::fmt::Display| {
        let todo = "see that the server may write its state directory, or name a certificate and its key";
        Problem::failed(format!("certificate {}", certificate.display()), e.to_string(), todo)
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    all.extend(addresses.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    all.extend(Some(host).filter(|host| !host.is_empty()));
    all.extend_from_slice(names);
    all.sort();
    all.dedup();
    let identity = Identity::made_for(&all).map_err(|e| failed(&e))?;
    // The key first: a certificate without its key is made anew.
    secrets::replace(&key, identity.key()).map_err(|e| failed(&e))?;
    secrets::replace(&certificate, identity.chain()).map_err(|e| failed(&e))?;
    Ok(identity)
}

/// Listens for the API.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Problem> {
    let listener = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
    listener.map_err(|e| Problem::failed(format!("API at {address}"), e, "give another address (--api)"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn loopback() -> ApiConfig {
        ApiConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            names: vec!["NAS.example".into()],
            ..ApiConfig::default()
        }
    }

    fn open(config: &ApiConfig, dir: &Path) -> Arc<Front> {
        Front::open(config, dir, config.listen.clone())
    }

    #[test]
    fn what_cannot_be_shown_at_the_start_is_shown_after_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("api.key")).unwrap();
        fs::write(dir.path().join("api.crt"), "").unwrap();
        let front = open(&loopback(), dir.path());
        assert!(front.problem().unwrap().why.contains("symbolic link"));
        assert!(front.acceptor().is_none() && front.chain().is_none() && front.fingerprint().is_none());
        assert!(front.next(&loopback()).is_err());
        fs::remove_file(dir.path().join("api.key")).unwrap();
        front.show(front.next(&loopback()).unwrap());
        assert!(front.problem().is_none() && front.acceptor().is_some());
    }

    #[test]
    fn a_certificate_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let front = open(&loopback(), dir.path());
        assert_eq!(fs::metadata(dir.path().join("api.key")).unwrap().mode() & 0o777, 0o600);
        assert!(!String::from_utf8(front.chain().unwrap()).unwrap().contains("PRIVATE"));
        assert_eq!(front.fingerprint(), open(&loopback(), dir.path()).fingerprint());
    }

    #[test]
    fn a_reload_shows_another_certificate_or_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let front = open(&loopback(), dir.path());
        let before = front.fingerprint();
        let files = ApiConfig {
            certificate: Some(dir.path().join("new.crt")),
            key: Some(dir.path().join("new.key")),
            ..loopback()
        };
        assert!(front.next(&files).is_err(), "they are not there");
        let other = Identity::made_for(&["x".into()]).unwrap();
        fs::write(dir.path().join("new.crt"), other.chain()).unwrap();
        secrets::replace(&dir.path().join("new.key"), b"no key").unwrap();
        assert!(front.next(&files).err().unwrap().why.contains("cannot be used with the key"));
        assert_eq!(front.fingerprint(), before);
        secrets::replace(&dir.path().join("new.key"), other.key()).unwrap();
        front.show(front.next(&files).unwrap());
        assert_eq!(front.fingerprint(), Some(other.fingerprint()));
        let half = ApiConfig { key: None, ..files };
        assert!(half.check().unwrap_err().why.contains("together"));
    }

    #[test]
    fn it_is_called_by_its_names_and_by_the_address_that_was_reached() {
        let dir = tempfile::tempdir().unwrap();
        let front = open(&loopback(), dir.path());
        let at = "10.0.0.5".parse().unwrap();
        for name in ["10.0.0.5", "[::ffff:10.0.0.5]", "localhost", "nas.example", "nas.EXAMPLE.", "LOCALHOST"] {
            assert!(front.is_called(name, at), "{name}");
        }
        for name in ["", "10.0.0.6", "127.0.0.1", "example", "nas.example.org", "localhost.example", "[::1]"] {
            assert!(!front.is_called(name, at), "{name}");
        }
        let bad = ApiConfig { names: vec!["a b".into()], ..loopback() };
        assert!(bad.check().is_err());
    }
}
