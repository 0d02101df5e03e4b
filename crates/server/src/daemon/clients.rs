//! Who uses what this server exports, and the refusal of what would cut them off.

use std::time::Duration;

use api::{ClientView, Problem};
use export::{Client, Protocol, Used};
use uuid::Uuid;

use super::Data;
use crate::ops::clients::connected;
use crate::subsystem::{DIRECT, nqn};

/// One that has just disconnected is not there any more after so long.
const LEAVING_MAX: Duration = Duration::from_millis(300);
/// The protocol of block devices.
pub(super) const UBLK: &str = "ublk";
const LOOK: Duration = Duration::from_millis(10);

impl Data {
    /// The hosts that are connected: of all, of an array, or of a volume. Over NVMe/TCP a host has all volumes of its array.
    #[must_use]
    pub fn clients(&self, array: Option<&str>, volume: Option<&str>) -> Vec<ClientView> {
        let mut all: Vec<Client> = self.nbd_clients.borrow().as_ref().map(|list| list()).unwrap_or_default();
        all.extend(self.queues.borrow().iter().flat_map(|server| server.clients()));
        let mut views: Vec<ClientView> = all.into_iter().map(|client| self.client_view(client)).collect();
        let is_meant = |client: &ClientView| {
            array.is_none_or(|array| client.array == array)
                && volume.is_none_or(|volume| client.volume.as_deref().is_none_or(|used| used == volume))
        };
        views.extend(self.device_clients());
        views.extend(self.guest_clients());
        views.retain(is_meant);
        views.sort_by(|a, b| (a.since_unix_seconds, &a.peer).cmp(&(b.since_unix_seconds, &b.peer)));
        views
    }

    /// Refuses a verb that would cut hosts off, unless it is forced.
    ///
    /// # Errors
    /// When hosts are connected, and stay.
    pub async fn refuse_if_used(
        &self,
        what: &str,
        (array, volume): (Option<&str>, Option<&str>),
        force: bool,
    ) -> Result<(), Problem> {
        let rt = &self.world.rt;
        let begun = rt.now();
        loop {
            let mut clients = self.clients(array, volume);
            // Block devices are refused when they are taken away: one that nobody has open is in nobody's way.
            clients.retain(|client| client.protocol != UBLK);
            if clients.is_empty() {
                return Ok(());
            }
            if force {
                tracing::warn!(
                    "{what}: {} are disconnected",
                    crate::ops::clients::lines(&clients, rt.unix_seconds()).join("; ")
                );
                return Ok(());
            }
            if rt.now() - begun >= LEAVING_MAX {
                return Err(connected(what, &clients, rt.unix_seconds()));
            }
            rt.sleep(LOOK).await;
        }
    }

    fn client_view(&self, client: Client) -> ClientView {
        let (array, volume) = self.used(&client.used);
        ClientView {
            array,
            volume,
            protocol: match client.protocol {
                Protocol::Nbd => "nbd",
                Protocol::NvmeTcp => "nvme_tcp",
            }
            .to_owned(),
            peer: client.peer,
            host: client.host,
            since_unix_seconds: client.since_unix_seconds,
            connections: client.connections as u64,
        }
    }

    /// The array and the volume that are used, by the names that they have now; those of what is gone are empty.
    pub(super) fn used(&self, used: &Used) -> (String, Option<String>) {
        let served = self.served.borrow();
        let direct = |is_it: &dyn Fn(Uuid) -> bool| {
            let drive = self.direct.iter().find(|drive| is_it(drive.uuid()));
            drive.map(|drive| (DIRECT.to_owned(), drive.name().split_once('/').map(|(_, name)| name.to_owned())))
        };
        let found = match used {
            Used::Namespace(identity) => {
                let identity = Uuid::from_bytes(*identity);
                let volume = served.iter().find_map(|(array, opened)| {
                    let volumes = opened.array.first().live_volumes();
                    let volume = volumes.into_iter().find(|volume| volume.uuid() == identity)?;
                    Some((array.clone(), Some(volume.name())))
                });
                volume.or_else(|| direct(&|uuid| uuid == identity))
            }
            Used::Subsystem(name) => {
                let array = served.iter().find(|(_, opened)| nqn(opened.array.first().uuid()) == *name);
                array.map(|(array, _)| (array.clone(), None)).or_else(|| direct(&|uuid| nqn(uuid) == *name))
            }
        };
        found.unwrap_or_default()
    }
}
