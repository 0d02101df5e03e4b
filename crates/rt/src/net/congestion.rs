//! How a TCP connection is kept from sending more than the network takes.
//!
//! BBR, the default of some systems, paces what is sent by a timer for each burst. Over a wide network that is worth it; to a peer
//! on this machine, or beside it, it costs a fifth of the rate of large reads. So a connection to such a peer gets another one, if
//! nothing else is said.
//!
//! Not here: when a connection is made (`listener`).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;

use if_addrs::{IfAddr, get_if_addrs};
use rustix::net::sockopt;

/// What paces; and what does not, the first that the kernel has and lets us use.
const PACING: &str = "bbr";
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Which congestion control accepted connections get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// The system's; where that paces, one that does not for peers on this machine or in a network of it.
    #[default]
    Auto,
    /// The system's.
    System,
    /// The one of this name.
    Named(String),
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Congestion::Auto => f.write_str("auto"),
            Congestion::System => f.write_str("system"),
            Congestion::Named(name) => f.write_str(name),
        }
    }
}

impl From<String> for Congestion {
    fn from(text: String) -> Congestion {
        match &*text {
            "auto" => Congestion::Auto,
            "system" => Congestion::System,
            _ => Congestion::Named(text),
        }
    }
}

impl Congestion {
    /// What a listening socket is given: the sockets that it accepts take it over.
    ///
    /// # Errors
    /// When the kernel does not have the one that is named, or does not let this process use it.
    pub(super) fn listen(&self, fd: &OwnedFd) -> io::Result<()> {
        let Congestion::Named(name) = self else { return Ok(()) };
        sockopt::set_tcp_congestion(fd, name).map_err(|error| {
            let text = format!(
                "congestion control {name}: {}; net.ipv4.tcp_available_congestion_control lists those that the kernel \
                 has, net.ipv4.tcp_allowed_congestion_control those that every user may choose",
                io::Error::from(error)
            );
            io::Error::new(io::Error::from(error).kind(), text)
        })
    }

    /// What an accepted socket is given. Failing costs only speed.
    pub(super) fn accepted(&self, fd: &OwnedFd, peer: IpAddr) {
        let paces = || sockopt::tcp_congestion(fd).is_ok_and(|name| name.starts_with(PACING));
        if *self == Congestion::Auto && paces() && is_near(peer) {
            let _ = UNPACED.iter().any(|name| sockopt::set_tcp_congestion(fd, name).is_ok());
        }
    }
}

/// Whether a peer is on this machine, or in a network that it has an address in.
fn is_near(peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || get_if_addrs().is_ok_and(|all| all.iter().any(|own| is_in_network_of(peer, &own.addr)))
}

fn is_in_network_of(peer: IpAddr, own: &IfAddr) -> bool {
    match (peer, own) {
        (IpAddr::V4(peer), IfAddr::V4(own)) => {
            peer.to_bits() & own.netmask.to_bits() == own.ip.to_bits() & own.netmask.to_bits()
        }
        (IpAddr::V6(peer), IfAddr::V6(own)) => {
            let network = |ip: Ipv6Addr| ip.to_bits() & own.netmask.to_bits();
            network(peer) == network(own.ip)
        }
        (IpAddr::V4(_) | IpAddr::V6(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use if_addrs::{Ifv4Addr, Ifv6Addr};

    use super::*;

    fn v4(ip: &str, netmask: &str) -> IfAddr {
        let netmask: std::net::Ipv4Addr = netmask.parse().unwrap();
        let prefixlen = netmask.to_bits().count_ones() as u8;
        IfAddr::V4(Ifv4Addr { ip: ip.parse().unwrap(), netmask, prefixlen, broadcast: None })
    }

    #[test]
    fn who_is_in_a_network() {
        let own = v4("10.1.2.3", "255.255.252.0");
        let near = |peer: &str| is_in_network_of(peer.parse().unwrap(), &own);
        assert!(near("10.1.0.9") && near("10.1.3.255"));
        assert!(!near("10.1.4.1") && !near("11.1.2.3") && !near("fd00::1"));
        let netmask: Ipv6Addr = "ffff:ffff:ffff:ffff::".parse().unwrap();
        let own = IfAddr::V6(Ifv6Addr { ip: "fd00::3".parse().unwrap(), netmask, prefixlen: 64, broadcast: None });
        assert!(is_in_network_of("fd00::7:1".parse().unwrap(), &own));
        assert!(!is_in_network_of("fd00:0:0:1::1".parse().unwrap(), &own));
        assert!(is_near("127.8.0.1".parse().unwrap()) && is_near("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_near("203.0.113.7".parse().unwrap()));
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0.into(), there.into())
    }

    fn name_of(fd: &OwnedFd) -> String {
        sockopt::tcp_congestion(fd).unwrap()
    }

    #[test]
    fn what_paces_is_replaced_for_near_peers_alone() {
        let near = "127.0.0.1".parse().unwrap();
        let (here, _there) = pair();
        let before = name_of(&here);
        Congestion::System.accepted(&here, near);
        assert_eq!(name_of(&here), before);
        Congestion::Auto.accepted(&here, near);
        assert!(!name_of(&here).starts_with(PACING));
        let (here, _there) = pair();
        if sockopt::set_tcp_congestion(&here, PACING).is_ok() {
            Congestion::Auto.accepted(&here, "203.0.113.7".parse().unwrap());
            assert_eq!(name_of(&here), PACING, "far away it stays");
            Congestion::Named("reno".to_owned()).accepted(&here, near);
            assert_eq!(name_of(&here), PACING, "a name was given to the listening socket");
        }
    }

    #[test]
    fn names() {
        let (here, _there) = pair();
        Congestion::Named("reno".to_owned()).listen(&here).unwrap();
        assert_eq!(name_of(&here), "reno");
        let error = Congestion::Named("none such".to_owned()).listen(&here).unwrap_err().to_string();
        assert!(error.contains("none such") && error.contains("tcp_available_congestion_control"), "{error}");
        for text in ["auto", "system", "reno"] {
            assert_eq!(Congestion::from(text.to_owned()).to_string(), text);
        }
    }
}
