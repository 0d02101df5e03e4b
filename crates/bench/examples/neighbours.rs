//! What a loud volume costs a quiet one, in virtual time.
//!
//!     cargo run --release -p bench --example neighbours

use bench::{Neighbours, Pattern, neighbours};
use rt::Rt;
use rt::model::DiskParams;

// A person waits for it.
#[allow(clippy::disallowed_methods)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nvme = DiskParams { volatile_cache: false, ..DiskParams::default() };
    let equal = bench::drives::equal_cost(1 << 30);
    println!(
        "{:<12} {:<14} {:<14} {:>9} {:>9} {:>9} {:>9} {:>6} {:>11} {:>11} {:>6}",
        "drives", "quiet", "loud", "p50", "beside", "p99", "beside", "ratio", "loud alone", "beside", "ratio"
    );
    for (name, params) in [("nvme", nvme), ("equal cost", equal)] {
        for quiet in [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE] {
            for loud in [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE] {
                let rt = Rt::modelled(1);
                let r = rt.block_on(neighbours(&rt, &Neighbours::usual(params, loud, quiet)))?;
                rt.end();
                println!(
                    "{name:<12} {:<14} {:<14} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>6.2} {:>11.0} {:>11.0} {:>6.2}",
                    quiet.to_string(),
                    loud.to_string(),
                    r.alone_us_p50,
                    r.beside_us_p50,
                    r.alone_us_p99,
                    r.beside_us_p99,
                    r.beside_us_p99 / r.alone_us_p99,
                    r.loud_alone_iops,
                    r.loud_beside_iops,
                    r.loud_beside_iops / r.loud_alone_iops
                );
            }
        }
    }
    Ok(())
}
