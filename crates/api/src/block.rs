//! Volumes as block devices of the server's machine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The block device of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockDeviceView {
    /// Version of this object.
    pub version: u32,
    /// The array's name.
    pub array: String,
    /// The volume's name.
    pub volume: String,
    /// The volume's identity.
    pub uuid: Uuid,
    /// The device: "/dev/ublkb0".
    pub device: String,
    /// Names of it that stay the same when the number changes.
    pub names: Vec<String>,
    /// What a person wants to know.
    #[serde(default)]
    pub notes: Vec<String>,
}
