//! `cargo xtask docs`: the pages of `docs/` that are written by a program; the checks of all pages (tests); and the walk
//! through the sessions that pages show.
//!
//! Invariant: `docs/reference/cli.md` is the help of every verb, as the golden file of the crate `ashlar` has it; a test of
//! that crate compares the golden file with the program.

#[cfg(test)]
mod links;
#[cfg(test)]
mod names;
pub mod walk;

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The help of every verb, each below a line `==== NAME ====`.
const HELP: &str = "crates/ashlar/tests/texts/help.txt";
/// The page that is written from it.
const CLI_PAGE: &str = "docs/reference/cli.md";

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Writes the generated pages.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write() -> io::Result<()> {
    let page = cli_page(&fs::read_to_string(root().join(HELP))?);
    fs::write(root().join(CLI_PAGE), page)?;
    println!("{CLI_PAGE}: written from {HELP}");
    Ok(())
}

/// The help texts as a page: an index, then one section for each command.
fn cli_page(help: &str) -> String {
    let commands = commands(help);
    let mut page = "# Command line\n\n\
        The help of every command, as the program prints it. `cargo xtask docs` writes this page; do not edit it.\n\
        Exit codes are in [exit codes](exit-codes.md), the configuration file is in [configuration](configuration.md).\n\n\
        | command | what it does |\n|---|---|\n"
        .to_owned();
    for (name, text) in &commands {
        let about = text.lines().next().unwrap_or_default().replace('|', "\\|");
        writeln!(page, "| [`{name}`](#{}) | {about} |", name.replace(' ', "-")).expect("a String takes it");
    }
    for (name, text) in &commands {
        write!(page, "\n## {name}\n\n```text\n{text}\n```\n").expect("a String takes it");
    }
    page
}

/// The commands and their help.
fn commands(help: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = vec![];
    for line in help.lines() {
        match (line.strip_prefix("==== ").and_then(|l| l.strip_suffix(" ====")), all.last_mut()) {
            (Some(name), _) => all.push((name.to_owned(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    all.iter_mut().for_each(|(_, text)| text.truncate(text.trim_end().len()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_command_line_is_what_the_program_says() {
        let page = fs::read_to_string(root().join(CLI_PAGE)).unwrap_or_default();
        let help = fs::read_to_string(root().join(HELP)).expect("the golden help is part of the repository");
        assert!(page == cli_page(&help), "{CLI_PAGE} differs from {HELP}: run `cargo xtask docs`");
    }

    #[test]
    fn performance_has_the_instructions_that_are_guarded() {
        let page = fs::read_to_string(root().join("docs/performance.md")).expect("the page is there");
        let counted = fs::read_to_string(root().join("crates/bench/counted.toml")).expect("the guard is there");
        let missing = counted.lines().filter_map(|l| l.split_once(" = ")).filter(|(_, value)| {
            let n = value.trim_end_matches(".0");
            let (thousands, rest) = n.split_at(n.len() - 3);
            !page.contains(&format!("| {thousands},{rest} |"))
        });
        assert_eq!(missing.collect::<Vec<_>>(), [], "not in docs/performance.md, below Engine");
    }

    #[test]
    fn a_command_is_a_section() {
        let page = cli_page("==== a ====\nDo a\n\nUsage: a\n==== a b ====\nDo b\n");
        assert!(page.contains("| [`a b`](#a-b) | Do b |"), "{page}");
        assert!(page.ends_with("\n## a\n\n```text\nDo a\n\nUsage: a\n```\n\n## a b\n\n```text\nDo b\n```\n"), "{page}");
    }
}
