//! Arrays that were looked for, and not opened.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Problem;
use crate::SeatState;

/// Look for arrays; open none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindRequest {
    /// Directories and drives, absolute; all block devices, and the drives of known arrays, when empty.
    #[serde(default)]
    pub places: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FoundArrays {
    /// Version of this object.
    pub version: u32,
    /// Places that were looked at.
    pub looked_at: u64,
    /// The arrays, by name.
    pub arrays: Vec<FoundArrayView>,
    /// Drives that were named and cannot be used.
    pub problems: Vec<Problem>,
}

/// One array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FoundArrayView {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// "RAID 6"; none when its drives do not tell.
    pub level: Option<String>,
    /// Drives that take part, and are here.
    pub drives_found: u64,
    /// Drives that take part.
    pub drives_of: u64,
    /// How it would open.
    pub prospect: Prospect,
    /// Why that cannot be told.
    pub why: Option<String>,
    /// Who has it open, if that can be seen.
    pub used_by: Option<String>,
    /// Whether this machine has it on its list of arrays.
    pub known: bool,
    /// Whether the running Ashlar serves it.
    pub served: bool,
    /// Its seats.
    pub members: Vec<FoundMemberView>,
}

/// How an array would open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Prospect {
    /// All that takes part is here.
    Whole,
    /// With less redundancy than it was made with.
    Degraded,
    /// Only when a person says that half or fewer of the drives suffice.
    FewerThanHalf,
    /// Not: too many drives are not here.
    LacksDrives,
    /// Its drives do not tell.
    #[default]
    Unknown,
}

/// A seat.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FoundMemberView {
    /// Its number.
    pub seat: u16,
    /// State.
    pub state: SeatState,
    /// The drive's serial number or stable name when it joined.
    pub drive_name: String,
    /// Its path here; none when it is not here.
    pub drive: Option<String>,
}

/// What a drive holds that is lost when it is taken for something else.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HeldView {
    /// The drive.
    pub drive: String,
    /// What it holds, as the end of a sentence.
    pub what: String,
    /// The array that it is a member of.
    pub array: Option<String>,
    /// Its identity.
    pub array_uuid: Option<Uuid>,
    /// The array's level.
    pub level: Option<String>,
    /// The drive's seat there.
    pub seat: Option<u16>,
    /// Its state there.
    pub state: Option<SeatState>,
    /// Whether the array goes on without it: it failed, or another has its place.
    pub given_up: bool,
    /// Drives of the array that take part, and are here.
    pub drives_found: Option<u64>,
    /// Drives of the array that take part.
    pub drives_of: Option<u64>,
    /// Whether this machine has the array on its list.
    pub known: bool,
}
