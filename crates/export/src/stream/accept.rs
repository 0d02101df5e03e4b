//! Accepting on a listening socket, for ever.

use std::{rc::Rc, time::Duration};

use rt::{
    Rt,
    net::{Listener, Stream},
};

use super::pool::{Loan, Pool};

/// Pause after a failed accept, which most often means that descriptors have run out.
const RETRY: Duration = Duration::from_millis(100);

/// Gives each connection, with a slot, to `serve`; further ones wait in the kernel while there is none. `protocol` is for
/// the log.
pub async fn accept(
    rt: Rt,
    listener: Listener,
    slots: Rc<Pool>,
    protocol: &'static str,
    mut serve: impl FnMut(Stream, Loan),
) {
    loop {
        match listener.accept().await {
            Ok(stream) => serve(stream, slots.take(1).await),
            Err(error) => {
                tracing::warn!(%error, "{protocol}: cannot accept");
                rt.sleep(RETRY).await;
            }
        }
    }
}
