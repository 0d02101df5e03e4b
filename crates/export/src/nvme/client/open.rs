//! A namespace by its address alone: which subsystem and which namespace it is, and as many queues as a load wants.

use std::collections::BTreeSet;

use rt::{Rt, net::Addr};

use super::{Disk, Error, Host, Wishes};
use crate::nvme::{
    controller::{identify::cns, property::offset},
    limits::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX},
};
use crate::uri::Namespace;

/// A namespace that is connected.
pub struct Opened {
    /// Its address, with nothing left open.
    pub at: Namespace,
    /// The controller, as long as it is used.
    pub host: Host,
    /// The namespace.
    pub disk: Disk,
    /// What the controller says of itself: serial number (SN) and model (MN).
    pub serial: String,
    /// The model.
    pub model: String,
}

impl Opened {
    /// Connects with room for `in_flight` requests.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, or there are several to choose from and nobody said which; or the
    /// controller has not queues enough.
    pub async fn open(rt: &Rt, at: &Namespace, in_flight: usize) -> Result<Opened, Error> {
        let (address, mut wishes) = (Addr::Tcp(at.address), Wishes::default());
        if let Some(host) = &at.host {
            wishes.host.clone_from(host);
        }
        let subsystem = match &at.subsystem {
            Some(named) => named.clone(),
            None => the_only_subsystem(rt, &address, &wishes).await?,
        };
        let mut host = Host::connect(rt, &address, &subsystem, 0, &wishes).await?;
        // 5.17.2.1: SN, MN, MDTS; 3.1.3.1: MQES, MPSMIN.
        let page = host.identify(cns::CONTROLLER, 0).await?.data;
        let capabilities = host.property(offset::CAP, true).await?;
        wishes.entries = (capabilities as u16).saturating_add(1).clamp(2, QUEUE_ENTRIES_MAX);
        // A queue is full with one entry free.
        let room = usize::from(wishes.entries) - 1;
        let queues = in_flight.max(1).div_ceil(room).min(usize::from(IO_QUEUES_MAX)) as u16;
        host.connect_queues(rt, &address, &subsystem, queues, &wishes).await?;
        let room = room * host.queues.len();
        if in_flight > room {
            return Err(Error::Which(format!(
                "{in_flight} requests in flight are too many: the controller's {} queues take at most {room}",
                host.queues.len()
            )));
        }
        let nsid = namespace(at.nsid, &host.namespaces().await?)?;
        let mut disk = host.disk(nsid).await?;
        let unit = 1u64 << (12 + (capabilities >> 48 & 0xf));
        disk.transfer_bytes_max = (page[77] != 0).then(|| unit.checked_shl(u32::from(page[77]))).flatten();
        let text = |at, length| String::from_utf8_lossy(&page[at..at + length]).trim().to_owned();
        let at = Namespace { subsystem: Some(subsystem), nsid: Some(nsid), ..at.clone() };
        Ok(Opened { at, serial: text(4, 20), model: text(24, 40), host, disk })
    }
}

async fn the_only_subsystem(rt: &Rt, address: &Addr, wishes: &Wishes) -> Result<String, Error> {
    let (_, entries) = Host::discover(rt, address, wishes).await?;
    let names: BTreeSet<String> = entries.into_iter().map(|entry| entry.subsystem).collect();
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    match list[..] {
        [only] => Ok(only.to_owned()),
        [] => {
            let host = &wishes.host;
            Err(Error::Which(format!("it shows no subsystem to {host}: give hostnqn=NQN, or allow this host there")))
        }
        _ => Err(Error::Which(format!("it has several subsystems, name one: {}", list.join(", ")))),
    }
}

/// The one that was asked for, or the only one.
fn namespace(asked: Option<u32>, all: &[u32]) -> Result<u32, Error> {
    let list = || all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (asked, all) {
        (_, []) => Err(Error::Which("the subsystem has no namespace".to_owned())),
        (Some(nsid), _) if all.contains(&nsid) => Ok(nsid),
        (Some(nsid), _) => Err(Error::Which(format!("it has no namespace {nsid}; it has: {}", list()))),
        (None, [only]) => Ok(*only),
        (None, _) => Err(Error::Which(format!("it has several namespaces, give nsid=N: {}", list()))),
    }
}
