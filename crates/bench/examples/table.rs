//! The demo's table by itself; `--json` for scripts.

use bench::table::{Quick, quick};
use rt::Rt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rt = Rt::real()?;
    let report = rt.block_on(quick(&rt, Quick::default(), |_, _, _| ()))?;
    if std::env::args().any(|a| a == "--json") {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
