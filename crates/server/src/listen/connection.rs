//! One connection: its handshake, its requests, its end.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::accept::Arrived;
use super::places::{Guest, Place};
use super::{HANDSHAKE_MAX, IDLE_MAX};
use crate::front::Front;
use crate::http::Caller;

/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves it to its end: TLS where there is a front.
pub async fn serve(
    arrived: Arrived,
    router: Router,
    front: Option<Arc<Front>>,
    place: Place,
    stopped: watch::Receiver<bool>,
) {
    let guest = place.guest().clone();
    let work = async {
        match (arrived, front) {
            (Arrived::Unix(stream, user), _) => {
                let caller = Caller::User(user);
                answer(
                    stream,
                    router,
                    &guest,
                    |request| {
                        request.extensions_mut().insert(caller.clone());
                    },
                    stopped,
                )
                .await;
            }
            (Arrived::Tcp(stream, ends), None) => {
                answer(
                    stream,
                    router,
                    &guest,
                    |request| {
                        request.extensions_mut().insert(ends);
                    },
                    stopped,
                )
                .await;
            }
            (Arrived::Tcp(stream, ends), Some(front)) => {
                // Without a certificate there is nothing to say.
                let Some(acceptor) = front.acceptor() else { return };
                match timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        answer(
                            stream,
                            router,
                            &guest,
                            |request| {
                                request.extensions_mut().insert(ends);
                            },
                            stopped,
                        )
                        .await;
                    }
                    Ok(Err(e)) => tracing::debug!("API: handshake with {}: {e}", ends.from),
                    Err(_) => tracing::debug!("API: handshake with {}: not done in time", ends.from),
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = guest.must_go() => {}
    }
}

/// Answers the requests of a stream, each with what `mark` adds to it.
async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    guest: &Arc<Guest>,
    mark: impl Fn(&mut Request<Incoming>),
    mut stopped: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        mark(&mut request);
        request.extensions_mut().insert(guest.clone());
        routes.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE_MAX).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(Taking::new(stream)), service));
    let stop = async {
        // A sender that is gone says the same.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stop => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // Without a request it ends at once.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!("connection: {e}");
    }
}

/// A stream whose client has to take what it is sent: writes that do not go on fail after a while.
struct Taking<S> {
    inner: S,
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Taking<S> {
    fn new(inner: S) -> Taking<S> {
        Taking { inner, late: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.late = None;
            return done;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + IDLE_MAX)));
        late.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taking<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taking<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, done)
    }
}

#[cfg(test)]
mod tests;
