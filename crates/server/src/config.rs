//! The configuration file of `serve`: TOML, every field optional, an unknown one an error.
//!
//! ```toml
//! control = "/run/ashlar/ashlar.sock"
//! nbd = ["unix:/run/ashlar/ashlar-nbd.sock", "tcp:127.0.0.1:10809"]
//! nbd_insecure = false          # true: nbd may name addresses that other machines reach; NBD asks nobody who it is
//! nvme = ["tcp:10.0.0.5:4420"]  # none: no NVMe/TCP
//! guests = "/run/ashlar/guests" # a socket for each volume, for virtual machines of this host; none: no guests
//! metrics = "127.0.0.1:9450"    # /metrics for Prometheus, on loopback; none: on the control socket only
//! map_memory = "1G"             # of each array; 256M when nothing is said
//! memtable_memory = "200M"      # of each array; 60M when nothing is said
//! buffer_memory = "64M"         # buffers kept for the next requests; this when nothing is said
//! cores = 3                     # the first core, two for connections and parts; 1, for all, when nothing is said
//! pin = true                    # each of them on a CPU of its own; where the scheduler puts them, when nothing is said
//! deal = "connect"              # I/O queues of NVMe/TCP are served by those only; load (the default): one by the first, too
//! reservations = "auto"         # off: drives are never reserved, where all could be; auto when nothing is said
//! linger = 60                   # microseconds that an idle core looks for answers before it sleeps, at most; this; 0: never
//! congestion = "cubic"          # of TCP connections; auto (when nothing is said), system, or what the kernel has
//! discard = "none"              # freed zones: auto (when nothing is said: those not used again soon), all, none
//! io = "passthrough"            # how drives are used where they can be: plain (when nothing is said), poll, passthrough
//! spares = ["/dev/nvme9n1"]     # drives that belong to no array: the first that lacks one, and has no spare, gets it
//! allow_hosts = ["nqn.2014-08.org.nvmexpress:uuid:4c4c4544-0042-3510-8044-b7c04f333432"]
//!
//! [api]                         # the API on TCP, for command lines on other machines; none: on the control socket only
//! listen = ["10.0.0.5:9460"]
//! names = ["nas.example.com"]   # by which they call it, beside these addresses
//! certificate = "/etc/ashlar/api.crt"    # without both, a self-made one
//! key = "/etc/ashlar/api.key"
//!
//! [[hook]]                      # who else is told of events: a program, or an address (url = "http://...")
//! name = "pager"
//! exec = ["/usr/local/bin/page", "storage"]
//!
//! [[array]]                     # none: all arrays this machine knows
//! name = "fast"
//!
//! [[array]]
//! name = "scratch"
//! create = true                 # made at the start if its drives are empty
//! raid = "5"
//! drives = ["mem:1G", "mem:1G", "mem:1G", "mem:1G"]
//!
//! [[array.volume]]              # made at the start if it is not there
//! name = "tmp"
//! size = "2G"
//! ```

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use api::{CreateRequest, Problem};
use array::Discard;
use clap::ValueEnum;
use rt::{Rt, Ways};
use serde::Deserialize;

use crate::front::ApiConfig;
use crate::hooks::HookConfig;
use crate::size::Size;
use crate::subsystem::{AccessRules, Rule};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The control socket.
    pub control: Option<PathBuf>,
    /// The directory of `arrays.toml`.
    pub state_dir: Option<PathBuf>,
    /// Addresses of the NBD export: "unix:PATH" or "tcp:ADDRESS:PORT".
    #[serde(default)]
    pub nbd: Vec<String>,
    /// Lets the NBD export have addresses that other machines reach.
    #[serde(default)]
    pub nbd_insecure: bool,
    /// Where `/metrics` is for Prometheus, on loopback: "127.0.0.1:9450".
    pub metrics: Option<SocketAddr>,
    /// Addresses of the NVMe/TCP export: "tcp:ADDRESS:PORT".
    #[serde(default)]
    pub nvme: Vec<String>,
    /// The directory of sockets for guests of this machine (vhost-user); none: no guests.
    pub guests: Option<PathBuf>,
    /// What its discovery log tells hosts instead: "ADDRESS:PORT".
    #[serde(default)]
    pub nvme_advertise: Vec<String>,
    /// Hosts that may use every array over NVMe/TCP, by their qualified names.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Lets every host use every array over NVMe/TCP.
    #[serde(default)]
    pub allow_any: bool,
    /// Opens every array for reading only.
    #[serde(default)]
    pub read_only: bool,
    /// Drives that belong to no array: the first that lacks one gets it.
    #[serde(default)]
    pub spares: Vec<String>,
    /// What the map of each array may take in memory.
    pub map_memory: Option<Size>,
    /// What is not merged into the map of each array may take in memory.
    pub memtable_memory: Option<Size>,
    /// What freed buffers may take that are kept.
    pub buffer_memory: Option<Size>,
    /// Cores that work.
    pub cores: Option<usize>,
    /// Whether each of them has a CPU of its own.
    #[serde(default)]
    pub pin: bool,
    /// Which core serves I/O queues of NVMe/TCP.
    pub deal: Option<Deal>,
    /// Microseconds that an idle core looks for answers.
    pub linger: Option<Linger>,
    /// Congestion control of TCP connections.
    pub congestion: Option<String>,
    /// How drives are used, where they can be.
    pub io: Option<Io>,
    /// Whether drives are reserved.
    pub reservations: Option<Reservations>,
    /// Which freed zones are deallocated on their drives.
    pub discard: Option<Discards>,
    /// The API over TCP.
    #[serde(default)]
    pub api: ApiConfig,
    /// Who else is told of events.
    #[serde(default, rename = "hook")]
    pub hooks: Vec<HookConfig>,
    /// What to serve.
    #[serde(default, rename = "array")]
    pub arrays: Vec<ArrayConfig>,
}

/// How drives are used, as the file and `serve --io` say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// O_DIRECT; the drive interrupts
    Plain,
    /// O_DIRECT, polled: NVMe drives with queues for it
    Poll,
    /// NVMe commands: NVMe drives, on kernels that report their results correctly
    Passthrough,
}

/// Whether drives are reserved while their array is open for writing, as the file and `serve --reservations` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Reservations {
    /// Where others may reach the drives and all of an array can be reserved
    #[default]
    Auto,
    /// Never
    Off,
}

/// Which freed zones are deallocated on their drives (TRIM, DISCARD), as the file and `serve --discard` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Discards {
    /// Those that are not written again within 10 s, in the background
    #[default]
    Auto,
    /// All, before they are used again
    All,
    /// No zone, so that drives do not learn what is free
    None,
}

impl From<Discards> for Discard {
    fn from(which: Discards) -> Discard {
        match which {
            Discards::Auto => Discard::Auto,
            Discards::All => Discard::All,
            Discards::None => Discard::None,
        }
    }
}

/// How long an idle core looks for answers before it sleeps, at most, in microseconds: as the file and `serve --linger` say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub struct Linger(u64);

/// More is a core that hardly sleeps.
const LINGER_MAX: u64 = 1000;

impl Linger {
    /// The time.
    #[must_use]
    pub fn time(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl Default for Linger {
    fn default() -> Linger {
        Linger(Rt::LINGER.as_micros() as u64)
    }
}

impl TryFrom<u64> for Linger {
    type Error = String;
    fn try_from(us: u64) -> Result<Linger, String> {
        if us <= LINGER_MAX {
            Ok(Linger(us))
        } else {
            Err(format!("{us} microseconds are too long; give 0 to {LINGER_MAX}"))
        }
    }
}

impl FromStr for Linger {
    type Err = String;
    fn from_str(text: &str) -> Result<Linger, String> {
        text.parse().map_err(|_| format!("give 0 to {LINGER_MAX} microseconds")).and_then(|us: u64| us.try_into())
    }
}

impl From<Io> for Ways {
    fn from(io: Io) -> Ways {
        match io {
            Io::Plain => Ways::Plain,
            Io::Poll => Ways::Poll,
            Io::Passthrough => Ways::Passthrough,
        }
    }
}

/// Which core serves I/O queues of NVMe/TCP, as the file and `serve --deal` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Deal {
    /// The core with the fewest queues, but not that of the arrays
    Connect,
    /// The first core serves one queue while it is not busy, the others the rest
    #[default]
    Load,
}

/// One array.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayConfig {
    /// Its name.
    pub name: String,
    /// Its drives; those this machine knows when absent.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Hosts that may use it over NVMe/TCP, beside those that may use every array.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Lets every host use it over NVMe/TCP.
    #[serde(default)]
    pub allow_any: bool,
    /// Opens it for reading only.
    #[serde(default)]
    pub read_only: bool,
    /// Accepts half or fewer of the members.
    #[serde(default)]
    pub degraded: bool,
    /// Makes it if its drives carry no label of ours.
    #[serde(default)]
    pub create: bool,
    /// Level, for `create`.
    pub raid: Option<String>,
    /// Width, for `create`.
    pub width: Option<usize>,
    /// Parts, for `create`.
    pub parts: Option<u8>,
    /// Zone size, for `create`.
    pub zone: Option<Size>,
    /// Size of files that are not there yet, for `create`.
    pub size: Option<Size>,
    /// Volumes to make if they are not there.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<VolumeConfig>,
}

/// One volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Size,
}

impl Config {
    /// Reads `path`.
    ///
    /// # Errors
    /// When it cannot be read or says something that cannot be.
    pub fn read(path: &Path) -> Result<Config, Problem> {
        let what = || format!("configuration {}", path.display());
        let text = fs::read_to_string(path).map_err(|e| Problem::usage(what(), e, "name a readable file"))?;
        let mut config = Config::parse(&text).map_err(|e| {
            let todo = line_of(&e).map_or("fix the file".to_owned(), |line| format!("fix line {line} of the file"));
            Problem::usage(what(), e, todo)
        })?;
        // Relative drives and files are relative to the file that names them.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let base = absolute.parent().map(Path::to_owned).unwrap_or_default();
        for drive in config.arrays.iter_mut().flat_map(|a| &mut a.drives).chain(&mut config.spares) {
            if !drive.starts_with("mem:") {
                *drive = base.join(&*drive).display().to_string();
            }
        }
        for file in [&mut config.api.certificate, &mut config.api.key, &mut config.guests].into_iter().flatten() {
            *file = base.join(&*file);
        }
        Ok(config)
    }

    pub(crate) fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let mut names: Vec<_> = config.arrays.iter().map(|a| &a.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(format!("array \"{}\" is listed twice", twice[0]));
        }
        for array in &config.arrays {
            array.consistent().map_err(|e| format!("array \"{}\": {e}", array.name))?;
        }
        Ok(config)
    }
}

/// The line that the parser complains about.
fn line_of(error: &str) -> Option<u32> {
    let (_, rest) = error.split_once("at line ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

impl Config {
    /// Who may use what over NVMe/TCP, as the file says.
    #[must_use]
    pub fn access(&self) -> AccessRules {
        let rule = |a: &ArrayConfig| Rule { hosts: a.allow_hosts.clone(), any: a.allow_any };
        AccessRules {
            all: Rule { hosts: self.allow_hosts.clone(), any: self.allow_any },
            arrays: self.arrays.iter().map(|a| (a.name.clone(), rule(a))).collect(),
        }
    }
}

impl ArrayConfig {
    fn consistent(&self) -> Result<(), String> {
        let creation = [
            ("raid", self.raid.is_some()),
            ("width", self.width.is_some()),
            ("parts", self.parts.is_some()),
            ("zone", self.zone.is_some()),
            ("size", self.size.is_some()),
        ];
        match (self.create, creation.iter().find(|(_, set)| *set)) {
            (false, Some((field, _))) => {
                return Err(format!("\"{field}\" is valid only with create = true"));
            }
            (true, _) if self.raid.is_none() => return Err("create = true needs a level, such as raid = \"6\"".into()),
            (true, _) if self.drives.is_empty() => return Err("create = true needs drives = [...]".into()),
            (true, _) if self.read_only => {
                return Err("create = true and read_only = true exclude each other".into());
            }
            (true | false, _) => {}
        }
        if !self.create && self.drives.iter().any(|d| d.starts_with("mem:")) {
            return Err("memory drives are empty at the start: add create = true".into());
        }
        Ok(())
    }

    /// The request that makes it.
    #[must_use]
    pub fn create_request(&self) -> CreateRequest {
        CreateRequest {
            name: self.name.clone(),
            raid: self.raid.clone().unwrap_or_default(),
            width: self.width,
            zone_bytes: self.zone.map(|z| z.0),
            size_bytes: self.size.map(|s| s.0),
            drives: self.drives.clone(),
            parts: self.parts.unwrap_or(1),
            force: false,
            take_from: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_header_parses() {
        let text = include_str!("config.rs");
        let example: Vec<_> = text
            .lines()
            .skip_while(|l| *l != "//! ```toml")
            .skip(1)
            .take_while(|l| *l != "//! ```")
            .map(|l| l.trim_start_matches("//!").trim_start())
            .collect();
        let config = Config::parse(&example.join("\n")).unwrap();
        assert_eq!(config.arrays.len(), 2);
        assert_eq!(config.arrays[1].volumes[0].size, Size(2 << 30));
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, why) in [
            ("contrl = 1", "contrl"),
            ("[[array]]\nname = \"a\"\nraid = \"5\"", "create = true"),
            ("[[array]]\nname = \"a\"\ncreate = true\ndrives = [\"x\"]", "needs a level"),
            ("[[array]]\nname = \"a\"\ndrives = [\"mem:1G\"]", "are empty at the start"),
            ("io = \"auto\"", "`auto`, expected one of `plain`, `poll`, `passthrough`"),
            ("[[array]]\nname = \"a\"\n[[array]]\nname = \"a\"", "twice"),
            ("[[array]]\nname = \"a\"\n[[array.volume]]\nname = \"v\"\nsize = \"4X\"", "4X"),
        ] {
            let e = Config::parse(text).unwrap_err();
            assert!(e.contains(why), "{text}: {e}");
        }
        let e = Config::parse("\ncontrl = 1").unwrap_err();
        assert_eq!((line_of(&e), line_of("array \"a\" is listed twice")), (Some(2), None), "{e}");
    }

    #[test]
    fn the_file_and_the_flag_say_it_in_the_same_words() {
        for io in Io::value_variants() {
            let word = io.to_possible_value().unwrap();
            let config = Config::parse(&format!("io = \"{}\"", word.get_name())).unwrap();
            assert_eq!(config.io, Some(*io));
        }
        assert_eq!(Config::parse("").unwrap().io, None);
    }

    #[test]
    fn drives_are_relative_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        fs::write(&path, "[[array]]\nname = \"a\"\ndrives = [\"d/0\", \"/x/1\"]\n").unwrap();
        let config = Config::read(&path).unwrap();
        let base = dir.path();
        assert_eq!(config.arrays[0].drives, [base.join("d/0").display().to_string(), "/x/1".into()]);
    }
}
