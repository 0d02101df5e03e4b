//! A server on another machine: TLS, a token, and a certificate that is known by its fingerprint or by who has signed it.
//!
//! Invariants: a token comes from a file that others cannot read, or from the environment, and never from the command line; it is
//! sent after the certificate was checked, and to nobody else.

use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fs, io};

use api::{Problem, Secret};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode, Uri};
use rustix::net::sockopt;
use server::secrets;
use tls::{Certificate, Connector, Fingerprint, Trust};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Failure, exchange};

/// The token, where no file has it.
const TOKEN_ENV: &str = "ASHLAR_TOKEN";

/// The fingerprint, where no flag has it.
const FINGERPRINT_ENV: &str = "ASHLAR_FINGERPRINT";

/// How long a connection and its handshake may take.
const CONNECT_MAX: Duration = Duration::from_secs(15);

/// An answer takes as long as it takes; a machine that says nothing is asked after so long whether it is there, and is given up
/// after these questions: within half a minute.
const ASKED_AFTER: Duration = Duration::from_secs(10);
const ASKED_EVERY: Duration = Duration::from_secs(5);
const QUESTIONS: u32 = 4;

/// What was sent and has not reached it within this time is given up.
const UNREACHED_MS_MAX: u32 = 30_000;

/// A certificate is no longer.
const CERTIFICATE_BYTES_MAX: usize = 1 << 20;

/// What flags say of a server on another machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// File with the token for --control https://...; also ASHLAR_TOKEN, which is the token itself
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    token_file: Option<PathBuf>,
    /// SHA-256 of the certificate that the server at https://... shows; also ASHLAR_FINGERPRINT [default: it is checked as
    /// browsers do]
    #[arg(long, global = true, value_name = "SHA256", help_heading = "Global options")]
    fingerprint: Option<String>,
    /// File with the certificate of the authority that has signed the server's
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
}

impl Flags {
    /// Whether any of them is given.
    pub fn are_given(&self) -> bool {
        self.token_file.is_some() || self.fingerprint.is_some() || self.ca.is_some()
    }
}

/// Whom it believes.
#[derive(Clone)]
enum Believes {
    System,
    Authority(Arc<[u8]>),
    Fingerprint(Fingerprint),
}

/// Such a server. What it takes to ask it is looked at when it is asked: commands that need no server need none of that.
#[derive(Clone)]
pub struct Remote {
    url: String,
    flags: Flags,
    known: Arc<OnceLock<Result<Known, Problem>>>,
    /// The certificate with the fingerprint, once it was seen.
    certificate: Arc<OnceLock<Certificate>>,
}

/// What it takes to ask it.
struct Known {
    host: String,
    port: u16,
    token: Secret,
    believes: Believes,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.trim_end_matches('/'))
    }
}

impl Known {
    /// Of the server at `url`, https://HOST:PORT.
    ///
    /// # Errors
    /// When the URL, a file or the fingerprint is none, or there is no token.
    fn new(url: &str, flags: &Flags) -> Result<Known, Problem> {
        let no = |why: &str| Problem::usage(format!("--control {url}"), why, "write https://HOST:PORT");
        let uri: Uri = url.parse().map_err(|_| no("it is not a URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(no("only https:// is possible: a token is not sent in the clear"));
        }
        let is_bare = uri.path() == "/" && uri.query().is_none() && !url.contains('@');
        let (Some(host), Some(port), true) = (uri.host(), uri.port_u16(), is_bare) else {
            return Err(no("it has no port, or more than a host and a port"));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let from_env = || env::var(FINGERPRINT_ENV).ok().filter(|text| !text.is_empty() && flags.ca.is_none());
        let believes = match (&flags.ca, flags.fingerprint.clone().or_else(from_env)) {
            (Some(file), _) => {
                let what = || format!("--ca {}", file.display());
                let pem = fs::read(file).map_err(|e| Problem::usage(what(), e, "name a readable file"))?;
                let checked = Connector::new(&Trust::Authority(&pem)).map(drop);
                checked.map_err(|e| Problem::usage(what(), e, "a certificate in PEM"))?;
                Believes::Authority(pem.into())
            }
            (None, Some(text)) => {
                let todo = "the server's log and `ashlar version` on its machine show it";
                let parsed = text.parse().map_err(|e: tls::Error| Problem::usage("--fingerprint", e, todo))?;
                Believes::Fingerprint(parsed)
            }
            (None, None) => Believes::System,
        };
        Ok(Known { host, port, token: token(flags)?, believes })
    }

    fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl Remote {
    /// The one at `url`. Nothing is looked at yet.
    pub fn new(url: &str, flags: &Flags) -> Remote {
        Remote { url: url.to_owned(), flags: flags.clone(), known: Arc::default(), certificate: Arc::default() }
    }

    fn known(&self) -> Result<&Known, Problem> {
        self.known.get_or_init(|| Known::new(&self.url, &self.flags)).as_ref().map_err(Problem::clone)
    }

    /// Whether it takes connections.
    pub fn answers(&self) -> bool {
        let Ok(known) = self.known() else { return false };
        let addresses = (known.host.as_str(), known.port).to_socket_addrs();
        let reaches = |address| std::net::TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok();
        addresses.is_ok_and(|mut all| all.any(reaches))
    }

    /// Asks. A [`Problem`] is one from before it was asked.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<(StatusCode, Bytes), Failure> {
        let known = self.known()?;
        let stream = match &known.believes {
            Believes::System => self.connect(known, &Trust::System).await?,
            Believes::Authority(pem) => self.connect(known, &Trust::Authority(pem)).await?,
            Believes::Fingerprint(wanted) => {
                let certificate = self.certificate_of(known, wanted).await?;
                self.connect(known, &Trust::This(certificate.pem())).await?
            }
        };
        let mut token = HeaderValue::try_from(format!("Bearer {}", known.token.reveal()))?;
        token.set_sensitive(true);
        let head = Request::builder().method(method).uri(path).header("host", known.authority());
        exchange(stream, head.header("authorization", token), body, usize::MAX).await
    }

    async fn connect(&self, known: &Known, trust: &Trust<'_>) -> Result<tls::Stream<TcpStream>, Problem> {
        let what = || format!("the Ashlar at {self}");
        let connect = async {
            let stream = TcpStream::connect((known.host.as_str(), known.port)).await.map_err(|e| {
                let todo = "see that it runs, that [api] is in its configuration, and that no firewall is between";
                Problem::failed(what(), format!("it cannot be reached: {e}"), todo)
            })?;
            ends_with_its_peer(&stream).map_err(|e| Problem::failed(what(), e, "try again"))?;
            let connector = Connector::new(trust).map_err(|e| Problem::failed(what(), e, "try again"))?;
            connector.connect(&known.host, stream).await.map_err(|e| {
                let todo = "give the --fingerprint of its certificate, or the --ca that has signed it";
                Problem::failed(what(), format!("no TLS with it, or its certificate is not to be trusted: {e}"), todo)
            })
        };
        let late = |_| Problem::failed(what(), "it does not answer", "see that it runs, and try again");
        timeout(CONNECT_MAX, connect).await.map_err(late)?
    }

    /// The certificate that it shows to everybody, if it has this fingerprint. No token is sent for it.
    async fn certificate_of(&self, known: &Known, wanted: &Fingerprint) -> Result<&Certificate, Failure> {
        if let Some(seen) = self.certificate.get() {
            return Ok(seen);
        }
        let stream = self.connect(known, &Trust::Unchecked).await?;
        let head = Request::builder().uri("/certificate.pem").header("host", known.authority());
        let asked = timeout(CONNECT_MAX, exchange(stream, head, None, CERTIFICATE_BYTES_MAX)).await;
        let what = || format!("the Ashlar at {self}");
        let no = |why: String| {
            let todo = "see `ashlar version` on its machine; another machine may answer in its place";
            Problem::failed(what(), why, todo)
        };
        let told = asked.map_err(|_| no("it does not answer".to_owned()))?;
        let (status, pem) = told.map_err(|e| no(format!("no certificate: {e}")))?;
        if !status.is_success() {
            return Err(no(format!("it tells no certificate: {status}")).into());
        }
        let certificate = Certificate::first_of(&pem).map_err(|e| no(e.to_string()))?;
        if certificate.fingerprint() != *wanted {
            return Err(no(format!("its certificate has the fingerprint {}", certificate.fingerprint())).into());
        }
        Ok(self.certificate.get_or_init(|| certificate))
    }
}

/// Has the kernel end the connection when the other machine has vanished: without power it says no goodbye.
fn ends_with_its_peer(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_tcp_user_timeout(stream, UNREACHED_MS_MAX)?)
}

fn token(flags: &Flags) -> Result<Secret, Problem> {
    if let Some(file) = &flags.token_file {
        let text = secrets::read("token file", file)?;
        let text =
            std::str::from_utf8(&text).map_err(|e| Problem::usage("token file", e, "one line, with the token"))?;
        return Ok(Secret::new(text.trim().to_owned()));
    }
    match env::var(TOKEN_ENV) {
        Ok(text) if !text.trim().is_empty() => Ok(Secret::new(text.trim().to_owned())),
        Ok(_) | Err(_) => {
            let todo =
                "--token-file FILE or ASHLAR_TOKEN; `ashlar token create NAME --role ROLE` on the server makes one";
            Err(Problem::usage("the token", "a server on another machine needs one", todo))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tls::{Acceptor, Identity};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_port() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        secrets::replace(&file, b"ashlar_x_y\n").unwrap();
        let flags = Flags { token_file: Some(file), ..Flags::default() };
        for (url, shown) in [
            ("https://nas.example:9460", "https://nas.example:9460"),
            ("https://10.0.0.5:9460/", "https://10.0.0.5:9460"),
            ("https://[2001:db8::5]:9460", "https://[2001:db8::5]:9460"),
        ] {
            let remote = Remote::new(url, &flags);
            let known = remote.known().unwrap_or_else(|problem| panic!("{url}: {problem}"));
            assert_eq!((remote.to_string().as_str(), known.token.reveal()), (shown, "ashlar_x_y"));
            assert_eq!(format!("https://{}", known.authority()), shown);
        }
        for wrong in
            ["http://nas:9460", "https://nas", "https://nas:9460/v1", "https://u:p@nas:9460", "https://nas:9460/?a=b"]
        {
            assert!(Remote::new(wrong, &flags).known().is_err(), "{wrong}");
        }
        let wrong = Flags { fingerprint: Some("12".into()), ..flags };
        assert!(Remote::new("https://nas:9460", &wrong).known().is_err());
    }

    /// That the kernel then ends it is tried by hand; the test looks at what it was told.
    #[tokio::test]
    async fn a_machine_that_has_vanished_is_not_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let remote = Remote::new("", &Flags::default());
        let known = Known {
            host: "127.0.0.1".to_owned(),
            port,
            token: Secret::new("ashlar_x_y".to_owned()),
            believes: Believes::System,
        };
        let own = Identity::made_for(&["localhost".to_owned()]).unwrap();
        let acceptor = Acceptor::new(&own).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream).await.map(std::mem::forget)
        });
        let tls = remote.connect(&known, &Trust::Unchecked).await.unwrap();
        let stream: &TcpStream = tls.get_ref();
        assert_eq!(sockopt::socket_keepalive(stream), Ok(true));
        let (after, every) = (sockopt::tcp_keepidle(stream).unwrap(), sockopt::tcp_keepintvl(stream).unwrap());
        assert_eq!(after + every * sockopt::tcp_keepcnt(stream).unwrap(), Duration::from_secs(30));
        assert_eq!(sockopt::tcp_user_timeout(stream), Ok(30_000));
    }

    /// A server that shows `shown` and tells the certificate of `told`; what it is asked, as far as it understands it.
    async fn server(shown: &Identity, told: &Identity) -> (u16, Arc<Mutex<String>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (acceptor, chain) = (Acceptor::new(shown).unwrap(), told.chain().to_vec());
        let asked = Arc::new(Mutex::new(String::new()));
        let log = asked.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not believe it ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = vec![];
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).await.is_err() {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let body = if head.starts_with("GET /certificate.pem ") { &chain[..] } else { b"{}" };
                log.lock().unwrap().push_str(&head);
                let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _gone = stream.write_all(&[answer.as_bytes(), body].concat()).await;
            }
        });
        (port, asked)
    }

    #[tokio::test]
    async fn a_token_goes_to_whom_it_is_for_and_to_nobody_else() {
        let names = ["localhost".to_owned()];
        let (own, other) = (Identity::made_for(&names).unwrap(), Identity::made_for(&names).unwrap());
        let remote = |port, fingerprint| {
            let token = Secret::new("ashlar_x_y".to_owned());
            let believes = Believes::Fingerprint(fingerprint);
            let known = Known { host: "localhost".to_owned(), port, token, believes };
            let remote = Remote::new("", &Flags::default());
            assert!(remote.known.set(Ok(known)).is_ok());
            remote
        };
        let ask = async |port, fingerprint| remote(port, fingerprint).ask(Method::GET, "/v1/server", None).await;

        let (port, asked) = server(&own, &own).await;
        assert!(ask(port, own.fingerprint()).await.is_ok());
        let (first, second) =
            asked.lock().unwrap().split_once("\r\n\r\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(first.starts_with("GET /certificate.pem ") && !first.contains("ashlar_x_y"), "{first}");
        assert!(
            second.starts_with("GET /v1/server ") && second.contains("authorization: Bearer ashlar_x_y"),
            "{second}"
        );

        // Another machine in its place: one that shows its own certificate, one that tells a copy of the right one.
        for told in [&other, &own] {
            let (port, asked) = server(&other, told).await;
            assert!(ask(port, own.fingerprint()).await.is_err());
            assert!(!asked.lock().unwrap().contains("ashlar_x_y"), "{asked:?}");
        }
    }
}
