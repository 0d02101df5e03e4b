//! The figures: a line every so many cycles, and a summary.

use std::time::{Duration, Instant};

use e2e::{Failure, Result};

use crate::args::Args;
use crate::cycle::Done;

/// Sums over all cycles.
pub struct Report {
    every: u32,
    begun: Instant,
    cycles: u32,
    sum: Done,
    slowest: Duration,
}

impl Report {
    /// Nothing done yet.
    pub fn new(args: &Args) -> Report {
        Report {
            every: args.report_every.max(1),
            begun: Instant::now(),
            cycles: 0,
            sum: Done::default(),
            slowest: Duration::ZERO,
        }
    }

    /// The cycles begin.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Adds a cycle without a violation.
    pub fn cycle(&mut self, number: u32, done: &Done, took: Duration) {
        self.cycles += 1;
        self.sum.add(done);
        self.slowest = self.slowest.max(took);
        if number.is_multiple_of(self.every) {
            let s = &self.sum;
            println!(
                "cycle {number:>5}  {:>8} requests  {:>7} MiB written  {:>8} MiB read back  {:>4} kills ({} in \
                 recovery)  {:>3} checks  0 violations  {:.2} s/cycle",
                s.requests,
                s.bytes_written >> 20,
                s.bytes_verified >> 20,
                s.kills + s.kills_in_recovery,
                s.kills_in_recovery,
                s.checks,
                self.begun.elapsed().as_secs_f64() / f64::from(self.cycles),
            );
        }
    }

    /// That members were set back, came back, and had copies beside them so often.
    pub fn swapped(&self, at_least: u32) -> Result<()> {
        let w = &self.sum.swaps;
        let least = w.set_back.min(w.beside).min(w.came_back);
        if least >= at_least {
            return Ok(());
        }
        Err(Failure::new("swaps", format!("{least} of a kind, not {at_least}; run more cycles, or another seed")))
    }

    /// The end, good or bad.
    pub fn summary(&self, failure: Option<&Failure>) {
        let s = &self.sum;
        let took = self.begun.elapsed().as_secs_f64();
        println!();
        println!("crashloop: {} after {} cycles in {took:.0} s", verdict(failure), self.cycles);
        println!("  requests  {} answered, {} in flight when the server died", s.requests, s.unanswered);
        println!(
            "  data      {} MiB written, {} MiB read back and compared",
            s.bytes_written >> 20,
            s.bytes_verified >> 20
        );
        println!(
            "  ends      {} kills under load, {} idle, {} in recovery, {} stops in order",
            s.kills - s.kills_idle,
            s.kills_idle,
            s.kills_in_recovery,
            s.stops
        );
        println!(
            "  drives    {} failed, {} replaced, {} added, {} retired; {} scrubs started",
            s.drives_failed, s.drives_replaced, s.drives_added, s.drives_retired, s.scrubs
        );
        let w = &s.swaps;
        println!(
            "  swaps     {} set back, {} copies beside, {} came back, {} refused; {} others away after that, and back",
            w.set_back, w.beside, w.came_back, w.refused, w.away
        );
        println!("  checks    {} offline, all good", s.checks);
        println!(
            "  starts    {:.0} ms on average; slowest cycle {:.1} s",
            s.start.as_secs_f64() * 1000.0 / f64::from(s.starts.max(1)),
            self.slowest.as_secs_f64()
        );
        if let Some(failure) = failure {
            println!("VIOLATION {}", failure.what);
            println!("{}", failure.why);
        }
    }
}

fn verdict(failure: Option<&Failure>) -> &'static str {
    if failure.is_some() { "A VIOLATION" } else { "nothing lost" }
}
