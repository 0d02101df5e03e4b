//! Addresses of exports, of any server's, as a person writes them.
//!
//! ```text
//!   nbd://HOST[:PORT]/[EXPORT]     nbd+unix:///[EXPORT]?socket=PATH
//!   nvme+tcp://HOST[:PORT][/SUBSYSTEM][?nsid=N][&hostnqn=NQN]
//! ```

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use rt::net::Addr;

/// The port of NBD.
const NBD_PORT: u16 = 10_809;
/// The port of NVMe/TCP's I/O controllers.
const NVME_PORT: u16 = 4420;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uri {
    /// By NBD.
    Nbd {
        /// The server.
        address: Addr,
        /// The export's name.
        export: String,
    },
    /// By NVMe/TCP.
    Nvme(Namespace),
}

/// A namespace of an NVMe/TCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The server.
    pub address: SocketAddr,
    /// Its subsystem's qualified name; the only one there is when nobody says.
    pub subsystem: Option<String>,
    /// Its identifier; the only one there is when nobody says.
    pub nsid: Option<u32>,
    /// The name that the host gives itself; the bench's own when nobody says.
    pub host: Option<String>,
}

impl FromStr for Uri {
    type Err = String;

    fn from_str(text: &str) -> Result<Uri, String> {
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, query) = rest.split_once('?').unwrap_or((rest, ""));
            let socket = value(query, "socket").ok_or("it names no socket: nbd+unix:///EXPORT?socket=PATH")?;
            return Ok(Uri::Nbd { address: Addr::Unix(PathBuf::from(socket)), export: export.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
            return Ok(Uri::Nbd { address: Addr::Tcp(resolve(host, NBD_PORT)?), export: export.to_owned() });
        }
        let rest = text.strip_prefix("nvme+tcp://").ok_or_else(|| {
            format!(
                "\"{text}\" is not an export; write nvme+tcp://HOST[:PORT][/SUBSYSTEM][?nsid=N], nbd://HOST/EXPORT or \
                 nbd+unix:///EXPORT?socket=PATH"
            )
        })?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, subsystem) = place.split_once('/').unwrap_or((place, ""));
        let unknown = query.split('&').find(|pair| !["", "nsid", "hostnqn"].contains(&name(pair)));
        if let Some(pair) = unknown {
            return Err(format!("\"{}\" is unknown; valid: nsid=N, hostnqn=NQN", name(pair)));
        }
        let nsid = value(query, "nsid").map(|n| n.parse().ok().filter(|n| (1..u32::MAX).contains(n)));
        if nsid == Some(None) {
            return Err("nsid is a number from 1 on".to_owned());
        }
        Ok(Uri::Nvme(Namespace {
            address: resolve(host, NVME_PORT)?,
            subsystem: Some(subsystem.to_owned()).filter(|s| !s.is_empty()),
            nsid: nsid.flatten(),
            host: value(query, "hostnqn").map(str::to_owned),
        }))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvme+tcp://{}", self.address)?;
        self.subsystem.iter().try_for_each(|nqn| write!(f, "/{nqn}"))?;
        let pairs = [self.nsid.map(|n| format!("nsid={n}")), self.host.as_ref().map(|nqn| format!("hostnqn={nqn}"))];
        let query: Vec<String> = pairs.into_iter().flatten().collect();
        if query.is_empty() { Ok(()) } else { write!(f, "?{}", query.join("&")) }
    }
}

fn name(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

fn value<'a>(query: &'a str, wanted: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The first address of "HOST" or "HOST:PORT"; it may take as long as the system's resolver does.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = host.starts_with('[') && host.ends_with(']') || !host.contains(':');
    let whole = if bare { format!("{host}:{port}") } else { host.to_owned() };
    let found = whole.to_socket_addrs().map_err(|e| format!("host {host}: {e}"))?.next();
    found.ok_or_else(|| format!("host {host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn nbd_is_read() {
        for (text, address, export) in [
            ("nbd+unix:///lab/v?socket=/run/s", Addr::Unix("/run/s".into()), "lab/v"),
            ("nbd://127.0.0.1/lab/v", Addr::Tcp(tcp(10_809)), "lab/v"),
            ("nbd://127.0.0.1:5000/", Addr::Tcp(tcp(5000)), ""),
            ("nbd://127.0.0.1:5000", Addr::Tcp(tcp(5000)), ""),
        ] {
            assert_eq!(text.parse(), Ok(Uri::Nbd { address, export: export.to_owned() }), "{text}");
        }
    }

    #[test]
    fn namespaces_are_read_and_written() {
        let all = Namespace {
            address: tcp(4421),
            subsystem: Some("nqn.2014-08.org.nvmexpress:uuid:1".to_owned()),
            nsid: Some(7),
            host: Some("nqn.h:1".to_owned()),
        };
        let text = "nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.nvmexpress:uuid:1?nsid=7&hostnqn=nqn.h:1";
        assert_eq!(text.parse(), Ok(Uri::Nvme(all.clone())));
        assert_eq!(all.to_string(), text);
        let bare = Namespace { address: tcp(4420), subsystem: None, nsid: None, host: None };
        assert_eq!("nvme+tcp://127.0.0.1".parse(), Ok(Uri::Nvme(bare.clone())));
        assert_eq!("nvme+tcp://127.0.0.1/".parse(), Ok(Uri::Nvme(bare)));
        let six = "nvme+tcp://[::1]/nqn.a".parse::<Uri>();
        assert!(matches!(six, Ok(Uri::Nvme(n)) if n.to_string() == "nvme+tcp://[::1]:4420/nqn.a"));
    }

    #[test]
    fn what_is_no_address_is_told() {
        for (text, why) in [
            ("/dev/sda", "is not an export"),
            ("nbd+unix:///v", "socket"),
            ("nvme+tcp://127.0.0.1?nsid=0", "from 1 on"),
            ("nvme+tcp://127.0.0.1?nsid=4294967295", "from 1 on"),
            ("nvme+tcp://127.0.0.1?queues=2", "\"queues\" is unknown"),
            ("nvme+tcp://", "host"),
            ("nvme+tcp://a b", "host"),
        ] {
            let error = text.parse::<Uri>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
