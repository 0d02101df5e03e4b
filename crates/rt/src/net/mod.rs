//! Stream sockets of the real world: TCP and unix.
//!
//! Not here: TLS, names (an address is a number or a path), datagrams.
#![allow(unsafe_code)]

mod closed;
mod congestion;
mod descriptors;
mod listener;
mod passing;
mod stream;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use closed::bind_closed;
pub use congestion::Congestion;
pub use descriptors::{is_short_of_descriptors, raise_descriptor_limit};
pub use listener::{Listener, may_bind};
pub use passing::PASSED_MAX;
pub use stream::Stream;

use crate::ring::Address;

/// Where a server listens: "tcp:127.0.0.1:10809" or "unix:/run/x.sock".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

/// Why a text is no [`Addr`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; write tcp:ADDRESS:PORT (as in tcp:127.0.0.1:10809) or unix:PATH")]
pub struct AddrError(String);

impl FromStr for Addr {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Addr, AddrError> {
        let wrong = || AddrError(text.to_owned());
        match text.split_once(':') {
            Some(("tcp", rest)) => rest.parse().map(Addr::Tcp).map_err(|_| wrong()),
            Some(("unix", path)) if !path.is_empty() => Ok(Addr::Unix(PathBuf::from(path))),
            Some(_) | None => Err(wrong()),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Tcp(address) => write!(f, "tcp:{address}"),
            Addr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The address as the kernel reads it.
fn raw_address(addr: &Addr) -> io::Result<Box<Address>> {
    match addr {
        Addr::Tcp(SocketAddr::V4(v4)) => Ok(lay_out(libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: v4.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
            sin_zero: [0; 8],
        })),
        Addr::Tcp(SocketAddr::V6(v6)) => Ok(lay_out(libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: v6.port().to_be(),
            sin6_flowinfo: v6.flowinfo(),
            sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
            sin6_scope_id: v6.scope_id(),
        })),
        Addr::Unix(path) => unix_address(path).map(lay_out),
    }
}

fn unix_address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket's path has at most 107 bytes"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

/// Puts a concrete address into the general one.
fn lay_out<A: Copy>(concrete: A) -> Box<Address> {
    const { assert!(size_of::<A>() <= size_of::<libc::sockaddr_storage>()) };
    const { assert!(align_of::<A>() <= align_of::<libc::sockaddr_storage>()) };
    // SAFETY: all zeros is a valid sockaddr_storage.
    let storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut address = Box::new(Address { storage, len: size_of::<A>() as libc::socklen_t });
    // SAFETY: the storage is large enough and aligned for A (asserted above), and any bytes are valid in it.
    unsafe { (&raw mut address.storage).cast::<A>().write(concrete) };
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for text in ["tcp:127.0.0.1:10809", "tcp:[::1]:4420", "unix:/run/x.sock"] {
            assert_eq!(text.parse::<Addr>().unwrap().to_string(), text);
        }
        for text in ["", "tcp", "tcp:", "tcp:localhost:1", "unix:", "udp:127.0.0.1:1", "127.0.0.1:1"] {
            assert!(text.parse::<Addr>().unwrap_err().to_string().contains("tcp:ADDRESS:PORT"), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_too_long() {
        let path = PathBuf::from("/".repeat(108));
        assert_eq!(raw_address(&Addr::Unix(path)).err().unwrap().kind(), io::ErrorKind::InvalidInput);
        assert!(raw_address(&Addr::Unix(PathBuf::from("/".repeat(107)))).is_ok());
    }
}
