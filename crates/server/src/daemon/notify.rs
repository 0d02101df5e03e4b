//! What the service manager is told (sd_notify(3)): ready, reloading, stopping, one line of status, and that the data thread
//! lives.
//!
//! ```text
//!   data thread: Pulse, every half WATCHDOG_USEC --+
//!   steps of the start, the end, a reload ---------+--> datagram "NAME=value\n..." -> the socket $NOTIFY_SOCKET
//! ```
//!
//! Invariants:
//! - the pulse is a task of the data thread, so a data thread that hangs is noticed, whatever other threads do;
//! - nothing here waits or fails: a message that the manager does not take is lost;
//! - a process that is begun later does not inherit the socket.
//!
//! Not here: file descriptors that are kept by the manager (FDSTORE).

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::{Rt, Task};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};

/// How long the start may take from a pulse on: six pulses may be late before the manager gives up.
const START_EXTENSION: Duration = Duration::from_secs(30);
/// Between two pulses while arrays are opened, at most.
const PULSE_AT_START: Duration = Duration::from_secs(5);

/// The service manager; by default there is none, and nothing is told.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    socket: Option<Arc<Socket>>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    to: SocketAddrUnix,
}

impl Notify {
    /// The one that began this process, if one did. It is called before the process has a second thread.
    #[must_use]
    pub fn from_environment() -> Notify {
        let [address, period, pid] = rt::environment::take(["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]);
        let number = |text: Option<std::ffi::OsString>| text?.to_str()?.parse::<u64>().ok();
        let ours = pid.is_none() || number(pid) == Some(u64::from(std::process::id()));
        let watchdog = number(period).filter(|us| ours && *us > 0).map(Duration::from_micros);
        match address.map(|address| Notify::to(&address, watchdog)) {
            Some(Ok(notify)) => notify,
            Some(Err(error)) => {
                complain(&error);
                Notify::default()
            }
            None => Notify::default(),
        }
    }

    /// The one that listens at `address`: a path, or an abstract name that begins with `@`.
    ///
    /// # Errors
    /// When the address is none of these, or there is no socket.
    pub fn to(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Notify> {
        let to = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            [b'/', ..] => SocketAddrUnix::new(address)?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Notify { socket: Some(Arc::new(Socket { fd, to })), watchdog })
    }

    /// Says in one line what the server does.
    pub fn status(&self, text: &str) {
        self.send(&status(text));
    }

    /// The server answers: after its start, or after it has read its configuration again.
    pub fn ready(&self, text: &str) {
        self.send(&format!("READY=1\n{}", status(text)));
    }

    /// The server begins to read its configuration again; [`Notify::ready`] ends that.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}\n{}", status("reading the configuration again")));
    }

    /// The server begins to stop.
    pub fn stopping(&self, text: &str) {
        self.send(&format!("STOPPING=1\n{}", status(text)));
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = sendto(&socket.fd, message.as_bytes(), SendFlags::NOSIGNAL, &socket.to) {
            tracing::debug!("the service manager was not told: {error}");
        }
    }
}

/// There is no log yet.
fn complain(error: &io::Error) {
    let _ = rustix::io::write(io::stderr(), format!("NOTIFY_SOCKET cannot be used: {error}\n").as_bytes());
}

/// A status is one line, whatever the text.
fn status(text: &str) -> String {
    format!("STATUS={}", text.replace(['\n', '\r'], " "))
}

/// Tells the manager that the data thread lives, and while arrays are opened, that the start goes on.
pub struct Pulse {
    notify: Notify,
    starting: Rc<Cell<bool>>,
    task: Option<Task<()>>,
}

impl Pulse {
    /// Begins, on the thread of `rt`.
    #[must_use]
    pub fn start(rt: &Rt, notify: &Notify) -> Pulse {
        let starting = Rc::new(Cell::new(true));
        let beat = beat(rt.clone(), notify.clone(), starting.clone());
        let task = notify.socket.is_some().then(|| rt.spawn(beat));
        Pulse { notify: notify.clone(), starting, task }
    }

    /// The start is over.
    pub fn ready(&self, text: &str) {
        self.starting.set(false);
        self.notify.ready(text);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.task.iter().for_each(Task::cancel);
    }
}

async fn beat(rt: Rt, notify: Notify, starting: Rc<Cell<bool>>) {
    let half = notify.watchdog.map(|period| period / 2);
    loop {
        if starting.get() {
            notify.send(&format!("EXTEND_TIMEOUT_USEC={}", START_EXTENSION.as_micros()));
        }
        if half.is_some() {
            notify.send("WATCHDOG=1");
        }
        // Without a watchdog, nothing is to be told once the start is over.
        match (half, starting.get()) {
            (Some(half), true) => rt.sleep(half.min(PULSE_AT_START)).await,
            (Some(half), false) => rt.sleep(half).await,
            (None, true) => rt.sleep(PULSE_AT_START).await,
            (None, false) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    fn heard(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_socket_in_a_directory_hears_what_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.as_os_str(), None).unwrap();
        notify.ready("serving fast\nand more");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=serving fast and more");
        notify.reloading();
        let said = heard(&manager);
        let (first, rest) = said.split_once("\nMONOTONIC_USEC=").unwrap();
        assert!(rest.split('\n').next().unwrap().parse::<u64>().unwrap() > 0 && first == "RELOADING=1", "{said}");
        notify.stopping("closing");
        assert_eq!(heard(&manager), "STOPPING=1\nSTATUS=closing");
    }

    #[test]
    fn an_abstract_name_is_one_too() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("ashlar-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notify::to(format!("@{name}").as_ref(), None).unwrap().status("x");
        assert_eq!(heard(&manager), "STATUS=x");
        assert!(Notify::to("notify".as_ref(), None).is_err(), "neither a path nor an abstract name");
    }

    #[test]
    fn a_manager_that_has_gone_or_does_not_read_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.as_os_str(), None).unwrap();
        (0..10_000).for_each(|_| notify.status("nobody reads this"));
        drop(manager);
        notify.status("nobody is there");
        Notify::default().ready("there is none");
    }

    #[test]
    fn the_pulse_is_one_of_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.as_os_str(), Some(Duration::from_millis(40))).unwrap();
        let rt = Rt::real().unwrap();
        rt.block_on(async {
            let pulse = Pulse::start(&rt, &notify);
            rt.sleep(Duration::from_millis(30)).await;
            pulse.ready("serving");
            rt.sleep(Duration::from_millis(50)).await;
        });
        let mut told = vec![];
        manager.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(length) = manager.recv(&mut buffer) {
            told.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        assert_eq!(told[..2], ["EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=1"]);
        let ready = told.iter().position(|text| text.starts_with("READY=1")).unwrap();
        assert!(told[ready..].iter().any(|text| text == "WATCHDOG=1"), "{told:?}");
        assert!(told[ready..].iter().all(|text| !text.starts_with("EXTEND")), "{told:?}");
        // A thread that does not come back to its runtime gives no sign of life.
        std::thread::sleep(Duration::from_millis(100));
        assert!(manager.recv(&mut buffer).is_err());
    }
}
