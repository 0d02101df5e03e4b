//! What a result says, in sentences: rules over its cells and facts, the same for a review, an import and a run.
//!
//! Invariants: no rule knows a review, a maker or a number; each sentence names the rows that it rests on; a cell that
//! failed says nothing; the figures of one sentence have one unit; the system that most cells are about speaks, and
//! others are named as others.

mod about;
mod caveats;
mod kept;
mod numbers;
mod paced;
mod peaks;
mod told;

pub use about::{About, Build, Unit, count_of, noun, short};
pub use kept::{Kept, KeptCell, KeptRow};
pub use numbers::{Number, of as numbers};
pub use peaks::drawn;

use crate::model::{Origin, Run};

/// A sentence and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The sentence, with its full stop.
    pub text: String,
    /// Identifiers of cells and facts.
    pub rows: Vec<String>,
    /// The same in a few words, for a title; empty when it is no answer of its own.
    pub brief: String,
}

impl Finding {
    fn new(text: impl Into<String>, rows: impl IntoIterator<Item = impl Into<String>>) -> Finding {
        Finding { text: text.into(), rows: rows.into_iter().map(Into::into).collect(), brief: String::new() }
    }

    fn brief(self, brief: impl Into<String>) -> Finding {
        Finding { brief: brief.into(), ..self }
    }
}

/// What is said first of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// A title in words.
    pub title: String,
    /// What the sentences are about, when they are about a system.
    pub system: Option<String>,
    /// The unit of random loads.
    pub unit: Unit,
    /// What was found, the weightiest first.
    pub sentences: Vec<Finding>,
    /// What to know before any of it is quoted.
    pub caveats: Vec<Finding>,
    /// What each level keeps of the bare drives, and in each state of its optimal rate.
    pub kept: Option<Kept>,
    /// Single numbers of one configuration; empty where `kept` says more.
    pub numbers: Vec<Number>,
}

/// Briefs in a title.
const TITLE_BRIEFS: usize = 3;

impl Findings {
    /// Of a result.
    pub fn of(run: &Run) -> Findings {
        let about = About::of(run);
        let kept = Kept::of(&about);
        let mut sentences: Vec<Finding> = vec![];
        sentences.extend(peaks::most(&about));
        sentences.extend(kept::levels(&about));
        sentences.extend(kept::states(&about));
        sentences.extend(paced::states(run, &about));
        sentences.extend(kept::scaling(&about));
        if kept.is_none() {
            sentences.extend(peaks::writes_of_reads(&about));
        }
        sentences.extend(peaks::beside_others(&about));
        sentences.extend(peaks::alone(&about));
        sentences.extend(peaks::curves(run));
        sentences.extend(peaks::rounds(run));
        sentences.extend(peaks::together(run));
        if run.cells.is_empty() {
            sentences.extend(told::stated(run));
        }
        let capital = |name: String| if run.origin == Origin::Published { capitalised(&name) } else { name };
        let system = about.system.map(short).map(capital);
        let briefs: Vec<&str> =
            sentences.iter().map(|f| f.brief.as_str()).filter(|b| !b.is_empty()).take(TITLE_BRIEFS).collect();
        let said = briefs.join("; ");
        let title = match (&system, said.is_empty()) {
            (Some(system), false) => format!("{system}: {said}"),
            (None, false) => said,
            (Some(system), true) => format!("{system}: no number"),
            (None, true) => run.name.clone(),
        };
        let numbers = if kept.is_some() { vec![] } else { numbers::of(&about) };
        Findings { title, system, unit: about.unit, sentences, caveats: caveats::of(run, &about), kept, numbers }
    }
}

/// A name as a sentence begins; that of a file or a device stays as it is.
fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, State};
    use crate::published;

    fn said(run: &Run) -> String {
        let findings = Findings::of(run);
        let all = findings.sentences.iter().chain(&findings.caveats).map(|f| f.text.as_str());
        std::iter::once(findings.title.as_str()).chain(all).collect::<Vec<_>>().join("\n")
    }

    fn has(run: &Run, texts: &[&str]) {
        let said = said(run);
        for text in texts {
            assert!(said.contains(text), "\"{text}\" is not in:\n{said}");
        }
    }

    #[test]
    fn the_answers_of_the_reviews_are_said() {
        has(
            &published::run("perc12").unwrap(),
            &[
                "RAID5 keeps 14 % of JBOD's 4K random writes",
                "keeps 9 % of its 4K OLTP",
                "2 controllers with 16 drives make 2.00 times",
                "13.2 M IOPS",
            ],
        );
        has(
            &published::run("perc11").unwrap(),
            &["3.55 M IOPS of 4K random reads", "RAID5 keeps 20 % of RAID10's 4K random"],
        );
        let qlc = published::run("qlc24").unwrap();
        has(&qlc, &["Viking VSS2249P: 176 GB/s", "64K random writes make 7 % of 64K random reads", "+27 %", "-9 %"]);
        assert!(!Findings::of(&qlc).title.contains("63.2"), "that is the earlier system");
        has(&published::run("ssd24").unwrap(), &["3.14 M IOPS of 4K random reads", "page cache", "not of the drives"]);
        has(&published::run("fc-roce").unwrap(), &["more than +50 %", "almost 2 x cheaper", "+43 %", "-30 %"]);
    }

    #[test]
    fn a_row_changes_and_its_sentence_follows_whatever_the_origin() {
        for origin in [Origin::Published, Origin::Measured, Origin::Imported { format: "fio".to_owned() }] {
            let mut run = published::run("perc12").unwrap();
            run.origin = origin;
            let before = said(&run);
            let is_changed = |c: &&mut crate::model::Cell| {
                c.subject.level.as_deref() == Some("RAID5")
                    && c.load.read_percent == Some(0.0)
                    && c.load.access == Some(crate::model::Access::Random)
                    && c.subject.drive_count == Some(8)
            };
            for cell in run.cells.iter_mut().filter(is_changed) {
                cell.figures.iops = cell.figures.iops.map(|n| n * 2.0);
            }
            let after = said(&run);
            assert!(before.contains("RAID5 keeps 14 %") && after.contains("RAID5 keeps 29 %"), "{after}");
        }
    }

    #[test]
    fn sentences_rest_on_rows_that_are_there() {
        for review in published::REVIEWS {
            let run = published::run(review.name).unwrap();
            let findings = Findings::of(&run);
            assert!(!findings.sentences.is_empty(), "{} says something", review.name);
            for finding in findings.sentences.iter().chain(&findings.caveats) {
                assert!(!finding.rows.is_empty(), "{finding:?}");
                let is_there =
                    |id: &String| run.cells.iter().any(|c| c.id == *id) || run.facts.iter().any(|f| f.id == *id);
                assert!(finding.rows.iter().all(is_there), "{finding:?}");
                assert!(finding.text.ends_with('.') && !finding.text.contains("  "), "{}", finding.text);
            }
        }
    }

    #[test]
    fn numbers_are_of_one_system_and_what_failed_says_nothing() {
        for review in published::REVIEWS {
            let run = published::run(review.name).unwrap();
            let about = About::of(&run);
            for number in Findings::of(&run).numbers {
                let cell = run.cells.iter().find(|c| c.id == number.id).unwrap();
                assert_eq!(Some(cell.subject.system.as_str()), about.system, "{number:?}");
            }
        }
        let mut run = published::run("ssd24").unwrap();
        let fail = crate::model::Gate::fail(crate::model::Check::Written, "never written");
        run.cells.iter_mut().for_each(|c| c.gates.push(fail.clone()));
        let findings = Findings::of(&run);
        assert!(findings.title.ends_with("no number"), "{}", findings.title);
        assert!(findings.caveats[0].text.contains("FAIL"), "{:?}", findings.caveats);
    }

    /// A rate that was asked for is none that an array keeps: its latency says what an application notices.
    #[test]
    fn a_fixed_rate_says_its_latency_and_is_no_rate_of_a_state() {
        let mut run = published::run("perc12").unwrap();
        let before = Findings::of(&run);
        let is_raid5 = |c: &&crate::model::Cell| {
            c.subject.level.as_deref() == Some("RAID5")
                && c.load.name() == "4K random write"
                && c.subject.drive_count == Some(8)
                && c.subject.state == State::Optimal
        };
        let optimal = run.cells.iter().find(is_raid5).unwrap().clone();
        for (state, us) in [(State::Optimal, 21.0), (State::Rebuilding, 24.0)] {
            let mut cell = optimal.clone();
            cell.id = format!("{}-fixed-{state}", cell.id);
            (cell.test, cell.part, cell.subject.state) = ("at a fixed rate".to_owned(), Part::Alone, state);
            (cell.asked_iops, cell.figures.iops) = (Some(10_000.0), Some(10_000.0));
            (cell.figures.latency.mean_us, cell.figures.latency.p99_us) = (Some(us), Some(us + 1.0));
            run.cells.push(cell);
        }
        let after = Findings::of(&run);
        assert_eq!((&before.title, &before.kept), (&after.title, &after.kept));
        let fixed = "At a fixed 10.0 k IOPS, 4K random writes take 21.0 us (p99 22.0 us) optimal and 24.0 us (p99 25.0 us) \
                     rebuilding.";
        has(&run, &[fixed]);
    }

    /// Of loads with one block size, the one that reads most says what writes are of it.
    #[test]
    fn writes_are_held_against_reads_at_the_depth_that_reads_most() {
        let mut run = published::run("qlc24").unwrap();
        let lone = |cell: &crate::model::Cell| {
            let mut cell = cell.clone();
            cell.id.push_str("-lone");
            (cell.load.threads, cell.load.depth) = (Some(1), Some(1));
            cell.figures.bytes_per_sec = Some(1e9 * if cell.load.read_percent == Some(100.0) { 50.0 } else { 1.0 });
            cell
        };
        let system = About::of(&run).system.unwrap().to_owned();
        let random = |c: &&crate::model::Cell| {
            c.subject.system == system && ["64K random read", "64K random write"].contains(&c.load.name().as_str())
        };
        let lone: Vec<_> = run.cells.iter().filter(random).map(lone).collect();
        assert_eq!(lone.len(), 2);
        run.cells.extend(lone);
        has(&run, &["64K random writes make 7 % of 64K random reads"]);
    }

    /// A share of other reads than the title's first figure says what it is of.
    #[test]
    fn a_share_in_a_title_is_of_what_is_beside_it() {
        let mut run = published::run("qlc24").unwrap();
        assert!(Findings::of(&run).title.ends_with("make 7 % of 64K random reads"), "{}", Findings::of(&run).title);
        let system = About::of(&run).system.unwrap().to_owned();
        let is_read =
            |c: &&crate::model::Cell| c.subject.system == system && c.load.name() == "64K random read" && c.may_stand();
        let mut most = run.cells.iter().find(is_read).unwrap().clone();
        (most.id, most.load.block_bytes, most.figures.bytes_per_sec) =
            ("most".to_owned(), Some(128 << 10), Some(500e9));
        run.cells.push(most);
        assert!(
            Findings::of(&run).title.contains("7 % of 64K random reads (13.2 of 176 GB/s)"),
            "{}",
            Findings::of(&run).title
        );
    }

    /// A curve that stays quick to its end says so: its end is not what a p99 of 1 ms allows.
    #[test]
    fn a_curve_that_ends_quickly_has_no_bound() {
        let mut run = published::run("perc12").unwrap();
        for (percent, p99_us) in [(10, 100.0), (40, 150.0), (70, 155.0), (100, 160.0)] {
            let mut cell = run.cells[0].clone();
            (cell.id, cell.test, cell.part) = (format!("curve-{percent}"), "curve".to_owned(), Part::Curve { percent });
            (cell.figures.iops, cell.figures.bytes_per_sec) = (Some(f64::from(percent) * 1000.0), None);
            (cell.figures.latency.p99_us, cell.figures.latency.mean_us) = (Some(p99_us), Some(p99_us / 2.0));
            run.cells.push(cell);
        }
        let said = said(&run);
        assert!(
            said.contains("no knee within the curve; all of it, up to 100 k IOPS, with a p99 of 1 ms or less"),
            "{said}"
        );
    }

    #[test]
    fn a_title_begins_with_a_capital_where_no_file_is_named() {
        assert!(Findings::of(&published::run("ssd24").unwrap()).title.starts_with("Dual-Xeon server: 3.14 M IOPS"));
        let mut run = published::run("ssd24").unwrap();
        run.origin = Origin::Measured;
        assert!(Findings::of(&run).title.starts_with("dual-Xeon"));
    }

    #[test]
    fn targets_of_one_run_are_no_other_systems() {
        let mut run = published::run("qlc24").unwrap();
        assert!(said(&run).contains("Beside Viking HA version"));
        let system = About::of(&run).system.unwrap().to_owned();
        for cell in run.cells.iter_mut().filter(|c| c.subject.system != system) {
            cell.part = crate::model::Part::OneOf { number: 1 };
        }
        assert!(!said(&run).contains("Beside"), "{}", said(&run));
    }
}
