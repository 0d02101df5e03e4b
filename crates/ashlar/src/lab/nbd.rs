//! What an NBD export says of itself, and fio does not: its size, and what of it was written (`base:allocation`).

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use export::ExtentState;
use export::nbd::client::Client;
use lab::written::Written;
use rt::net::Addr;
use server::Problem;

use crate::context::Context;

const PORT: u16 = 10_809;
/// Bytes that one question is about.
const ASKED_BYTES: u64 = 1 << 30;

/// The size of a target: what the user said, or what an NBD export says; nothing for what tells it itself.
///
/// # Errors
/// When the export does not answer.
pub fn size(context: &Context, target: &str, said: Option<u64>) -> Result<Option<u64>, Problem> {
    let Some((address, name)) = parse(target).filter(|_| said.is_none()) else { return Ok(said) };
    let ask = context.offline(|world| async move {
        let wrong = |e: export::nbd::client::Error| Problem::failed(target, e, "is it served? --size skips this");
        let client = Client::connect(&world.rt, &address, &name).await.map_err(wrong)?;
        Ok(client.export().bytes)
    });
    ask.map(Some)
}

/// What of a range of a target was written, as far as an NBD export tells.
pub fn written(context: &Context, target: &str, offset: u64, bytes: u64) -> Written {
    let Some((address, name)) = parse(target) else { return Written::Unknown };
    let ask = context.offline(|world| async move {
        let wrong = |e: export::nbd::client::Error| Problem::failed(target, e, "is it served?");
        let client = Client::connect(&world.rt, &address, &name).await.map_err(wrong)?;
        if !client.export().allocation {
            return Ok(Written::Unknown);
        }
        let (mut at, end, mut holes) = (offset, offset + bytes, 0);
        while at < end {
            let extents = client.block_status(at, (end - at).min(ASKED_BYTES) as u32, false).await.map_err(wrong)?;
            for extent in extents {
                // The last one may reach beyond what was asked for.
                let bytes = extent.bytes.min(end - at);
                // Zeros by a map cost no drive anything, whether something is held for them or not.
                holes += if extent.state == ExtentState::Allocated { 0 } else { bytes };
                at += bytes;
            }
        }
        Ok(if holes == 0 { Written::All } else { Written::Missing { bytes: holes } })
    });
    ask.unwrap_or(Written::Unknown)
}

/// Address and export of "nbd://HOST:PORT/EXPORT" or "nbd+unix:///EXPORT?socket=PATH".
fn parse(target: &str) -> Option<(Addr, String)> {
    if let Some(rest) = target.strip_prefix("nbd+unix:///") {
        let (name, query) = rest.split_once('?')?;
        let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="))?;
        return Some((Addr::Unix(PathBuf::from(socket)), name.to_owned()));
    }
    let rest = target.strip_prefix("nbd://")?;
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
    let address = host.to_socket_addrs().ok()?.next()?;
    Some((Addr::Tcp(address), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |port| Addr::Tcp(([127, 0, 0, 1], port).into());
        for (text, want) in [
            ("nbd+unix:///lab/v?socket=/run/s", Some((Addr::Unix("/run/s".into()), "lab/v"))),
            ("nbd://127.0.0.1/lab/v", Some((tcp(10_809), "lab/v"))),
            ("nbd://127.0.0.1:5000/", Some((tcp(5000), ""))),
            ("nbd://127.0.0.1:5000", Some((tcp(5000), ""))),
            ("nbd+unix:///v", None),
            ("/dev/sda", None),
        ] {
            let want = want.map(|(address, name)| (address, name.to_owned()));
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
