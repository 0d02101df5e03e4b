//! Where requests go: direct drives, a volume of an array, or an export; or what several cores have of the first two.
//!
//! An export's server runs elsewhere (another process or thread): its CPU time is not in the figures.

use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

use api::IostatView;
use array::{Array, Volume, Whole};
use base::{BLOCK_BYTES, BlockCount};
use export::nbd::client::Client;
use export::nvme::client::{Disk, Host, Opened};
use export::{Namespace, Striped, Uri};
use futures::future::LocalBoxFuture;
use rt::{Buf, Bytes, Rt};

use crate::error::{Error, Impossible};
use crate::load::{DEPTH_MAX, Load};
use crate::stripe::Stripe;
use crate::team::{PartVolume, Team};

/// One target; clones share it.
#[derive(Clone)]
pub enum Target {
    /// Drives with nothing between, or mirrored in place.
    Direct(Stripe),
    /// A volume of an array in this process.
    Volume {
        /// The array.
        array: Array,
        /// The volume.
        volume: Volume,
    },
    /// A volume of an array in parts, as one core of a team sees it.
    Parts(Striped<PartVolume>),
    /// What several cores have: each generates its share.
    Team(Team),
    /// An NBD export of some server.
    Nbd(Client),
    /// An NVMe/TCP namespace of some server.
    Nvme {
        /// The namespace.
        disk: Disk,
        /// The controller, as long as it is used.
        host: Rc<Host>,
    },
}

/// Bytes that went to hosts and drives so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that hosts wrote.
    pub host_bytes: u64,
    /// Bytes that the drives were given: data, redundancy, headers, padding, map, moves.
    pub drive_bytes: u64,
}

impl Written {
    /// As an array counts them.
    pub(crate) fn of(iostat: &IostatView) -> Written {
        Written {
            host_bytes: iostat.volumes.iter().map(|v| v.bytes_written).sum(),
            drive_bytes: iostat.drives.iter().map(|m| m.bytes_written).sum(),
        }
    }
}

impl Target {
    /// What it is, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Target::Direct(stripe) if stripe.is_mirrored() => "drives mirrored in place",
            Target::Direct(_) => "direct drives",
            Target::Team(team) if team.whole().is_none() => "direct drives",
            Target::Volume { .. } | Target::Parts(_) | Target::Team(_) => "a volume",
            Target::Nbd(_) => "an NBD export",
            Target::Nvme { .. } => "an NVMe/TCP namespace",
        }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Target::Direct(stripe) => stripe.bytes(),
            Target::Volume { volume, .. } => volume.bytes(),
            Target::Parts(parts) => parts.info().bytes,
            Target::Team(team) => team.bytes(),
            Target::Nbd(client) => client.export().bytes,
            Target::Nvme { disk, .. } => disk.bytes,
        }
    }

    /// The array that it belongs to, if it is in this process.
    #[must_use]
    pub fn whole(&self) -> Option<Whole> {
        match self {
            Target::Volume { array, .. } => Some(array.clone().into()),
            Target::Team(team) => team.whole().cloned(),
            Target::Direct(_) | Target::Parts(_) | Target::Nbd(_) | Target::Nvme { .. } => None,
        }
    }

    /// Whether its server takes no writes.
    fn is_read_only(&self) -> bool {
        match self {
            Target::Direct(_) | Target::Volume { .. } | Target::Parts(_) | Target::Team(_) => false,
            Target::Nbd(client) => client.export().is_read_only(),
            Target::Nvme { disk, .. } => disk.read_only,
        }
    }

    /// An export of a server, with room for `in_flight` requests.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn connect(rt: &Rt, uri: &Uri, in_flight: usize) -> Result<Target, Error> {
        match uri {
            Uri::Nbd { address, export } => Ok(Target::Nbd(Client::connect(rt, address, export).await?)),
            Uri::Nvme(namespace) => {
                let Opened { disk, host, .. } = Opened::open(rt, namespace, in_flight).await?;
                Ok(Target::Nvme { disk, host: Rc::new(host) })
            }
        }
    }

    /// Requests are multiples of this.
    fn unit_bytes(&self) -> u32 {
        match self {
            Target::Direct(_) => BLOCK_BYTES as u32,
            Target::Team(team) if team.whole().is_none() => BLOCK_BYTES as u32,
            Target::Volume { .. } | Target::Parts(_) | Target::Team(_) | Target::Nbd(_) => {
                array::volume::SECTOR_BYTES as u32
            }
            Target::Nvme { disk, .. } => disk.block,
        }
    }

    /// The target as it suits a load over `working_set`, or why there is none.
    ///
    /// # Errors
    /// [`Impossible`], with what to do.
    pub fn for_load(&self, load: &Load, working_set: &Range<u64>) -> Result<Target, Impossible> {
        let (block_bytes, unit_bytes) = (load.block_bytes, self.unit_bytes());
        if block_bytes == 0 || !block_bytes.is_multiple_of(unit_bytes) {
            return Err(Impossible::Block { block_bytes, target: self.name(), unit_bytes });
        }
        if load.depth == 0 || load.depth > DEPTH_MAX {
            return Err(Impossible::Depth(load.depth));
        }
        if let Target::Nvme { disk, .. } = self
            && let Some(most) = disk.transfer_bytes_max.filter(|most| u64::from(block_bytes) > *most)
        {
            return Err(Impossible::Transfer { block_bytes, most });
        }
        if self.is_read_only() && !load.pattern.only_reads() {
            return Err(Impossible::ReadOnly(self.name()));
        }
        let target = match self {
            Target::Direct(stripe) => Target::Direct(stripe.clone().for_block(block_bytes)),
            Target::Volume { .. } | Target::Parts(_) | Target::Team(_) | Target::Nbd(_) | Target::Nvme { .. } => {
                self.clone()
            }
        };
        let first_end = working_set.start + u64::from(block_bytes);
        if !working_set.start.is_multiple_of(u64::from(block_bytes)) {
            return Err(Impossible::WorkingSetStart { start: working_set.start, block_bytes });
        }
        if first_end > working_set.end || working_set.end > target.bytes() {
            return Err(Impossible::WorkingSet {
                target: self.name(),
                wanted: BlockCount::ceil_from_bytes(working_set.end.max(first_end)),
                there: BlockCount::floor_from_bytes(target.bytes()),
            });
        }
        Ok(target)
    }

    /// Reads one request. Targets that bring their own memory give `buf` back untouched.
    ///
    /// # Errors
    /// The target's.
    pub async fn read(&self, offset: u64, buf: Buf) -> (Result<(), Error>, Buf) {
        match self {
            Target::Direct(stripe) => stripe.read(offset, buf).await,
            Target::Volume { volume, .. } => {
                let read = pin!(volume.read(offset, buf.len() as u64)).await;
                (read.map(drop).map_err(Error::from), buf)
            }
            Target::Parts(_) | Target::Team(_) => self.read_of_several(offset, buf).await,
            Target::Nbd(client) => {
                let read = client.read(offset, buf.len() as u32).await;
                (read.map(drop).map_err(Error::from), buf)
            }
            Target::Nvme { disk, .. } => {
                let read = disk.read(offset, buf.len() as u32).await;
                (read.map(drop).map_err(Error::from), buf)
            }
        }
    }

    /// Writes one request.
    ///
    /// # Errors
    /// The target's.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        match self {
            Target::Direct(stripe) => stripe.write(offset, data).await,
            Target::Volume { volume, .. } => Ok(volume.write(offset, data, false).await?),
            Target::Parts(_) | Target::Team(_) => self.write_of_several(offset, data).await,
            Target::Nbd(client) => Ok(client.write(offset, data, false).await?),
            Target::Nvme { disk, .. } => Ok(disk.write(offset, data, false).await?),
        }
    }

    /// [`Target::read`] of what several cores have: apart, so that one core's requests cost nothing for it.
    #[inline(never)]
    fn read_of_several(&self, offset: u64, buf: Buf) -> LocalBoxFuture<'_, (Result<(), Error>, Buf)> {
        Box::pin(async move {
            match self {
                Target::Parts(parts) => {
                    let read = parts.read(offset, buf.len() as u32).await;
                    (read.map(drop).map_err(Error::from), buf)
                }
                Target::Team(team) => team.read(offset, buf).await,
                alone => alone.read(offset, buf).await,
            }
        })
    }

    /// [`Target::write`] in the same way.
    #[inline(never)]
    fn write_of_several(&self, offset: u64, data: Bytes) -> LocalBoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match self {
                Target::Parts(parts) => Ok(parts.write(offset, data, false).await?),
                Target::Team(team) => team.write(offset, data).await,
                alone => alone.write(offset, data).await,
            }
        })
    }

    /// Makes durable what was answered, and ends the background work that it left where that can be asked for.
    ///
    /// # Errors
    /// The target's.
    pub async fn settle(&self) -> Result<(), Error> {
        match self {
            Target::Direct(stripe) => stripe.flush().await,
            Target::Volume { array, volume } => {
                volume.flush().await?;
                Ok(array.checkpoint().await?)
            }
            Target::Parts(parts) => Ok(parts.flush().await?),
            Target::Team(team) => Box::pin(team.settle()).await,
            Target::Nbd(client) => Ok(client.flush().await?),
            Target::Nvme { disk, .. } => Ok(disk.flush().await?),
        }
    }

    /// What was written so far; `None` where only the other side, or all cores together, know.
    ///
    /// # Errors
    /// When a core has ended.
    pub async fn written(&self) -> Result<Option<Written>, Error> {
        match self {
            Target::Direct(_) | Target::Parts(_) | Target::Nbd(_) | Target::Nvme { .. } => Ok(None),
            Target::Volume { array, .. } => Ok(Some(Written::of(&array.iostat()))),
            Target::Team(team) => team.written().await,
        }
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// The target's.
    pub async fn close(self) -> Result<(), Error> {
        match self {
            // The connections of a host end with it.
            Target::Direct(_) | Target::Parts(_) | Target::Nvme { .. } => Ok(()),
            Target::Team(team) => team.close().await,
            Target::Volume { array, volume } => {
                drop(volume);
                Ok(array.close().await?)
            }
            Target::Nbd(client) => {
                client.disconnect().await;
                Ok(())
            }
        }
    }
}
