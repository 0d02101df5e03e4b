//! Which kernels' answers to passthrough commands can be believed, by their versions.
//!
//! A command that the NVMe driver refuses before the drive has it (the controller is being reset, or gone) was answered
//! with 0, as one that was done: a write that never ran would be answered to its host. Linux 1147dd050356 mended that (6.7;
//! 6.1.64 has it), d6aacee9255e undid it (6.8), 5eed4fb274cd mended it again (6.12). What is not known to be mended is not
//! believed.

use std::fmt;

/// The version that a kernel was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    /// A release candidate (-rc): what it has of its release is not known.
    is_candidate: bool,
}

impl Version {
    /// From a text that begins with it.
    fn parse(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let mut numbers = numbers.split('.').map(|n| n.parse().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch = numbers.next().flatten().unwrap_or(0);
        Some(Version { major, minor, patch, is_candidate: rest.starts_with("-rc") })
    }

    fn answers_truly(self) -> bool {
        match (self.major, self.minor) {
            (6, 1) => self.patch >= 64,
            (6, 12) => !self.is_candidate,
            newer => newer > (6, 12),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 {
            write!(f, ".{}", self.patch)?;
        }
        f.write_str(if self.is_candidate { "-rc" } else { "" })
    }
}

/// Whether passthrough can be used on the kernel that runs; or why not.
pub(crate) fn passes_through() -> Result<(), String> {
    let names = rustix::system::uname();
    judge(&names.release().to_string_lossy(), &names.version().to_string_lossy())
}

/// The same of what `uname -r` and `uname -v` say.
fn judge(release: &str, version: &str) -> Result<(), String> {
    match made_from(release, version) {
        Some(version) if version.answers_truly() => Ok(()),
        Some(version) => Err(format!(
            "Linux {version} may report an NVMe command as done that never ran (6.12 and 6.1 from 6.1.64 on do not)"
        )),
        None => Err(format!("unknown Linux version {release}")),
    }
}

/// Debian's release is that of its interface ("6.1.0-56-amd64"); what it was made from stands in `version`, after its name.
fn made_from(release: &str, version: &str) -> Option<Version> {
    let released = Version::parse(release)?;
    let mut words = version.split_whitespace();
    let debian = words.find(|word| *word == "Debian").and_then(|_| Version::parse(words.next()?));
    let is_same = |v: &Version| (v.major, v.minor) == (released.major, released.minor);
    Some(debian.filter(is_same).unwrap_or(released))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels() {
        const UBUNTU: &str = "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024";
        const MAINLINE: &str = "#1 SMP PREEMPT_DYNAMIC Sun Nov 17 22:15:08 UTC 2024";
        const RED_HAT: &str = "#1 SMP PREEMPT_DYNAMIC Thu May 29 14:07:20 EDT 2025";
        for (release, version, made_from, is_believed) in [
            // Debian 12, 13, and 13's kernel in 12.
            ("6.1.0-56-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)", "6.1.192", true),
            ("6.1.0-37-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)", "6.1.140", true),
            ("6.1.0-13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)", "6.1.55", false),
            ("6.12.38+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.38-1 (2025-07-16)", "6.12.38", true),
            ("6.12.9+bpo-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1~bpo12+1 (2025-01-19)", "6.12.9", true),
            ("5.10.0-33-amd64", "#1 SMP Debian 5.10.226-1 (2024-10-03)", "5.10.226", false),
            // A number after a name that is another kernel's.
            ("6.8.0-1-amd64", "#1 SMP Debian 6.12.1-1 (2024-11-30)", "6.8", false),
            // Ubuntu's 6.1 does not say what it was made from.
            ("6.8.0-45-generic", UBUNTU, "6.8", false),
            ("6.11.0-9-generic", UBUNTU, "6.11", false),
            ("6.14.0-29-generic", UBUNTU, "6.14", true),
            ("6.1.0-1036-oem", UBUNTU, "6.1", false),
            ("5.15.0-125-generic", UBUNTU, "5.15", false),
            ("6.1.63", MAINLINE, "6.1.63", false),
            ("6.1.64", MAINLINE, "6.1.64", true),
            ("6.6.60", MAINLINE, "6.6.60", false),
            ("6.11.11", MAINLINE, "6.11.11", false),
            ("6.12.0-rc3", MAINLINE, "6.12-rc", false),
            ("6.12.0", MAINLINE, "6.12", true),
            ("6.12", MAINLINE, "6.12", true),
            ("6.13.0-rc1+", MAINLINE, "6.13-rc", true),
            ("7.0.1", MAINLINE, "7.0.1", true),
            ("5.14.0-570.el9.x86_64", RED_HAT, "5.14", false),
            ("6.12.0-55.el10.x86_64", RED_HAT, "6.12", true),
        ] {
            assert_eq!(super::made_from(release, version).unwrap().to_string(), made_from, "{release}");
            let judged = judge(release, version);
            assert_eq!(judged.is_ok(), is_believed, "{release}");
            let why = format!("Linux {made_from} may report ");
            assert!(judged.err().is_none_or(|e| e.starts_with(&why)), "{release}");
        }
        for release in ["", "six", "6", "6.", "99999999999.1"] {
            assert_eq!(judge(release, MAINLINE), Err(format!("unknown Linux version {release}")));
        }
    }
}
