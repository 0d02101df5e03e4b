//! `ashlar attach` and `ashlar detach`: volumes as block devices of this host, by ublk or the kernel's NVMe/TCP initiator; and how guests
//! get them, by vhost-user ([`guest`]).
//!
//! By ublk the server makes a device for each volume ([`local`]). Over NVMe/TCP an array is a subsystem, so all of its volumes
//! come and go together, and the kernel connects again by itself for ever. Either way a restarted server is waited for, and
//! requests meanwhile wait too.
//!
//! Not here: at boot. The units in `systemd/` call these verbs.

mod guest;
pub mod local;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use api::{Arrays, Done, Problem};
use rt::probe;
use serde::Serialize;
use server::registry::Registry;
use server::subsystem::nqn;
use uuid::Uuid;

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text;

const ATTACH_EXAMPLES: &str = "\
Examples:
  ashlar attach fast/db                  prints /dev/ublkb0, or /dev/nvme3n1
  ashlar attach fast                     all volumes of the array
  ashlar attach --by nvme fast/db        by the kernel's NVMe/TCP initiator, from any host
  ashlar attach --wait 300 fast/db       at boot: as soon as the array is served
  ashlar attach --by vhost-user fast/db  prints what a virtual machine on this host needs

By ublk (Linux 6.6 or newer; the server runs as root) the server is the device's driver: nothing goes over a network. The \
device comes back whenever the array is served, until it is detached. The name in /dev may change; \
/dev/ashlar/ARRAY/VOLUME and /dev/disk/by-id/ashlar-ARRAY-VOLUME do not.

By nvme this host must be allowed to connect (`ashlar serve --nvme tcp:127.0.0.1:4420 --allow-host \
$(cat /etc/nvme/hostnqn)`). /dev/disk/by-id/nvme-uuid.UUID does not change.

By vhost-user (`ashlar serve --guests DIR`) a virtual machine's disk is the volume: the guest's driver and the server share memory, and this host's kernel is not between them. Nothing is changed: the lines for QEMU and for libvirt are printed. One machine at a time has a volume; when the server is started again, the machine waits and goes on. There is nothing to detach: stop the machine, or remove its disk.";

const DETACH_EXAMPLES: &str = "\
Examples:
  ashlar detach fast/db
  ashlar detach fast

By nvme all volumes of an array are detached together. Refused while one of them is mounted or otherwise in use.";

/// The kernel's door for new connections.
const FABRICS: &str = "/dev/nvme-fabrics";
/// In which the kernel has made its devices, or taken them away.
const DEVICES_MAX: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(50);

/// Make the volumes of a served array block devices of this host
#[derive(clap::Args)]
#[command(after_help = ATTACH_EXAMPLES)]
pub struct AttachArgs {
    /// ARRAY or ARRAY/VOLUME
    name: String,
    /// By which way; without it by ublk where the kernel and the server can, else by NVMe/TCP
    #[arg(long, value_enum, value_name = "WAY")]
    by: Option<Way>,
    /// Seconds to wait until the array is served
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// A way to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// The server is the device's driver (ublk)
    Ublk,
    /// The kernel's NVMe/TCP initiator
    Nvme,
    /// A disk of virtual machines on this host; prints how to use it
    VhostUser,
}

/// Remove the block devices of an array
#[derive(clap::Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub struct DetachArgs {
    /// ARRAY or ARRAY/VOLUME
    name: String,
    /// Also takes devices of ublk away that are in use: what waits in them fails
    #[arg(long)]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// A volume and its device.
#[derive(Serialize)]
pub struct Attached {
    volume: String,
    uuid: Uuid,
    device: PathBuf,
    /// Names of it that stay the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
}

/// Attaches.
pub fn attach(context: &Context, args: &AttachArgs) -> Outcome {
    let (array, volume) = parts(&args.name);
    let begun = Instant::now();
    let client = loop {
        match context.server_of(array) {
            Ok(Some(client)) => break Some(client),
            answer if begun.elapsed() >= Duration::from_secs(args.wait) => break answer?,
            // Nobody yet, or one that is still opening its arrays.
            Ok(None) | Err(_) => thread::sleep(LOOK),
        }
    };
    let client = client.ok_or_else(|| {
        Problem::refused(
            "array_not_served",
            format!("array {array}"),
            format!("the Ashlar at {} does not serve it", context.place()),
            "serve it first: `ashlar serve --nvme ADDRESS`",
        )
    })?;
    let all: Arrays = client.get(&format!("/v1/arrays?name={}", encode(array)))?;
    let view =
        all.arrays.first().ok_or_else(|| Problem::failed(format!("array {array}"), "it is gone", "try again"))?;
    let wanted: Vec<_> = view.volumes.iter().filter(|v| volume.is_none_or(|name| *v.name == *name)).collect();
    if let (Some(name), true) = (volume, wanted.is_empty()) {
        return Err(Problem::refused(
            "volume_not_found",
            format!("volume {array}/{name}"),
            "the array has no such volume",
            format!("`ashlar volume list {array}` shows them"),
        ));
    }
    if args.by == Some(Way::VhostUser) {
        return guest::tell(array, &all, &wanted, args.json);
    }
    let subsystem = nqn(view.uuid);
    let is_connected = !controllers(&subsystem).is_empty();
    let by_ublk = match args.by {
        Some(Way::Nvme | Way::VhostUser) => None,
        // It has its devices already.
        None if is_connected => None,
        None | Some(Way::Ublk) => match local::attach(&client, view, &wanted) {
            Err(problem) if args.by.is_none() && local::cannot(&problem) => {
                tracing::debug!("{}", problem.line());
                None
            }
            attached => Some(attached?),
        },
    };
    let over_tcp = || {
        if !is_connected {
            connect(&subsystem, address(array, &all.nvme)?)?;
        }
        let attached = wanted.iter().map(|v| {
            let (volume, device) = (format!("{array}/{}", v.name), wait_for(v.uuid, &v.name)?);
            Ok(Attached { volume, uuid: v.uuid, device, names: vec![] })
        });
        attached.collect::<Result<Vec<_>, Problem>>()
    };
    let attached = by_ublk.map_or_else(over_tcp, Ok)?;
    if args.json {
        text::print_json(&attached);
    } else {
        attached.iter().for_each(|a| text::print(&format!("{} is {}", a.volume, a.device.display())));
    }
    Ok(Finding::Good)
}

/// Detaches.
pub fn detach(context: &Context, args: &DetachArgs) -> Outcome {
    let (array, volume) = parts(&args.name);
    let mut gone = 0;
    let uuid = match context.server_of(array)? {
        Some(client) => {
            let all: Arrays = client.get(&format!("/v1/arrays?name={}", encode(array)))?;
            for view in &all.arrays {
                gone += local::detach(&client, view, volume, args.force)?;
            }
            all.arrays.first().map(|view| view.uuid).unwrap_or_default()
        }
        // The kernel keeps devices of a server that is gone.
        None => Registry::at(context.state_dir.clone()).find(array)?.uuid,
    };
    let subsystem = nqn(uuid);
    let found = controllers(&subsystem);
    if found.is_empty() && gone > 0 {
        text::print_done(args.json, &Done::new(format!("{} is detached", args.name)));
        return Ok(Finding::Good);
    }
    if found.is_empty() {
        local::refuse_left(context, array, uuid)?;
        return Err(Problem::refused(
            "not_attached",
            format!("array {array}"),
            "this host's kernel is not connected to it",
            "nothing",
        ));
    }
    for device in devices(&subsystem) {
        match probe::mounted_at(&device) {
            Ok(None) => {}
            Ok(Some(place)) => {
                return Err(Problem::refused(
                    "volume_in_use",
                    format!("device {}", device.display()),
                    format!("it is in use ({place})"),
                    "unmount it first",
                ));
            }
            Err(e) => return Err(Problem::failed(format!("device {}", device.display()), e, "mount /proc and /sys")),
        }
    }
    for controller in &found {
        let door = controller.join("delete_controller");
        fs::write(&door, "1").map_err(|e| Problem::failed(door.display().to_string(), e, "run as root"))?;
    }
    let begun = Instant::now();
    while !controllers(&subsystem).is_empty() {
        if begun.elapsed() > DEVICES_MAX {
            return Err(Problem::failed(format!("array {array}"), "the kernel does not release it", "see `dmesg`"));
        }
        thread::sleep(LOOK);
    }
    text::print_done(args.json, &Done::new(format!("array {array} is detached")));
    Ok(Finding::Good)
}

/// Array and volume.
fn parts(name: &str) -> (&str, Option<&str>) {
    name.split_once('/').map_or((name, None), |(array, volume)| (array, Some(volume)))
}

/// The first address of the export, as this host reaches it.
fn address(array: &str, exported: &[String]) -> Result<SocketAddr, Problem> {
    let first = exported.iter().find_map(|text| text.strip_prefix("tcp:")?.parse::<SocketAddr>().ok());
    let mut address = first.ok_or_else(|| {
        Problem::refused(
            "not_exported",
            format!("array {array}"),
            "it is not exported over NVMe/TCP",
            "serve it with --nvme tcp:127.0.0.1:4420",
        )
    })?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    Ok(address)
}

/// Tells the kernel to connect.
fn connect(subsystem: &str, address: SocketAddr) -> Result<(), Problem> {
    if !Path::new(FABRICS).exists() {
        // The module makes the door. Whether it worked shows below.
        let _status = Command::new("modprobe").arg("nvme_tcp").status();
    }
    let (host, id) = host()?;
    let wish = format!(
        "transport=tcp,traddr={},trsvcid={},nqn={subsystem},hostnqn={host},hostid={id},\
         keep_alive_tmo=5,reconnect_delay=1,ctrl_loss_tmo=-1",
        address.ip(),
        address.port()
    );
    let no_door = |e| Problem::failed(FABRICS, e, "run as root, with a kernel that has nvme-tcp (modprobe nvme_tcp)");
    let mut door = File::options().read(true).write(true).open(FABRICS).map_err(no_door)?;
    let refused = |e| {
        Problem::failed(
            format!("the kernel's connection to {subsystem} at {address}"),
            e,
            format!("`dmesg` says more; if this host may not use the array, serve it with --allow-host {host}"),
        )
    };
    door.write_all(wish.as_bytes()).map_err(refused)?;
    let mut answer = String::new();
    door.read_to_string(&mut answer).map_err(refused)?;
    tracing::debug!("{FABRICS}: {answer}");
    Ok(())
}

/// This host's qualified name and identifier: those of nvme-cli where it has made some, else from the machine's.
pub fn host() -> Result<(String, Uuid), Problem> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|t| !t.is_empty());
    let theirs = read("/etc/nvme/hostnqn").zip(read("/etc/nvme/hostid").and_then(|id| id.parse().ok()));
    let machine = || read("/etc/machine-id").and_then(|id| Uuid::try_parse(&id).ok()).map(|id| (nqn(id), id));
    theirs.or_else(machine).ok_or_else(|| {
        Problem::failed(
            "this host's name",
            "it is in neither /etc/nvme/hostnqn nor /etc/machine-id",
            "create one of these files",
        )
    })
}

/// The controllers that the kernel has of this subsystem, in /sys.
fn controllers(subsystem: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/class/nvme").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    all.filter(|path| has(path, "subsysnqn", subsystem)).collect()
}

/// Whether a file of /sys says this.
fn has(directory: &Path, file: &str, text: &str) -> bool {
    fs::read_to_string(directory.join(file)).is_ok_and(|found| found.trim() == text)
}

/// The block devices of a subsystem.
fn devices(subsystem: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    // Of a device with several ways `device` is the subsystem, else the controller.
    let of = all.filter(|path| has(&path.join("device"), "subsysnqn", subsystem));
    of.filter_map(|path| Some(Path::new("/dev").join(path.file_name()?))).filter(|path| path.exists()).collect()
}

/// The block device of a volume, as soon as there is one.
fn wait_for(volume: Uuid, name: &str) -> Result<PathBuf, Problem> {
    let begun = Instant::now();
    loop {
        let all = fs::read_dir("/sys/block").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let found = all.filter(|path| has(path, "uuid", &volume.to_string()));
        let mut devices = found.filter_map(|path| Some(Path::new("/dev").join(path.file_name()?)));
        if let Some(device) = devices.find(|path| path.exists()) {
            return Ok(device);
        }
        if begun.elapsed() > DEVICES_MAX {
            return Err(Problem::failed(format!("volume {name}"), "the kernel has created no device", "see `dmesg`"));
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_this_host_reaches() {
        let of = |all: &[&str]| address("a", &all.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["tcp:0.0.0.0:4420"]).unwrap().to_string(), "127.0.0.1:4420");
        assert_eq!(of(&["tcp:[::]:4420", "tcp:10.0.0.1:1"]).unwrap().to_string(), "[::1]:4420");
        assert_eq!(of(&["tcp:10.0.0.1:4420"]).unwrap().to_string(), "10.0.0.1:4420");
        assert!(of(&[]).is_err());
    }
}
