//! Volumes as block devices by ublk: the server makes them on its machine.

use std::path::Path;
use std::process::{Command, Stdio};

use api::{ArrayView, BlockDeviceView, Done, Problem, VolumeView};
use server::blocks::list;
use server::registry::Registry;

use super::Attached;
use crate::client::Client;
use crate::context::{Context, encode};

/// What the driver makes when it is loaded.
const DRIVER: &str = "/dev/ublk-control";
/// Codes of "this kernel, or this server, cannot".
const CANNOT: [&str; 2] = ["ublk_missing", "ublk_permission"];

/// Whether another way may be tried instead.
pub fn cannot(problem: &Problem) -> bool {
    CANNOT.contains(&problem.code.as_str())
}

fn path(array: &ArrayView, volume: &VolumeView) -> String {
    format!("/v1/arrays/{}/volumes/{}/block-device", array.uuid, volume.uuid)
}

/// Loads the driver where it is not. Whether it worked, the server says.
pub fn load_driver() {
    if !Path::new(DRIVER).exists() {
        let _status = Command::new("modprobe").args(["-q", "ublk_drv"]).stderr(Stdio::null()).status();
    }
}

/// Makes these volumes of an array block devices.
///
/// # Errors
/// The first that could not be made; those before it are there.
pub fn attach(client: &Client, array: &ArrayView, wanted: &[&VolumeView]) -> Result<Vec<Attached>, Problem> {
    load_driver();
    let one = |volume: &&VolumeView| {
        let made: BlockDeviceView = client.put(&path(array, volume))?;
        made.notes.iter().for_each(|note| tracing::warn!("{note}"));
        Ok(Attached {
            volume: format!("{}/{}", made.array, made.volume),
            uuid: made.uuid,
            device: made.device.into(),
            names: made.names,
        })
    };
    wanted.iter().map(one).collect()
}

/// Takes them away; how many there were.
///
/// # Errors
/// The first that could not be taken away.
pub fn detach(client: &Client, array: &ArrayView, wanted: Option<&str>, force: bool) -> Result<usize, Problem> {
    let mut gone = 0;
    for volume in array.volumes.iter().filter(|v| wanted.is_none_or(|name| *v.name == *name)) {
        match client.delete::<Done>(&Client::forced(&path(array, volume), force)) {
            Ok(_) => gone += 1,
            Err(problem) if problem.code == "not_attached" => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(gone)
}

/// Refuses where the kernel has devices of an array that nobody serves: only its server takes them over, and removes them. What waits in
/// them must not come to the drives after another host has used them.
///
/// # Errors
/// When there are some.
pub fn refuse_left(context: &Context, name: &str, array: uuid::Uuid) -> Result<(), Problem> {
    let listed = list(&context.state_dir).read()?;
    let is_there = |number: u32| Path::new(&format!("/sys/block/ublkb{number}")).exists();
    let left = listed.iter().find(|listed| listed.array == array && is_there(listed.number));
    let Some(left) = left else { return Ok(()) };
    Err(Problem::refused(
        "array_not_served",
        format!("array {name}"),
        format!("/dev/ublkb{} is of one of its volumes and waits for its server", left.number),
        format!("serve it again (`ashlar serve`), then `ashlar detach {}`", encode(name)),
    ))
}

/// The same for an array by its name, if it is known here.
///
/// # Errors
/// As [`refuse_left`].
pub fn refuse_left_of(context: &Context, name: &str) -> Result<(), Problem> {
    let known = Registry::at(context.state_dir.clone()).find(name);
    known.map_or(Ok(()), |known| refuse_left(context, name, known.uuid))
}
