//! Running the suites and taking their time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::suites::Suite;

/// Between two looks at a child.
const LOOK: Duration = Duration::from_millis(50);

/// How a suite ended.
struct Ended {
    name: &'static str,
    took: Duration,
    /// `None`: it passed.
    failure: Option<String>,
}

/// Runs the suites one after the other, all of them whatever happens, and prints the table.
pub fn all(suites: &[Suite]) -> ExitCode {
    let begun = Instant::now();
    let ended: Vec<Ended> = suites.iter().map(one).collect();
    println!("\n{:<11} {:<8} {:>8}", "SUITE", "RESULT", "TIME");
    for e in &ended {
        let result = if e.failure.is_some() { "FAILED" } else { "ok" };
        let why = e.failure.as_deref().unwrap_or("");
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
    let failure = run(suite).and_then(|()| suite.after.map_or(Ok(()), |after| after())).err();
    if let Some(why) = &failure {
        println!("=== {} FAILED: {why}", suite.name);
    }
    Ended { name: suite.name, took: begun.elapsed(), failure }
}

fn run(suite: &Suite) -> Result<(), String> {
    let mut command = suite.command().map_err(|e| e.to_string())?;
    command.stdin(Stdio::null());
    let Some(proof) = suite.proof else {
        let child = command.spawn().map_err(|e| e.to_string())?;
        return wait(child, suite.limit);
    };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let output = child.stdout.take().map(|out| thread::spawn(move || repeat(BufReader::new(out))));
    wait(child, suite.limit)?;
    let output = output.and_then(|o| o.join().ok()).unwrap_or_default();
    if proof(&output) { Ok(()) } else { Err("it ran no test".into()) }
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
