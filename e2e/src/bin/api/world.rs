//! A server with drives in memory, which is not root where that is possible, and schemathesis in a directory that goes away.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::{Failure, OrFail, Result, tools};

/// Debian's own Python.
pub const PYTHON: &str = "/usr/bin/python3";

/// This very version: another one asks other things.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// A directory with schemathesis, instead of one that is made, for whoever tries this out.
const MADE: &str = "ASHLAR_SCHEMATHESIS";

/// The user that a server of root's becomes: nobody.
const NOBODY: &str = "65534";

/// How long the server may take for its start, and for its stop.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIGURATION: &str = r#"[api]
listen = ["127.0.0.1:0"]

[[array]]
name = "ram"
create = true
raid = "5"
drives = ["mem:300M", "mem:300M", "mem:300M", "mem:300M"]

[[array.volume]]
name = "v"
size = "64M"
"#;

/// All that steps work with.
pub struct World {
    /// A directory that goes away.
    pub dir: PathBuf,
    program: PathBuf,
    schemathesis: PathBuf,
    server: Child,
}

impl World {
    /// Installs schemathesis, and starts the server.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let made = env::var_os(MADE).map(PathBuf::from);
        let venv = made.clone().unwrap_or_else(|| dir.join("venv"));
        if made.is_none() {
            tools::run(dir, PYTHON, &["-m", "venv", &venv.display().to_string()])?;
            tools::run(dir, &venv.join("bin/pip").display().to_string(), &["install", "--quiet", SCHEMATHESIS])?;
        }
        // A user that is not root has to come to it.
        let own = dir.join("ashlar");
        fs::copy(program, &own).or_fail("a copy of the program")?;
        let place = dir.join("server");
        fs::create_dir(&place).or_fail("the server's directory")?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).or_fail("the directory")?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).or_fail("the server's directory")?;
        fs::write(dir.join("ashlar.toml"), CONFIGURATION).or_fail("the configuration")?;
        let log = File::create(dir.join("log")).or_fail("the log")?;
        let mut command = as_user(&own);
        flags(&mut command, &place).args(["serve", "--stop-at-eof", "--config"]).arg(dir.join("ashlar.toml"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let server = command.spawn().or_fail("ashlar serve")?;
        let schemathesis = venv.join("bin/schemathesis");
        let world = World { dir: dir.to_owned(), program: own, schemathesis, server };
        let begun = Instant::now();
        while world.answers().is_err() {
            require(begun.elapsed() < PATIENCE, "ashlar serve", || world.log_end())?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(world)
    }

    /// A program as the server's user.
    pub fn as_user(&self, program: &Path) -> Command {
        as_user(program)
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("server/control")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.join("server/state")
    }

    /// The server's process, whose number `setpriv` has handed on.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The program that asks.
    pub fn schemathesis(&self) -> &Path {
        &self.schemathesis
    }

    /// A verb that must succeed; what it prints.
    pub fn client(&self, verb: &[&str]) -> Result<String> {
        let mut command = as_user(&self.program);
        let shown = format!("ashlar {}", verb.join(" "));
        let output = flags(&mut command, &self.dir.join("server")).args(verb).output().or_fail(shown.as_str())?;
        require(output.status.success(), &shown, || String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What `ashlar version` says of the server.
    fn server(&self) -> Result<serde_json::Value> {
        let said: serde_json::Value =
            serde_json::from_str(&self.client(&["version", "--json"])?).or_fail("ashlar version")?;
        let server = said["server"].clone();
        require(server.is_object(), "the server", || "it does not answer".to_owned())?;
        Ok(server)
    }

    /// Where its API is over TLS.
    pub fn api(&self) -> Result<String> {
        let at = self.server()?["api"][0].as_str().map(str::to_owned);
        at.ok_or_else(|| Failure::new("the server", "it has no API over TLS"))
    }

    /// That it answers.
    pub fn answers(&self) -> Result<()> {
        self.server().map(drop)
    }

    /// The description of the API, as it is committed: a test compares it with the program.
    pub fn document(&self) -> Result<PathBuf> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
        require(path.is_file(), "docs/openapi.json", || "it is not there".to_owned())?;
        Ok(path)
    }

    /// The last lines of the server's log.
    pub fn log_end(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(25)..].iter().map(|line| format!("  log: {line}\n")).collect()
    }

    /// Stops the server in order: it has not panicked.
    pub fn end(mut self) -> Result<()> {
        self.client(&["stop", "--force"])?;
        let begun = Instant::now();
        loop {
            match self.server.try_wait().or_fail("ashlar serve")? {
                Some(status) => {
                    let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                    return require(status.success() && !log.contains("panicked"), "ashlar serve", || {
                        format!("{status}\n{}", self.log_end())
                    });
                }
                None => require(begun.elapsed() < PATIENCE, "ashlar stop", || "the server goes on".to_owned())?,
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It has ended already, or nobody needs it any more.
        let _gone = (self.server.kill(), self.server.wait());
    }
}

fn flags<'a>(command: &'a mut Command, place: &Path) -> &'a mut Command {
    command.arg("--control").arg(place.join("control")).arg("--state-dir").arg(place.join("state"))
}

fn as_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all", "--"]).arg(program);
    command
}
