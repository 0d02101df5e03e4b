//! Drive files: what a drive is like, and what its maker says of it. `drives/*.toml` come with the program.
//!
//! A figure has its source as a comment: *sheet* (the maker says it), *derived* (it follows from those) or *assumed*.
//! Sheet figures themselves are `[[sheet]]` tables, each with a source; one without is `assumed` and counts in no table
//! of errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A drive, as a file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveFile {
    /// What it is called.
    pub name: String,
    /// One line: maker, size, kind.
    #[serde(default)]
    pub about: String,
    /// Bytes that a host sees; 0: any size.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// Bytes that hosts may write in all, as the maker warrants; 0: not said.
    #[serde(default)]
    pub endurance_bytes: u64,
    /// Watts while it works; 0: not said.
    #[serde(default)]
    pub watts: f64,
    /// A drive that serves one operation at a time, at a price for each byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_byte: Option<PerByte>,
    /// A flash drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashFigures>,
    /// A disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskFigures>,
    /// What the maker says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sheet: Vec<SheetRow>,
    /// Keys of the figures whose comment says where they come from.
    #[serde(skip)]
    pub origins: BTreeMap<String, Origin>,
}

/// Where a figure of a file comes from, by the first word of its comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The maker says it.
    Sheet,
    /// It follows from figures of the sheet.
    Derived,
    /// It is usual for drives of its kind.
    Assumed,
}

impl Origin {
    /// Of all figures of a file that say so: `key = value # assumed: why`.
    fn of_lines(text: &str) -> BTreeMap<String, Origin> {
        let of_line = |line: &str| {
            let (figure, comment) = line.split_once('#')?;
            let (key, _) = figure.split_once('=')?;
            let origin = match comment.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty())? {
                "sheet" => Origin::Sheet,
                "derived" => Origin::Derived,
                "assumed" => Origin::Assumed,
                _ => return None,
            };
            Some((key.trim().to_owned(), origin))
        };
        text.lines().filter_map(of_line).collect()
    }
}

/// One operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerByte {
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub write_bytes_per_s: f64,
}

/// A flash drive: dies behind channels, a link, a write buffer, and flash beyond what hosts see.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashFigures {
    /// Bytes that have one place: a smaller random write reads and writes all of them.
    pub unit_bytes: u32,
    /// Flash beyond what hosts see, as a part of it.
    pub spare: f64,
    /// Superblocks that the flash is divided into, about.
    pub superblocks: u32,
    /// Dies.
    pub dies: u32,
    /// Bytes that a die programs or reads at once.
    pub page_bytes: u32,
    /// A die reads a page.
    pub page_read_ns: u64,
    /// A die programs a page.
    pub page_program_ns: u64,
    /// How long a program holds up a read.
    pub suspend_ns: u64,
    /// Channels, each for as many dies.
    pub channels: u32,
    /// Bytes a second of one channel.
    pub channel_bytes_per_s: f64,
    /// Bytes a second from the host.
    pub link_write_bytes_per_s: f64,
    /// Bytes a second to the host.
    pub link_read_bytes_per_s: f64,
    /// What each command takes, besides.
    pub command_ns: u64,
    /// Commands a second of each direction, at most.
    pub commands_per_s: f64,
    /// The write buffer.
    pub buffer_bytes: u64,
    /// Bytes of random writes a second, at most, whatever the span: a limit beside cleaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_write_bytes_per_s: Option<f64>,
}

/// A disk: one arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFigures {
    /// A lone random read: the mean seek, and half a turn.
    pub lone_access_ns: u64,
    /// A random read of 16 in flight, which the disk puts in order.
    pub deep_access_ns: u64,
    /// A random write, through the disk's cache.
    pub write_access_ns: u64,
    /// Bytes a second in order.
    pub bytes_per_s: f64,
}

/// One figure of a data sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SheetRow {
    /// The load, as `--workload` takes it.
    pub load: String,
    /// Requests in flight.
    pub in_flight: u32,
    /// `fresh`, or `steady` on a drive that was written in full.
    pub condition: String,
    /// The figure.
    pub value: f64,
    /// `IOPS`, `GB/s`, or `us` (the mean latency).
    pub unit: String,
    /// Where it stands.
    pub source: String,
    /// It has no source that was looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// The files that come with the program, by name.
pub const DRIVES: [(&str, &str); 6] = [
    ("p5520", include_str!("../drives/p5520.toml")),
    ("p5316", include_str!("../drives/p5316.toml")),
    ("gen5-tlc", include_str!("../drives/gen5-tlc.toml")),
    ("s3700", include_str!("../drives/s3700.toml")),
    ("s4510", include_str!("../drives/s4510.toml")),
    ("nl-sas", include_str!("../drives/nl-sas.toml")),
];

impl DriveFile {
    /// One that comes with the program.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str) -> Result<DriveFile, Error> {
        match DRIVES.iter().find(|(n, _)| *n == name) {
            Some((_, text)) => DriveFile::parse(text).map_err(|why| Error::file(name, why)),
            None => Err(Error::unknown("drive", name, DRIVES.map(|(n, _)| n).join(", "))),
        }
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<DriveFile, String> {
        let mut file: DriveFile = toml::from_str(text).map_err(|e| e.to_string())?;
        file.origins = Origin::of_lines(text);
        let kinds = [file.per_byte.is_some(), file.flash.is_some(), file.disk.is_some()];
        if kinds.iter().filter(|k| **k).count() != 1 {
            return Err("exactly one of [per_byte], [flash] and [disk] says what the drive is like".to_owned());
        }
        if let Some(f) = &file.flash {
            let whole = f.page_bytes >= f.unit_bytes && f.page_bytes.is_multiple_of(f.unit_bytes.max(1));
            if !whole || f.unit_bytes == 0 || f.dies == 0 || f.channels == 0 || f.spare <= 0.0 {
                return Err("a page holds whole units, and dies, channels and spare are above zero".to_owned());
            }
        }
        Ok(file)
    }

    /// As a file.
    ///
    /// # Errors
    /// None in practice: all fields can be written.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::file(&self.name, e))
    }
}
