//! Running the suites and taking their time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::suites::Suite;

/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(50);

/// Lines of what failed in a suite that are shown again at the end.
const SHOWN_AGAIN: usize = 60;

/// How a suite ended.
struct Ended {
    name: &'static str,
    took: Duration,
    /// `None`: it passed.
    failure: Option<Failure>,
}

/// Why a suite did not pass.
struct Failure {
    why: String,
    /// What its tests said that failed, as far as it is known.
    said: Vec<String>,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, said: vec![] }
    }
}

/// Runs the suites one after the other, all of them whatever happens, and prints the table.
pub fn all(suites: &[Suite]) -> ExitCode {
    let begun = Instant::now();
    let ended: Vec<Ended> = suites.iter().map(one).collect();
    // Of a long output often the end alone is kept.
    for e in &ended {
        if let Some(failure) = e.failure.as_ref().filter(|f| !f.said.is_empty()) {
            println!("\n=== what failed in {}", e.name);
            failure.said.iter().for_each(|line| println!("{line}"));
        }
    }
    println!("\n{:<11} {:<8} {:>8}", "SUITE", "RESULT", "TIME");
    for e in &ended {
        let result = if e.failure.is_some() { "FAILED" } else { "ok" };
        let why = e.failure.as_ref().map_or("", |f| &f.why);
        println!("{:<11} {result:<8} {:>6.1} s  {why}", e.name, e.took.as_secs_f64());
    }
    let failed: Vec<&str> = ended.iter().filter(|e| e.failure.is_some()).map(|e| e.name).collect();
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("{:<11} {result:<8} {:>6.1} s  {}", "all", begun.elapsed().as_secs_f64(), failed.join(", "));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(suite: &Suite) -> Ended {
    println!("\n=== {}: {}\n$ {}", suite.name, suite.about, suite.command_line());
    let _shown = std::io::stdout().flush();
    let begun = Instant::now();
    let after = || suite.after.map_or(Ok(()), |after| after().map_err(Failure::from));
    let failure = run(suite).and_then(|()| after()).err();
    if let Some(Failure { why, .. }) = &failure {
        println!("=== {} FAILED: {why}", suite.name);
    }
    Ended { name: suite.name, took: begun.elapsed(), failure }
}

fn run(suite: &Suite) -> Result<(), Failure> {
    let mut command = suite.command().map_err(|e| e.to_string())?;
    command.stdin(Stdio::null());
    if !suite.runs_tests() {
        let child = command.spawn().map_err(|e| e.to_string())?;
        return Ok(wait(child, suite.limit)?);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let output = child.stdout.take().map(|out| thread::spawn(move || repeat(BufReader::new(out))));
    let ended = wait(child, suite.limit);
    let output = output.and_then(|o| o.join().ok()).unwrap_or_default();
    ended.map_err(|why| Failure { why, said: failures(&output) })?;
    match suite.proof {
        Some(proof) if !proof(&output) => Err("it ran no test".to_owned().into()),
        Some(_) | None => Ok(()),
    }
}

/// What tests said that failed: the last lines of that.
fn failures(output: &str) -> Vec<String> {
    let mut said = vec![];
    let mut is_inside = false;
    for line in output.lines() {
        is_inside = (is_inside || line == "failures:") && !line.starts_with("test result: ");
        if is_inside && !line.trim().is_empty() {
            said.push(line.to_owned());
        }
    }
    said.split_off(said.len().saturating_sub(SHOWN_AGAIN))
}

/// Passes the output on, and returns it.
fn repeat(output: impl BufRead) -> String {
    let mut all = String::new();
    for line in output.lines().map_while(Result::ok) {
        println!("{line}");
        all.push_str(&line);
        all.push('\n');
    }
    all
}

fn wait(mut child: Child, limit: Duration) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if begun.elapsed() > limit => {
                let _gone = child.kill();
                let _status = child.wait();
                return Err(format!("it hung: ended after {} minutes", limit.as_secs() / 60));
            }
            Ok(None) => thread::sleep(LOOK),
            Err(e) => return Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_said_again() {
        let output = "running 2 tests\nF.\nfailures:\n\n---- a::b stdout ----\nit broke\n\nfailures:\n    a::b\n\ntest result: \
                      FAILED. 1 passed\n\nrunning 1 test\n.\ntest result: ok. 1 passed\n";
        assert_eq!(failures(output), ["failures:", "---- a::b stdout ----", "it broke", "failures:", "    a::b"]);
        assert_eq!(failures("running 1 test\ntest result: ok. 1 passed\n"), [""; 0]);
    }
}
