//! The thread that answers on the control socket, on the address of the metrics, and on those of the API.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::{Kind, Problem};
use futures::future::join_all;
use rt::MailSender;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::data::DataHandle;
use super::socket::Socket;
use super::start::Settings;
use crate::acknowledged::Acknowledged;
use crate::front::Front;
use crate::hooks::Hooks;
use crate::http::{self, Parts, Routers};
use crate::journal::Journal;
use crate::listen::{Door, Listening};
use crate::tokens::{Tokens, USES_KEPT};

/// How long a stop waits for clients to take their answers.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// Where it listens.
pub struct Sockets {
    /// The control socket.
    pub control: Socket,
    /// The address of the metrics.
    pub metrics: Option<Listening>,
    /// The addresses of the API.
    pub tls: Vec<Listening>,
    /// What is shown there.
    pub front: Option<Arc<Front>>,
}

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
        sockets: Sockets,
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
                let (tokens, broken) = Tokens::open(&state_dir);
                broken.iter().for_each(|problem| tracing::error!("{}", problem.line()));
                let front = sockets.front.clone();
                let acknowledged = Acknowledged::read(&state_dir);
                serve(sockets, Parts { data, stop_now, journal, tokens, acknowledged, front }, stopped).await
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

async fn serve(sockets: Sockets, parts: Parts, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    let tokens = parts.tokens.clone();
    let Routers { control, metrics, tls } = http::routers(parts);
    let mut doors = vec![Door::control(UnixListener::from_std(sockets.control.listener()?)?, control)];
    if let Some(listening) = sockets.metrics {
        doors.push(Door::metrics(listening, metrics)?);
    }
    if let (Some(front), Some(routes)) = (&sockets.front, &tls) {
        doors.extend(Door::tls(sockets.tls, routes, front)?);
    }
    let open = join_all(doors.into_iter().map(|door| door.serve(stopped.clone())));
    let uses = async {
        loop {
            tokio::time::sleep(USES_KEPT).await;
            tokens.keep_uses().await;
        }
    };
    let patience = async {
        let _ = stopped.wait_for(|s| *s).await;
        tokio::time::sleep(ANSWERS_MAX).await;
    };
    tokio::select! {
        _ = open => {}
        () = uses => {}
        () = patience => {}
    }
    tokens.keep_uses().await;
    Ok(())
}
