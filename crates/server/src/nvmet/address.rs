//! Where hosts reach an export of the kernel's target: "rdma:10.0.0.5:4420", "tcp:[fd00::1]:4420", "fc:nn-0x...:pn-0x...".

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use api::Problem;
use serde::{Deserialize, Serialize};

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// RDMA: RoCE, iWARP, InfiniBand with addresses of IP.
    Rdma,
    /// TCP.
    Tcp,
    /// Fibre Channel.
    Fc,
}

impl Transport {
    /// As the kernel writes it (`addr_trtype`).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Transport::Rdma => "rdma",
            Transport::Tcp => "tcp",
            Transport::Fc => "fc",
        }
    }

    /// The kernel's module of it.
    #[must_use]
    pub const fn module(self) -> &'static str {
        match self {
            Transport::Rdma => "nvmet-rdma",
            Transport::Tcp => "nvmet-tcp",
            Transport::Fc => "nvmet-fc",
        }
    }
}

/// An address of the kernel's target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// How.
    pub transport: Transport,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Ip(SocketAddr),
    /// Names of a Fibre Channel node and of its port.
    Fc {
        node: u64,
        port: u64,
    },
}

impl Address {
    /// The kernel's `addr_adrfam`.
    #[must_use]
    pub const fn family(&self) -> &'static str {
        match self.place {
            Place::Ip(SocketAddr::V4(_)) => "ipv4",
            Place::Ip(SocketAddr::V6(_)) => "ipv6",
            Place::Fc { .. } => "fc",
        }
    }

    /// The kernel's `addr_traddr`.
    #[must_use]
    pub fn host(&self) -> String {
        match self.place {
            Place::Ip(at) => at.ip().to_string(),
            Place::Fc { node, port } => format!("nn-0x{node:016x}:pn-0x{port:016x}"),
        }
    }

    /// The kernel's `addr_trsvcid`.
    #[must_use]
    pub fn service(&self) -> String {
        match self.place {
            Place::Ip(at) => at.port().to_string(),
            Place::Fc { .. } => "none".to_owned(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.transport.word();
        match self.place {
            Place::Ip(at) => write!(f, "{word}:{at}"),
            Place::Fc { .. } => write!(f, "{word}:{}", self.host()),
        }
    }
}

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Address, Problem> {
        let wrong = |why: &str| {
            let todo = "write for instance rdma:10.0.0.5:4420, tcp:[fd00::1]:4420, or fc:nn-0x20000090fa000001:pn-0x10000090fa000001";
            Problem::usage(format!("address \"{text}\" of the kernel's target"), why, todo)
        };
        let ip = |text: &str| {
            let at = text.parse::<SocketAddr>().map_err(|_| wrong("it has no address of IP with a port"))?;
            match at {
                SocketAddr::V6(at) if at.scope_id() != 0 => Err(wrong("addresses of one link are not supported")),
                at if at.port() == 0 => Err(wrong("0 is not a port; 4420 is usual")),
                at => Ok(Place::Ip(at)),
            }
        };
        match text.split_once(':') {
            Some(("rdma", at)) => Ok(Address { transport: Transport::Rdma, place: ip(at)? }),
            Some(("tcp", at)) => Ok(Address { transport: Transport::Tcp, place: ip(at)? }),
            Some(("fc", at)) => {
                let place = names(at).ok_or_else(|| wrong("it does not name a node and a port of Fibre Channel"))?;
                Ok(Address { transport: Transport::Fc, place })
            }
            Some(_) | None => Err(wrong("its transport is unknown; valid: rdma, tcp, fc")),
        }
    }
}

/// The names of "nn-0x...:pn-0x...".
fn names(text: &str) -> Option<Place> {
    let hex = |text: &str, prefix: &str| {
        let digits = text.strip_prefix(prefix).filter(|digits| digits.len() == 16)?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (node, port) = text.split_once(':')?;
    Some(Place::Fc { node: hex(node, "nn-0x")?, port: hex(port, "pn-0x")? })
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        text.parse().map_err(|problem: Problem| problem.why.clone())
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, family, host, service) in [
            ("rdma:10.0.0.5:4420", "ipv4", "10.0.0.5", "4420"),
            ("tcp:[fd00::1]:4420", "ipv6", "fd00::1", "4420"),
            (
                "fc:nn-0x20000090fa000001:pn-0x10000090fa000001",
                "fc",
                "nn-0x20000090fa000001:pn-0x10000090fa000001",
                "none",
            ),
        ] {
            let address: Address = text.parse().unwrap();
            let parts = (address.family(), address.host(), address.service());
            assert_eq!(parts, (family, host.to_owned(), service.to_owned()));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let texts = "|rdma|rdma:|rdma:10.0.0.5|rdma:10.0.0.5:0|10.0.0.5:4420|loop:x|fc:|fc:nn-0x1:pn-0x2|\
                     tcp:[fe80::1%2]:4420|tcp:nas:4420|fc:nn-0x20000090fa000001";
        for text in texts.split('|') {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
