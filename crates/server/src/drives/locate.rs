//! The lamp of a drive's bay, where sysfs has one: a storage enclosure's slot (SES), a PCIe port that drives it (NPEM),
//! or a hot-plug slot's attention lamp.
//!
//! Not here: enclosures that only a vendor's tool can talk to.

use std::fs;
use std::path::{Path, PathBuf};

use api::Problem;

/// Lights the lamp of the drive at `path`, or puts it out; the file that does it. `sysfs` is /sys.
///
/// # Errors
/// When there is none, or it cannot be written.
pub fn light(sysfs: &Path, path: &str, on: bool) -> Result<PathBuf, Problem> {
    let what = format!("drive {path}");
    let lamp = lamp_of(sysfs, path).ok_or_else(|| {
        Problem::refused(
            "no_lamp",
            what.clone(),
            "no locate LED was found for it: no enclosure, PCIe port or hot-plug slot in sysfs belongs to it",
            "find it by its serial number (`ashlar status` shows it), or by its activity LED while it is read",
        )
    })?;
    let written = fs::write(&lamp, if on { "1" } else { "0" });
    written.map_err(|e| Problem::failed(what, format!("{}: {e}", lamp.display()), "run this as root"))?;
    Ok(lamp)
}

/// The file that lights the lamp of the drive at `path`.
fn lamp_of(sysfs: &Path, path: &str) -> Option<PathBuf> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let block = fs::canonicalize(sysfs.join("class/block").join(real.file_name()?)).ok()?;
    let whole = if block.join("partition").exists() { block.parent()?.to_owned() } else { block };
    let device = fs::canonicalize(whole.join("device")).unwrap_or_else(|_| whole.clone());
    // The nearest first: a port's lamp before that of the switch above it.
    let mut addresses: Vec<&str> =
        whole.iter().filter_map(|part| part.to_str()).filter(|part| is_pci_address(part)).collect();
    addresses.reverse();
    enclosure_slot(sysfs, &device)
        .or_else(|| addresses.iter().find_map(|address| port_lamp(sysfs, address)))
        .or_else(|| addresses.iter().find_map(|address| hotplug_slot(sysfs, address)))
}

/// "0000:3a:00.0".
fn is_pci_address(part: &str) -> bool {
    let shape = |c: char| if c.is_ascii_hexdigit() { 'h' } else { c };
    part.chars().map(shape).collect::<String>() == "hhhh:hh:hh.h"
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort();
    found
}

/// /sys/class/enclosure/ENCLOSURE/SLOT/{device,locate}
fn enclosure_slot(sysfs: &Path, device: &Path) -> Option<PathBuf> {
    let slots = entries(&sysfs.join("class/enclosure")).into_iter().flat_map(|enclosure| entries(&enclosure));
    let ours = |slot: &PathBuf| fs::canonicalize(slot.join("device")).is_ok_and(|d| d == device);
    slots.filter(ours).map(|slot| slot.join("locate")).find(|lamp| lamp.exists())
}

/// /sys/class/leds/ADDRESS:enclosure:locate/brightness
fn port_lamp(sysfs: &Path, address: &str) -> Option<PathBuf> {
    let lamp = sysfs.join("class/leds").join(format!("{address}:enclosure:locate")).join("brightness");
    lamp.exists().then_some(lamp)
}

/// /sys/bus/pci/slots/SLOT/{address,attention}; the address there has no function.
fn hotplug_slot(sysfs: &Path, address: &str) -> Option<PathBuf> {
    let device = address.rsplit_once('.').map(|(device, _)| device)?;
    let ours = |slot: &PathBuf| fs::read_to_string(slot.join("address")).is_ok_and(|a| a.trim() == device);
    let slots = entries(&sysfs.join("bus/pci/slots")).into_iter();
    slots.filter(ours).map(|slot| slot.join("attention")).find(|lamp| lamp.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const DRIVE: &str = "devices/pci0000:00/0000:00:1c.0/0000:3a:00.0/nvme/nvme3/nvme3n1";

    /// A sysfs with one NVMe drive.
    fn sysfs(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("ashlar-locate-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join(DRIVE)).unwrap();
        fs::create_dir_all(root.join("class/block")).unwrap();
        symlink(root.join(DRIVE), root.join("class/block/nvme3n1")).unwrap();
        symlink(root.join(DRIVE).parent().unwrap(), root.join(DRIVE).join("device")).unwrap();
        root
    }

    fn file(root: &Path, path: &str, text: &str) -> PathBuf {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn every_kind_of_lamp_is_found() {
        let root = sysfs("all");
        let none = light(&root, "/dev/nvme3n1", true).unwrap_err();
        assert_eq!(none.code, "no_lamp");
        file(&root, "bus/pci/slots/1/address", "0000:99:00\n");
        file(&root, "bus/pci/slots/1/attention", "0");
        file(&root, "bus/pci/slots/2/address", "0000:3a:00\n");
        let attention = file(&root, "bus/pci/slots/2/attention", "0");
        assert_eq!(light(&root, "/dev/nvme3n1", true).unwrap(), attention);
        assert_eq!(fs::read_to_string(&attention).unwrap(), "1");
        let port = file(&root, "class/leds/0000:00:1c.0:enclosure:locate/brightness", "0");
        assert_eq!(light(&root, "/dev/nvme3n1", true).unwrap(), port);
        let slot = file(&root, "class/enclosure/0:0:1:0/Slot 04/locate", "0");
        symlink(root.join(DRIVE).parent().unwrap(), slot.parent().unwrap().join("device")).unwrap();
        assert_eq!(light(&root, "/dev/nvme3n1", false).unwrap(), slot);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_is_no_block_device_has_none() {
        let root = sysfs("file");
        assert!(light(&root, "/tmp/disk.img", true).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
