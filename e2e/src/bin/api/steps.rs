//! What is asked.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use e2e::failure::require;
use e2e::stepwise::Step;
use e2e::{Failure, OrFail, Result};

use crate::world::{PYTHON, World};

/// All steps, in order.
pub const ALL: &[Step<World>] = &[
    Step { name: "closed", about: "the server's memory is closed to its own user", run: closed },
    Step { name: "socket", about: "requests on the control socket", run: socket },
    Step { name: "tls", about: "requests over TLS, with a token", run: tls },
];

const PROXY: &str = include_str!("proxy.py");

/// Seconds of each.
const SECONDS: &str = "30";

/// What ends the server, or leaves it without its array, is not asked: there would be little left to ask.
const ENDS: &str = "/(stop|export)$";

/// Files in /proc of a process that leaves no core dump belong to root, whoever runs it.
fn closed(world: &mut World) -> Result<()> {
    let memory = format!("/proc/{}/mem", world.pid());
    let owner = fs::metadata(&memory).or_fail(memory.as_str())?.uid();
    require(owner == 0, &memory, || format!("it belongs to user {owner}: a core dump would hold keys and tokens"))
}

/// On the control socket, which schemathesis knows by way of a port.
fn socket(world: &mut World) -> Result<()> {
    let file = world.dir.join("proxy.py");
    fs::write(&file, PROXY).or_fail("proxy.py")?;
    let mut command = world.as_user(PYTHON.as_ref());
    let mut proxy = command.arg(file).arg(world.socket()).stdout(Stdio::piped()).spawn().or_fail("proxy.py")?;
    let asked = (|| {
        let output = proxy.stdout.take().ok_or_else(|| Failure::new("proxy.py", "it has no output"))?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port).or_fail("proxy.py")?;
        let url = format!("http://127.0.0.1:{}", port.trim());
        requests(world, &url, &["--exclude-path-regex", ENDS])
    })();
    let _gone = (proxy.kill(), proxy.wait());
    asked
}

/// Over TLS: the certificate is checked, and the token is not deleted under it.
fn tls(world: &mut World) -> Result<()> {
    let token = world.client(&["token", "create", "schemathesis", "--role", "admin"])?;
    let certificate = world.state().join("api.crt").display().to_string();
    // In the configuration of schemathesis: a token is no argument.
    let file = world.dir.join("schemathesis.toml");
    let header = format!("[headers]\nAuthorization = \"Bearer {}\"\n", token.trim());
    fs::write(&file, header).or_fail("schemathesis.toml")?;
    let url = format!("https://{}", world.api()?);
    let paths = ["--exclude-path-regex", ENDS, "--exclude-path", "/v1/tokens/{token}", "--tls-verify", &certificate];
    let asked = requests(world, &url, &paths);
    fs::remove_file(&file).or_fail("schemathesis.toml")?;
    asked
}

/// Asks for half a minute; no answer is a failure of the server.
fn requests(world: &mut World, url: &str, more: &[&str]) -> Result<()> {
    let document = world.document()?;
    let mut command = Command::new(world.schemathesis());
    command.current_dir(&world.dir);
    let config = world.dir.join("schemathesis.toml");
    if config.is_file() {
        command.arg("--config-file").arg(config);
    }
    command.arg("run").arg(document).args(["--url", url, "--checks", "not_a_server_error", "--max-time", SECONDS]);
    command.args(["--request-timeout", "20", "--suppress-health-check", "all", "--warnings", "off"]);
    // Not the stateful phase: it makes links between requests that have nothing to do with each other, and refuses its own.
    command.args(["--phases", "examples,coverage,fuzzing"]).args(more);
    let output = command.output().or_fail("schemathesis")?;
    let said = String::from_utf8_lossy(&output.stdout);
    require(output.status.success(), "schemathesis", || {
        format!("{}\n{said}{}\n{}", output.status, String::from_utf8_lossy(&output.stderr), world.log_end())
    })?;
    said.lines()
        .filter(|line| line.contains("generated") || line.contains("Operations"))
        .for_each(|line| println!("        {}", line.trim()));
    world.answers()
}
