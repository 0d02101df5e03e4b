//! The NBD export of all volumes of all served arrays, and of direct drives.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::Problem;
use export::nbd::{Dealer, Server, Worker};
use futures::future::{Either, select};
use rt::Rt;
use rt::net::Addr;
use rustix::io::Errno;

use super::Data;
use crate::cores::{Core, Cores};
use crate::namespace::All;
use crate::routing::RoutedDirectory;

/// The NBD server.
pub enum Exports {
    /// On the first core.
    Local(Rc<Server<All>>),
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
            let why = not_an_address(text);
            let todo = "write for instance unix:/run/x.sock or tcp:127.0.0.1:10809";
            Problem::usage(format!("NBD address \"{text}\""), why, todo)
        };
        text.parse().map_err(wrong)
    };
    addresses.iter().map(one).collect()
}

/// What is wrong with an address.
pub(super) fn not_an_address(text: &str) -> &'static str {
    match text.split_once(':') {
        Some(("tcp", rest)) if rest.parse::<std::net::IpAddr>().is_ok() || !rest.contains(':') => "its port is missing",
        Some(("tcp", _)) => "its address and port are not valid",
        Some(("unix", "")) => "its path is missing",
        Some(("unix", _)) => "its path is too long",
        Some(_) | None => "it must begin with tcp: or unix:",
    }
}

/// Addresses where anybody who reaches them may read and write: NBD asks nobody who it is.
#[must_use]
pub fn open_to_others(addresses: &[Addr]) -> Vec<String> {
    let is_open = |addr: &&Addr| matches!(addr, Addr::Tcp(a) if !a.ip().to_canonical().is_loopback());
    addresses.iter().filter(is_open).map(ToString::to_string).collect()
}

/// Refuses such addresses, unless a person says that this is meant.
///
/// # Errors
/// When there is one.
pub fn refuse_open(addresses: &[Addr], insecure: bool) -> Result<(), Problem> {
    match open_to_others(addresses).first() {
        Some(address) if !insecure => Err(Problem::refused(
            "nbd_open",
            format!("NBD address \"{address}\""),
            "NBD has no authentication: anyone who reaches this address may read and write all volumes",
            "listen on tcp:127.0.0.1:PORT or unix:PATH (a tunnel reaches them), use NVMe/TCP with --allow-host, or \
             allow it with --nbd-insecure (nbd_insecure = true)",
        )),
        Some(_) | None => Ok(()),
    }
}

/// An address cannot be listened on: why, and what helps; `flag` gives another one.
pub(super) fn cannot_listen(what: String, error: &io::Error, flag: &str) -> Problem {
    let todo = match error.kind() {
        io::ErrorKind::AddrInUse => format!("stop what listens there, or choose another address ({flag})"),
        io::ErrorKind::NotFound => format!("create the directory of the socket, or choose another address ({flag})"),
        io::ErrorKind::AddrNotAvailable => format!("choose an address of this machine ({flag})"),
        io::ErrorKind::PermissionDenied => {
            format!("run as a user who may listen there, or choose another address ({flag})")
        }
        _ => format!("choose another address ({flag})"),
    };
    Problem::failed(what, format!("cannot listen: {error}"), todo)
}

/// Refuses addresses that this machine cannot listen on, before an array is opened for them.
///
/// # Errors
/// When the directory of a socket is missing, or a TCP address is not this machine's.
pub fn refuse_impossible(addresses: &[Addr], what: &str, flag: &str) -> Result<(), Problem> {
    for address in addresses {
        let error = match address {
            Addr::Unix(path) => match path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                Some(dir) if !dir.is_dir() => io::Error::from(Errno::NOENT),
                Some(_) | None => continue,
            },
            Addr::Tcp(address) => match rt::net::may_bind(address.ip()) {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => error,
                Ok(()) | Err(_) => continue,
            },
        };
        return Err(cannot_listen(format!("{what} at {address}"), &error, flag));
    }
    Ok(())
}

/// A killed server's sockets answer for some milliseconds after its end, until the kernel has taken its ring down.
const DYING_SERVER: Duration = Duration::from_secs(5);

/// What is to be said of open addresses.
fn insecure_text(open: &[String]) -> Option<String> {
    let text = "without authentication: anyone who reaches it may read and write all volumes";
    (!open.is_empty()).then(|| format!("the NBD export at {} is open, {text}", open.join(", ")))
}

impl Data {
    /// What a standing alarm says of an NBD export that is open to others; none when it is not.
    #[must_use]
    pub fn nbd_is_open(&self) -> Option<String> {
        let addresses: Vec<Addr> = self.nbd.borrow().iter().filter_map(|address| address.parse().ok()).collect();
        insecure_text(&open_to_others(&addresses))
    }
}

/// Starts what listens.
pub(super) async fn patiently<T>(rt: &Rt, start: impl Fn() -> io::Result<T>) -> io::Result<T> {
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
        let no_listening = |e: io::Error| {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let what = format!("NBD export at {}", all.join(", "));
            cannot_listen(what, &e, "--nbd")
        };
        let (rt, exported) = (&data.world.rt, data.exported());
        if let Err(e) = rt::net::raise_descriptor_limit() {
            tracing::warn!("the limit of file descriptors cannot be raised: {e}");
        }
        let (exports, bound, by) = if cores.count() == 0 {
            let server =
                patiently(rt, || Server::start(rt, exported.clone(), addresses)).await.map_err(no_listening)?;
            let (bound, server) = (server.local_addrs().to_vec(), Rc::new(server));
            let listed = Rc::downgrade(&server);
            *data.nbd_clients.borrow_mut() =
                Some(Box::new(move || listed.upgrade().map(|server| server.clients()).unwrap_or_default()));
            (Exports::Local(server), bound, String::new())
        } else {
            let start = || Dealer::start(rt, &exported, addresses, cores.count());
            let (dealer, workers) = patiently(rt, start).await.map_err(no_listening)?;
            let by = format!(", by {} cores", workers.len());
            let serve = |worker: Worker| {
                async move |Core { rt, routes }: Core| {
                    worker.serve(&rt, |data_core| RoutedDirectory { data_core, routes }).await;
                }
            };
            cores.begin(workers.into_iter().map(serve).collect());
            let (bound, dealer) = (dealer.local_addrs().to_vec(), Rc::new(dealer));
            let listed = Rc::downgrade(&dealer);
            *data.nbd_clients.borrow_mut() =
                Some(Box::new(move || listed.upgrade().map(|dealer| dealer.clients()).unwrap_or_default()));
            *data.dealer.borrow_mut() = Some(dealer.clone());
            (Exports::Dealt(dealer), bound, by)
        };
        let names: Vec<String> = bound.iter().map(ToString::to_string).collect();
        if let Some(text) = insecure_text(&open_to_others(&bound)) {
            tracing::warn!("{text}");
        }
        let detail = names.join(", ") + &by;
        *data.nbd.borrow_mut() = names;
        Ok((exports, detail))
    }

    /// Ends all connections, after the requests in flight; whether all have ended. One that hangs ends with its array.
    pub async fn stop(self, rt: &Rt, patience: Duration) -> bool {
        let stopped = async {
            match &self {
                Exports::Local(server) => server.stop().await,
                Exports::Dealt(dealer) => dealer.stop().await,
            }
        };
        let in_time = matches!(select(pin!(stopped), pin!(rt.sleep(patience))).await, Either::Left(_));
        if !in_time {
            tracing::warn!("requests still run after {} s; the arrays are closed nevertheless", patience.as_secs());
        }
        in_time
    }
}

/// How long requests in flight may take when the server stops. With the arrays' minute it stays below the 90 s after
/// which service managers kill.
pub(super) const REQUESTS_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_listened_on_is_told_before_arrays_are_opened() {
        let told = |text: &str| {
            let addresses = parse(&[text.to_owned()]).unwrap();
            refuse_impossible(&addresses, "NBD export", "--nbd").map_err(|p| p.todo.clone())
        };
        assert!(told("unix:/no/such/place/x.sock").unwrap_err().starts_with("create the directory"));
        // TEST-NET-1: nobody's.
        assert!(told("tcp:192.0.2.1:10809").unwrap_err().starts_with("choose an address of this machine"));
        assert!(told("unix:/tmp/x.sock").is_ok() && told("tcp:127.0.0.1:10809").is_ok());
        let taken = cannot_listen("x".into(), &io::ErrorKind::AddrInUse.into(), "--nbd");
        assert!(taken.todo.starts_with("stop what listens there"), "{taken}");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        for (text, why) in [
            ("tcp:127.0.0.1", "its port is missing"),
            ("tcp:::1", "its port is missing"),
            ("tcp:127.0.0.1:x", "its address and port are not valid"),
            ("127.0.0.1:10809", "it must begin with tcp: or unix:"),
            ("unix:", "its path is missing"),
        ] {
            assert_eq!(parse(&[text.to_owned()]).unwrap_err().why, why, "{text}");
        }
    }

    #[test]
    fn nbd_beyond_this_machine_is_asked_for() {
        for (address, is_open) in [
            ("unix:/run/x.sock", false),
            ("tcp:127.0.0.1:0", false),
            ("tcp:127.9.9.9:10809", false),
            ("tcp:[::1]:10809", false),
            ("tcp:[::ffff:127.0.0.1]:10809", false),
            ("tcp:0.0.0.0:10809", true),
            ("tcp:[::]:10809", true),
            ("tcp:10.0.0.5:10809", true),
            ("tcp:[fd00::1]:10809", true),
        ] {
            let addresses = parse(&["unix:/run/y.sock".to_owned(), address.to_owned()]).unwrap();
            assert_eq!(!open_to_others(&addresses).is_empty(), is_open, "{address}");
            let refused = refuse_open(&addresses, false);
            assert_eq!(refused.is_err_and(|p| p.code == "nbd_open" && p.kind.exit_code() == 3), is_open, "{address}");
            assert!(refuse_open(&addresses, true).is_ok());
        }
    }
}
