//! Drives to measure on that cost nothing: in memory, or modelled.

use base::{BLOCK_BYTES, MemberLba};
use rt::model::{Disk, DiskParams, FlashCounters, FlashParams};
use rt::{Buf, Drive, Rt};
use serde::Deserialize;

use crate::error::Error;
use crate::stripe::failed;

/// What touches a memory drive at once.
const TOUCH_BYTES: usize = 1 << 20;

/// `count` memory drives of `bytes` each, with the memory behind them taken from the kernel already: else the first
/// write to each place would pay for its pages, and arrays write to new places more often than direct drives do.
///
/// # Errors
/// None in practice; a memory drive does not fail.
pub async fn memory(rt: &Rt, count: usize, bytes: u64) -> Result<Vec<Drive>, Error> {
    let drives: Vec<Drive> = (0..count).map(|i| Drive::memory(rt, &format!("memory{i}"), bytes)).collect();
    for drive in &drives {
        touch(drive).await?;
    }
    Ok(drives)
}

/// Takes the memory of a drive from the kernel; what was on it is gone.
pub(crate) async fn touch(drive: &Drive) -> Result<(), Error> {
    let (zeros, all) = (Buf::zeroed(TOUCH_BYTES).freeze(), drive.info().blocks.bytes());
    for at in (0..all).step_by(TOUCH_BYTES) {
        let bytes = (all - at).min(TOUCH_BYTES as u64);
        let at = MemberLba(at / BLOCK_BYTES as u64);
        drive.write(at, zeros.slice(0..bytes as usize)).await.map_err(|e| failed(drive, e))?;
    }
    Ok(())
}

/// Gives the memory of a drive back to the kernel; what was on it is gone.
pub(crate) async fn give_back(drive: &Drive) -> Result<(), Error> {
    drive.deallocate(MemberLba(0), drive.info().blocks).await.map_err(|e| failed(drive, e))
}

/// What a modelled drive is like, as a file says; see `drives/*.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveFile {
    /// What it is called.
    pub name: String,
    per_byte: Option<PerByte>,
    flash: Option<FlashFigures>,
}

/// A drive that serves one operation at a time, at a price per byte.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerByte {
    read_bytes_per_s: f64,
    write_bytes_per_s: f64,
}

/// [`FlashParams`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlashFigures {
    unit_bytes: u32,
    spare: f64,
    superblocks: u32,
    dies: u32,
    page_bytes: u32,
    page_read_ns: u64,
    page_program_ns: u64,
    suspend_ns: u64,
    channels: u32,
    channel_bytes_per_s: f64,
    link_write_bytes_per_s: f64,
    link_read_bytes_per_s: f64,
    command_ns: u64,
    commands_per_s: f64,
    buffer_bytes: u64,
}

/// The files that come with the program, by name.
pub const FILES: [(&str, &str); 3] = [
    ("equal-cost", include_str!("../drives/equal-cost.toml")),
    ("tlc", include_str!("../drives/tlc.toml")),
    ("qlc", include_str!("../drives/qlc.toml")),
];

impl DriveFile {
    /// One that comes with the program.
    #[must_use]
    pub fn named(name: &str) -> Option<DriveFile> {
        let (_, text) = FILES.iter().find(|(n, _)| *n == name)?;
        Some(DriveFile::parse(text).expect("what comes with the program is right: a test reads it"))
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<DriveFile, String> {
        let file: DriveFile = toml::from_str(text).map_err(|e| e.to_string())?;
        match (&file.per_byte, &file.flash) {
            (Some(_), None) | (None, Some(_)) => Ok(file),
            _ => Err("either [per_byte] or [flash] says what the drive is like".to_owned()),
        }
    }

    /// What reading a block costs, in writes, where a byte has a price.
    #[must_use]
    pub fn read_cost(&self) -> Option<f64> {
        self.per_byte.as_ref().map(|p| p.write_bytes_per_s / p.read_bytes_per_s)
    }

    /// A drive of this kind and size. No cache of it is volatile.
    #[must_use]
    pub fn params(&self, bytes: u64) -> DiskParams {
        let usual = DiskParams {
            bytes,
            volatile_cache: false,
            read_ns: 0,
            write_ns: 0,
            flush_ns: 0,
            jitter: 0.0,
            ..DiskParams::default()
        };
        if let Some(p) = &self.per_byte {
            let (ns_per_byte_read, ns_per_byte_write) = (1e9 / p.read_bytes_per_s, 1e9 / p.write_bytes_per_s);
            // One at a time: the rate does not depend on how requests are cut, so a ratio cannot exceed its limit.
            return DiskParams { ns_per_byte_read, ns_per_byte_write, parallelism: 1, ..usual };
        }
        let f = self.flash.as_ref().expect("one of both is there");
        let flash = FlashParams {
            unit_bytes: f.unit_bytes,
            spare: f.spare,
            superblocks: f.superblocks,
            dies: f.dies,
            page_bytes: f.page_bytes,
            page_read_ns: f.page_read_ns,
            page_program_ns: f.page_program_ns,
            suspend_ns: f.suspend_ns,
            channels: f.channels,
            channel_bytes_per_s: f.channel_bytes_per_s,
            link_write_bytes_per_s: f.link_write_bytes_per_s,
            link_read_bytes_per_s: f.link_read_bytes_per_s,
            command_ns: f.command_ns,
            commands_per_s: f.commands_per_s,
            buffer_bytes: f.buffer_bytes,
        };
        DiskParams { flash: Some(flash), ..usual }
    }
}

/// A modelled drive with equal cost per byte for random and sequential access, a read a third of a write (design,
/// section 8), so that only our own work shows.
#[must_use]
pub fn equal_cost(bytes: u64) -> DiskParams {
    DriveFile::named("equal-cost").expect("it comes with the program").params(bytes)
}

/// `count` modelled drives, for a runtime in virtual time.
#[must_use]
pub fn modelled(rt: &Rt, count: usize, params: &DiskParams) -> Vec<Drive> {
    disks(count, params).iter().map(|disk| Drive::modelled(rt, disk)).collect()
}

/// What is behind `count` modelled drives.
#[must_use]
pub fn disks(count: usize, params: &DiskParams) -> Vec<Disk> {
    (0..count).map(|i| Disk::new(&format!("model{i}"), *params, i as u64)).collect()
}

/// What the flash of all of them did so far; zeros where there is none.
#[must_use]
pub fn flash_counters(disks: &[Disk]) -> FlashCounters {
    disks.iter().filter_map(Disk::flash_counters).fold(FlashCounters::default(), |all, c| FlashCounters {
        written_bytes: all.written_bytes + c.written_bytes,
        moved_bytes: all.moved_bytes + c.moved_bytes,
    })
}

/// Bytes that flash programmed for one that was written to it, whole units.
#[must_use]
pub fn flash_amplification(before: FlashCounters, after: FlashCounters) -> f64 {
    let written = after.written_bytes - before.written_bytes;
    1.0 + (after.moved_bytes - before.moved_bytes) as f64 / written.max(1) as f64
}
