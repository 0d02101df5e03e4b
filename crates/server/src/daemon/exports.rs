//! The NBD export of all volumes of all served arrays, and of direct drives.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use export::nbd::Server;
use futures::future::{Either, select};
use rt::Rt;
use rt::net::Addr;

use super::Data;
use crate::Problem;
use crate::namespace::All;

/// The NBD server.
pub struct Exports {
    server: Server<All>,
}

/// Addresses that can be listened on, as far as their form tells: looked at before anything is opened.
///
/// # Errors
/// When one is none.
pub fn parse(addresses: &[String]) -> Result<Vec<Addr>, Problem> {
    let one = |text: &String| {
        let wrong = |_| {
            Problem::usage(
                format!("NBD address \"{text}\""),
                "it is no address",
                "write unix:/run/x.sock or tcp:127.0.0.1:10809",
            )
        };
        text.parse().map_err(wrong)
    };
    addresses.iter().map(one).collect()
}

/// A killed server's sockets answer for some milliseconds after its end, until the kernel has taken its ring down.
pub(super) const DYING_SERVER: Duration = Duration::from_secs(5);

async fn start_patiently(data: &Rc<Data>, addresses: &[Addr]) -> io::Result<Server<All>> {
    let rt = &data.world.rt;
    let begun = rt.now();
    loop {
        match Server::start(rt, data.exported(), addresses) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && rt.now() - begun < DYING_SERVER => {
                rt.sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

impl Exports {
    /// Listens on every address.
    ///
    /// # Errors
    /// When one is taken.
    pub async fn listen(data: &Rc<Data>, addresses: &[Addr]) -> Result<(Exports, String), Problem> {
        let server = start_patiently(data, addresses).await.map_err(|e| {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let what = format!("NBD export at {}", all.join(", "));
            Problem::failed(what, format!("cannot listen: {e}"), "stop what listens there, or choose another (--nbd)")
        })?;
        let names: Vec<String> = server.local_addrs().iter().map(ToString::to_string).collect();
        let detail = names.join(", ");
        *data.nbd.borrow_mut() = names;
        Ok((Exports { server }, detail))
    }

    /// Ends all connections, after the requests in flight; a request that hangs ends with its array.
    pub async fn stop(self, rt: &Rt, patience: Duration) {
        if let Either::Right(_) = select(pin!(self.server.stop()), pin!(rt.sleep(patience))).await {
            tracing::warn!("requests do not end within {} s; the arrays are closed under them", patience.as_secs());
        }
    }
}

/// How long requests in flight may take when the server stops. With the arrays' minute it stays below the 90 s after
/// which service managers kill.
pub(super) const REQUESTS_MAX: Duration = Duration::from_secs(15);
