//! What an export says of itself, and fio does not: its size, what of it was written (`base:allocation` of NBD), and which
//! namespace of NVMe/TCP it is.

use api::Problem;
use export::nbd::client::Client;
use export::nvme::client::Opened;
use export::{ExtentState, Uri};
use lab::Error;
use lab::model::Pair;
use lab::target::Target;
use lab::written::Written;
use rt::Rt;
use rt::net::Addr;

use super::problem;
use crate::context::Context;

/// Bytes that one question is about.
const ASKED_BYTES: u64 = 1 << 30;

/// A target, looked at: an export is asked for its size, unless the user said one.
///
/// # Errors
/// When there is none, or an export does not answer.
pub fn target(context: &Context, name: &str, size: Option<u64>) -> Result<Target, Problem> {
    let wrong =
        |e: &dyn std::fmt::Display| Problem::failed(name, e, "check that it is served and that this host may use it");
    if !name.contains("://") {
        return Target::look(name, size).map_err(problem);
    }
    match name.parse::<Uri>().map_err(|why| problem(Error::usage(name, why)))? {
        Uri::Nbd { address, export } => {
            let ask = context.offline(|world| async move {
                let client = Client::connect(&world.rt, &address, &export).await.map_err(|e| wrong(&e))?;
                Ok(client.export().bytes)
            });
            let size = size.map_or_else(|| ask.map(Some), |size| Ok(Some(size)));
            Target::look(name, size?).map_err(problem)
        }
        Uri::Nvme(namespace) => {
            // Always asked: the name is made whole, so that a run that goes on meets the same namespace.
            let ask = context.offline(|world| async move {
                let opened = Opened::open(&world.rt, &namespace, 1).await.map_err(|e| wrong(&e))?;
                let facts = [("serial", opened.serial), ("model", opened.model)];
                Ok((opened.at.to_string(), opened.disk.bytes, facts))
            });
            let (whole, bytes, facts) = ask?;
            let mut target = Target::look(&whole, Some(size.unwrap_or(bytes))).map_err(problem)?;
            target.facts.extend(facts.into_iter().map(|(name, value)| Pair::new(name, value)));
            Ok(target)
        }
    }
}

/// What of a range of a target was written, as far as an NBD export tells.
pub fn written(context: &Context, target: &str, offset: u64, bytes: u64) -> Written {
    let Ok(Uri::Nbd { address, export }) = target.parse() else { return Written::Unknown };
    let ask = context.offline(|world| async move {
        let wrong = |e| Problem::failed(target, e, "check that it is served");
        written_of(&world.rt, &address, &export, offset, bytes).await.map_err(wrong)
    });
    ask.unwrap_or(Written::Unknown)
}

async fn written_of(
    rt: &Rt,
    address: &Addr,
    export: &str,
    offset: u64,
    bytes: u64,
) -> Result<Written, export::nbd::client::Error> {
    let client = Client::connect(rt, address, export).await?;
    if !client.export().allocation {
        return Ok(Written::Unknown);
    }
    let (mut at, end, mut holes) = (offset, offset + bytes, 0);
    while at < end {
        let extents = client.block_status(at, (end - at).min(ASKED_BYTES) as u32, false).await?;
        for extent in extents {
            // The last one may reach beyond what was asked for.
            let bytes = extent.bytes.min(end - at);
            // Zeros by a map cost no drive anything, whether something is held for them or not.
            holes += if extent.state == ExtentState::Allocated { 0 } else { bytes };
            at += bytes;
        }
    }
    Ok(if holes == 0 { Written::All } else { Written::Missing { bytes: holes } })
}
