//! Volumes as block devices of the server's machine, and by its kernel's NVMe target.

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

/// A volume at an address of the kernel's NVMe target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetView {
    /// Version of this object.
    pub version: u32,
    /// The array's name.
    pub array: String,
    /// The volume's name.
    pub volume: String,
    /// The volume's identity.
    pub uuid: Uuid,
    /// Where hosts reach it: "rdma:10.0.0.5:4420".
    pub at: String,
    /// The name of the subsystem that hosts connect to.
    pub subsystem: String,
    /// The number of its namespace.
    pub namespace: u32,
    /// The block device that it is on this machine.
    pub device: String,
    /// What a person wants to know.
    #[serde(default)]
    pub notes: Vec<String>,
}
