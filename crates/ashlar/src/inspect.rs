//! `ashlar inspect`.

use std::path::PathBuf;

use serde_json::Value;
use server::ops::inspect;

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar inspect /dev/nvme3n1
  ashlar inspect --json d/0 | jq .identity

Reads the labels and both slots of one drive and nothing else; works on a drive whose array cannot be opened.";

/// Show the labels and metadata of one drive (offline, read-only)
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The drive
    drive: PathBuf,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let value = context.offline(|world| async move { inspect::run(&world, &args.drive).await })?;
    if args.json {
        text::print_json(&value);
    } else {
        let mut lines = vec![];
        for part in ["drive", "identity", "inspection"] {
            tree(part, &value[part], 0, &mut lines);
        }
        lines.iter().for_each(|line| text::print(line));
    }
    Ok(Finding::Good)
}

/// An object as indented lines, with the names' underscores as spaces.
fn tree(name: &str, value: &Value, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let name = name.replace('_', " ");
    match value {
        Value::Object(fields) => {
            lines.push(format!("{indent}{name}"));
            for (name, value) in fields {
                tree(name, value, depth + 1, lines);
            }
        }
        Value::Array(items) if items.is_empty() => lines.push(format!("{indent}{name}: none")),
        Value::Array(items) if items.iter().all(|i| !i.is_object() && !i.is_array()) => {
            let items: Vec<_> = items.iter().map(scalar).collect();
            lines.push(format!("{indent}{name}: {}", items.join(", ")));
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                tree(&format!("{name} {n}"), item, depth, lines);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            lines.push(format!("{indent}{name}: {}", scalar(value)));
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_become_lines() {
        let mut lines = vec![];
        let value = json!({"a_b": 1, "c": null, "d": [1, 2], "e": [{"f": true}], "g": []});
        tree("top", &value, 0, &mut lines);
        assert_eq!(lines, ["top", "  a b: 1", "  c: none", "  d: 1, 2", "  e 0", "    f: yes", "  g: none"]);
    }
}
