//! The pages of `docs/reference` name every key of the configuration file and every field that scripts see.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use server::config::Config;

pub(super) fn page(name: &str) -> String {
    let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("the page is part of the repository")
}

/// The names between backticks.
fn names(text: &str) -> BTreeSet<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The keys in the first column of the table below a heading.
fn table<'a>(page: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let below = page.lines().skip_while(|l| *l != heading).skip(1).take_while(|l| !l.starts_with("## "));
    below.filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect()
}

/// The keys that the program takes where `text` has one that it does not: its error lists them.
pub fn valid_keys(text: &str) -> BTreeSet<String> {
    let error = toml::from_str::<Config>(text).expect_err("the key is unknown").to_string();
    let (_, list) = error.split_once("expected ").expect("the error lists the valid keys");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_configuration_page_has_every_key() {
    let page = page("configuration.md");
    for (heading, text) in [
        ("## Keys of the file", "unknown_key = 1"),
        ("## Keys of `[api]`", "[api]\nunknown_key = 1"),
        ("## Keys of a `[[hook]]`", "[[hook]]\nunknown_key = 1"),
        ("## Keys of an `[[array]]`", "[[array]]\nunknown_key = 1"),
        ("## Keys of an `[[array.volume]]`", "[[array]]\nname = \"a\"\n[[array.volume]]\nunknown_key = 1"),
    ] {
        let known = valid_keys(text);
        let documented: BTreeSet<String> = table(&page, heading).into_iter().map(str::to_owned).collect();
        assert_eq!(documented, known, "left: docs/reference/configuration.md, right: the program; {heading}");
    }
}

#[test]
fn the_examples_of_the_configuration_page_are_valid() {
    let page = page("configuration.md");
    let lines: Vec<&str> = page.lines().collect();
    let blocks = lines.split(|l| !l.is_empty() && !l.starts_with("    ")).map(|b| b.join("\n"));
    let examples: Vec<String> = blocks.filter(|b| b.contains(" = ")).collect();
    assert_eq!(examples.len(), 2, "{examples:?}");
    examples.iter().for_each(|text| _ = toml::from_str::<Config>(text).unwrap_or_else(|e| panic!("{text}: {e}")));
}

fn value<T: serde::Serialize + Default>() -> Value {
    serde_json::to_value(T::default()).expect("it is an object")
}

#[test]
fn the_status_page_has_every_field() {
    let text = page("status.md");
    let page = names(&text);
    let created = json!({ "version": 2, "name": "", "uuid": null, "served": false, "plan": value::<api::PlanView>() });
    let objects = [
        value::<api::Arrays>(),
        value::<api::ArrayView>(),
        value::<api::ExposureView>(),
        value::<api::AlarmView>(),
        value::<api::MemberView>(),
        value::<api::VolumeView>(),
        value::<api::LimitsView>(),
        value::<api::WrittenView>(),
        value::<api::RebuildView>(),
        value::<api::ScrubView>(),
        value::<api::ScrubRunView>(),
        value::<api::ScrubFoundView>(),
        value::<api::ScrubScheduleView>(),
        value::<api::EventView>(),
        value::<api::Buffers>(),
        value::<api::Iostats>(),
        value::<api::IostatView>(),
        value::<api::TrafficView>(),
        value::<api::WorkView>(),
        value::<api::HistogramView>(),
        value::<api::Placement>(),
        value::<api::PlacementNode>(),
        value::<api::Clients>(),
        value::<api::ClientView>(),
        value::<api::FoundArrays>(),
        value::<api::FoundArrayView>(),
        value::<api::FoundMemberView>(),
        value::<api::HeldView>(),
        value::<api::Imported>(),
        value::<api::ImportedArray>(),
        value::<api::RecoveryView>(),
        value::<api::RecoveryStepView>(),
        value::<api::CheckView>(),
        value::<api::RescueView>(),
        value::<api::Range>(),
        value::<api::Volumes>(),
        created,
    ];
    let mut missing = BTreeSet::new();
    for object in &objects {
        let fields = object.as_object().expect("an object").keys();
        missing.extend(fields.filter(|field| !page.contains(field.as_str())));
    }
    assert!(missing.is_empty(), "docs/reference/status.md lacks {missing:?}");
}
