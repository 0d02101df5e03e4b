//! `ashlar lab compare`.

use std::path::PathBuf;

use api::Problem;
use lab::compare::compare;
use lab::model::replace;
use lab::units;

use super::problem;
use super::report::ResultArgs;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar lab compare lab-md lab-ashlar
  ashlar lab compare lab-raid-card --published perc12 --html compared.html

The first result is the reference. For cells whose conditions differ the reason is shown instead of a difference.";

/// Compare results, or say why they cannot be compared
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    results: ResultArgs,
    /// Also writes the report of all of them
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Compares.
pub fn run(json: bool, args: &Args) -> Outcome {
    let runs = args.results.read()?;
    if runs.len() < 2 {
        return Err(Problem::usage("comparison", "two results are needed", "name another, or add --published REVIEW"));
    }
    let comparison = compare(&runs);
    if let Some(path) = &args.html {
        let page = lab::report::page(&runs, &lab::report::Extra::default());
        replace(path, page.as_bytes()).map_err(problem)?;
    }
    if json {
        text::print_json(&comparison);
        return Ok(Finding::Good);
    }
    for line in &comparison.lines {
        let value = |v: f64| if line.is_iops { format!("{} IOPS", units::si(v)) } else { units::rate(v) };
        let first = format!("{}, {}", line.base_verdict, comparison.names[0]);
        text::print(&format!("{:<44} {:>14}  {first}", line.what, value(line.base)));
        for (other, name) in line.others.iter().zip(&comparison.names[1..]) {
            if let Some(other) = other {
                let judgement = other.judgement(&line.base_latency);
                text::print(&format!("{:<44} {:>14}  {}, {name}: {judgement}", "", value(other.value), other.verdict));
            }
        }
    }
    for kept in &comparison.kept {
        let shares = kept.shares.iter().zip(&comparison.names);
        let shares = shares.filter_map(|(share, name)| share.map(|s| format!("{:.0} % {name}", s * 100.0)));
        text::print(&format!("{:<44} kept: {}", kept.what, shares.collect::<Vec<_>>().join(", ")));
    }
    if comparison.lines.is_empty() {
        text::print("nothing can be compared: no two cells have the same load");
    }
    if comparison.alone > 0 {
        text::print(&format!("{} cells of {} have no counterpart", comparison.alone, comparison.names[0]));
    }
    Ok(Finding::Good)
}
