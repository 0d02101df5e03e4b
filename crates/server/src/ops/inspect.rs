//! `inspect`: what one drive says of itself. Reads only, and only the drive that is named.

use std::path::Path;

use api::{Problem, VERSION};
use rt::{DriveKind, OpenDrive};
use serde_json::{Value, json};

use super::World;
use crate::drives::Source;

/// All that is known of the drive at `path`.
///
/// # Errors
/// When it cannot be opened or read, or a running Ashlar holds it.
pub async fn run(world: &World, path: &Path) -> Result<Value, Problem> {
    let source = Source::Path(path.to_owned());
    let drive = source.open(&world.rt, 0, OpenDrive { read_only: true, lock: true }).await?;
    let identity = array::identify(&drive)
        .await
        .map_err(|e| Problem::failed(format!("drive {}", source.name()), e, "replace it, or leave it out"))?;
    let inspection = array::inspect(&drive).await;
    let info = drive.info();
    Ok(json!({
        "version": VERSION,
        "drive": {
            "name": info.name,
            "stable_name": info.stable_name,
            "serial": info.serial,
            "kind": match info.kind {
                DriveKind::Block => "block device",
                DriveKind::File => "file",
                DriveKind::Memory => "memory",
                DriveKind::Modelled => "modelled",
            },
            "bytes": info.blocks.bytes(),
            "sector_bytes": info.sector_bytes,
            "volatile_cache": info.volatile_cache,
            "direct": drive.access().is_direct(),
        },
        "identity": identity.map(|i| json!({
            "array": i.array.0,
            "array_name": i.array_name,
            "member": i.member.0,
            "seat": i.number(),
        })),
        "inspection": inspection,
    }))
}
