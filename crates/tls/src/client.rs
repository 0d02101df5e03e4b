//! The client's side of a handshake: whom it believes.

use s2n_tls::callbacks::VerifyHostNameCallback;
use s2n_tls::config::{Builder, Config};
use s2n_tls_tokio::TlsConnector;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, Stream, policy};

/// A client that does not believe a server tells its user soon: it has no secret whose use takes time.
const BLINDING_SECONDS_MAX: u32 = 1;

/// Which certificates are believed.
pub enum Trust<'a> {
    /// Those that the system's authorities have signed, for the name that is connected to.
    System,
    /// Those that an authority of this PEM text has signed, for that name.
    Authority(&'a [u8]),
    /// This one (PEM), whatever name is in it: it was compared by its fingerprint.
    This(&'a [u8]),
    /// Any: only to ask for the certificate itself, which is compared with a fingerprint then.
    Unchecked,
}

/// Makes connections to servers.
pub struct Connector(TlsConnector<Config>);

/// Every name is right.
struct AnyName;

impl VerifyHostNameCallback for AnyName {
    fn verify_host_name(&self, _name: &str) -> bool {
        true
    }
}

impl Connector {
    /// One that believes this.
    ///
    /// # Errors
    /// When a certificate is none.
    pub fn new(trust: &Trust<'_>) -> Result<Connector, Error> {
        let mut config = Builder::new();
        config.with_system_certs(matches!(trust, Trust::System))?;
        config.set_security_policy(&policy()?)?;
        config.set_max_blinding_delay(BLINDING_SECONDS_MAX)?;
        match trust {
            Trust::System => {}
            Trust::Authority(pem) => drop(config.trust_pem(pem)?),
            Trust::This(pem) => drop(config.trust_pem(pem)?.set_verify_host_callback(AnyName)?),
            Trust::Unchecked => believe_any(&mut config)?,
        }
        Ok(Connector(TlsConnector::new(config.build()?)))
    }

    /// Does the handshake with the server that was asked for by this name or address.
    ///
    /// # Errors
    /// When it fails, or the server is not believed.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, name: &str, stream: S) -> Result<Stream<S>, Error> {
        Ok(self.0.connect(name, stream).await?)
    }
}

fn believe_any(config: &mut Builder) -> Result<(), Error> {
    // SAFETY: the function is marked because who is at the other end is not known then, not because of memory; see
    // `Trust::Unchecked` for what is sent there.
    #[allow(unsafe_code)]
    unsafe {
        config.disable_x509_verification()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
    use crate::{Acceptor, Identity};

    /// Whether a client that believes `trust` reaches the server that shows `identity` under this name.
    async fn reaches(identity: &Identity, trust: Trust<'_>, name: &str) -> bool {
        let (near, far) = UnixStream::pair().unwrap();
        let acceptor = Acceptor::new(identity).unwrap();
        let server = async {
            if let Ok(mut stream) = acceptor.accept(far).await {
                stream.write_all(b"here").await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let client = async {
            let mut stream = Connector::new(&trust).unwrap().connect(name, near).await.ok()?;
            let mut said = [0; 4];
            stream.read_exact(&mut said).await.ok()?;
            Some(&said == b"here")
        };
        tokio::select! {
            () = server => false,
            found = client => found.unwrap_or_default(),
        }
    }

    #[tokio::test]
    async fn only_who_is_believed_is_reached() {
        let names = ["nas.example".to_owned(), "127.0.0.1".to_owned()];
        let (own, other) = (Identity::made_for(&names).unwrap(), Identity::made_for(&names).unwrap());
        assert!(reaches(&own, Trust::This(own.chain()), "10.9.8.7").await, "compared by fingerprint: any name");
        assert!(reaches(&own, Trust::Authority(own.chain()), "nas.example").await);
        assert!(reaches(&own, Trust::Authority(own.chain()), "127.0.0.1").await);
        assert!(reaches(&own, Trust::Unchecked, "x").await);
        assert!(!reaches(&own, Trust::Authority(own.chain()), "10.9.8.7").await, "another name");
        assert!(!reaches(&own, Trust::This(other.chain()), "nas.example").await);
        assert!(!reaches(&own, Trust::Authority(other.chain()), "nas.example").await);
        assert!(!reaches(&own, Trust::System, "nas.example").await);
    }
}
