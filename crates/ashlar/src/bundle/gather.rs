//! What goes into a bundle.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use api::{Arrays, Problem};

use crate::client::Client;
use crate::context::Context;

/// Between two looks at status and counters.
const PAUSE: Duration = Duration::from_secs(5);

/// Events of the server: the newest.
const EVENTS: &str = "/v1/events?limit=1000";

/// What the server says, by file.
const ASKED: [(&str, &str); 6] = [
    ("server.json", "/v1/server"),
    ("events.json", EVENTS),
    ("alarms.json", "/v1/alarms"),
    ("jobs.json", "/v1/jobs"),
    ("clients.json", "/v1/clients"),
    ("placement.json", "/v1/placement"),
];

/// What other programs say, by file.
const RUN: [(&str, &[&str]); 7] = [
    ("uname.txt", &["uname", "-a"]),
    ("lsblk.txt", &["lsblk", "-O", "-J"]),
    ("nvme-list.json", &["nvme", "list", "-o", "json"]),
    ("mounts.txt", &["findmnt", "-A"]),
    ("service.txt", &["systemctl", "show", "ashlar.service"]),
    ("log.txt", &["journalctl", "-u", "ashlar.service", "-n", "5000", "--no-pager", "-o", "short-iso-precise"]),
    ("kernel-log.txt", &["journalctl", "-k", "-n", "2000", "--no-pager", "-o", "short-iso-precise"]),
];

/// Files of the machine.
const READ: [(&str, &str); 4] = [
    ("meminfo.txt", "/proc/meminfo"),
    ("cpuinfo.txt", "/proc/cpuinfo"),
    ("os-release.txt", "/etc/os-release"),
    ("config.toml", "/etc/ashlar/ashlar.toml"),
];

/// Texts by file, and what could not be had.
#[derive(Default)]
pub struct Gathered {
    /// Name and text.
    pub files: Vec<(String, String)>,
    /// Name and why.
    pub left_out: Vec<(String, String)>,
}

impl Gathered {
    /// All that can be had.
    pub fn all(context: &Context, quick: bool) -> Gathered {
        let mut all = Gathered::default();
        match context.server() {
            Some(client) => all.ask(&client, quick),
            None => {
                let why = format!("no Ashlar answers at {}", context.place());
                let names =
                    ASKED.iter().map(|(name, _)| *name).chain(["status-1.json", "iostat-1.json", "metrics.txt"]);
                all.left_out.extend(names.map(|name| (name.to_owned(), why.clone())));
            }
        }
        for (name, words) in RUN {
            all.add(name, run(words));
        }
        for (name, path) in READ {
            all.add(name, fs::read_to_string(path).map_err(|e| format!("{path}: {e}")));
        }
        let state = fs::read_dir(&context.state_dir).into_iter().flatten().flatten();
        // Not the hashes of tokens: they are nobody's business.
        let is_meant = |path: &std::path::Path| {
            path.extension().is_some_and(|ext| ext == "toml") && !path.ends_with("tokens.toml")
        };
        for entry in state.filter(|entry| is_meant(&entry.path())) {
            let name = format!("state-{}", entry.file_name().to_string_lossy());
            all.add(&name, fs::read_to_string(entry.path()).map_err(|e| e.to_string()));
        }
        all
    }

    fn ask(&mut self, client: &Client, quick: bool) {
        let mut drives = vec![];
        for round in 1..=if quick { 1 } else { 3 } {
            if round > 1 {
                thread::sleep(PAUSE);
            }
            let status = client.get::<serde_json::Value>("/v1/arrays");
            if let Ok(Ok(arrays)) = status.as_ref().map(|said| serde_json::from_value::<Arrays>(said.clone())) {
                let members = arrays.arrays.into_iter().flat_map(|array| array.members);
                drives = members.map(|member| member.drive).collect();
            }
            self.add(&format!("status-{round}.json"), pretty(status));
            self.add(&format!("iostat-{round}.json"), pretty(client.get("/v1/iostat")));
        }
        for (name, path) in ASKED {
            self.add(name, pretty(client.get(path)));
        }
        self.add("metrics.txt", client.text("/metrics").map_err(|problem| problem.line()));
        for drive in drives.iter().filter(|path| path.starts_with("/dev/")) {
            let name = format!("smart{}.json", drive.replace('/', "-"));
            self.add(&name, run(&["nvme", "smart-log", drive, "-o", "json"]));
        }
    }

    fn add(&mut self, name: &str, text: Result<String, String>) {
        match text {
            Ok(text) => self.files.push((name.to_owned(), text)),
            Err(why) => self.left_out.push((name.to_owned(), why)),
        }
    }
}

fn pretty(said: Result<serde_json::Value, Problem>) -> Result<String, String> {
    let said = said.map_err(|problem| problem.line())?;
    serde_json::to_string_pretty(&said).map_err(|e| e.to_string())
}

/// What a program prints.
fn run(words: &[&str]) -> Result<String, String> {
    let (program, args) = words.split_first().ok_or_else(|| "no program".to_owned())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
