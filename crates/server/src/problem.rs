//! Why a verb did not do what was asked: what, why, and what to do about it; the same on every way out (text,
//! `--json`, HTTP).
//!
//! Invariant: each problem has a [`Kind`], and the kind alone decides the HTTP status and the exit code.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use array::Remedy;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Memory that one io_uring locks: 4096 answers, 256 entries, and what the kernel rounds up to.
const RING_KIB: u64 = 128;

/// What sort of "no" it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The world failed: I/O, a network, the other side.
    Failed,
    /// The request makes no sense.
    Usage,
    /// The request makes sense and must not or cannot be done.
    Refused,
    /// What was asked about is not known.
    NotFound,
}

impl Kind {
    /// The HTTP status that says so.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Kind::Failed => 500,
            Kind::Usage => 400,
            Kind::Refused => 409,
            Kind::NotFound => 404,
        }
    }

    /// The exit code that says so.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Refused | Kind::NotFound => 3,
        }
    }
}

/// One problem, with the others of the same request behind it. Boxed, because every result carries room for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problem(Box<Details>);

/// What a problem says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// What sort of "no".
    pub kind: Kind,
    /// A name for scripts, in snake_case: stable, while the sentences may get better.
    pub code: String,
    /// What could not be done, with the name of the thing.
    pub what: String,
    /// Why.
    pub why: String,
    /// What the user can do about it.
    pub todo: String,
    /// More of the same request (the second bad drive).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Problem>,
}

impl Problem {
    /// A problem of `kind`, named `code` for scripts.
    pub fn new(
        kind: Kind,
        code: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        todo: impl Into<String>,
    ) -> Problem {
        let details = Details {
            kind,
            code: code.to_owned(),
            what: what.into(),
            why: why.into(),
            todo: todo.into(),
            others: vec![],
        };
        Problem(Box::new(details))
    }

    /// A refusal.
    pub fn refused(code: &str, what: impl Into<String>, why: impl Into<String>, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Refused, code, what, why, todo)
    }

    /// A failure of the world.
    pub fn failed(what: impl Into<String>, why: impl fmt::Display, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Failed, "failed", what, why.to_string(), todo)
    }

    /// A request that makes no sense.
    pub fn usage(what: impl Into<String>, why: impl fmt::Display, todo: impl Into<String>) -> Problem {
        Problem::new(Kind::Usage, "usage", what, why.to_string(), todo)
    }

    /// All of `problems` as one; `None` when there are none.
    #[must_use]
    pub fn all(mut problems: Vec<Problem>) -> Option<Problem> {
        if problems.is_empty() {
            return None;
        }
        let mut first = problems.remove(0);
        first.others.append(&mut problems);
        Some(first)
    }

    /// On one line, for the log.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{}: {}", self.what, self.why);
        if !self.todo.is_empty() {
            line.push_str(&format!(" (what to do: {})", self.todo));
        }
        for other in &self.others {
            line.push_str("; ");
            line.push_str(&other.line());
        }
        line
    }

    /// The kernel gives no io_uring.
    #[must_use]
    pub fn no_ring(error: &io::Error) -> Problem {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        let memlock = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        Problem::failed("the runtime", format!("no io_uring: {error}"), ring_hint(error, disabled.as_deref(), memlock))
    }

    /// An array's fault during a verb.
    #[must_use]
    pub fn fault(what: impl Into<String>, fault: array::Fault) -> Problem {
        let (code, todo) = match fault {
            array::Fault::TakenOver => {
                ("in_use_elsewhere", "use that server, or stop it first; `ashlar status` names it")
            }
            array::Fault::Frozen => ("frozen", "reconnect the missing drives; `ashlar status` names them"),
            array::Fault::NoSpace => ("no_space", "delete or trim volumes, or add a drive"),
            array::Fault::NoRoom => (
                "no_room",
                "free space there (`ashlar status` names the drives); nothing that was acknowledged is lost",
            ),
            array::Fault::ReadOnly => ("read_only", "open the array without --read-only"),
            array::Fault::Closed => ("closed", "start `ashlar serve` again"),
            array::Fault::Medium => ("medium_error", "`ashlar status` shows which drive reports errors"),
            array::Fault::OutOfRange | array::Fault::Misaligned => ("bad_request", "this is a bug: please report it"),
        };
        Problem::new(Kind::Failed, code, what, fault.to_string(), todo)
    }
}

impl From<array::Refused> for Problem {
    fn from(r: array::Refused) -> Problem {
        // The code's name is the serialized form of the enum: one spelling, kept in `array`.
        let code = match serde_json::to_value(r.code) {
            Ok(serde_json::Value::String(name)) => name,
            Ok(_) | Err(_) => "refused".to_owned(),
        };
        let todo = lower_first(&r.todo);
        let todo = r.remedy.map_or_else(|| todo.clone(), |remedy| format!("{todo} ({})", command(remedy)));
        Problem::refused(&code, r.what, r.why, todo)
    }
}

/// The verb or the flag that does what the engine advises.
const fn command(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::ListVolumes => "`ashlar volume list` lists them",
        Remedy::ListSeats => "`ashlar status` with the array's name lists them",
        Remedy::ReplaceDrive => "`ashlar drive replace`",
        Remedy::AddDrive => "`ashlar drive add --grow`",
        Remedy::WipeDrive => "`ashlar wipe`",
        Remedy::Force => "--force",
        Remedy::OpenReadOnly => "--read-only",
        Remedy::OpenDegraded => "--degraded",
        Remedy::AcceptLoss => "--accept-loss",
        Remedy::TakeOver => "--take-over with the array's name",
        Remedy::Rescue => "`ashlar rescue`",
        Remedy::StopScrub => "`ashlar scrub stop`",
    }
}

/// What helps when the kernel gives no io_uring, by its error; the sysctl as it is now, if there is one, and how many bytes
/// this process may lock (no limit: none).
fn ring_hint(error: &io::Error, disabled: Option<&str>, memlock: Option<u64>) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOMEM) => {
            let now = memlock.map_or("no limit".to_owned(), |bytes| format!("{} KiB now", bytes / 1024));
            format!(
                "raise the limit of locked memory (`ulimit -l`, {now}): each core takes {RING_KIB} KiB, and twice as \
                 much with --io \
                 poll or passthrough; systemd: LimitMEMLOCK=, docker: --ulimit memlock="
            )
        }
        Some(Errno::PERM | Errno::ACCESS) => match disabled.map(str::trim) {
            Some(value @ ("1" | "2")) => {
                format!(
                    "`sysctl kernel.io_uring_disabled` is {value}: set it to 0; a seccomp profile may have to allow \
                     io_uring, too"
                )
            }
            Some(_) | None => "a seccomp profile (of a container, for instance) or another security module forbids \
                               io_uring: allow io_uring_setup, io_uring_enter and io_uring_register \
                               (sysctl kernel.io_uring_disabled does not forbid it)"
                .to_owned(),
        },
        Some(Errno::NOSYS) => {
            "this kernel has no io_uring (Linux 5.6 or later has, unless it was built without), or a \
                               sandbox (gVisor, an old seccomp profile) hides it"
                .to_owned()
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            "raise the limit of open files (`ulimit -n`, sysctl fs.file-max)".to_owned()
        }
        _ => "io_uring must be allowed (sysctl kernel.io_uring_disabled, seccomp) and have locked memory (ulimit -l)"
            .to_owned(),
    }
}

/// Sentences of the engine begin with a capital, those here stand behind a colon.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(a), Some(b)) if b.is_lowercase() => a.to_lowercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}

impl Deref for Problem {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if !self.todo.is_empty() {
            write!(f, "\n  what to do: {}", self.todo)?;
        }
        for other in &self.others {
            write!(f, "\n{other}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_cause() {
        let hint = |errno, disabled| ring_hint(&io::Error::from_raw_os_error(errno), disabled, Some(65_536));
        let (eperm, eacces, enosys, enomem, emfile) = (1, 13, 38, 12, 24);
        assert!(hint(enomem, Some("0")).contains("`ulimit -l`, 64 KiB now"));
        assert!(hint(enomem, Some("0")).contains("128 KiB") && !hint(enomem, Some("0")).contains("sysctl"));
        for errno in [eperm, eacces] {
            assert!(hint(errno, Some("2\n")).starts_with("`sysctl kernel.io_uring_disabled` is 2"));
            for disabled in [Some("0\n"), None] {
                assert!(hint(errno, disabled).starts_with("a seccomp profile"), "{}", hint(errno, disabled));
            }
        }
        assert!(hint(enosys, None).starts_with("this kernel has no io_uring"));
        assert!(hint(emfile, None).contains("ulimit -n"));
    }

    #[test]
    fn several_read_as_a_list() {
        let p = |n: &str| Problem::refused("drive_mounted", format!("drive {n}"), "mounted at /", "unmount it");
        let all = Problem::all(vec![p("a"), p("b")]).unwrap();
        assert_eq!(
            all.to_string(),
            "drive a: mounted at /\n  what to do: unmount it\ndrive b: mounted at /\n  what to do: unmount it"
        );
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), all);
        assert!(Problem::all(vec![]).is_none());
    }
}
