//! `cargo xtask test`: the second command of the README, and all that CI calls. `cargo xtask docs` writes generated pages,
//! `cargo xtask package` the Debian package.
//!
//! Installs what the tests need (as root, on Debian, saying so), runs every suite, and prints how long each took.
//! What is shipped has the profile `release`, what tests run the profile `tests`: each is compiled once.
//!
//! Uses nothing but the standard library: it is compiled before anything else is known to work.

// A tool that runs processes and takes their time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod docs;
mod needs;
mod package;
mod run;
mod suites;

use std::env;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
Usage: cargo xtask test [--all | --only SUITE]... [--no-install] [--list]
       cargo xtask docs      writes docs/reference/cli.md from the help texts of the program
       cargo xtask package [--built] [--fast] [--version VERSION]
                             makes the Debian package, in target/package
       cargo xtask walk      runs the sessions of the README and the guide with target/release/ashlar, as printed

  --all           every suite; without it slow ones take turns, by the number of the commit
  --only SUITE    only this suite, and the build if it needs it (may be given again)
  --no-install    installs nothing: what is missing is an error, also for root
  --list          lists the suites
  --built         packs target/release/ashlar as it is; without it the program is built first
  --fast          compresses less
  --version       the package's version [default: the program's]

Exit codes: 0 all suites passed, 1 one did not, 2 the command line makes no sense, 3 something is not installed";

/// The options of `cargo xtask test`.
#[derive(Default)]
struct Options {
    only: Vec<String>,
    all: bool,
    list: bool,
    no_install: bool,
}

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some("test") => {}
        Some("docs") => return write_docs(),
        Some("walk") => return walk(),
        Some("package") => return package(args),
        Some("-h" | "--help" | "help") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(_) | None => return usage("the tasks are test, docs, package and walk"),
    }
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--all" => options.all = true,
            "--list" => options.list = true,
            "--no-install" => options.no_install = true,
            "--only" => match args.next() {
                Some(name) => options.only.push(name),
                None => return usage("--only wants the name of a suite"),
            },
            "-h" | "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => return usage(&format!("{other} is not known")),
        }
    }
    test(&options)
}

fn write_docs() -> ExitCode {
    match docs::write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn package(args: impl Iterator<Item = String>) -> ExitCode {
    let options = match package::Options::parse(args) {
        Ok(options) => options,
        Err(why) => return usage(&why),
    };
    match package::make(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn walk() -> ExitCode {
    match docs::walk::walk() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differ) => {
            println!("{differ} outputs differ");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage(why: &str) -> ExitCode {
    eprintln!("xtask: {why}\n\n{USAGE}");
    ExitCode::from(2)
}

fn test(options: &Options) -> ExitCode {
    let all = suites::all();
    if options.list {
        all.iter().for_each(|s| println!("{:<11} {:<62} {}", s.name, s.about, s.command_line()));
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = options.only.iter().find(|name| all.iter().all(|s| s.name != **name)) {
        return usage(&format!("no suite is called {unknown}; --list shows them"));
    }
    let turn = if options.all { None } else { commit_number().map(|n| n % suites::TURNS) };
    let has_turn = |s: &suites::Suite| turn.is_none() || s.turn.is_none() || s.turn == turn;
    let named = |s: &suites::Suite| {
        if options.only.is_empty() { has_turn(s) } else { options.only.iter().any(|n| n == s.name) }
    };
    if options.only.is_empty() {
        let others: Vec<_> = all.iter().filter(|s| !has_turn(s)).map(|s| s.name).collect();
        if !others.is_empty() {
            println!(
                "Slow suites take turns by commit; this one leaves out {}: `cargo xtask test --all`",
                others.join(", ")
            );
        }
    }
    let wanted: Vec<&str> =
        all.iter().filter(|s| named(s) || all.iter().any(|o| named(o) && s.makes_for(o))).map(|s| s.name).collect();
    let chosen: Vec<_> = all.into_iter().filter(|s| wanted.contains(&s.name)).collect();
    if chosen.iter().any(|s| s.foreign)
        && let Err(why) = needs::provide(!options.no_install)
    {
        eprintln!("xtask: {why}");
        return ExitCode::from(3);
    }
    run::all(&chosen)
}

/// Which commit of the branch this is; `None` outside of a repository: then no suite is left out.
fn commit_number() -> Option<u64> {
    let count = Command::new("git").args(["rev-list", "--count", "HEAD"]).output().ok()?;
    String::from_utf8(count.stdout).ok()?.trim().parse().ok()
}
