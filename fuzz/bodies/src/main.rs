//! Replays the corpus of every fuzz target, and mutations of it by a fixed seed, on the stable tool chain.

// A tool that reads files and takes their time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use bodies::mutate::Mutator;
use bodies::{TARGETS, Target};
use clap::Parser;

/// Replays inputs of the fuzz targets.
#[derive(Parser)]
struct Args {
    /// Only this target (may be given again).
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
    /// Mutated inputs of each target, instead of its own number.
    #[arg(long)]
    mutations: Option<u32>,
    /// The seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the corpora lie, one directory for each target.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))]
    corpus: PathBuf,
    /// Writes the inputs that the encoders make into the corpora, and ends.
    #[arg(long)]
    write_seeds: bool,
    /// Only these inputs, of the one target given by --only.
    files: Vec<PathBuf>,
}

/// The input that runs: what it is, its target, and its bytes.
static RUNNING: Mutex<(String, &str, Vec<u8>)> = Mutex::new((String::new(), "", Vec::new()));

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(unknown) = args.only.iter().find(|name| TARGETS.iter().all(|t| t.name != **name)) {
        eprintln!("fuzz-replay: no target is called {unknown}");
        return ExitCode::from(2);
    }
    if !args.files.is_empty() && args.only.len() != 1 {
        eprintln!("fuzz-replay: give --only TARGET with the files");
        return ExitCode::from(2);
    }
    tell_of_panics();
    let chosen = TARGETS.iter().filter(|t| args.only.is_empty() || args.only.iter().any(|n| n == t.name));
    for target in chosen {
        let done = if args.write_seeds { write_seeds(target, &args.corpus) } else { replay(target, &args) };
        if let Err(error) = done {
            eprintln!("fuzz-replay: {}: {error}", target.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A panic ends the process: before that, the input is kept where it can be replayed from.
fn tell_of_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(running) = RUNNING.try_lock() {
            let (what, target, input) = &*running;
            let path = std::env::temp_dir().join(format!("fuzz-{target}-failed"));
            let kept = fs::write(&path, input);
            println!("{target}: {what} FAILED");
            if kept.is_ok() {
                println!("replay: cargo run --release -p fuzz-bodies -- --only {target} {}", path.display());
            }
        }
        usual(info);
        std::process::abort();
    }));
}

fn replay(target: &'static Target, args: &Args) -> io::Result<()> {
    let since = Instant::now();
    let paths = if args.files.is_empty() { files(&args.corpus.join(target.name))? } else { args.files.clone() };
    let mut inputs = Vec::with_capacity(paths.len());
    for path in &paths {
        let input = fs::read(path)?;
        run(target, path.display().to_string(), &input);
        inputs.push(input);
    }
    if inputs.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the corpus is empty: nothing was tested"));
    }
    let mutations = if args.files.is_empty() { args.mutations.unwrap_or(target.mutations) } else { 0 };
    let mut mutator = Mutator::new(args.seed);
    for i in 0..mutations {
        let input = mutator.pick(inputs.len());
        let other = mutator.pick(inputs.len());
        let mutated = mutator.mutate(&inputs[input], &inputs[other]);
        run(target, format!("mutation {i} of seed {} of {}", args.seed, paths[input].display()), &mutated);
    }
    println!("{:<10} {:>3} files, {mutations} mutations: {:.1?}", target.name, inputs.len(), since.elapsed());
    Ok(())
}

fn run(target: &'static Target, what: String, input: &[u8]) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = (what, target.name, input.to_vec());
    }
    (target.body)(input);
}

/// The files of a directory, by name.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

fn write_seeds(target: &Target, corpus: &Path) -> io::Result<()> {
    let directory = corpus.join(target.name);
    fs::create_dir_all(&directory)?;
    for (name, bytes) in (target.seeds)() {
        fs::write(directory.join(name), bytes)?;
    }
    Ok(())
}
