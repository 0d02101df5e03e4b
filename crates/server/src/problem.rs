//! Problems of this room: the kernel gives no io_uring, the faults of an array during a verb, names of arrays.

use std::io;

use api::{Kind, Problem};
use rustix::io::Errno;

/// Memory that one io_uring locks: 4096 answers, 256 entries, and what the kernel rounds up to.
const RING_KIB: u64 = 128;

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
        array::Fault::TakenOver => ("in_use_elsewhere", "use that server, or stop it first; `ashlar status` names it"),
        array::Fault::Frozen => ("frozen", "reconnect the missing drives; `ashlar status` names them"),
        array::Fault::NoSpace => ("no_space", "delete or trim volumes, or add a drive"),
        array::Fault::NoRoom => {
            ("no_room", "free space there (`ashlar status` names the drives); nothing that was acknowledged is lost")
        }
        array::Fault::ReadOnly => ("read_only", "open the array without --read-only"),
        array::Fault::Closed => ("closed", "start `ashlar serve` again"),
        array::Fault::Medium => ("medium_error", "`ashlar status` shows which drive reports errors"),
        array::Fault::OutOfRange | array::Fault::Misaligned => ("bad_request", "this is a bug: please report it"),
    };
    Problem::new(Kind::Failed, code, what, fault.to_string(), todo)
}

/// It is not one of those that are served here.
#[must_use]
pub fn array_not_served(name: &str, served: &[&str]) -> Problem {
    Problem::new(
        Kind::NotFound,
        "array_not_served",
        format!("array \"{name}\""),
        format!("this Ashlar does not serve it (it serves: {})", or_none(served)),
        format!("`ashlar import {name}` opens it here"),
    )
}

/// Two arrays of one name cannot be exported.
#[must_use]
pub fn name_taken(name: &str) -> Problem {
    Problem::refused(
        "array_name_taken",
        format!("array {name}"),
        "this Ashlar already serves an array of this name",
        "give one of them another name (`ashlar rename`)",
    )
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
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
}
