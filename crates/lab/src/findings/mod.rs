//! What a result says, in sentences: rules over its cells and facts, the same for a review, an import and a run.
//!
//! Invariants: no rule knows a review, a maker or a number; each sentence names the rows that it rests on; a cell that
//! failed says nothing; the figures of one sentence have one unit; the system that most cells are about speaks, and
//! others are named as others.

mod about;
mod caveats;
mod kept;
mod numbers;
mod peaks;
mod told;

pub use about::{About, Build, Unit, count_of, noun, short};
pub use kept::{Kept, KeptCell, KeptRow};
pub use numbers::{Number, of as numbers};

use crate::model::Run;

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
        let system = about.system.map(short);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;
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
