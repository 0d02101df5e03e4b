//! Who is connected.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Hosts that use what a server exports.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Clients {
    /// Version of this object.
    pub version: u32,
    /// Each of them, the one that has been there longest first.
    pub clients: Vec<ClientView>,
}

/// One of them: a connection of NBD, a controller of NVMe/TCP, the block device of a volume (ublk), or a guest's disk (vhost-user).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientView {
    /// The array; "direct" for a raw drive.
    pub array: String,
    /// The volume; none for a host that has all volumes of the array (NVMe/TCP).
    pub volume: Option<String>,
    /// "nbd", "nvme_tcp", "ublk" or "vhost_user".
    pub protocol: String,
    /// Where it is: "tcp:10.0.0.1:4711", "unix:pid 7 uid 0", or the block device.
    pub peer: String,
    /// Its qualified name (NVMe/TCP).
    pub host: Option<String>,
    /// Since when, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// Its connections.
    pub connections: u64,
}

/// Whether a verb goes on where it would be refused: the part of a URL behind the question mark.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Forced {
    /// Also while hosts are connected.
    pub force: bool,
}

/// Whose clients are asked for: the part of a URL behind the question mark.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WhoseClients {
    /// Of this array.
    pub array: Option<String>,
    /// Of this volume of it.
    pub volume: Option<String>,
}
