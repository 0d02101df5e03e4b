//! What a request costs, in instructions of the whole machine: a volume as a block device of its own machine, by each way, beside md.
//!
//! A guest of QEMU counts instructions as time (`-icount`), has one processor, and its drives are memory: nothing waits, so the time
//! of a run is the work of all who take part, the kernel, the server and fio.
//!
//! ```text
//!   fio -> /dev/md0        -> ram0 ... ram5
//!   fio -> /dev/ublkb0     -> ashlar serve -> ram0 ... ram5
//!   fio -> /dev/nvme0n1    -> NVMe/TCP on loopback -> the same
//!   fio -> /dev/nbd0       -> NBD on a unix socket -> the same
//! ```
//!
//! Not here: real drives, whose interrupts cost; more than one processor.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use e2e::guest::Guest;
use e2e::linux::Kernel;
use e2e::{Failure, OrFail, Result, ashlar, tools};

/// Counts the instructions of requests to a volume, by each way to it.
#[derive(Debug, Parser)]
#[command(name = "cost")]
struct Args {
    /// Only ways whose name contains this
    way: Option<String>,
    /// Times that each cell is measured; the median is printed
    #[arg(long, default_value_t = 3)]
    times: usize,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    ashlar: Option<PathBuf>,
}

const DRIVES: [&str; 6] = ["/dev/ram0", "/dev/ram1", "/dev/ram2", "/dev/ram3", "/dev/ram4", "/dev/ram5"];
/// Of each drive.
const DRIVE_KIB: u32 = 384 << 10;
/// Of what is read and written: 1 GiB.
const SPAN: &str = "1g";
const DIR: &str = "/run/cost";
const FIO_MAX: Duration = Duration::from_secs(300);

/// What is asked: fio's word, bytes, requests of a run.
const LOADS: [(&str, &str, u32); 4] =
    [("randread", "4k", 6000), ("randwrite", "4k", 6000), ("read", "128k", 800), ("write", "128k", 800)];
const DEPTHS: [u32; 3] = [1, 32, 128];

/// A way to a block device.
struct Way {
    name: &'static str,
    begin: fn(&mut World) -> Result<String>,
    end: fn(&mut World) -> Result<()>,
}

const WAYS: [Way; 4] = [
    Way { name: "md RAID 5", begin: md, end: end_md },
    Way { name: "ublk", begin: ublk, end: end_ublk },
    Way { name: "NVMe/TCP", begin: nvme, end: end_nvme },
    Way { name: "NBD", begin: nbd, end: end_nbd },
];

struct World {
    guest: Guest,
    ashlar: String,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let program = ashlar::find(args.ashlar.clone())?;
    tools::wanted(&["qemu-system-x86_64", "fio", "mdadm", "nbd-client", "nvme"])?;
    let dir = tempfile::Builder::new().prefix("cost-").tempdir().or_fail("a temporary directory")?;
    let mut world = World::new(&program, dir.path())?;
    println!(
        "| instructions of a request | {} |",
        cells().map(|(load, depth)| title(load, depth)).collect::<Vec<_>>().join(" | ")
    );
    println!("|---|{}", "---|".repeat(cells().count()));
    for way in WAYS.iter().filter(|way| args.way.as_ref().is_none_or(|name| way.name.contains(name.as_str()))) {
        let device = (way.begin)(&mut world)?;
        world.guest.sh_within(FIO_MAX, &format!("dd if=/dev/zero of={device} bs=1M count=1024 oflag=direct"))?;
        let counts = cells().map(|(load, depth)| world.median(&device, load, depth, args.times));
        let counts = counts.collect::<Result<Vec<u64>>>()?;
        println!("| {} | {} |", way.name, counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" | "));
        (way.end)(&mut world)?;
    }
    Ok(())
}

fn cells() -> impl Iterator<Item = (usize, u32)> {
    (0..LOADS.len()).flat_map(|load| DEPTHS.map(|depth| (load, depth)))
}

fn title(load: usize, depth: u32) -> String {
    let (kind, bytes, _) = LOADS[load];
    format!("{kind} {bytes} at {depth}")
}

impl World {
    fn new(program: &Path, dir: &Path) -> Result<World> {
        let more = ["-m", "4096", "-icount", "shift=0,sleep=off"].map(str::to_owned);
        let mut guest = Guest::boot_kernel(dir, 1, &more, &Kernel::with_ublk()?)?;
        guest.sh(&format!("modprobe brd rd_nr=6 rd_size={DRIVE_KIB} && modprobe -a ublk_drv nvme_tcp nbd raid456"))?;
        guest.sh(&format!("mkdir -p {DIR}"))?;
        let ashlar = format!("{} --control {DIR}/control --state-dir {DIR}/state", program.display());
        Ok(World { guest, ashlar })
    }

    /// Instructions of a request, the median of some runs.
    fn median(&mut self, device: &str, load: usize, depth: u32, times: usize) -> Result<u64> {
        let mut counts = (0..times.max(1)).map(|_| self.count(device, load, depth)).collect::<Result<Vec<_>>>()?;
        counts.sort_unstable();
        Ok(counts[counts.len() / 2])
    }

    fn count(&mut self, device: &str, load: usize, depth: u32) -> Result<u64> {
        let (kind, bytes, requests) = LOADS[load];
        let line = format!(
            "fio --name=p --filename={device} --size={SPAN} --rw={kind} --bs={bytes} --iodepth={depth} --ioengine=libaio \
             --direct=1 --norandommap --randrepeat=1 --number_ios={requests} --gtod_reduce=1 --minimal"
        );
        let printed = self.guest.sh_within(FIO_MAX, &line)?;
        let fields: Vec<&str> = printed.lines().find(|l| l.contains(';')).unwrap_or_default().split(';').collect();
        // Milliseconds of reads and of writes; one of them is zero.
        let of = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
        let millis = of(8).zip(of(49)).map(|(reads, writes)| reads + writes);
        let millis = millis.filter(|millis| *millis > 0).ok_or_else(|| Failure::new("fio", printed.clone()))?;
        Ok(millis * 1_000_000 / u64::from(requests))
    }

    fn serve(&mut self) -> Result<()> {
        let create = format!("{} create lab --raid 5 --force {}", self.ashlar, DRIVES.join(" "));
        self.guest.sh_within(FIO_MAX, &format!("cd {DIR} && {create} && {} volume create lab/v 1G", self.ashlar))?;
        let serve = format!("{} serve --nbd unix:{DIR}/nbd --nvme tcp:127.0.0.1:4420 --allow-any", self.ashlar);
        self.guest.start("serve", &format!("exec {serve}"))?;
        let answers = format!("{} clients", self.ashlar);
        self.guest.wait(FIO_MAX, &answers).map(drop)
    }

    fn unserve(&mut self) -> Result<()> {
        let stop = format!("{} stop --force", self.ashlar);
        self.guest.sh_within(FIO_MAX, &stop)?;
        self.guest.finish("serve", FIO_MAX)?;
        let end = format!("{} destroy lab --yes --force", self.ashlar);
        self.guest.sh_within(FIO_MAX, &end).map(drop)
    }

    fn attach(&mut self, by: &str) -> Result<String> {
        let printed = self.guest.sh(&format!(
            "cat /proc/sys/kernel/random/uuid >/etc/machine-id 2>/dev/null; {} attach --by {by} lab/v",
            self.ashlar
        ))?;
        let device = printed.split_whitespace().rfind(|word| word.starts_with("/dev/")).map(str::to_owned);
        device.ok_or_else(|| Failure::new("ashlar attach", printed))
    }
}

fn md(world: &mut World) -> Result<String> {
    let drives = DRIVES.join(" ");
    let make = "mdadm --create /dev/md0 --run --assume-clean --level=5 --raid-devices=6 --chunk=64 --bitmap=none";
    world.guest.sh(&format!("{make} {drives} 2>&1"))?;
    Ok("/dev/md0".to_owned())
}

fn end_md(world: &mut World) -> Result<()> {
    world.guest.wait(FIO_MAX, "mdadm --stop /dev/md0 2>&1")?;
    world.guest.sh(&format!("mdadm --zero-superblock {} 2>&1", DRIVES.join(" "))).map(drop)
}

fn ublk(world: &mut World) -> Result<String> {
    world.serve()?;
    world.attach("ublk")
}

fn end_ublk(world: &mut World) -> Result<()> {
    let detach = format!("{} detach lab/v", world.ashlar);
    world.guest.sh(&detach)?;
    world.unserve()
}

fn nvme(world: &mut World) -> Result<String> {
    world.serve()?;
    world.attach("nvme")
}

fn end_nvme(world: &mut World) -> Result<()> {
    let detach = format!("{} detach lab", world.ashlar);
    world.guest.sh(&detach)?;
    world.unserve()
}

fn nbd(world: &mut World) -> Result<String> {
    world.serve()?;
    world.guest.sh(&format!("nbd-client -unix {DIR}/nbd -name lab/v /dev/nbd0 2>&1"))?;
    Ok("/dev/nbd0".to_owned())
}

fn end_nbd(world: &mut World) -> Result<()> {
    world.guest.sh("nbd-client -d /dev/nbd0 2>&1")?;
    world.unserve()
}
