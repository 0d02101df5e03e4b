//! The figures of all ways as a table for a page: a row for each cell, a column for each way.

use std::fs;
use std::path::PathBuf;

use e2e::{OrFail, Result};
use serde_json::Value;

/// Of results in these directories.
pub fn of(results: &[PathBuf]) -> Result<String> {
    let read = |dir: &PathBuf| -> Result<Value> {
        let path = dir.join("result.json");
        let text = fs::read_to_string(&path).or_fail(path.display().to_string())?;
        serde_json::from_str(&text).or_fail(path.display().to_string())
    };
    let runs = results.iter().map(read).collect::<Result<Vec<Value>>>()?;
    let cells = |run: &Value| run["cells"].as_array().cloned().unwrap_or_default();
    let first = runs.first().map(cells).unwrap_or_default();
    let names = runs.iter().map(|run| run["cells"][0]["subject"]["system"].as_str().unwrap_or("?").to_owned());
    let mut table = format!("| | {} |\n|---|{}\n", names.collect::<Vec<_>>().join(" | "), "---|".repeat(runs.len()));
    for cell in &first {
        let id = cell["id"].as_str().unwrap_or_default();
        let of = |run: &Value| cells(run).iter().find(|c| c["id"] == cell["id"]).map_or("-".to_owned(), text);
        table += &format!("| {id} | {} |\n", runs.iter().map(of).collect::<Vec<_>>().join(" | "));
    }
    Ok(table)
}

/// A rate, and the mean latency.
fn text(cell: &Value) -> String {
    let figure = |name: &str| cell["figures"][name].as_f64();
    let large = cell["load"]["block_bytes"].as_u64().is_some_and(|bytes| bytes > 16 << 10);
    let rate = if large {
        figure("bytes_per_sec").map(|rate| format!("{:.0} MB/s", rate / 1e6))
    } else {
        figure("iops").map(|rate| format!("{rate:.0} IOPS"))
    };
    let mean = cell["figures"]["latency"]["mean_us"].as_f64().map(|us| format!(", {us:.0} us"));
    rate.unwrap_or_default() + &mean.unwrap_or_default()
}
