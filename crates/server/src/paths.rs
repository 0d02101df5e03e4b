//! Where things lie when nobody says otherwise.
//!
//! A flag wins over the environment, the environment over these defaults; root and users have different ones, so
//! that trying out needs no rights.

use std::env;
use std::path::{Path, PathBuf};

/// The configuration that the packaged service reads.
pub const CONFIGURATION: &str = "/etc/ashlar/ashlar.toml";
/// Where it was before there was a package; read while the other says nothing.
pub const FORMER_CONFIGURATION: &str = "/etc/ashlar.toml";
/// The control socket of root's server and of the packaged service.
const CONTROL: &str = "/run/ashlar/ashlar.sock";
/// Where it was before there was a package: a server of that time may still answer there.
const FORMER_CONTROL: &str = "/run/ashlar.sock";
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

/// The control socket when it is not named: that of the service for root, else one in the user's run-time directory, or in the
/// state directory where there is none.
fn default_control() -> PathBuf {
    if !is_root() {
        return env_path("XDG_RUNTIME_DIR").unwrap_or_else(|| state_dir(None)).join("ashlar.sock");
    }
    let former = Path::new(FORMER_CONTROL);
    let chosen = if !Path::new(CONTROL).exists() && former.exists() { former } else { Path::new(CONTROL) };
    chosen.to_owned()
}

/// The control socket: `flag`, else `ASHLAR_CONTROL`, else ashlar.sock in /run/ashlar or the user's run-time directory.
#[must_use]
pub fn control(flag: Option<PathBuf>) -> PathBuf {
    flag.or_else(|| env_path(CONTROL_ENV)).unwrap_or_else(default_control)
}

/// The NBD socket when no `--nbd` is given: beside the control socket, so that several servers do not meet.
#[must_use]
pub fn nbd(control: &Path) -> PathBuf {
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

/// The configuration that is read for `named`: where that is the packaged service's and only comments are in it, the file of
/// the time before the package, if there is one.
#[must_use]
pub fn configuration(named: &Path) -> &Path {
    let former = Path::new(FORMER_CONFIGURATION);
    if named != Path::new(CONFIGURATION) || !former.is_file() || !says_nothing(named) {
        return named;
    }
    tracing::warn!("{CONFIGURATION} sets nothing, so {FORMER_CONFIGURATION} is used; move it there");
    former
}

fn says_nothing(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().all(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_lie_together() {
        assert_eq!(nbd(Path::new("/run/ashlar/ashlar.sock")), PathBuf::from("/run/ashlar/ashlar-nbd.sock"));
        assert_eq!(control(Some("/x/y.sock".into())), PathBuf::from("/x/y.sock"));
    }
}
