//! Online or offline: where a verb is carried out.

use std::future::Future;
use std::path::{Path, PathBuf};

use api::{Kind, Problem};
use rt::Rt;
use server::cores::OtherCores;
use server::ops::World;
use server::paths;
use server::registry::Registry;

use crate::client::remote::{Flags, Remote};
use crate::client::{Client, Place};

/// What every verb knows.
#[derive(Clone)]
pub struct Context {
    /// The control socket, on this machine.
    pub control: PathBuf,
    /// The server on another machine that is meant instead.
    remote: Option<Remote>,
    /// Whether somebody named it.
    pub control_named: bool,
    /// The directory of `arrays.toml`.
    pub state_dir: PathBuf,
    /// Whether somebody named it.
    pub state_dir_named: bool,
}

impl Context {
    /// The context that flags, environment and defaults give.
    ///
    /// # Errors
    /// When flags for servers on other machines are given, and none is meant.
    pub fn new(control: Option<PathBuf>, state_dir: Option<PathBuf>, flags: &Flags) -> Result<Context, Problem> {
        let control_named = control.is_some() || paths::control_in_env();
        let control = paths::control(control);
        let url = control.to_str().filter(|name| name.contains("://"));
        let remote = url.map(|url| Remote::new(url, flags));
        if remote.is_none() && flags.are_given() {
            let why = "they are for servers on other machines";
            let todo = "name one with --control https://HOST:PORT";
            return Err(Problem::usage("--token-file, --fingerprint and --ca", why, todo));
        }
        Ok(Context {
            control_named,
            state_dir_named: state_dir.is_some() || paths::state_dir_in_env(),
            control: absolute(&control),
            state_dir: absolute(&paths::state_dir(state_dir)),
            remote,
        })
    }

    /// Where the server is.
    pub fn place(&self) -> Place {
        self.remote.clone().map_or_else(|| Place::Here(self.control.clone()), Place::There)
    }

    /// Refuses what is done to the drives of this machine where a server on another one is meant.
    ///
    /// # Errors
    /// When one is.
    pub fn only_here(&self, what: &str) -> Result<(), Problem> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let why = format!("it works on the machine that it runs on, and {remote} is another");
        Err(Problem::refused("only_here", what, why, "run it there, or leave out --control (ASHLAR_CONTROL)"))
    }

    /// The running Ashlar, if one answers.
    pub fn server(&self) -> Option<Client> {
        Client::connect(&self.place())
    }

    /// The running Ashlar, which `what` needs.
    ///
    /// # Errors
    /// When none answers.
    pub fn running(&self, what: &str) -> Result<Client, Problem> {
        self.server().ok_or_else(|| {
            let why = format!("no Ashlar answers at {}", self.place());
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
            // The drives of this machine have nothing to do with one that another does not serve.
            Err(problem) if problem.kind == Kind::NotFound && self.remote.is_none() => Ok(None),
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
        self.only_here("this command")?;
        let rt = Rt::real().map_err(|e| server::problem::no_ring(&e))?;
        let world = World {
            rt: rt.clone(),
            registry: Registry::at(self.state_dir.clone()),
            cores: OtherCores::default(),
            reserve: false,
            discard: array::Discard::Auto,
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

    /// `ashlar man` with ASHLAR_CONTROL=https://... needs no token.
    #[test]
    fn a_server_on_another_machine_wants_a_token_once_it_is_asked() {
        let of = |url: &str| Context::new(Some(url.into()), None, &Flags::default()).unwrap();
        let none = of("https://nas.example:9460");
        assert!(none.only_here("wipe").unwrap_err().why.contains("https://nas.example:9460 is another"));
        let ask = |context: Context| context.server().unwrap().get::<serde_json::Value>("/v1/server").unwrap_err();
        assert_eq!((ask(none.clone()).kind, ask(none).what.as_str()), (Kind::Usage, "the token"));
        assert!(ask(of("http://nas.example:9460")).why.contains("only https://"));
    }

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
