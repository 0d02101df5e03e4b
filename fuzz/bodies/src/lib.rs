//! What the fuzz targets do with their bytes: one body for each, run by libFuzzer and by the replay of the corpus.
//!
//! A body takes any bytes and panics when a promise is broken; it never looks at anything but its bytes, so that an
//! input that was found once is found again. `docs/internals/fuzzing.md` says what each promises.
//!
//! Not here: the engine that finds new inputs (`fuzz/fuzz_targets`).

pub mod guest;
pub mod lab;
pub mod mutate;
pub mod nbd;
pub mod nvme;
pub mod recovery;
pub mod seeds;
pub mod stored;

/// A fuzz target.
pub struct Target {
    /// Its name: of the libFuzzer target, and of its directory in the corpus.
    pub name: &'static str,
    /// What it does with an input.
    pub body: fn(&[u8]),
    /// Mutated inputs of a replay.
    pub mutations: u32,
    /// Inputs made by the encoders, with their names.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// All targets.
pub const TARGETS: [Target; 11] = [
    Target { name: "label", body: stored::label, mutations: 20_000, seeds: seeds::label },
    Target { name: "owner", body: stored::owner, mutations: 20_000, seeds: seeds::owner },
    Target { name: "generation", body: stored::generation, mutations: 20_000, seeds: seeds::generation },
    Target { name: "segment", body: stored::segment, mutations: 20_000, seeds: seeds::segment },
    Target { name: "record", body: stored::record, mutations: 20_000, seeds: seeds::record },
    Target { name: "node", body: stored::node, mutations: 20_000, seeds: seeds::node },
    Target { name: "recovery", body: recovery::body, mutations: 1000, seeds: seeds::recovery },
    Target { name: "nbd", body: nbd::body, mutations: 4000, seeds: seeds::nbd },
    Target { name: "nvme", body: nvme::body, mutations: 4000, seeds: seeds::nvme },
    Target { name: "guest", body: guest::body, mutations: 2000, seeds: seeds::guest },
    Target { name: "lab", body: lab::import, mutations: 10_000, seeds: seeds::lab },
];
