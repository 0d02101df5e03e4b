//! The client of a server: one request, one answer, no time limit (a verb takes as long as it takes). It is on the control
//! socket, or on another machine ([`remote`]).

pub mod remote;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use api::Problem;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

use remote::Remote;

/// Where a server is.
#[derive(Clone)]
pub enum Place {
    /// On this machine: its control socket.
    Here(PathBuf),
    /// On another, or asked as if it were.
    There(Remote),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here(socket) => socket.display().fmt(f),
            Place::There(remote) => remote.fmt(f),
        }
    }
}

/// A running Ashlar.
pub struct Client {
    place: Place,
}

impl Client {
    /// The Ashlar there, if it answers. One on another machine is asked in any case: why it does not answer is told then.
    pub fn connect(place: &Place) -> Option<Client> {
        let is_there = match place {
            Place::Here(socket) => UnixStream::connect(socket).is_ok(),
            Place::There(_) => true,
        };
        is_there.then(|| Client { place: place.clone() })
    }

    /// Whether it still takes connections.
    pub fn answers(&self) -> bool {
        match &self.place {
            Place::Here(socket) => UnixStream::connect(socket).is_ok(),
            Place::There(remote) => remote.answers(),
        }
    }

    /// Asks.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(Method::GET, path, None)
    }

    /// Asks for a text.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn text(&self, path: &str) -> Result<String, Problem> {
        let body = self.answer(Method::GET, path, None)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Tells it to do something.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Problem> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        self.send(Method::POST, path, Some(body))
    }

    /// Tells it to change something.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Problem> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        self.send(Method::PATCH, path, Some(body))
    }

    /// Tells it to see to it that something is there.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn put<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(Method::PUT, path, None)
    }

    /// Tells it to do away with something.
    ///
    /// # Errors
    /// The server's problem, or that it does not answer.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(Method::DELETE, path, None)
    }

    /// The path of a verb that is refused while hosts are connected, unless it is forced.
    #[must_use]
    pub fn forced(path: &str, force: bool) -> String {
        if force { format!("{path}?force=true") } else { path.to_owned() }
    }

    /// The path of a verb that loses what has this identity; see [`Client::forced`].
    #[must_use]
    pub fn confirmed(path: &str, uuid: uuid::Uuid, force: bool) -> String {
        format!("{path}?confirm={uuid}&force={force}")
    }

    fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<T, Problem> {
        let body = self.answer(method, path, body)?;
        serde_json::from_slice(&body).map_err(|e| self.broken(e))
    }

    fn answer(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Bytes, Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| self.broken(e))?;
        let changes = method != Method::GET;
        let told = match &self.place {
            Place::Here(socket) => runtime.block_on(here(socket, method, path, body)),
            Place::There(remote) => runtime.block_on(remote.ask(method, path, body)),
        };
        let (status, body) = told.map_err(|e| match e.downcast::<Problem>() {
            // Before it was asked.
            Ok(problem) => *problem,
            Err(e) if changes => self.unanswered(e),
            Err(e) => self.broken(e),
        })?;
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(problem),
            Err(_) => Err(self.broken(format!("its answer was {status}"))),
        }
    }

    /// A command that changes something got no answer.
    fn unanswered(&self, e: impl std::fmt::Display) -> Problem {
        Problem::failed(
            format!("the Ashlar at {}", self.place),
            format!("the connection ended without an answer ({e}): the command may or may not have been done"),
            "see `ashlar status` and the server's log before you repeat it",
        )
    }

    fn broken(&self, e: impl std::fmt::Display) -> Problem {
        Problem::failed(
            format!("the Ashlar at {}", self.place),
            format!("no proper answer: {e}"),
            "see its log; `ashlar --version` must be the same on both sides",
        )
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn here(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<(StatusCode, Bytes), Failure> {
    let stream = tokio::net::UnixStream::connect(socket).await?;
    exchange(stream, Request::builder().method(method).uri(path).header("host", "ashlar"), body, usize::MAX).await
}

/// Sends a request and takes its answer, of at most so many bytes.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    head: Builder,
    body: Option<Vec<u8>>,
    bytes_max: usize,
) -> Result<(StatusCode, Bytes), Failure> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request =
        head.header("content-type", "application/json").body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    // The sender goes when it has its answer; then the connection ends too.
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), bytes_max).collect().await?.to_bytes();
        Ok::<_, Failure>((status, body))
    };
    // An error of the connection is the answer's error too.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_command_without_an_answer_may_have_been_done() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("c.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        // Takes the request, and ends as a killed server does.
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]);
            }
        });
        let client = Client { place: Place::Here(socket) };
        let told = client.post::<serde_json::Value>("/v1/arrays", &1).unwrap_err().why.clone();
        assert!(told.contains("may or may not have been done"), "{told}");
        let told = client.get::<serde_json::Value>("/v1/arrays").unwrap_err().why.clone();
        assert!(!told.contains("may or may not"), "{told}");
        server.join().unwrap();
    }
}
