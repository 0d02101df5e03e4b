//! Suites: lists of tests as TOML, one for each review, named by what they test.

use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::model::{Access, Reducible};
use crate::units;

/// The suites that come with the program: name and text.
pub const BUILT_IN: [(&str, &str); 11] = [
    ("smoke", include_str!("../suites/smoke.toml")),
    ("raid-card", include_str!("../suites/raid-card.toml")),
    ("jbod", include_str!("../suites/jbod.toml")),
    ("saturation", include_str!("../suites/saturation.toml")),
    ("qlc-slice", include_str!("../suites/qlc-slice.toml")),
    ("transport", include_str!("../suites/transport.toml")),
    ("block-sizes", include_str!("../suites/block-sizes.toml")),
    ("cached-and-direct", include_str!("../suites/cached-and-direct.toml")),
    ("array-states", include_str!("../suites/array-states.toml")),
    ("reducible", include_str!("../suites/reducible.toml")),
    ("steady-state", include_str!("../suites/steady-state.toml")),
];

/// A suite.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name: that of its file.
    #[serde(skip)]
    pub name: String,
    /// What it tests, one sentence.
    pub about: String,
    /// Whether its numbers are meant for others.
    pub for_publication: bool,
    /// The review whose figures it can be held against.
    pub review: Option<String>,
    /// What the review did besides, and this suite does not.
    #[serde(default)]
    pub not_here: Vec<String>,
    /// Of several targets, whether each is measured alone, too; otherwise they are filled and measured all at once only.
    #[serde(default = "yes")]
    pub each_alone: bool,
    /// Its tests, in their order.
    pub test: Vec<Test>,
}

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Writes the range once, one block after the other.
    Fill,
    /// Writes for a time, so that what follows meets a used drive.
    Precondition,
    /// One cell for each thread count and depth.
    Load,
    /// A run without a limit, then points at shares of its rate.
    Curve,
    /// Every thread count with every depth.
    Matrix,
    /// Rounds until five are steady.
    Steady,
    /// Reads of what was never written, by that name.
    Unallocated,
    /// Reads the range once, every block against the checksum that it was written with.
    Check,
    /// One load while a drive of the array is failed, replaced and rebuilt; seconds are those of each state.
    States,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Its name, unique in the suite.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Order of addresses.
    pub access: Access,
    /// Hundredths of requests that read.
    pub reads: f64,
    /// Size of a request; of a load there may be several, and each has cells of its own.
    #[serde(deserialize_with = "sizes")]
    pub block: Vec<u64>,
    /// Threads.
    #[serde(default = "alone")]
    pub threads: Vec<u32>,
    /// Requests in flight, each thread.
    #[serde(default = "alone")]
    pub depth: Vec<u32>,
    /// What is worked on: "25%" of the target, or bytes.
    #[serde(default)]
    pub slice: Slice,
    /// Seconds measured.
    #[serde(default)]
    pub seconds: f64,
    /// Seconds before that.
    #[serde(default)]
    pub ramp: f64,
    /// Seconds that a rebuild is waited for.
    #[serde(default = "four_hours")]
    pub rebuild: f64,
    /// Points of a curve, in hundredths of the largest rate. Of states: the rate that is kept through all of them, in
    /// hundredths of what the whole array does without a limit.
    #[serde(default)]
    pub percents: Vec<u32>,
    /// A flush of the write cache (fsync) follows so many writes of each thread.
    pub fsync: Option<u32>,
    /// Of a precondition: how many times the range is written; it ends before that when its seconds are over.
    pub times: Option<u32>,
    /// Whether it goes through the page cache.
    #[serde(default)]
    pub cached: bool,
    /// What the page cache holds already is kept; otherwise fio drops it before each cell.
    #[serde(default)]
    pub warm: bool,
    /// Hundredths of what is written that repeat something else; of what is read, as it was written.
    #[serde(default)]
    pub duplicate: u32,
    /// Hundredths of each written request that compress to nothing.
    #[serde(default)]
    pub compressible: u32,
}

/// The part of a target that is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Slice {
    /// Hundredths of it.
    Percent(f64),
    /// Bytes of it.
    Bytes(u64),
}

impl Default for Slice {
    fn default() -> Self {
        Slice::Percent(100.0)
    }
}

impl TryFrom<String> for Slice {
    type Error = String;

    fn try_from(text: String) -> Result<Slice, String> {
        match text.strip_suffix('%') {
            Some(number) => match number.trim().parse::<f64>() {
                Ok(p) if p > 0.0 && p <= 100.0 => Ok(Slice::Percent(p)),
                Ok(_) | Err(_) => Err(format!("\"{text}\" is not a share; it must be above 0% and at most 100%")),
            },
            None => units::bytes(&text).map(Slice::Bytes),
        }
    }
}

fn alone() -> Vec<u32> {
    vec![1]
}

fn four_hours() -> f64 {
    14_400.0
}

fn yes() -> bool {
    true
}

/// One size or a list of them.
fn sizes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Sizes {
        One(String),
        Several(Vec<String>),
    }
    let texts = match Sizes::deserialize(from)? {
        Sizes::One(text) => vec![text],
        Sizes::Several(texts) => texts,
    };
    texts.iter().map(|text| size(text).map_err(serde::de::Error::custom)).collect()
}

fn size(text: &str) -> Result<u64, String> {
    match units::bytes(text)? {
        bytes if bytes >= 512 && bytes % 512 == 0 => Ok(bytes),
        _ => Err(format!("a request of {text} is not a multiple of 512 bytes")),
    }
}

impl Suite {
    /// A suite of the program, or a file.
    ///
    /// # Errors
    /// When there is none, or it makes no sense.
    pub fn find(name: &str) -> Result<Suite, Error> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
            return Suite::parse(name, text);
        }
        if !name.ends_with(".toml") {
            let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
            return Err(Error::usage(
                format!("suite \"{name}\""),
                format!("valid: {}, or a .toml file", names.join(", ")),
            ));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        let stem = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        Suite::parse(&stem, &text)
    }

    /// The text of a suite of the program, for a copy that can be changed.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// Whether what is written is read back against checksums.
    pub fn checks(&self) -> bool {
        self.test.iter().any(|t| t.kind == Kind::Check)
    }

    fn parse(name: &str, text: &str) -> Result<Suite, Error> {
        let wrong = |why: String| Error::format(format!("suite {name}"), why);
        let mut suite: Suite = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        name.clone_into(&mut suite.name);
        for (i, test) in suite.test.iter().enumerate() {
            if suite.test[..i].iter().any(|t| t.name == test.name) {
                return Err(wrong(format!("two tests are named \"{}\"", test.name)));
            }
            test.check().map_err(|why| wrong(format!("test \"{}\": {why}", test.name)))?;
            if suite.checks() && (test.block.iter().any(|b| b % CHECKSUM_BYTES != 0) || test.reducible().is_some()) {
                let why = "a suite with a check writes whole blocks of 4K, and no reducible data";
                return Err(wrong(format!("test \"{}\": {why}", test.name)));
            }
        }
        Ok(suite)
    }
}

/// So many bytes carry a checksum, where a suite has a check.
pub const CHECKSUM_BYTES: u64 = 4096;
/// Threads x depth of one cell: more than any device takes, and memory for them.
const OUTSTANDING_MAX: u64 = 65_536;

impl Test {
    fn check(&self) -> Result<(), String> {
        if !(0.0..=100.0).contains(&self.reads) {
            return Err("reads are a percentage, from 0 to 100".to_owned());
        }
        let times = [self.seconds, self.ramp, self.rebuild];
        if times.iter().any(|s| !s.is_finite() || *s < 0.0)
            || (!matches!(self.kind, Kind::Fill | Kind::Check) && self.seconds < 1.0)
        {
            return Err("seconds are 1 or more, ramp 0 or more".to_owned());
        }
        let most = |list: &[u32]| list.iter().copied().max().map_or(0, u64::from);
        let (threads, depth) = (most(&self.threads), most(&self.depth));
        let least = self.threads.iter().chain(&self.depth).copied().min().unwrap_or(0);
        if least == 0 || threads * depth > OUTSTANDING_MAX {
            return Err(format!("threads and depths are 1 or more, and {OUTSTANDING_MAX} requests in flight at most"));
        }
        if self.duplicate > 100 || self.compressible > 100 {
            return Err("duplicate and compressible are percentages, from 0 to 100".to_owned());
        }
        let mut sizes = self.block.clone();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() || sizes.len() < self.block.len() {
            return Err("block sizes differ from each other, and there is one at least".to_owned());
        }
        if sizes.len() > 1 && self.kind != Kind::Load {
            return Err("only a load has several block sizes".to_owned());
        }
        if self.warm && !self.cached {
            return Err("only what goes through the page cache can be warm".to_owned());
        }
        if self.fsync.is_some_and(|n| n == 0) || (self.fsync.is_some() && !self.writes()) {
            return Err("fsync follows 1 or more writes, of a test that writes".to_owned());
        }
        if self.times.is_some_and(|n| n == 0 || self.kind != Kind::Precondition) {
            return Err("times are those of a precondition, 1 or more".to_owned());
        }
        match self.kind {
            Kind::States if self.percents.len() > 1 || self.percents.iter().any(|p| !(1..=100).contains(p)) => {
                Err("states have one rate at most, from 1 to 100 percent".to_owned())
            }
            Kind::Fill | Kind::Precondition if self.reads > 0.0 => {
                Err("a test that fills the target must only write".to_owned())
            }
            Kind::Unallocated | Kind::Check if self.reads < 100.0 => Err("it reads only: reads = 100".to_owned()),
            Kind::Check if self.access != Access::Sequential => Err("a check is sequential".to_owned()),
            Kind::Curve if self.percents.is_empty() || self.percents.iter().any(|p| *p == 0 || *p > 200) => {
                Err("a curve has percents from 1 to 200".to_owned())
            }
            Kind::Fill
            | Kind::Precondition
            | Kind::Load
            | Kind::Curve
            | Kind::Matrix
            | Kind::Steady
            | Kind::Unallocated
            | Kind::Check
            | Kind::States => Ok(()),
        }
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.reads < 100.0
    }

    /// What its data is made of, when that is not random throughout.
    pub fn reducible(&self) -> Option<Reducible> {
        let shares = Reducible { duplicate_percent: self.duplicate, compressible_percent: self.compressible };
        (shares != Reducible::default()).then_some(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_the_program_make_sense() {
        for (name, _) in BUILT_IN {
            let suite = Suite::find(name).unwrap();
            assert_eq!(suite.name, name);
            if let Some(review) = &suite.review {
                assert!(crate::published::run(review).is_ok(), "{review}");
            }
            assert!(suite.for_publication != (name == "smoke"));
        }
    }

    /// What the reviews ran, beside what `plan` has tests for.
    #[test]
    fn every_test_of_the_reviews_has_a_suite() {
        let suite = |name: &str| Suite::find(name).unwrap();
        let of = |suite: &Suite, name: &str| suite.test.iter().find(|t| t.name == name).cloned().unwrap();
        // Random writes before the states, as in the review, and latency at a fixed rate.
        let states = suite("array-states");
        let kinds: Vec<Kind> = states.test.iter().map(|t| t.kind).collect();
        let at = |kind: Kind| kinds.iter().position(|k| *k == kind).unwrap();
        assert!(at(Kind::Fill) < at(Kind::Precondition) && at(Kind::Precondition) < at(Kind::States), "{kinds:?}");
        assert!(states.test.iter().any(|t| t.kind == Kind::States && t.percents == [20]));
        // The largest rate on 32 GB through a cache that is kept.
        let cached = suite("cached-and-direct");
        let warm = cached.test.iter().find(|t| t.warm).unwrap();
        assert!(warm.cached && warm.slice == Slice::Bytes(32 << 30) && warm.ramp >= 60.0, "{warm:?}");
        // The review sweeps threads, and its hero numbers stand beside real data.
        let transport = suite("transport");
        let [hero, real] =
            [Kind::Unallocated, Kind::Load].map(|k| transport.test.iter().find(|t| t.kind == k && t.threads.len() > 1));
        assert!(hero.is_some_and(|t| t.threads == [1, 2, 4, 8, 16, 32]) && real.is_some(), "{hero:?} {real:?}");
        // 67/33, which follows from the review's figures.
        assert_eq!(of(&states, "4K OLTP").reads, 67.0);
    }

    #[test]
    fn nonsense_is_refused() {
        let suite = |test: &str| {
            let head = "about = \"a\"\nfor_publication = false\n";
            Suite::parse("s", &format!("{head}[[test]]\nname = \"t\"\n{test}"))
        };
        let good = "kind = \"load\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\nseconds = 5";
        assert!(suite(good).is_ok(), "{:?}", suite(good));
        assert!(suite(&good.replace("reads = 100", "reads = 70\nfsync = 8")).is_ok());
        for (from, to) in [
            ("100", "101"),
            ("4K", "1000"),
            ("seconds = 5", "seconds = nan"),
            ("\"load\"", "\"curve\""),
            ("\"load\"", "\"fill\""),
            ("seconds = 5", "seconds = 5\nthreads = [0]"),
            ("seconds = 5", "seconds = 5\nslice = \"0%\""),
            ("seconds = 5", "second = 5"),
            ("seconds = 5", "seconds = 5\nduplicate = 101"),
            ("\"4K\"", "[]"),
            ("\"4K\"", "[\"4K\", \"4096\"]"),
            (
                "\"load\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"",
                "\"matrix\"\naccess = \"random\"\nreads = 100\nblock = [\"4K\", \"8K\"]",
            ),
            ("seconds = 5", "seconds = 5\nwarm = true"),
            ("seconds = 5", "seconds = 5\ntimes = 2"),
            ("seconds = 5", "seconds = 5\nfsync = 1"),
            ("reads = 100", "reads = 0\nfsync = 0"),
            ("\"load\"", "\"states\"\npercents = [10, 20]"),
        ] {
            assert!(suite(&good.replace(from, to)).is_err(), "{to}");
        }
        assert!(Suite::find("none").unwrap_err().to_string().contains("smoke"));
    }
}
