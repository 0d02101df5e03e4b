//! Verbs of every day beside a server: what it lists, waits for, tells, and gives to support.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result, tools};

use super::Case;
use crate::fixture::{ARRAY, Lab};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "habits", about: "list, wait, events, alarms acknowledge, upgrade, config check", run: habits },
    Case { name: "bundle", about: "a bundle for support holds no secret, and leaves nothing else behind", run: bundle },
];

/// How long something that was told may take until it is shown.
const SHOWN_MAX: Duration = Duration::from_secs(20);

fn habits(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    let ashlar = served.ashlar.clone();
    shows(&ashlar, &["list"], &[ARRAY, "lab/v"])?;
    ashlar.done(&["scrub", "start", ARRAY])?;
    shows(&ashlar, &["wait", ARRAY, "--timeout", "60"], &["no job is under way"])?;
    ashlar.run(&["wait", "other"])?.expect(3)?;
    shows(&ashlar, &["events", "--json"], &["\"scrub.began\"", "\"scrub.ended\""])?;

    shows(&ashlar, &["upgrade", ARRAY, "--dry-run"], &["would get: notebook"])?;
    ashlar.run(&["upgrade", ARRAY])?.expect(3)?;
    shows(&ashlar, &["upgrade", ARRAY, "--dry-run"], &["would get: notebook"])?;
    ashlar.done(&["upgrade", ARRAY, "--yes"])?;
    shows(&ashlar, &["upgrade", ARRAY, "--dry-run"], &["nothing to switch on"])?;

    served.fail(1)?;
    let alarm = format!("{ARRAY}:drive_failed:1");
    shows(&ashlar, &["alarms"], &[&alarm])?;
    ashlar.done(&["alarms", "acknowledge", &alarm, "--note", "a drive comes on Monday"])?;
    shows(&ashlar, &["alarms"], &["a drive comes on Monday"])?;

    let file = served.dir().join("bad.toml");
    fs::write(&file, "corse = 2\n").or_fail("bad.toml")?;
    let said = ashlar.run(&["config", "check", "bad.toml"])?.expect(2)?;
    let told = format!("{}{}", said.out, said.err);
    require(told.contains("did you mean \"cores\""), "config check", || told.clone())?;
    served.server.stop()
}

/// A verb that must succeed, and whose output has all of `words` at last.
fn shows(ashlar: &Ashlar, verb: &[&str], words: &[&str]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let said = ashlar.done(verb)?;
        let Some(lacks) = words.iter().find(|word| !said.contains(**word)) else { return Ok(()) };
        if begun.elapsed() > SHOWN_MAX {
            return Err(Failure::new(format!("ashlar {}", verb.join(" ")), format!("{lacks} is not in it:\n{said}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Secrets that somebody may have written into a file of the state directory.
const PLANTED: [&str; 4] = [
    "hunter2-planted",
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
    "MC4CAQAwBQYDK2VwBCIEIPlantedPlantedPlantedPlantedPlanted",
];

fn bundle(lab: &Lab) -> Result<()> {
    let served = lab.array("a", "5", 4, "16M")?;
    let mut server = Server::new(&served.ashlar).with_flags(&["--api", "127.0.0.1:0"]);
    server.start()?;
    let token = served.ashlar.done(&["token", "create", "support", "--role", "read"])?;
    let state = served.dir().join("state");
    let [password, psk, dhchap, key] = PLANTED;
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    let text = format!("password = \"{password}\"\npsk = \"{psk}\"\ndhchap = \"{dhchap}\"\nkey = '''\n{pem}'''\n");
    fs::write(state.join("planted.toml"), text).or_fail("planted.toml")?;
    fs::write(state.join("planted.key"), &pem).or_fail("planted.key")?;
    let mut secrets: Vec<String> = PLANTED.map(str::to_owned).to_vec();
    // The token, its secret alone, what is kept of it, and the key of the API.
    secrets.extend([token.trim().to_owned(), token.trim().rsplit('_').next().unwrap_or_default().to_owned()]);
    secrets.extend(hashes(&state.join("tokens.toml"))?);
    let key = fs::read_to_string(state.join("api.key")).or_fail("api.key")?;
    secrets.extend(key.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned));
    require(secrets.len() >= 8 && secrets.iter().all(|s| s.len() > 10), "the secrets", || format!("{secrets:?}"))?;

    served.ashlar.done(&["bundle", "--quick", "--to", "b.tar.gz"])?;
    let held = tools::run(served.dir(), "tar", &["-xOzf", "b.tar.gz"])?;
    let found: Vec<&String> = secrets.iter().filter(|secret| held.contains(secret.as_str())).collect();
    require(found.is_empty(), "the bundle", || format!("it holds {found:?}"))?;
    // It is about this array, and what was planted was looked at.
    let names = tools::run(served.dir(), "tar", &["-tzf", "b.tar.gz"])?;
    for file in ["status-1.json", "state-planted.toml", "manifest.json"] {
        require(names.contains(file), "the bundle", || format!("it lacks {file}: {names}"))?;
    }
    require(!names.contains("tokens.toml"), "the bundle", || names.clone())?;
    served.ashlar.done(&["bundle", "--check", "b.tar.gz"])?;
    served.ashlar.run(&["bundle", "--quick", "--to", "b.tar.gz"])?.expect(3)?;
    let left: Vec<String> = fs::read_dir(served.dir())
        .or_fail("the directory")?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".ashlar-") || name.contains("partial"))
        .collect();
    require(left.is_empty(), "ashlar bundle", || format!("it left {left:?}"))?;
    server.stop()
}

/// The SHA-256 of each token.
fn hashes(tokens: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(tokens).or_fail("tokens.toml")?;
    let words = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 64);
    Ok(words.map(str::to_owned).collect())
}
