//! The phrase book, `docs/phrase-book.md`: its lines of this program are valid.

use clap::Parser;

use crate::cli::Cli;

const BOOK: &str = include_str!("../../../docs/phrase-book.md");

#[test]
fn every_line_of_the_phrase_book_is_one_of_this_program() {
    let rows = BOOK.lines().filter(|line| line.starts_with("| ") && line.contains("`ashlar "));
    let mut count = 0;
    for row in rows {
        let here = row.split('|').nth(2).unwrap_or_default();
        for line in here.split('`').skip(1).step_by(2) {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.map(drop).unwrap_err());
            count += 1;
        }
    }
    assert!(count > 50, "{count} lines");
}
