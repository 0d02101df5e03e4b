//! The NBD export of all volumes of all served arrays, and of direct drives.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use export::nbd::{Dealer, Hand, Server};
use futures::future::{Either, select};
use rt::Rt;
use rt::net::Addr;

use super::Data;
use crate::Problem;
use crate::board::NearDirectory;
use crate::cores::{Core, Cores};
use crate::namespace::All;

/// The NBD server.
pub enum Exports {
    /// On the data core.
    Here(Server<All>),
    /// On cores of their own.
    Dealt(Rc<Dealer>),
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

/// Starts what listens.
async fn patiently<T>(rt: &Rt, start: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begun = rt.now();
    loop {
        match start() {
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
    pub async fn listen(data: &Rc<Data>, addresses: &[Addr], cores: &Cores) -> Result<(Exports, String), Problem> {
        let no_listening = |e| {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let what = format!("NBD export at {}", all.join(", "));
            Problem::failed(what, format!("cannot listen: {e}"), "stop what listens there, or choose another (--nbd)")
        };
        let (rt, exported) = (&data.world.rt, data.exported());
        if let Err(e) = rt::net::raise_descriptor_limit() {
            tracing::warn!("the limit of file descriptors stays as it is: {e}");
        }
        let (exports, bound, by) = if cores.count() == 0 {
            let server =
                patiently(rt, || Server::start(rt, exported.clone(), addresses)).await.map_err(no_listening)?;
            let bound = server.local_addrs().to_vec();
            (Exports::Here(server), bound, String::new())
        } else {
            let start = || Dealer::start(rt, &exported, addresses, cores.count());
            let (dealer, hands) = patiently(rt, start).await.map_err(no_listening)?;
            let by = format!(", by {} cores", hands.len());
            let serve = |hand: Hand| {
                async move |Core { rt, board }: Core| {
                    hand.serve_by(&rt, |data_core| NearDirectory { data_core, board }).await;
                }
            };
            cores.begin(hands.into_iter().map(serve).collect());
            let (bound, dealer) = (dealer.local_addrs().to_vec(), Rc::new(dealer));
            *data.dealer.borrow_mut() = Some(dealer.clone());
            (Exports::Dealt(dealer), bound, by)
        };
        let names: Vec<String> = bound.iter().map(ToString::to_string).collect();
        let detail = names.join(", ") + &by;
        *data.nbd.borrow_mut() = names;
        Ok((exports, detail))
    }

    /// Ends all connections, after the requests in flight; whether all have ended. One that hangs ends with its array.
    pub async fn stop(self, rt: &Rt, patience: Duration) -> bool {
        let stopped = async {
            match &self {
                Exports::Here(server) => server.stop().await,
                Exports::Dealt(dealer) => dealer.stop().await,
            }
        };
        let in_time = matches!(select(pin!(stopped), pin!(rt.sleep(patience))).await, Either::Left(_));
        if !in_time {
            tracing::warn!("requests do not end within {} s; the arrays are closed under them", patience.as_secs());
        }
        in_time
    }
}

/// How long requests in flight may take when the server stops. With the arrays' minute it stays below the 90 s after
/// which service managers kill.
pub(super) const REQUESTS_MAX: Duration = Duration::from_secs(15);
