//! Where a block of a volume lies: on which drives, and what stands in for it when one of them fails.

use base::{Lba, MemberId, MemberLba, SegmentId};
use ondisk::{MapRef, Place, Scheme};

use super::Hosts;
use crate::fault::Fault;
use crate::map::NodeKey;
use crate::space::segment::Seg;
use crate::volumes::vol::Vol;

/// A row of a segment as it lies on the drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Which segment.
    pub segment: SegmentId,
    /// Its redundancy.
    pub scheme: Scheme,
    /// The column that was asked for.
    pub column: usize,
    /// Member and block of each column.
    pub columns: Vec<Option<(MemberId, MemberLba)>>,
}

/// Where a block lies, and the map nodes on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The rows of the map nodes, from the root down.
    pub map: Vec<RowPlace>,
    /// The block's own row; `None` when nothing is stored for it.
    pub data: Option<RowPlace>,
}

impl Hosts {
    /// Where block `lba` of a volume lies.
    pub async fn locate(&self, vol: &Vol, lba: Lba) -> Result<Located, Fault> {
        let _pin = self.pins.pin();
        let (roots, height) = (vol.roots(), vol.height());
        let mut map = Vec::new();
        for level in (0..=height).rev() {
            if let MapRef::At(place) = self.map.node_ref(&roots, height, NodeKey::of(vol.id, level, lba)).await? {
                map.extend(self.row_place(place));
            }
        }
        let data = match self.map.resolve(vol, lba, 1).await?.refs[0] {
            MapRef::At(place) => self.row_place(place),
            MapRef::Hole | MapRef::Zero | MapRef::Bad => None,
        };
        Ok(Located { map, data })
    }

    fn row_place(&self, place: Place) -> Option<RowPlace> {
        let columns = self.rows.columns(place.pba.segment)?;
        let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
        let on = |(member, zone): (MemberId, u32)| {
            self.members.seat(member).map(|seat| (member, seat.layout.zone_row(zone, row)))
        };
        let places = columns.slots.iter().map(|slot| slot.and_then(on)).collect();
        Some(RowPlace { segment: columns.id, scheme: columns.scheme, column, columns: places })
    }
}
