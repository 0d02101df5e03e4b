//! `ashlar lab report`.

use std::path::PathBuf;

use api::Problem;
use lab::compare::tell_apart;
use lab::model::{Run, replace};
use lab::money::Prices;
use lab::report::{Extra, page};
use serde_json::json;

use super::problem;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar lab report --published perc12                    writes lab-report.html
  ashlar lab report lab-smoke --out smoke.html
  ashlar lab report lab-raid-card --published perc12 --prices prices.toml
  ashlar lab report lab-smoke --files smoke-files         also PNGs, an XLSX and a CSV

A price file has date, currency, system_price, raw_tb, drives, and optionally raid (5 or \"RAID5\"; without it bare \
drives), system, p99_ms_max (the latency that a rate must keep to; 1 when absent), reserve_percent, dedup, compression, \
watts, kwh_price, pue, years, dwpd, warranty_years, host_tb_per_day, write_amplification, and [[port]] tables with name, adapter_price, adapter_ports, switch_price, switch_ports, optic_price, cable_price, gbit_per_sec.";

/// Write a report: one self-contained HTML file
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    results: ResultArgs,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "lab-report.html")]
    out: PathBuf,
    /// Price file, for the first result
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Directory for the report, a PNG of each chart, one XLSX and one CSV
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

/// Results, measured or published.
#[derive(Clone, Debug, clap::Args)]
pub struct ResultArgs {
    /// Directories of runs, or result.json files
    #[arg(required_unless_present = "published")]
    results: Vec<PathBuf>,
    /// A review's figures: perc12, perc11, qlc24, fc-roce, ssd24
    #[arg(long, value_name = "REVIEW", value_delimiter = ',')]
    published: Vec<String>,
}

impl ResultArgs {
    /// Reads them; several are told apart by their systems, or by where they lie.
    pub fn read(&self) -> Result<Vec<Run>, Problem> {
        let mut runs = vec![];
        for path in &self.results {
            runs.push(Run::read(path).map_err(problem)?);
        }
        if runs.len() > 1 {
            let places: Vec<String> = self.results.iter().map(|path| path.display().to_string()).collect();
            tell_apart(&mut runs, &places);
        }
        for name in &self.published {
            runs.push(lab::published::run(name).map_err(problem)?);
        }
        Ok(runs)
    }
}

/// Writes it.
pub fn run(json: bool, args: &Args) -> Outcome {
    let runs = args.results.read()?;
    let prices = args.prices.as_ref().map(|p| Prices::read(p)).transpose().map_err(problem)?;
    let html = page(&runs, &Extra { prices });
    replace(&args.out, html.as_bytes()).map_err(problem)?;
    let files = args.files.as_ref().map(|dir| lab::files::write(&runs, &html, dir)).transpose().map_err(problem)?;
    let path = args.out.display().to_string();
    if json {
        text::print_json(&json!({ "report": path, "files": files }));
        return Ok(Finding::Good);
    }
    text::print(&format!("wrote {path}"));
    if let (Some(files), Some(dir)) = (files, &args.files) {
        text::print(&format!("wrote {} files in {}", files.len(), dir.display()));
    }
    Ok(Finding::Good)
}
