//! A drive file from measured figures of one drive.
//!
//! Each figure of the file comes from the measurement that it limits:
//!
//! | figure | from |
//! |---|---|
//! | bytes a second to the host, and from it | the fastest read and write |
//! | commands a second | the fastest small random read |
//! | time of a page | the lone random read |
//! | time of a command | the lone write, or half of the lone read |
//! | time of a program | the fastest write |
//! | random writes a second | the fastest random write that was measured |
//!
//! What was not measured is taken from what was, and the file says so.

use std::collections::BTreeMap;

use crate::drive::{DriveFile, FlashFigures};
use crate::error::Error;
use crate::load::{Access, Workload};

/// One measurement of one drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Requests.
    pub workload: Workload,
    /// Requests in flight.
    pub in_flight: f64,
    /// Requests a second.
    pub iops: f64,
    /// Mean latency, microseconds, where it was measured.
    pub mean_us: Option<f64>,
}

impl Measured {
    fn bytes_per_s(&self) -> f64 {
        self.iops * f64::from(self.workload.block_bytes)
    }

    fn reads(&self) -> bool {
        self.workload.read_percent == 100.0
    }

    fn writes(&self) -> bool {
        self.workload.read_percent == 0.0
    }
}

/// Dies, pages and channels of a learnt drive: enough that they are never the limit by themselves.
const DIES: u32 = 256;
const PAGE_BYTES: u32 = 65536;
const CHANNELS: u32 = 32;

/// A drive file called `name`, of a drive of so many bytes.
///
/// # Errors
/// When there is no random read among `measured`.
pub fn learn(name: &str, capacity_bytes: u64, measured: &[Measured]) -> Result<DriveFile, Error> {
    let largest = |keep: &dyn Fn(&&Measured) -> bool, of: &dyn Fn(&Measured) -> f64| {
        measured.iter().filter(keep).map(of).fold(0.0, f64::max)
    };
    let random = |m: &&Measured| m.workload.access == Access::Random;
    let commands = largest(&|m| m.reads() && random(m) && m.workload.block_bytes <= 16384, &|m| m.iops);
    if commands <= 0.0 {
        let why = "it has no random read of 16 KiB or less; `ashlar lab run smoke` measures what is needed";
        return Err(Error::Impossible(format!("{name}: {why}")));
    }
    let read = largest(&|m| m.reads(), &Measured::bytes_per_s);
    let write = match largest(&|m| m.writes(), &Measured::bytes_per_s) {
        0.0 => read,
        write => write,
    };
    let lone = |reads: bool| {
        let own =
            measured.iter().filter(|m| m.in_flight <= 1.0 && if reads { m.reads() && random(m) } else { m.writes() });
        own.filter(|m| m.workload.block_bytes <= 16384).filter_map(|m| m.mean_us).reduce(f64::min)
    };
    let random_write = largest(&|m| m.writes() && random(m), &Measured::bytes_per_s);
    // Without a lone read: one command at a time makes no more than the whole rate of 256.
    let lone_read_us = lone(true).unwrap_or(1e6 / commands * 16.0).min(1e6);
    // A lone request waits for the ceilings, too: what is left of it is the drive's own.
    let own = |lone_us: f64, bytes_per_s: f64| (lone_us - 1e6 / commands - 4096.0 * 1e6 / bytes_per_s).max(1.0);
    let read_us = own(lone_read_us, read);
    let command_us = lone(false).map_or(read_us / 2.0, |us| own(us, write)).min(read_us * 0.9);
    let page_us = (read_us - command_us).max(0.1);
    let program_s = f64::from(DIES) * f64::from(PAGE_BYTES) / write;
    let flash = FlashFigures {
        unit_bytes: 4096,
        spare: 1.0,
        superblocks: 512,
        dies: DIES,
        page_bytes: PAGE_BYTES,
        page_read_ns: (page_us * 1e3) as u64,
        page_program_ns: (program_s * 1e9) as u64,
        suspend_ns: 0,
        channels: CHANNELS,
        channel_bytes_per_s: read.max(write) * 4.0 / f64::from(CHANNELS) * 4.0,
        link_write_bytes_per_s: write,
        link_read_bytes_per_s: read,
        command_ns: (command_us * 1e3) as u64,
        commands_per_s: commands,
        buffer_bytes: u64::from(DIES) * u64::from(PAGE_BYTES),
        random_write_bytes_per_s: (random_write > 0.0).then_some(random_write),
    };
    Ok(DriveFile {
        name: name.to_owned(),
        about: format!("learnt from {} measurements", measured.len()),
        capacity_bytes,
        endurance_bytes: 0,
        watts: 0.0,
        per_byte: None,
        flash: Some(flash),
        disk: None,
        sheet: vec![],
        origins: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Load, Pressure, answer};

    fn modelled(file: &DriveFile, name: &str, in_flight: f64) -> Measured {
        let workload: Workload = name.parse().expect("a workload");
        let load = Load { pressure: Pressure::InFlightPerDrive(in_flight), ..Load::new(workload) };
        let answer = answer(&crate::sheet::alone(file), &load, &Limits::default(), 1, None).expect("it can be");
        Measured { workload, in_flight, iops: answer.iops, mean_us: Some(answer.mean_us) }
    }

    /// A drive that is learnt from loads of another one makes the loads that were not among them.
    #[test]
    fn a_drive_is_learnt_from_a_few_loads() {
        for name in ["p5520", "s4510"] {
            let drive = DriveFile::named(name).expect("it is there");
            let known = [
                ("4k-randread", 1.0),
                ("4k-randread", 64.0),
                ("128k-read", 16.0),
                ("128k-write", 16.0),
                ("4k-randwrite", 32.0),
            ];
            let known = known.map(|(load, in_flight)| modelled(&drive, load, in_flight));
            let learnt = learn("learnt", 1 << 40, &known).expect("there are reads");
            let text = learnt.to_toml().expect("it can be written");
            assert_eq!(DriveFile::parse(&text).expect("it can be read"), learnt);
            for (load, in_flight) in [("4k-randread", 8.0), ("64k-randread", 16.0), ("4k-randwrite", 64.0)] {
                let (real, model) = (modelled(&drive, load, in_flight), modelled(&learnt, load, in_flight));
                let error = model.iops / real.iops - 1.0;
                assert!(error.abs() < 0.25, "{name} {load} {in_flight}: {error:+.2}");
            }
        }
    }

    #[test]
    fn without_a_random_read_there_is_no_drive() {
        assert!(learn("x", 1, &[]).expect_err("nothing was measured").to_string().contains("smoke"));
    }
}
