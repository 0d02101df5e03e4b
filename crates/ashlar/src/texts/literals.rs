//! String literals of source files, as far as users may see them.

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;
use std::path::Path;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Macros whose texts are for programmers.
const FOR_PROGRAMMERS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "matches",
];

/// Files without texts for users: planted bugs, tests, tools of this repository.
const LEFT_OUT: [&str; 4] = ["canary.rs", "conformance.rs", "texts/", "bin/"];

/// The texts of each file below `src` that has some, by path and in the order of the alphabet.
pub fn of(src: &Path) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    look_below(src, src, &mut found);
    found.sort();
    found
}

fn look_below(dir: &Path, src: &Path, found: &mut Vec<(String, BTreeSet<String>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_below(&path, src, found);
            continue;
        }
        let name = path.strip_prefix(src).unwrap().display().to_string();
        let is_left_out = name.ends_with("tests.rs") || LEFT_OUT.iter().any(|part| name.contains(part));
        if is_left_out || !name.ends_with(".rs") {
            continue;
        }
        let source: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
        let mut texts = BTreeSet::new();
        take(source, &mut texts);
        if !texts.is_empty() {
            found.push((name, texts));
        }
    }
}

fn take(stream: TokenStream, texts: &mut BTreeSet<String>) {
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => attribute(&mut tokens, texts),
            TokenTree::Ident(name) if name == "expect" || name == "expect_err" => skip_arguments(&mut tokens),
            TokenTree::Ident(name) if FOR_PROGRAMMERS.contains(&name.to_string().as_str()) => {
                if tokens.next_if(|t| is_punct(t, '!')).is_some() {
                    skip_arguments(&mut tokens);
                }
            }
            TokenTree::Group(group) => take(group.stream(), texts),
            TokenTree::Literal(literal) => texts.extend(text_of(&literal.to_string())),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Behind `#`: errors have their text in an attribute; what is for tests only is passed over.
fn attribute(tokens: &mut Peekable<IntoIter>, texts: &mut BTreeSet<String>) {
    tokens.next_if(|t| is_punct(t, '!'));
    let Some(TokenTree::Group(group)) = tokens.next_if(|t| matches!(t, TokenTree::Group(_))) else { return };
    let words = group.stream().to_string();
    if words.starts_with("error") {
        take(group.stream(), texts);
    }
    if words == "test" || words.replace(' ', "") == "cfg(test)" {
        skip_item(tokens);
    }
}

fn skip_arguments(tokens: &mut Peekable<IntoIter>) {
    tokens.next_if(|t| matches!(t, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis));
}

/// To the end of an item: its block, or its semicolon.
fn skip_item(tokens: &mut Peekable<IntoIter>) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            token if is_punct(&token, ';') => return,
            _ => {}
        }
    }
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// The text of a literal that is a string of more than one word, on one line as the source has it.
fn text_of(literal: &str) -> Option<String> {
    let inner = literal.strip_prefix('r').map_or(literal, |raw| raw.trim_matches('#'));
    let inner = inner.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::new();
    let mut rest = inner;
    // A backslash at the end of a line joins it with the next.
    while let Some((head, tail)) = rest.split_once("\\\n") {
        text.push_str(head);
        rest = tail.trim_start();
    }
    text.push_str(rest);
    let letters = |word: &&str| word.chars().filter(char::is_ascii_alphabetic).count() > 1;
    let is_text = text.split_whitespace().filter(letters).count() > 1;
    is_text.then(|| text.replace('\n', "\\n"))
}

#[test]
fn texts_for_users_are_found() {
    let source = r##"
        #[error("the drive {0} is gone")] struct A;
        #[doc = "not this one"] const B: &str = "two words";
        fn c() { f("in a \
                    call"); assert!(x, "not this one"); y.expect("nor this one"); format!(r#"a raw one"#); g("word"); }
        #[cfg(test)] mod tests { const D: &str = "nor that one"; }
        const E: &str = "the last one";
    "##;
    let mut texts = BTreeSet::new();
    take(source.parse().unwrap(), &mut texts);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(texts, ["a raw one", "in a call", "the drive {0} is gone", "the last one", "two words"]);
}
