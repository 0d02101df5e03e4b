//! The server's side of a handshake.

use s2n_tls::config::{Builder, Config};
use s2n_tls_tokio::TlsAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, Identity, Stream, policy};

/// After a failed handshake the library waits for up to so many seconds before it closes, so that the time tells nothing.
const BLINDING_SECONDS_MAX: u32 = 6;

/// Makes connections of those that arrive. Clones are the same.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor<Config>);

impl Acceptor {
    /// One that shows this certificate.
    ///
    /// # Errors
    /// When the library does not take it.
    pub fn new(identity: &Identity) -> Result<Acceptor, Error> {
        let mut config = Builder::new();
        config.with_system_certs(false)?;
        config.set_security_policy(&policy()?)?;
        config.set_application_protocol_preference(["http/1.1"])?;
        config.set_max_blinding_delay(BLINDING_SECONDS_MAX)?;
        config.load_pem(&identity.chain, &identity.key)?;
        Ok(Acceptor(TlsAcceptor::new(config.build()?)))
    }

    /// Does the handshake.
    ///
    /// # Errors
    /// When it fails.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Result<Stream<S>, Error> {
        Ok(self.0.accept(stream).await?)
    }
}
