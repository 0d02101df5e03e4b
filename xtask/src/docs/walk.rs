//! `cargo xtask walk`: runs the sessions of the README and of the guide as printed, and compares what they show.
//!
//! A session is a block that begins with three backticks and `console`: lines with `$ ` are commands, the others are their
//! output. A line `...` stands for any lines. Numbers, identities and units may differ, and so may spaces.
//!
//! Not part of the tests: it takes a minute, and needs libnbd's clients.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::root;

/// The directory that the pages use.
const PLACE: &str = "/tmp/ashlar";
/// What the README takes for granted.
const BEFORE_README: &str = "mkdir /tmp/ashlar; cd /tmp/ashlar; mkdir d; head -c 200M /dev/urandom >in.img; \
     export ASHLAR_CONTROL=$PWD/ashlar.sock ASHLAR_STATE_DIR=$PWD/state";
const README: &[&str] = &["README.md"];
const GUIDE: &[&str] = &["start", "serve", "monitor", "replace", "recover", "tune", "upgrade"];
/// The shell says so behind the output of a command.
const END: &str = "@@end of output@@";
/// No command of the pages takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command and what the page shows below it.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Walks through all pages with the program beside this one; how many outputs differ.
///
/// # Errors
/// When the place exists already, or a shell cannot be run.
pub fn walk() -> io::Result<usize> {
    let guide: Vec<String> = GUIDE.iter().map(|page| format!("docs/guide/{page}.md")).collect();
    let readme: Vec<String> = README.iter().map(|&page| page.to_owned()).collect();
    Ok(session(BEFORE_README, &readme)? + session("true", &guide)?)
}

/// Pages that follow each other in one shell.
fn session(before: &str, pages: &[String]) -> io::Result<usize> {
    if Path::new(PLACE).exists() {
        return Err(io::Error::other(format!("{PLACE} exists: remove it first")));
    }
    let mut shell = Shell::start()?;
    let differ = compare(&mut shell, before, pages);
    shell.end()?;
    fs::remove_dir_all(PLACE)?;
    differ
}

fn compare(shell: &mut Shell, before: &str, pages: &[String]) -> io::Result<usize> {
    shell.run(before)?;
    let mut differ = 0;
    for page in pages {
        let steps = steps(&fs::read_to_string(root().join(page))?);
        println!("{page}: {} commands", steps.len());
        for step in steps {
            let seen = shell.run(&step.command)?;
            if !fits(&step.shown, &seen) {
                differ += 1;
                println!("$ {}\n  shown:\n    {}", step.command, step.shown.join("\n    "));
                println!("  seen:\n    {}", seen.join("\n    "));
            }
        }
    }
    Ok(differ)
}

/// The commands of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut all: Vec<Step> = vec![];
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            all.push(Step { command: command.to_owned(), shown: vec![] });
        } else if let (true, Some(step)) = (inside, all.last_mut()) {
            step.shown.push(line.to_owned());
        }
    }
    all
}

/// Whether an output is what the page shows.
fn fits(shown: &[String], seen: &[String]) -> bool {
    match shown.split_first() {
        None => seen.is_empty(),
        Some((any, rest)) if any == "..." => (0..=seen.len()).any(|from| fits(rest, &seen[from..])),
        Some((line, rest)) => seen.split_first().is_some_and(|(s, more)| plain(line) == plain(s) && fits(rest, more)),
    }
}

/// A line without what differs from run to run.
fn plain(line: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_identity = bare.len() == 36 && bare.split('-').count() == 5;
        let is_unit = ["B", "KiB", "MiB", "GiB", "B/s", "KiB/s", "MiB/s"].contains(&bare);
        if is_identity || is_unit { "#".to_owned() } else { numberless(word) }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// `1.5` and `23` become `#`.
fn numberless(word: &str) -> String {
    let mut plain = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let fraction = c == '.' && plain.ends_with('#') && chars.peek().is_some_and(char::is_ascii_digit);
        if !c.is_ascii_digit() && !fraction {
            plain.push(c);
        } else if !plain.ends_with('#') {
            plain.push('#');
        }
    }
    plain
}

/// A shell that takes one command after the other.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start() -> io::Result<Shell> {
        let release = std::env::current_exe()?.with_file_name("").join("../release");
        let path = format!("{}:/usr/bin:{}", release.display(), std::env::var("PATH").unwrap_or_default());
        let mut child = Command::new("bash")
            .env("PATH", path)
            .env_remove("ASHLAR_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let (send, lines) = channel();
        thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).all(|l| send.send(l).is_ok()));
        let mut shell = Shell { child, input, lines };
        shell.run("exec 2>&1")?;
        Ok(shell)
    }

    /// What a command prints; without what the shell itself says.
    fn run(&mut self, command: &str) -> io::Result<Vec<String>> {
        writeln!(self.input, "{command}\necho '{END}'")?;
        let mut seen = vec![];
        loop {
            let line =
                self.lines.recv_timeout(PATIENCE).map_err(|_| io::Error::other(format!("no end of: {command}")))?;
            if let Some(rest) = line.strip_suffix(END) {
                seen.extend((!rest.is_empty()).then(|| rest.to_owned()));
                seen.retain(|line| !line.starts_with("bash: line "));
                return Ok(seen);
            }
            seen.push(line);
        }
    }

    /// Ends the shell, and servers that it left, also behind a command that hangs.
    fn end(mut self) -> io::Result<()> {
        writeln!(self.input, "kill $(jobs -p) 2>/dev/null; wait; exit")?;
        drop(self.input);
        self.child.wait().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn commands_and_their_outputs_are_found() {
        let found = steps("text\n```console\n$ a b\nx\ny\n$ c\n```\n$ no\n```text\n$ no\n```\n");
        let commands: Vec<&str> = found.iter().map(|s| s.command.as_str()).collect();
        assert_eq!((commands, found[0].shown.len()), (vec!["a b", "c"], 2));
    }

    #[test]
    fn numbers_may_differ_and_words_may_not() {
        let fits = |shown: &str, seen: &str| fits(&lines(shown), &lines(seen));
        assert!(fits("used 1.5 GiB  (8 %)\n...\nend", "used 900 MiB (12 %)\na\nb\nend"));
        assert!(fits("id 19a30054-9bd8-45f8-a3e0-4fc999811bb9", "id be4d80f7-f5cf-4fb1-9464-aed61bb39e5a"));
        assert!(!fits("state optimal", "state degraded"));
        assert!(!fits("a", "a\nb"));
        assert!(!fits("a\nb", "a"));
    }
}
