//! A controller as a host uses it: found, connected, enabled, asked.

use rt::{Rt, net::Addr};

use super::{Disk, Done, Error, Link, Submitted, Wishes};
use crate::nvme::{
    DISCOVERY_NQN,
    bytes::{u16_at, u32_at},
    controller::{
        feature,
        identify::{self, cns},
        property::{cc, csts, offset},
    },
    entry::{Sqe, admin, fabrics},
    log::{self, DiscoveryEntry},
};

/// Longer discovery logs are not believed: their memory would be the server's to choose.
const DISCOVERY_ENTRIES_MAX: u32 = 1023;

/// A controller and its queues.
pub struct Host {
    /// The admin queue.
    pub admin: Link,
    /// The I/O queues.
    pub queues: Vec<Link>,
    /// Its identifier.
    pub controller: u16,
}

impl Host {
    /// Connects to a subsystem, enables the controller, and connects `queues` I/O queues, or as many as there may be.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn connect(
        rt: &Rt,
        address: &Addr,
        subsystem: &str,
        queues: u16,
        wishes: &Wishes,
    ) -> Result<Host, Error> {
        let (admin, controller) = Link::connect(rt, address, wishes, subsystem, 0, None).await?;
        let mut host = Host { admin, queues: Vec::new(), controller };
        host.enable().await?;
        if queues > 0 {
            host.connect_queues(rt, address, subsystem, queues, wishes).await?;
        }
        Ok(host)
    }

    /// Connects `queues` I/O queues, at least one, or as many as there may be, to a controller that has none.
    ///
    /// # Errors
    /// As [`Host::connect`].
    pub async fn connect_queues(
        &mut self,
        rt: &Rt,
        address: &Addr,
        subsystem: &str,
        queues: u16,
        wishes: &Wishes,
    ) -> Result<(), Error> {
        let capsule_data_max = capsule_data_max(&self.identify(cns::CONTROLLER, 0).await?.data);
        let from_zero = u32::from(queues.max(1) - 1);
        let granted = self.set_feature(feature::id::QUEUES, from_zero << 16 | from_zero).await?;
        for queue in 1..=queues.max(1).min((granted & 0xffff) as u16 + 1) {
            let (link, _) = Link::connect(rt, address, wishes, subsystem, queue, Some(self.controller)).await?;
            link.set_capsule_data_max(capsule_data_max);
            self.queues.push(link);
        }
        Ok(())
    }

    /// Generation and entries of the discovery log at `address`.
    ///
    /// # Errors
    /// When the server cannot be reached or does not tell.
    pub async fn discover(rt: &Rt, address: &Addr, wishes: &Wishes) -> Result<(u64, Vec<DiscoveryEntry>), Error> {
        Host::connect(rt, address, DISCOVERY_NQN, 0, wishes).await?.discovery_log().await
    }

    /// The discovery log of a discovery controller: first its header, then all of it.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn discovery_log(&self) -> Result<(u64, Vec<DiscoveryEntry>), Error> {
        let header = self.log(log::DISCOVERY, 0, 1024).await?;
        let entries = u32_at(&header.data, 8);
        if entries > DISCOVERY_ENTRIES_MAX {
            return Err(Error::Protocol("a discovery log of too many entries"));
        }
        let bytes = 1024 + 1024 * entries;
        let page = self.log(log::DISCOVERY, 0, bytes).await?;
        log::parse_discovery(&page.data).ok_or(Error::Protocol("a malformed discovery log"))
    }

    /// Enables the controller and waits until it is ready.
    ///
    /// # Errors
    /// As [`Link::run`]; or it does not become ready.
    pub async fn enable(&self) -> Result<(), Error> {
        self.set_property(offset::CC, u64::from(cc::ENTRY_SIZES_ONLY | cc::ENABLE)).await?;
        match self.property(offset::CSTS, false).await? as u32 {
            csts::READY => Ok(()),
            _ => Err(Error::Protocol("a controller that does not become ready")),
        }
    }

    /// Property Get.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn property(&self, offset: u32, wide: bool) -> Result<u64, Error> {
        let sqe = fabrics_command(fabrics::PROPERTY_GET).with(40, &[u8::from(wide)]).with_dword(11, offset);
        Ok(self.admin.run(sqe, None, 0).await?.cqe.result)
    }

    /// Property Set of a property of four bytes.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn set_property(&self, offset: u32, value: u64) -> Result<(), Error> {
        let sqe = fabrics_command(fabrics::PROPERTY_SET).with_dword(11, offset).with(48, &value.to_le_bytes());
        self.admin.run(sqe, None, 0).await.map(drop)
    }

    /// Asks for a shutdown and waits until it is complete.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn shut_down(&self, rt: &Rt) -> Result<(), Error> {
        self.set_property(offset::CC, u64::from(cc::ENTRY_SIZES_ONLY | cc::ENABLE | 1 << 14)).await?;
        while self.property(offset::CSTS, false).await? as u32 & csts::SHUTDOWN_COMPLETE == 0 {
            rt.sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Identify.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn identify(&self, structure: u8, nsid: u32) -> Result<Done, Error> {
        let sqe = Sqe::new(admin::IDENTIFY, 0).with_dword(1, nsid).with_dword(10, u32::from(structure));
        self.admin.run(sqe, None, identify::PAGE_BYTES as u32).await
    }

    /// The first `bytes` of a log page from `offset` on.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn log(&self, id: u8, offset: u64, bytes: u32) -> Result<Done, Error> {
        self.admin.run(log_command(id, offset, bytes), None, bytes).await
    }

    /// Get Features, for those without data.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn feature(&self, id: u8) -> Result<u32, Error> {
        let sqe = Sqe::new(admin::GET_FEATURES, 0).with_dword(10, u32::from(id));
        Ok(self.admin.run(sqe, None, 0).await?.cqe.result as u32)
    }

    /// Set Features.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn set_feature(&self, id: u8, value: u32) -> Result<u32, Error> {
        let sqe = Sqe::new(admin::SET_FEATURES, 0).with_dword(10, u32::from(id)).with_dword(11, value);
        Ok(self.admin.run(sqe, None, 0).await?.cqe.result as u32)
    }

    /// Asks to be told of an event.
    #[must_use]
    pub fn request_event(&self) -> Submitted {
        self.admin.submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), None, 0)
    }

    /// Keep Alive.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn keep_alive(&self) -> Result<(), Error> {
        self.admin.run(Sqe::new(admin::KEEP_ALIVE, 0), None, 0).await.map(drop)
    }

    /// Identifiers of the active namespaces.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn namespaces(&self) -> Result<Vec<u32>, Error> {
        let page = self.identify(cns::ACTIVE, 0).await?.data;
        Ok(page.chunks_exact(4).map(|c| u32_at(c, 0)).take_while(|nsid| *nsid != 0).collect())
    }

    /// A namespace.
    ///
    /// # Errors
    /// As [`Link::run`]; or it is not active.
    pub async fn disk(&self, nsid: u32) -> Result<Disk, Error> {
        let page = self.identify(cns::NAMESPACE, nsid).await?.data;
        Disk::new(self.queues.clone(), nsid, &page)
            .ok_or(Error::Protocol("a namespace that is inactive, or has metadata beside its blocks"))
    }
}

/// Get Log Page.
#[must_use]
pub fn log_command(id: u8, offset: u64, bytes: u32) -> Sqe {
    let dwords = bytes / 4 - 1;
    Sqe::new(admin::GET_LOG_PAGE, 0)
        .with_dword(1, u32::MAX)
        .with_dword(10, u32::from(id) | dwords << 16)
        .with_dword(11, dwords >> 16)
        .with(48, &offset.to_le_bytes())
}

fn fabrics_command(kind: u8) -> Sqe {
    Sqe::new(fabrics::OPCODE, 0).with(4, &[kind])
}

/// Longest data in a capsule of an I/O queue, from what a controller says of itself. NVMe Base 2.0, 5.17.2.1: IOCCSZ and
/// ICDOFF, both in units of 16 bytes. Data lies behind the command or is not sent so.
fn capsule_data_max(controller: &[u8]) -> u32 {
    let (capsule, offset) = (u32_at(controller, 1792), u16_at(controller, 1800));
    if offset == 0 { capsule.saturating_mul(16).saturating_sub(64) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capsules_are_as_long_as_the_controller_says() {
        let says = |capsule: u32, offset: u16| {
            let mut page = [0; 4096];
            page[1792..1796].copy_from_slice(&capsule.to_le_bytes());
            page[1800..1802].copy_from_slice(&offset.to_le_bytes());
            capsule_data_max(&page)
        };
        assert_eq!(says(4 + 8192 / 16, 0), 8192);
        assert_eq!((says(4, 0), says(0, 0)), (0, 0), "none");
        assert_eq!(says(u32::MAX, 0), u32::MAX - 64);
        assert_eq!(says(4 + 8192 / 16, 1), 0, "not behind the command");
    }
}
