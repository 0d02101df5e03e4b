//! The simulator: the shipped engine in a world where one seed decides workload, scheduling, faults and time.
//!
//! Faults here: power cuts with any subset of unflushed writes kept, dropped or torn; process death at any moment;
//! drives pulled, returning stale, replaced, spares. All within the promised redundancy.

mod model;
mod run;
mod workload;
mod world;

use clap::Parser;

/// Runs seeds until one fails.
#[derive(Parser)]
struct Args {
    /// One seed, with what happens in it.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B.
    #[arg(long, value_name = "A..B", default_value = "0..200")]
    seeds: String,
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    let (from, to) = match args.seed {
        Some(seed) => (seed, seed + 1),
        None => match args.seeds.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
            Some((Ok(a), Ok(b))) if a < b => (a, b),
            _ => {
                eprintln!("--seeds {}: give a range such as 0..200", args.seeds);
                return std::process::ExitCode::from(2);
            }
        },
    };
    let mut total = run::Report::default();
    for seed in from..to {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            println!("seed {seed} FAILED: panic\nreplay: cargo run --release -p sim -- --seed {seed}");
            usual(info);
        }));
        match run::run(seed, args.seed.is_some()) {
            Ok(report) => total.add(&report),
            Err(wrong) => {
                println!("seed {seed} FAILED: {wrong}\nreplay: cargo run --release -p sim -- --seed {seed}");
                return std::process::ExitCode::FAILURE;
            }
        }
        drop(std::panic::take_hook());
    }
    println!("{} seeds passed: {total:?}", to - from);
    std::process::ExitCode::SUCCESS
}
