//! An address that is told of an event by HTTP, signed when there is a key.

use std::fmt::Write;
use std::path::Path;

use api::Problem;
use aws_lc_rs::hmac;
use axum::body::Bytes;
use axum::http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::PATIENCE;
use crate::secrets;

/// The header with the signature: "sha256=" and the HMAC of the body in hexadecimal.
const SIGNATURE: &str = "x-ashlar-signature";

/// Where events are sent.
#[derive(Clone)]
pub struct Target {
    address: String,
    uri: Uri,
    key: Option<Zeroizing<Vec<u8>>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not its key.
        f.debug_struct("Target").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Target {
    /// The one that a URL names, with the key in a file.
    ///
    /// # Errors
    /// When it is none, or the file may be read by others.
    pub fn new(url: &str, key_file: Option<&Path>) -> Result<Target, Problem> {
        let what = || format!("hook url \"{url}\"");
        let uri: Uri = url.parse().map_err(|e| Problem::usage(what(), e, "write http://ADDRESS:PORT/PATH"))?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
        let Some(host) = host else {
            let why = "only http:// is possible";
            return Err(Problem::usage(what(), why, "send it to a proxy on this machine, which may use TLS"));
        };
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(Target { address, key: key_file.map(read_key).transpose()?, uri })
    }

    /// Sends; it was taken when the answer is a success.
    pub async fn post(&self, event: &[u8]) -> Result<(), String> {
        let sent = timeout(PATIENCE, self.exchange(event));
        sent.await.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    async fn exchange(&self, event: &[u8]) -> Result<(), String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|e| format!("{}: {e}", self.address))?;
        let words = |e: hyper::Error| format!("{}: {e}", self.address);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(words)?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(header::HOST, self.uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(SIGNATURE, format!("sha256={}", signature(key, event)));
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(event))).map_err(|e| e.to_string())?;
        let answer = async move { sender.send_request(request).await };
        let (answer, _ended) = tokio::join!(answer, connection);
        let status = answer.map_err(words)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("{} answered {status}", self.address)) }
    }
}

/// HMAC-SHA-256 (RFC 2104), in hexadecimal.
pub fn signature(key: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body);
    tag.as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes it");
        hex
    })
}

fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let mut key = secrets::read("key file", path)?;
    let len = key.trim_ascii_end().len();
    key.truncate(len);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(b"Jefe", b"what do ya want for nothing?"), expected);
    }
}
