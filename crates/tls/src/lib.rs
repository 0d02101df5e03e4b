//! TLS by s2n-tls: what a server shows, and what a client believes.
//!
//! Invariants:
//! - TLS 1.3, and 1.2 where a client has nothing newer, each with ephemeral keys and AEAD ciphers (the policy [`POLICY`]);
//! - a private key is zeroed when it is dropped, and does not print;
//! - a client sends nothing before it has checked who answers, but the request for the certificate itself
//!   ([`Trust::Unchecked`]).
//!
//! Not here: who may connect, how many, how long a handshake may take.

mod certificate;
mod client;
mod server;

pub use certificate::{Certificate, Fingerprint, Identity};
pub use client::{Connector, Trust};
pub use server::Acceptor;

/// A connection.
pub type Stream<S> = s2n_tls_tokio::TlsStream<S>;

/// s2n's numbered policy behind its name `default_tls13`: numbered ones do not change with the library.
const POLICY: &str = "20240503";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library's.
    #[error("{0}")]
    Tls(#[from] s2n_tls::error::Error),
    /// A certificate could not be made.
    #[error("{0}")]
    Make(#[from] rcgen::Error),
    /// There is no certificate where one should be.
    #[error("it has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// No fingerprint.
    #[error("\"{0}\" is not a SHA-256 fingerprint; write its 64 hexadecimal digits, with or without colons")]
    NoFingerprint(String),
}

fn policy() -> Result<s2n_tls::security::Policy, Error> {
    Ok(s2n_tls::security::Policy::from_version(POLICY)?)
}
