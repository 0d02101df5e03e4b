//! What sysfs and udev's links tell of a block device.
//!
//! Not here: SMART and other things that ask the drive itself.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use base::BLOCK_BYTES;

use super::limits::Limits;
use super::polling::OneCommand;

/// A block device's place in sysfs.
#[derive(Clone)]
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

    /// The name of the character device of a whole NVMe namespace: nvme0n1 has ng0n1. Partitions (nvme0n1p1) and hidden
    /// paths (nvme0c1n1) have none.
    pub(super) fn generic_name(&self) -> Option<String> {
        self.directory.file_name()?.to_str().and_then(generic_name)
    }

    /// Whether the kernel chooses a path for each request: a namespace of a subsystem, not of a controller.
    pub(super) fn has_paths(&self) -> bool {
        let parent = self.directory.parent().and_then(Path::file_name).unwrap_or_default();
        parent.as_encoded_bytes().starts_with(b"nvme-subsys")
    }

    /// Whether it is, or lies on, an NVMe namespace of one controller in this machine.
    pub(super) fn is_pcie_nvme(&self) -> bool {
        self.text("device/transport").is_some_and(|transport| transport == "pcie")
    }

    /// Whether it is a part of a drive.
    pub(super) fn is_partition(&self) -> bool {
        self.whole != self.directory
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.number("ro") != Some(0)
    }

    /// Bytes of metadata with each LBA of a namespace, where the kernel tells it (Linux 6.8); None also when it has another
    /// command set than NVM.
    pub(super) fn metadata_bytes(&self) -> Option<u32> {
        self.number("metadata_bytes").filter(|_| self.number("csi") == Some(0))
    }

    pub(super) fn sector_bytes(&self) -> u32 {
        self.number("queue/logical_block_size").unwrap_or(512)
    }

    pub(super) fn has_volatile_cache(&self) -> bool {
        self.text("queue/write_cache").is_none_or(|mode| mode == "write back")
    }

    /// What can be polled; or why nothing.
    pub(super) fn polls(&self) -> Result<OneCommand, &'static str> {
        if self.number("queue/io_poll") != Some(1) {
            return Err("its driver has no poll queues (nvme.poll_queues)");
        }
        let which = || {
            let limits = self.limits("queue/max_sectors_kb")?;
            let boundary_sectors: u64 = self.number("queue/chunk_sectors")?;
            OneCommand::new(limits, boundary_sectors.checked_mul(512)?, self.number("queue/physical_block_size")?)
        };
        which().ok_or("its limits are not known, or too narrow")
    }

    /// The zone model, where the kernel tells one: "none" for a drive without zones.
    pub(super) fn zoned(&self) -> Option<String> {
        self.text("queue/zoned")
    }

    /// What one passthrough command may move; None when it is not known, or too little.
    pub(super) fn command_limits(&self) -> Option<Limits> {
        self.limits("queue/max_hw_sectors_kb")
    }

    fn limits(&self, longest_kib: &str) -> Option<Limits> {
        let kib: usize = self.number(longest_kib)?;
        Limits::new(kib.checked_mul(1024)?, self.number("queue/max_segments")?)
    }

    /// The longest deallocation in bytes; zero when there is none.
    pub(super) fn discard_bytes_max(&self) -> u64 {
        self.number("queue/discard_max_bytes").unwrap_or(0)
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

    /// The file behind a loop device, and where the device begins there.
    pub(super) fn backing_file(&self) -> Option<(PathBuf, u64)> {
        // A partition of one begins elsewhere.
        let whole = self.directory == self.whole;
        let file = self.text("loop/backing_file").filter(|_| whole)?;
        Some((PathBuf::from(file), self.number("loop/offset")?))
    }

    fn text(&self, file: &str) -> Option<String> {
        let bytes = std::fs::read(self.whole.join(file)).ok()?;
        let text: String = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn number<T: FromStr>(&self, file: &str) -> Option<T> {
        self.text(file)?.parse().ok()
    }
}

fn generic_name(block: &str) -> Option<String> {
    let rest = block.strip_prefix("nvme")?;
    let (subsystem, namespace) = rest.split_once('n')?;
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (is_number(subsystem) && is_number(namespace)).then(|| format!("ng{rest}"))
}

/// Whether the block device with this directory was removed. A pulled one answers like a bad sector, but it has left
/// sysfs, or has no size any more.
pub(super) fn is_removed(directory: &Path) -> bool {
    match std::fs::read_to_string(directory.join("size")) {
        Ok(size) => size.trim() == "0",
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
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
    fn namespaces_and_their_character_devices() {
        for (block, want) in [
            ("nvme0n1", Some("ng0n1")),
            ("nvme12n34", Some("ng12n34")),
            ("nvme0n1p1", None),
            ("nvme0c1n1", None),
            ("nvme0", None),
            ("nvme0n", None),
            ("sda", None),
        ] {
            assert_eq!(generic_name(block).as_deref(), want, "{block}");
        }
        for (directory, has_paths) in [
            ("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", true),
            ("/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1", false),
        ] {
            let device = BlockDevice { directory: directory.into(), whole: directory.into() };
            assert_eq!(device.has_paths(), has_paths, "{directory}");
            assert_eq!(device.generic_name().as_deref(), Some("ng0n1"));
        }
    }

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
