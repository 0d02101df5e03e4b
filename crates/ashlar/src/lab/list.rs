//! `ashlar lab list`.

use lab::published::REVIEWS;
use lab::suite::{BUILT_IN, Suite};
use serde_json::json;

use super::problem;
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar lab list
  ashlar lab list --suite smoke > mine.toml      a copy to change";

/// List the suites, and the reviews whose figures are built in
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Prints the definition of a suite instead
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
}

/// Lists.
pub fn run(json: bool, args: &Args) -> Outcome {
    if let Some(name) = &args.suite {
        Suite::find(name).map_err(problem)?;
        text::print(Suite::text(name).unwrap_or_default().trim_end());
        return Ok(Finding::Good);
    }
    let suites: Vec<Suite> =
        BUILT_IN.iter().map(|(name, _)| Suite::find(name)).collect::<Result<_, _>>().map_err(problem)?;
    if json {
        let suites: Vec<_> =
            suites.iter().map(|s| json!({ "name": s.name, "about": s.about, "review": s.review })).collect();
        let reviews: Vec<_> = REVIEWS.iter().map(|r| json!({ "name": r.name, "about": r.about })).collect();
        text::print_json(&json!({ "suites": suites, "published": reviews }));
        return Ok(Finding::Good);
    }
    let mut table = Table::new(&["SUITE", "BESIDE", "WHAT IT TESTS"]);
    for suite in &suites {
        table.row(vec![suite.name.clone(), suite.review.clone().unwrap_or("-".to_owned()), suite.about.clone()]);
    }
    table.print();
    text::print("");
    let mut table = Table::new(&["PUBLISHED", "WHAT IT IS"]);
    for review in REVIEWS {
        table.row(vec![review.name.to_owned(), review.about.to_owned()]);
    }
    table.print();
    Ok(Finding::Good)
}
