//! What sysfs and udev's links tell of a block device.
//!
//! Not here: SMART and other things that ask the drive itself.

use std::path::{Path, PathBuf};

use base::BLOCK_BYTES;

/// A block device's place in sysfs.
pub(super) struct BlockDevice {
    /// /sys/.../block/sda or /sys/.../block/sda/sda1, resolved.
    pub(super) directory: PathBuf,
    /// The whole drive's directory: the same, or the parent of a partition's.
    whole: PathBuf,
}

impl BlockDevice {
    /// The device with this number; None when sysfs is not mounted.
    pub(super) fn find(device: u64) -> Option<BlockDevice> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let directory = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let whole = match directory.parent() {
            Some(parent) if directory.join("partition").exists() => parent.to_owned(),
            _ => directory.clone(),
        };
        Some(BlockDevice { directory, whole })
    }

    pub(super) fn sector_bytes(&self) -> u32 {
        self.number("queue/logical_block_size").unwrap_or(512)
    }

    pub(super) fn has_volatile_cache(&self) -> bool {
        self.text("queue/write_cache").is_none_or(|mode| mode == "write back")
    }

    /// The larger of what the drive calls physical and optimal, in whole blocks.
    pub(super) fn optimal_write_bytes(&self) -> u32 {
        let block = BLOCK_BYTES as u32;
        let told = ["queue/physical_block_size", "queue/optimal_io_size"].map(|f| self.number(f).unwrap_or(0));
        told.into_iter().max().unwrap_or(0).max(block).next_multiple_of(block)
    }

    /// Serial number or world-wide name; a partition's has its number added.
    pub(super) fn serial(&self) -> Option<String> {
        const PLACES: [&str; 7] =
            ["device/serial", "serial", "wwid", "device/wwid", "device/vpd_pg80", "dm/uuid", "loop/backing_file"];
        let serial = PLACES.iter().find_map(|place| self.text(place))?;
        match std::fs::read_to_string(self.directory.join("partition")) {
            Ok(number) => Some(format!("{serial}-part{}", number.trim())),
            Err(_) => Some(serial),
        }
    }

    fn text(&self, file: &str) -> Option<String> {
        let bytes = std::fs::read(self.whole.join(file)).ok()?;
        let text: String = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn number(&self, file: &str) -> Option<u32> {
        self.text(file)?.parse().ok()
    }
}

/// The best link in /dev/disk/by-id that leads to `canonical`, else that path itself.
pub(super) fn stable_name(canonical: &Path) -> String {
    let links = std::fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten();
    let best = links
        .filter(|link| std::fs::canonicalize(link.path()).is_ok_and(|target| target == canonical))
        .map(|link| link.path().to_string_lossy().into_owned())
        .min_by_key(|link| (rank(link), link.clone()));
    best.unwrap_or_else(|| canonical.to_string_lossy().into_owned())
}

/// Names that a person can read on the drive's label come first.
fn rank(link: &str) -> usize {
    let name = link.rsplit('/').next().unwrap_or(link);
    let is_number = name.starts_with("nvme-eui.") || name.starts_with("nvme-nvme.") || name.starts_with("nvme-uuid.");
    const LABELS: [&str; 7] = ["nvme-", "ata-", "scsi-SATA", "virtio-", "usb-", "mmc-", "dm-name-"];
    if is_number {
        return LABELS.len();
    }
    LABELS.iter().position(|label| name.starts_with(label)).unwrap_or(LABELS.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_names_come_first() {
        let mut links = ["wwn-0x5", "nvme-eui.0025", "nvme-Samsung_990_S1", "dm-name-x", "ata-WDC_1"]
            .map(|n| format!("/dev/disk/by-id/{n}"));
        links.sort_by_key(|l| rank(l));
        assert!(links[0].ends_with("nvme-Samsung_990_S1") && links[1].ends_with("ata-WDC_1"));
        assert!(links[3].ends_with("nvme-eui.0025") && links[4].ends_with("wwn-0x5"));
        assert_eq!(stable_name(Path::new("/nowhere/at/all")), "/nowhere/at/all");
    }
}
