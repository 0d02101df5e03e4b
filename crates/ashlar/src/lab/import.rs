//! `ashlar lab import`.

use std::path::PathBuf;

use serde_json::json;

use super::problem;
use super::run::SubjectArgs;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar lab import fio.json --out lab-fio                   fio, json or json+
  ashlar lab import results/ --out lab-bench-fio             a directory, as of bench-fio
  ashlar lab import flatfile.html --out lab-vdbench          Vdbench's flatfile or totals
  ashlar lab import elbencho.csv --out lab-elbencho          elbencho's CSV or JSON";

/// Convert results of fio, bench-fio, Vdbench or elbencho to a result of the lab
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A file or a directory
    path: PathBuf,
    /// Directory for result.json and cells.csv
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    subject: SubjectArgs,
}

/// Imports.
pub fn run(json: bool, args: &Args) -> Outcome {
    let run = lab::import::import(&args.path, &args.subject.subject()).map_err(problem)?;
    if args.out.join("result.json").exists() {
        let why = "it already contains a result";
        return Err(problem(lab::Error::usage(args.out.display().to_string(), why)));
    }
    std::fs::create_dir_all(&args.out).map_err(|e| problem(lab::Error::file(&args.out, e)))?;
    lab::files::save(&run, &args.out).map_err(problem)?;
    if json {
        text::print_json(&json!({ "cells": run.cells.len(), "result": args.out.join("result.json") }));
    } else {
        text::print(&format!("{} cells in {}", run.cells.len(), args.out.join("result.json").display()));
    }
    Ok(Finding::Good)
}
