//! `ashlar config`.

use std::fs;
use std::path::PathBuf;

use api::Problem;
use clap::Subcommand;
use serde::Serialize;
use server::mistakes::{self, Mistake};
use server::{daemon, paths};

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::{serve, text};

const EXAMPLES: &str = "\
Examples:
  ashlar config check                    that of the service, /etc/ashlar/ashlar.toml
  ashlar config check new.toml

The exit code is 0 when `ashlar serve --config` would take the file, and 2 when it would not.";

/// Look at a configuration file
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Say all that is wrong with a configuration file, as `serve` would read it
    #[command(after_help = EXAMPLES)]
    Check(CheckArgs),
}

#[derive(clap::Args)]
struct CheckArgs {
    /// The file [default: /etc/ashlar/ashlar.toml]
    file: Option<PathBuf>,
    /// Prints an object for scripts
    #[arg(long)]
    json: bool,
}

/// What scripts see.
#[derive(Serialize)]
struct Checked {
    version: u32,
    file: PathBuf,
    problems: Vec<Mistake>,
}

impl Args {
    /// Whether an object is wanted.
    pub fn json(&self) -> bool {
        let Verb::Check(args) = &self.verb;
        args.json
    }
}

/// Looks at it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let Verb::Check(args) = &args.verb;
    let named = args.file.clone().unwrap_or_else(|| PathBuf::from(paths::CONFIGURATION));
    let file = paths::configuration(&named).to_owned();
    let what = || format!("configuration {}", file.display());
    let read = fs::read_to_string(&file).map_err(|e| Problem::usage(what(), e, "name a readable file"))?;
    let mut problems = mistakes::all(&read);
    if problems.is_empty()
        && let Err(problem) = serve::of_file(context, &file).and_then(|settings| daemon::look_at(&settings))
    {
        let why = format!("{}: {}; {}", problem.what, problem.why, problem.todo);
        problems.push(Mistake { line: None, key: None, why, nearest: None });
    }
    let finding = if problems.is_empty() { Finding::Good } else { Finding::Invalid };
    if args.json {
        text::print_json(&Checked { version: api::VERSION, file, problems });
    } else if problems.is_empty() {
        text::print(&format!("{}: valid", file.display()));
    } else {
        problems.iter().for_each(|mistake| text::print(&line(&file.display().to_string(), mistake)));
    }
    Ok(finding)
}

fn line(file: &str, mistake: &Mistake) -> String {
    let place = mistake.line.map_or(file.to_owned(), |line| format!("{file}:{line}"));
    let key = mistake.key.as_ref().map(|key| format!(" {key}:")).unwrap_or_default();
    let nearest = mistake.nearest.as_ref().map(|name| format!(" (did you mean \"{name}\"?)")).unwrap_or_default();
    format!("{place}:{key} {}{nearest}", mistake.why)
}
