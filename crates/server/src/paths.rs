//! Where things lie when nobody says otherwise.
//!
//! A flag wins over the environment, the environment over these defaults; root and users have different ones, so
//! that trying out needs no rights.

use std::env;
use std::path::PathBuf;

/// Overrides the control socket.
pub const CONTROL_ENV: &str = "ASHLAR_CONTROL";
/// Overrides the directory of `arrays.toml`.
pub const STATE_DIR_ENV: &str = "ASHLAR_STATE_DIR";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn env_path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Whether the environment names the control socket.
#[must_use]
pub fn control_in_env() -> bool {
    env_path(CONTROL_ENV).is_some()
}

/// Whether the environment names the state directory.
#[must_use]
pub fn state_dir_in_env() -> bool {
    env_path(STATE_DIR_ENV).is_some()
}

/// The directory for sockets: /run, the user's run-time directory, or the state directory where there is none.
fn run_dir() -> PathBuf {
    if is_root() { PathBuf::from("/run") } else { env_path("XDG_RUNTIME_DIR").unwrap_or_else(|| state_dir(None)) }
}

/// The control socket: `flag`, else `ASHLAR_CONTROL`, else ashlar.sock in /run or the user's run-time directory.
#[must_use]
pub fn control(flag: Option<PathBuf>) -> PathBuf {
    flag.or_else(|| env_path(CONTROL_ENV)).unwrap_or_else(|| run_dir().join("ashlar.sock"))
}

/// The NBD socket when no `--nbd` is given: beside the control socket, so that several servers do not meet.
#[must_use]
pub fn nbd(control: &std::path::Path) -> PathBuf {
    control.with_file_name(match control.file_stem().and_then(|s| s.to_str()) {
        Some(stem) => format!("{stem}-nbd.sock"),
        None => "ashlar-nbd.sock".to_owned(),
    })
}

/// The directory of `arrays.toml`: `flag`, else `ASHLAR_STATE_DIR`, else /var/lib/ashlar or the user's state
/// directory.
#[must_use]
pub fn state_dir(flag: Option<PathBuf>) -> PathBuf {
    if let Some(dir) = flag.or_else(|| env_path(STATE_DIR_ENV)) {
        return dir;
    }
    if is_root() {
        return PathBuf::from("/var/lib/ashlar");
    }
    let state_home = env_path("XDG_STATE_HOME").or_else(|| env_path("HOME").map(|h| h.join(".local/state")));
    state_home.unwrap_or_else(env::temp_dir).join("ashlar")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_lie_together() {
        assert_eq!(nbd(std::path::Path::new("/run/ashlar.sock")), PathBuf::from("/run/ashlar-nbd.sock"));
        assert_eq!(control(Some("/x/y.sock".into())), PathBuf::from("/x/y.sock"));
    }
}
