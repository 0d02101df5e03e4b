//! `ashlar lab history`.

use std::path::PathBuf;

use lab::model::Run;
use lab::store::Store;
use serde_json::json;

use super::problem;
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar lab history                                   lists what is kept in lab-history
  ashlar lab history lab-smoke lab-raid-card           keeps these two, then lists
  ashlar lab history --store /srv/lab lab-smoke        a store of another name

The page index.html in the store has all results, and how numbers went where the same was measured again. A result that is \
kept is a copy: it is not changed any more.";

/// Keep results, list those that are kept, and write their index page
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories of runs, or result.json files, to keep
    results: Vec<PathBuf>,
    /// Directory of the store
    #[arg(long, value_name = "DIR", default_value = "lab-history")]
    store: PathBuf,
}

/// Keeps, lists.
pub fn run(json: bool, args: &Args) -> Outcome {
    let store = Store::at(&args.store);
    let runs: Vec<Run> = args.results.iter().map(|p| Run::read(p)).collect::<Result<_, _>>().map_err(problem)?;
    for run in &runs {
        store.keep(run).map_err(problem)?;
    }
    let listed = store.write_index().map_err(problem)?;
    let index = store.index().display().to_string();
    if json {
        text::print_json(&json!({ "index": index, "results": listed }));
        return Ok(Finding::Good);
    }
    let mut table = Table::new(&["BEGUN", "SUITE", "PASS", "WARN", "FAIL", "FOUND"]);
    for one in &listed {
        let begun = one.begun.clone().unwrap_or("-".to_owned());
        let [pass, warn, fail] = [one.pass, one.warn, one.fail].map(|n| n.to_string());
        table.row(vec![begun, one.name.clone(), pass, warn, fail, one.title.clone()]);
    }
    table.print();
    text::print(&format!("{} results: {index}", listed.len()));
    Ok(Finding::Good)
}
