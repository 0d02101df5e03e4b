//! Every text that users see, in files beside the tests, so that a review sees a change of wording.
//!
//! Invariant: what `tests/texts/*.txt` says is what the program says: the help of every verb as clap renders it, and the
//! literals of the source that are more than one word. `ASHLAR_RENEW_TEXTS=1` writes the files instead of comparing them.
//!
//! Not here: single words (states, headings, names of fields), and what is for programmers: assertions, canaries, tests.

mod literals;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::cli::Cli;

/// Columns in which help is rendered: the most that the program uses.
const WIDTH: usize = 100;

/// Crates whose texts users see. Those of the engine name no command line.
const ENGINE: [&str; 5] = ["base", "ondisk", "rt", "erasure", "array"];
const AROUND: [&str; 7] = ["api", "tls", "export", "bench", "lab", "server", "ashlar"];

/// Words that read as translated; what to write instead.
const FOREIGN: [(&str, &str); 10] = [
    ("it is no ", "it is not a ..."),
    ("is no size", "is not a size"),
    ("is no number", "is not a number"),
    ("what is not said", "default"),
    (" wants ", "needs"),
    ("somebody else", "another program"),
    ("nobody ", "no host, no program"),
    ("of ours", "an Ashlar label"),
    ("mend ", "fix"),
    ("all the same", "nevertheless"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares `text` with the file of this name, or writes it there.
fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts").join(name);
    if std::env::var_os("ASHLAR_RENEW_TEXTS").is_some() {
        return fs::write(&path, text).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    if known == text {
        return;
    }
    let gone: Vec<&str> = known.lines().filter(|line| !text.lines().any(|l| l == *line)).collect();
    let new: Vec<&str> = text.lines().filter(|line| !known.lines().any(|l| l == *line)).collect();
    panic!(
        "texts have changed:\n- {}\n+ {}\nIf that is meant: ASHLAR_RENEW_TEXTS=1 cargo test --release -p ashlar texts, and look at \
         the difference in {}",
        gone.join("\n- "),
        new.join("\n+ "),
        path.display()
    );
}

/// The help of a command and of all below it.
fn helps(command: &mut clap::Command, name: &str, all: &mut String) {
    writeln!(all, "==== {name} ====\n{}", command.render_long_help().to_string().trim_end()).unwrap();
    let below: Vec<String> =
        command.get_subcommands().map(|c| c.get_name().to_owned()).filter(|name| name != "help").collect();
    for verb in below {
        let command = command.find_subcommand_mut(&verb).unwrap();
        helps(command, &format!("{name} {verb}"), all);
    }
}

#[test]
fn help_is_as_it_was_reviewed() {
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let mut all = String::new();
    helps(&mut command, "ashlar", &mut all);
    compare("help.txt", &all);
}

#[test]
fn no_example_breaks_in_the_middle() {
    fn check(command: &clap::Command) {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in examples.lines().filter(|line| line.starts_with(' ')) {
            assert!(line.len() <= WIDTH, "{}: {} columns: {line}", command.get_name(), line.len());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn texts_are_as_they_were_reviewed() {
    for name in ENGINE.iter().chain(&AROUND) {
        let mut all = String::new();
        for (file, texts) in literals::of(&crates().join(name).join("src")) {
            writeln!(all, "{file}").unwrap();
            texts.iter().for_each(|text| writeln!(all, "  {text}").unwrap());
        }
        compare(&format!("{name}.txt"), &all);
    }
}

#[test]
fn the_engine_names_no_command_line() {
    for name in ENGINE {
        for (file, texts) in literals::of(&crates().join(name).join("src")) {
            for text in texts {
                assert!(!text.contains("`ashlar") && !text.contains(" --"), "{name}/{file}: {text}");
            }
        }
    }
}

#[test]
fn texts_read_as_english() {
    for name in ENGINE.iter().chain(&AROUND) {
        for (file, texts) in literals::of(&crates().join(name).join("src")) {
            for text in texts {
                for (words, better) in FOREIGN {
                    assert!(!text.contains(words), "{name}/{file}: {text}\n\"{words}\": write \"{better}\"");
                }
            }
        }
    }
}
