//! `ashlar lab plan-box`: the cheapest boxes that do what is needed.

use std::path::PathBuf;

use api::Problem;
use lab::units;
use predict::{Decided, Load, Need, Prices, Workload, plan_box};
use serde_json::json;

use super::predict::usage;
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar lab plan-box --prices prices.toml --need capacity=100T,iops=300k,load=8k-70/30,p99=2ms
  ashlar lab plan-box --prices prices.toml --need capacity=1P,iops=20k,load=64k-randread,p99=20ms

A file of prices:
  currency = \"EUR\"
  host = 6000        # a box without drives
  cores = 32         # of a box
  bays = 24          # drives that it takes
  card = 1200        # a RAID card for eight drives; without it none is considered
  [drives]           # drives of `ashlar lab predict`
  p5520 = 900
  p5316 = 2200

Rates and latencies are those of the model; docs/model.md shows how far off it was.";

/// Find the cheapest boxes that hold the data, keep the load within its latency, and last
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// capacity=SIZE, iops=N, load=LOAD, p99=TIME (ms or us), and where wished writes=SIZE (a day), years=N, separated
    /// by commas
    #[arg(long, value_name = "NEED")]
    need: String,
    /// Prices
    #[arg(long, value_name = "FILE")]
    prices: PathBuf,
    /// How many to list
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,
    /// Seed: the same one gives the same digits
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HINT: &str = "such as --need capacity=100T,iops=300k,load=8k-70/30,p99=2ms";

fn number(key: &str, word: &str) -> Result<f64, Problem> {
    let wrong = || Problem::usage("--need", format!("{key}={word} is not a number"), HINT);
    let (digits, factor) = match word.chars().last() {
        Some('k' | 'K') => (&word[..word.len() - 1], 1e3),
        Some('m' | 'M') => (&word[..word.len() - 1], 1e6),
        _ => (word, 1.0),
    };
    digits.parse::<f64>().ok().filter(|n| *n > 0.0).map(|n| n * factor).ok_or_else(wrong)
}

fn need(text: &str) -> Result<Need, Problem> {
    let wrong = |why: String| Problem::usage("--need", why, HINT);
    let (mut capacity, mut iops, mut load, mut p99) = (None, None, None, None);
    let (mut writes, mut years) = (0.0, 5.0);
    for pair in text.split(',') {
        let (key, word) = pair.split_once('=').ok_or_else(|| wrong(format!("\"{pair}\" has no =")))?;
        let bytes = |word: &str| units::bytes(word).map(|b| b as f64).map_err(|e| wrong(format!("{key}: {e}")));
        match key {
            "capacity" => capacity = Some(bytes(word)?),
            "writes" => writes = bytes(word)?,
            "iops" => iops = Some(number(key, word)?),
            "years" => years = number(key, word)?,
            "load" => load = Some(word.parse::<Workload>().map_err(usage)?),
            "p99" => {
                let (digits, factor) = match (word.strip_suffix("ms"), word.strip_suffix("us")) {
                    (Some(n), _) => (n, 1e3),
                    (_, Some(n)) => (n, 1.0),
                    _ => return Err(wrong(format!("p99={word}: valid units are ms and us"))),
                };
                p99 = Some(number(key, digits)? * factor);
            }
            _ => return Err(wrong(format!("unknown \"{key}\"; valid: capacity, iops, load, p99, writes, years"))),
        }
    }
    let missing = |key: &str| wrong(format!("{key} is missing"));
    Ok(Need {
        capacity_bytes: capacity.ok_or_else(|| missing("capacity"))?,
        load: Load::new(load.ok_or_else(|| missing("load"))?),
        iops: iops.ok_or_else(|| missing("iops"))?,
        p99_us_max: p99.ok_or_else(|| missing("p99"))?,
        writes_per_day: writes,
        years_min: years,
    })
}

fn decided(by: Decided) -> &'static str {
    match by {
        Decided::Level => "fewest for the level",
        Decided::Capacity => "the data decides",
        Decided::Load => "the load decides",
        Decided::Life => "drive life decides",
    }
}

/// Finds them.
pub fn run(json: bool, args: &Args) -> Outcome {
    let need = need(&args.need)?;
    let path = args.prices.display().to_string();
    let file = std::fs::read_to_string(&args.prices)
        .map_err(|e| Problem::failed(path.clone(), e, "see --help for a file of prices"))?;
    let prices: Prices =
        toml::from_str(&file).map_err(|e| Problem::usage(path, e, "see --help for a file of prices"))?;
    let (found, refused) = plan_box(&need, &prices, args.seed).map_err(usage)?;
    if json {
        text::print_json(&json!({ "badge": "MODEL", "boxes": found, "refused": refused, "currency": prices.currency }));
        return Ok(Finding::Good);
    }
    text::print(&format!(
        "MODEL  {} IOPS of {} on {:.1} TB, p99 {} at most",
        text::count(need.iops),
        need.load.workload,
        need.capacity_bytes / 1e12,
        units::latency(need.p99_us_max)
    ));
    if found.is_empty() {
        text::print("Nothing that has a price does it.");
    }
    let mut table = Table::new(&["BOXES", "EACH", ">PRICE", ">USABLE TB", ">P99", ">LIFE", "WHY SO MANY DRIVES"]);
    for boxes in found.iter().take(args.top) {
        table.row(vec![
            boxes.boxes.to_string(),
            boxes.system.title(),
            format!("{} {}", units::grouped(boxes.price), prices.currency),
            format!("{:.1}", boxes.usable_bytes / 1e12),
            units::latency(boxes.answer.p99_us),
            boxes.years.filter(|_| need.writes_per_day > 0.0).map_or("-".to_owned(), |y| format!("{y:.1} years")),
            decided(boxes.decided).to_owned(),
        ]);
    }
    table.print();
    for refused in &refused {
        text::print(&format!("Not {}: {}", refused.title, refused.why));
    }
    Ok(Finding::Good)
}
