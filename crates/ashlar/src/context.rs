//! Online or offline: where a verb is carried out.

use std::future::Future;
use std::path::{Path, PathBuf};

use api::{Kind, Problem};
use rt::Rt;
use server::cores::OtherCores;
use server::ops::World;
use server::paths;
use server::registry::Registry;

use crate::client::Client;

/// What every verb knows.
#[derive(Clone)]
pub struct Context {
    /// The control socket.
    pub control: PathBuf,
    /// Whether somebody named it.
    pub control_named: bool,
    /// The directory of `arrays.toml`.
    pub state_dir: PathBuf,
    /// Whether somebody named it.
    pub state_dir_named: bool,
}

impl Context {
    /// The context that flags, environment and defaults give.
    pub fn new(control: Option<PathBuf>, state_dir: Option<PathBuf>) -> Context {
        Context {
            control_named: control.is_some() || paths::control_in_env(),
            state_dir_named: state_dir.is_some() || paths::state_dir_in_env(),
            control: absolute(&paths::control(control)),
            state_dir: absolute(&paths::state_dir(state_dir)),
        }
    }

    /// The running Ashlar, if one answers.
    pub fn server(&self) -> Option<Client> {
        Client::connect(&self.control)
    }

    /// The running Ashlar, which `what` needs.
    ///
    /// # Errors
    /// When none answers.
    pub fn running(&self, what: &str) -> Result<Client, Problem> {
        self.server().ok_or_else(|| {
            let why = format!("no Ashlar answers at {}", self.control.display());
            Problem::refused("not_running", what, why, "start `ashlar serve`, or name its socket with --control")
        })
    }

    /// The running Ashlar, if one answers and serves `array`.
    ///
    /// # Errors
    /// When it answers with something else than yes or no.
    pub fn server_of(&self, array: &str) -> Result<Option<Client>, Problem> {
        let Some(client) = self.server() else { return Ok(None) };
        match client.get::<serde_json::Value>(&format!("/v1/arrays/{}", encode(array))) {
            Ok(_) => Ok(Some(client)),
            Err(problem) if problem.kind == Kind::NotFound => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Carries out `verb` here, on a runtime of its own.
    ///
    /// # Errors
    /// The verb's, or that there is no runtime.
    pub fn offline<T, F: Future<Output = Result<T, Problem>>>(
        &self,
        verb: impl FnOnce(World) -> F,
    ) -> Result<T, Problem> {
        let rt = Rt::real().map_err(|e| server::problem::no_ring(&e))?;
        let world = World {
            rt: rt.clone(),
            registry: Registry::at(self.state_dir.clone()),
            cores: OtherCores::default(),
            reserve: false,
        };
        let result = rt.block_on(Box::pin(verb(world)));
        drop(rt);
        result
    }
}

/// `path` from the root on: a server has another working directory.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A drive's name as a server understands it.
pub fn absolute_drive(name: &str) -> String {
    if name.starts_with("mem:") { name.to_owned() } else { absolute(name.as_ref()).display().to_string() }
}

/// `name` as one part of a URL's path.
pub fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The array and the volume of ARRAY/VOLUME.
///
/// # Errors
/// When it is not of this form.
pub fn split_volume(name: &str) -> Result<(&str, &str), Problem> {
    match name.split_once('/') {
        Some((array, volume)) if !array.is_empty() && !volume.is_empty() => Ok((array, volume)),
        Some(_) | None => Err(Problem::usage(
            format!("volume \"{name}\""),
            "a volume's name includes its array",
            "write ARRAY/VOLUME, for instance fast/db",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_travel() {
        assert_eq!(encode("fast-1.x_y"), "fast-1.x_y");
        assert_eq!(encode("a/b c"), "a%2Fb%20c");
        assert_eq!(split_volume("fast/db").unwrap(), ("fast", "db"));
        for bad in ["fast", "/db", "fast/", ""] {
            assert!(split_volume(bad).is_err(), "{bad}");
        }
        assert_eq!(absolute_drive("mem:4G"), "mem:4G");
        assert!(absolute_drive("d/0").starts_with('/'));
    }
}
