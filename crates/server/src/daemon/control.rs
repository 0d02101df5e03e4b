//! The thread that answers on the control socket, and on the address of the metrics.
//!
//! Invariant: it answers also when there are no more descriptors.

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::{Kind, Problem};
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use rt::MailSender;
use tokio::sync::watch;

use super::data::DataHandle;
use super::socket::Socket;
use super::start::Settings;
use crate::hooks::Hooks;
use crate::http::{self, Peer};
use crate::journal::Journal;

/// How long a stop waits for clients to take their answers.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// The control thread.
pub struct Control {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Starts to answer, on these CPUs. `stop_now` gets the reason when the server shall stop.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn start(
        sockets: (Socket, Option<TcpListener>),
        data: DataHandle,
        stop_now: MailSender<&'static str>,
        (journal, hooks): (Journal, Hooks),
        settings: &Settings,
        cpus: &[u32],
    ) -> Result<(Control, String), Problem> {
        let failed = |e: io::Error| Problem::new(Kind::Failed, "failed", "control thread", e.to_string(), "try again");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        if settings.stop_at_eof {
            let stop_now = stop_now.clone();
            let wait = move || {
                // Whatever ends the read, the parent is gone.
                let _ = io::stdin().lock().read_to_end(&mut vec![]);
                stop_now.send("standard input ended");
            };
            thread::Builder::new().name("parent".into()).spawn(wait).map_err(failed)?;
        }
        let cpus = cpus.to_vec();
        let (wanted, state_dir) = (settings.hooks.clone(), settings.state_dir.clone());
        let work = move || {
            // Not those of the first core, from which a thread that it makes begins.
            if let Err(e) = rt::topology::run_on(&cpus) {
                tracing::warn!("placement: commands cannot be moved off the first core's CPUs: {e}");
            }
            let result = runtime.block_on(async {
                hooks.start(&wanted, &journal, &state_dir);
                serve(sockets, (data, stop_now, journal), stopped).await
            });
            if let Err(e) = result {
                tracing::error!("control socket: {e}");
            }
            // A read of a file that hangs is not waited for.
            runtime.shutdown_timeout(ANSWERS_MAX);
        };
        let thread = thread::Builder::new().name("control".into()).spawn(work).map_err(failed)?;
        Ok((Control { stop, thread }, "answering".to_owned()))
    }

    /// Ends the thread, after the answers that are on their way. The socket's file is gone then.
    pub fn stop(self) {
        // The thread may have ended by itself.
        let _ = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

/// Between two tries to accept when that fails.
const RETRY: Duration = Duration::from_millis(50);

/// A listener that keeps a descriptor for whoever asks what is wrong when there are no others.
struct Answering {
    listener: tokio::net::UnixListener,
    kept: Option<File>,
    /// When the log was told last.
    told: Option<tokio::time::Instant>,
}

/// The log is told again after so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

impl Answering {
    fn new(listener: tokio::net::UnixListener) -> Answering {
        Answering { listener, kept: File::open("/dev/null").ok(), told: None }
    }

    async fn next(&mut self) -> (tokio::net::UnixStream, tokio::net::unix::SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    if self.kept.is_none() {
                        self.kept = File::open("/dev/null").ok();
                    }
                    return accepted;
                }
                Err(e) => {
                    if self.told.is_none_or(|told| told.elapsed() > TOLD_AGAIN) {
                        self.told = Some(tokio::time::Instant::now());
                        tracing::warn!("control socket: cannot accept: {e}; raise the limit (ulimit -n)");
                    }
                    // What it gives back is for the next try.
                    if self.kept.take().is_none() {
                        tokio::time::sleep(RETRY).await;
                        self.kept = File::open("/dev/null").ok();
                    }
                }
            }
        }
    }
}

impl axum::serve::Listener for Answering {
    type Io = tokio::net::UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Answering>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Answering>) -> Peer {
        let who = stream.io().peer_cred().ok();
        Peer { uid: who.as_ref().map(|who| who.uid()), gid: who.as_ref().map(|who| who.gid()) }
    }
}

/// # Errors
/// When other machines reach the address of the metrics.
pub fn refuse_open(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let (what, why) = (format!("metrics at {address}"), "other machines reach it, and it has no authentication");
    Err(Problem::usage(what, why, "give an address of loopback, such as 127.0.0.1:9450"))
}

/// Listens for whoever reads `/metrics`.
///
/// # Errors
/// When the address is not on loopback, or cannot be had.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Problem> {
    refuse_open(address)?;
    let what = format!("metrics at {address}");
    let listener = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
    listener.map_err(|e| Problem::failed(what, e, "give another address (--metrics)"))
}

async fn serve(
    (socket, metrics): (Socket, Option<TcpListener>),
    (data, stop_now, journal): (DataHandle, MailSender<&'static str>, Journal),
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = Answering::new(tokio::net::UnixListener::from_std(socket.listener()?)?);
    let wish = {
        let mut stopped = stopped.clone();
        async move {
            // A sender that is gone says the same.
            let _ = stopped.wait_for(|s| *s).await;
        }
    };
    let (routes, figures) = http::routers(data, stop_now, journal);
    if let Some(listener) = metrics {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(axum::serve(listener, figures).into_future());
    }
    let routes = routes.into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(wish);
    let patience = async {
        let _ = stopped.wait_for(|s| *s).await;
        tokio::time::sleep(ANSWERS_MAX).await;
    };
    tokio::select! {
        result = server.into_future() => result,
        () = patience => Ok(()),
    }
}
