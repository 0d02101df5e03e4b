//! The cases: one per behaviour, grouped by what they are about.

mod below;
mod crash;
mod exposure;
mod ext4;
mod files;
mod fio;
mod frozen;
mod full;
mod habits;
mod handover;
mod huge;
mod lab;
mod libnbd;
mod limits;
mod loss;
mod md;
mod metrics;
mod owner;
mod parts;
mod qemu;
mod rebuild;
mod refusals;
mod sizes;
mod streams;
mod verbs;

use e2e::Result;

use crate::fixture::Lab;

/// One test.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The test.
    pub run: fn(&Lab) -> Result<()>,
}

/// All cases, the quick ones first.
pub fn all() -> Vec<Case> {
    let groups = [
        verbs::CASES,
        habits::CASES,
        streams::CASES,
        below::CASES,
        handover::CASES,
        refusals::CASES,
        sizes::CASES,
        exposure::CASES,
        limits::CASES,
        libnbd::CASES,
        qemu::CASES,
        fio::CASES,
        ext4::CASES,
        full::CASES,
        huge::CASES,
        crash::CASES,
        parts::CASES,
        owner::CASES,
        metrics::CASES,
    ];
    let long = [rebuild::CASES, lab::CASES, md::CASES, frozen::CASES, loss::CASES];
    let all = groups.into_iter().chain(long).flatten();
    all.map(|&Case { name, about, run }| Case { name, about, run }).collect()
}
