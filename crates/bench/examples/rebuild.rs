//! What the loss of a drive costs, in virtual time: RAID 6 8+2 over 24 modelled drives of equal cost per byte, half full,
//! some of it overwritten.
//!
//!     cargo run --release -p bench --example rebuild
//!
//! Beside it stand the goals of the design (section 8) and what PERC 12 with 8 drives keeps.

use array::Rate;
use bench::Pattern;
use bench::State;
use bench::rebuild::{Place, Rebuilds};
use ondisk::Level;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let how = Rebuilds::default();
    let filled = how.fill()?;
    println!("A rebuild, with no hosts:");
    println!("{:<16} {:>8} {:>22} {:>22}", "to", "seconds", "MB read (least)", "MB written (least)");
    let mb = |bytes: u64| bytes as f64 / 1e6;
    for place in [Place::SpareCapacity, Place::NewDrive] {
        let w = filled.rebuild(place)?;
        println!(
            "{:<16} {:>8.3} {:>10.0} ({:>8.0}) {:>10.0} ({:>8.0})",
            format!("{place:?}"),
            w.seconds,
            mb(w.bytes_read),
            mb(w.least_read),
            mb(w.bytes_written),
            mb(w.least_written)
        );
    }
    for (pattern, degraded_goal, rebuilding_goal, perc) in [
        (Pattern::RANDOM_READ, "-", "-", "0.34 degraded"),
        (Pattern::RANDOM_WRITE, "-", "0.80, p99 1.5", "0.28 rebuilding"),
    ] {
        println!(
            "\n4K {pattern}, {} in flight; goal degraded {degraded_goal}, rebuilding {rebuilding_goal}; PERC 12 {perc}",
            how.depth
        );
        println!("{:<22} {:>8} {:>7} {:>9} {:>7} {:>12}", "", "kIOPS", "ratio", "p99 us", "ratio", "rebuilt MB/s");
        let optimal = filled.hosts(pattern, State::Optimal)?;
        let rates = [Rate::Low, Rate::Medium, Rate::High].map(State::Rebuilding);
        for state in [State::Optimal, State::Degraded].into_iter().chain(rates) {
            let h = filled.hosts(pattern, state)?;
            println!(
                "{:<22} {:>8.0} {:>7.2} {:>9.0} {:>7.2} {:>12.0}",
                format!("{state:?}"),
                h.iops / 1000.0,
                h.iops / optimal.iops,
                h.us_p99,
                h.us_p99 / optimal.us_p99,
                h.rebuilt_per_second / 1e6
            );
        }
    }
    let how = Rebuilds { level: Level::Raid5, width: 8, ..Rebuilds::default() };
    let filled = how.fill()?;
    let read = |state| filled.hosts(Pattern::RANDOM_READ, state).map(|h| h.iops);
    let ratio = read(State::Degraded)? / read(State::Optimal)?;
    println!("\nRAID 5 7+1 over 24, degraded 4K random read: {ratio:.2} (goal 0.70, limit 0.77)");
    Ok(())
}
