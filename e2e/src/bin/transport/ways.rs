//! Ways to a volume: how each begins, which gives its block device, and how it ends.

use e2e::Result;

use crate::world::{ADDRESS, DISK, HOST, VOLUME, WAIT_MAX, World};

/// A way.
pub struct Way {
    /// Its name in charts.
    pub name: &'static str,
    /// That of its directory.
    pub id: &'static str,
    /// Makes the volume a block device.
    pub begin: fn(&mut World) -> Result<String>,
    /// Takes it away.
    pub end: fn(&mut World) -> Result<()>,
}

/// All, in order.
pub const WAYS: [Way; 6] = [
    Way { name: "ublk", id: "ublk", begin: ublk, end: end_ublk },
    Way { name: "NBD", id: "nbd", begin: nbd, end: end_nbd },
    Way { name: "NVMe/TCP", id: "nvme-tcp", begin: nvme, end: end_nvme },
    Way { name: "nvmet TCP", id: "nvmet-tcp", begin: nvmet_tcp, end: end_nvmet },
    Way { name: "nvmet RoCE", id: "nvmet-roce", begin: nvmet_roce, end: end_nvmet },
    Way { name: "vhost-user (native server)", id: "vhost-user", begin: vhost_user, end: |_| Ok(()) },
];

/// Ports of the guest.
const NBD_PORT: u16 = 10_809;
const NVME_PORT: u16 = 4420;
const NVMET_PORT: u16 = 4421;

fn ublk(world: &mut World) -> Result<String> {
    world.serve("")?;
    world.attach("ublk")
}

fn end_ublk(world: &mut World) -> Result<()> {
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.unserve()
}

fn nbd(world: &mut World) -> Result<String> {
    world.serve(&format!("--nbd tcp:127.0.0.1:{NBD_PORT}"))?;
    world.guest.sh(&format!("nbd-client 127.0.0.1 {NBD_PORT} -name {VOLUME} /dev/nbd0 2>&1"))?;
    Ok("/dev/nbd0".to_owned())
}

fn end_nbd(world: &mut World) -> Result<()> {
    world.guest.sh("nbd-client -d /dev/nbd0 2>&1")?;
    world.unserve()
}

fn nvme(world: &mut World) -> Result<String> {
    world.serve(&format!("--nvme tcp:127.0.0.1:{NVME_PORT}"))?;
    world.attach("nvme")
}

fn end_nvme(world: &mut World) -> Result<()> {
    world.guest.sh("nvme disconnect-all")?;
    world.unserve()
}

fn nvmet_tcp(world: &mut World) -> Result<String> {
    nvmet(world, "tcp")
}

fn nvmet_roce(world: &mut World) -> Result<String> {
    world.guest.sh("rdma link show rxe0 2>/dev/null || rdma link add rxe0 type rxe netdev eth0")?;
    nvmet(world, "rdma")
}

/// By the kernel's target and its initiator.
fn nvmet(world: &mut World, transport: &str) -> Result<String> {
    world.serve("")?;
    world.ashlar(&format!("export --nvmet {transport}:{ADDRESS}:{NVMET_PORT} {VOLUME}"))?;
    let volume = world.volume()?;
    let (nqn, uuid) = (volume.subsystem, volume.uuid);
    let id = &HOST[HOST.len() - 36..];
    world.guest.sh(&format!(
        "nvme connect -t {transport} -a {ADDRESS} -s {NVMET_PORT} -n {nqn} --hostnqn={HOST} --hostid={id} 2>&1"
    ))?;
    let found = world.guest.wait(WAIT_MAX, &format!("grep -lx {uuid} /sys/block/nvme*/uuid | grep -v c[0-9]"))?;
    let device = format!("/dev/{}", found.trim().split('/').nth(3).unwrap_or_default());
    world.guest.wait(WAIT_MAX, &format!("test -b {device}"))?;
    Ok(device)
}

fn end_nvmet(world: &mut World) -> Result<()> {
    world.guest.sh("nvme disconnect-all")?;
    world.ashlar(&format!("detach --force {VOLUME}"))?;
    world.unserve()
}

/// It was there from the beginning, and its server is outside.
fn vhost_user(world: &mut World) -> Result<String> {
    world.guest.wait(WAIT_MAX, &format!("test -b {DISK}"))?;
    Ok(DISK.to_owned())
}
