//! What is needed to repeat it: commands, versions, files as they were.

use super::Section;
use super::html::escape;
use super::scales::Scales;
use crate::model::Run;

/// The section, if anything is disclosed.
pub fn section(runs: &[Run], _: &Scales) -> Option<Section> {
    let mut body = String::new();
    for run in runs {
        body.push_str(&format!("<h3>{}</h3><p>Written by {}.</p>", escape(&run.name), escape(&run.tool)));
        for page in &run.disclosure {
            body.push_str(&details(&page.title, &page.text));
        }
        let commands: Vec<String> =
            run.cells.iter().filter_map(|c| Some(format!("# {}\n{}", c.id, c.command.as_ref()?))).collect();
        if !commands.is_empty() {
            body.push_str(&details(&format!("Commands of {} cells", commands.len()), &commands.join("\n\n")));
        }
    }
    (!body.is_empty()).then(|| Section::new("disclosure", "Disclosure", body))
}

fn details(title: &str, text: &str) -> String {
    format!("<details><summary>{}</summary><pre>{}</pre></details>", escape(title), escape(text))
}
