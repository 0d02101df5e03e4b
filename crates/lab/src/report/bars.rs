//! Bars by level and state: one chart for each load; what is kept of the optimal rate, and what the write penalty of
//! the RAID level would leave.

use super::Section;
use super::html::{figure, legend};
use super::svg::{Canvas, WIDTH};
use crate::model::{Access, Cell, Part, Run, State};
use crate::units::{rate, si};

/// Longest bar; what is right of it is for the number.
const LONGEST: f64 = 250.0;
const STATES: [State; 4] = [State::Optimal, State::Degraded, State::Rebuilding, State::Rebuilt];

/// A bar's cell, and the result that it is of.
type Bar<'a> = (&'a str, &'a Cell);

/// The section, if any cell is a measurement of its own.
pub fn section(runs: &[Run]) -> Option<Section> {
    let mut groups: Vec<((String, bool), Vec<Bar<'_>>)> = vec![];
    for run in runs {
        for cell in run.cells.iter().filter(|c| is_alone(c)) {
            let Some((is_iops, _)) = cell.headline() else { continue };
            let key = (cell.test.clone(), is_iops);
            match groups.iter_mut().find(|(k, _)| *k == key) {
                Some((_, bars)) => bars.push((&run.name, cell)),
                None => groups.push((key, vec![(&run.name, cell)])),
            }
        }
    }
    if groups.is_empty() {
        return None;
    }
    let states: Vec<String> = STATES.iter().map(ToString::to_string).collect();
    let shown: Vec<String> = groups
        .iter()
        .map(|((test, is_iops), bars)| {
            let unit = if *is_iops { "IOPS" } else { "bandwidth" };
            figure(&format!("{test}, {unit}"), &chart(test, bars, *is_iops))
        })
        .collect();
    let note = "<p>A percentage is the share of the optimal rate of the same configuration. A thin mark on writes is \
                the rate of the bare drives of as many controllers over the write penalty of the level (RAID 10: 2, \
                RAID 5: 4, RAID 6: 6).</p>";
    let body = format!("{note}{}<div class=\"charts\">{}</div>", legend(&states), shown.concat());
    Some(Section::new("bars", "By load, level and state", body))
}

fn is_alone(cell: &Cell) -> bool {
    matches!(cell.part, Part::Alone | Part::Unallocated | Part::CurveMax | Part::States)
}

fn value(cell: &Cell, is_iops: bool) -> f64 {
    let figure = if is_iops { cell.figures.iops } else { cell.figures.bytes_per_sec };
    figure.unwrap_or(0.0)
}

fn chart(test: &str, bars: &[Bar<'_>], is_iops: bool) -> String {
    let most = bars.iter().map(|(_, c)| value(c, is_iops)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let words = Words::of(bars);
    let mut groups: Vec<(String, Vec<&Cell>)> = vec![];
    for (run, cell) in bars {
        let label = words.label(run, cell);
        match groups.iter_mut().find(|(l, _)| *l == label) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((label, vec![cell])),
        }
    }
    let height = groups.iter().map(|(_, cells)| 20.0 + 19.0 * cells.len() as f64).sum::<f64>() + 8.0;
    let mut canvas = Canvas::new(height, test);
    let mut y = 4.0;
    for (label, cells) in &mut groups {
        cells.sort_by_key(|c| c.subject.state);
        canvas.text((2.0, y + 12.0), "start", "label", label);
        y += 17.0;
        let optimal = cells.iter().find(|c| c.subject.state == State::Optimal).map(|c| value(c, is_iops));
        for cell in cells.iter() {
            let value = value(cell, is_iops);
            let number = if is_iops { format!("{} IOPS", si(value)) } else { rate(value) };
            let kept = match (cell.subject.state, optimal) {
                (State::Degraded | State::Rebuilding | State::Rebuilt, Some(optimal)) if optimal > 0.0 => {
                    format!(", {:.0} % kept", value / optimal * 100.0)
                }
                _ => String::new(),
            };
            let colour = STATES.iter().position(|s| *s == cell.subject.state).unwrap_or(0);
            let length = value / most * LONGEST;
            canvas.rect(
                (2.0, y),
                (length, 15.0),
                &format!("bar k{colour}"),
                &format!("{}: {}", cell.id, cell.subject.state),
            );
            let mut text_from = length;
            if let Some(expected) = expected(cell, bars, is_iops).filter(|_| cell.subject.state == State::Optimal) {
                let at = 2.0 + (expected / most * LONGEST).min(LONGEST);
                canvas.line((at, y - 1.0), (at, y + 16.0), "tick");
                text_from = text_from.max(at);
            }
            canvas.text((text_from.min(WIDTH - 160.0) + 7.0, y + 11.5), "start", "number", &format!("{number}{kept}"));
            y += 19.0;
        }
        y += 3.0;
    }
    canvas.finish()
}

/// What the write penalty leaves of the rate of the bare drives on as many controllers, under the same load.
fn expected(cell: &Cell, bars: &[Bar<'_>], is_iops: bool) -> Option<f64> {
    let random_write = cell.load.access == Some(Access::Random) && cell.load.read_percent == Some(0.0);
    let penalty = match cell.subject.level.as_deref() {
        Some("RAID10") => 2.0,
        Some("RAID5") => 4.0,
        Some("RAID6") => 6.0,
        Some(_) | None => return None,
    };
    let bare = bars.iter().map(|(_, c)| c).find(|c| {
        c.subject.level.as_deref() == Some("JBOD")
            && c.subject.state == State::Optimal
            && c.load == cell.load
            && c.subject.controller_count == cell.subject.controller_count
            && c.subject.drive_count == cell.subject.drive_count
    })?;
    (random_write && is_iops).then(|| value(bare, is_iops) / penalty)
}

/// Which words tell the bars of a chart apart.
struct Words {
    runs: bool,
    system: bool,
    drives: bool,
    controllers: bool,
    pressure: bool,
    cached: bool,
    unallocated: bool,
}

impl Words {
    fn of(bars: &[Bar<'_>]) -> Words {
        let varies = |f: &dyn Fn(&Bar<'_>) -> String| bars.iter().any(|b| f(b) != f(&bars[0]));
        Words {
            runs: varies(&|b| b.0.to_owned()),
            system: varies(&|b| b.1.subject.system.clone()),
            drives: varies(&|b| b.1.subject.drives.clone()),
            controllers: varies(&|b| format!("{:?}", b.1.subject.controllers)),
            pressure: varies(&|b| b.1.load.pressure()),
            cached: varies(&|b| format!("{:?}", b.1.load.cached)),
            unallocated: varies(&|b| format!("{:?}", b.1.part)),
        }
    }

    fn label(&self, run: &str, cell: &Cell) -> String {
        let subject = &cell.subject;
        let mut words: Vec<String> = vec![];
        words.extend(self.runs.then(|| run.to_owned()));
        words.extend(subject.level.clone());
        let controllers = match subject.controller_count {
            Some(0) => "no controller".to_owned(),
            Some(1) => "one controller".to_owned(),
            Some(n) => format!("{n} controllers"),
            None => subject.controllers.clone().unwrap_or_default(),
        };
        words.extend((self.controllers && !controllers.is_empty()).then_some(controllers));
        if !self.controllers {
            words.extend((self.system && !subject.system.is_empty()).then(|| short(&subject.system)));
            words.extend((self.drives && !subject.drives.is_empty()).then(|| short(&subject.drives)));
        }
        words.extend(self.pressure.then(|| format!("threads x depth {}", cell.load.pressure())));
        words.extend((self.cached && cell.load.cached == Some(true)).then(|| "page cache".to_owned()));
        words.extend((self.unallocated && cell.part == Part::Unallocated).then(|| "unallocated".to_owned()));
        if words.is_empty() {
            words.push(if subject.system.is_empty() { run.to_owned() } else { short(&subject.system) });
        }
        words.join(", ")
    }
}

/// The first words of a long name.
fn short(text: &str) -> String {
    let cut = text.split(" (").next().unwrap_or(text);
    cut.chars().take(48).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_and_penalty_are_those_of_the_review() {
        let run = crate::published::run("perc12").unwrap();
        let bars: Vec<Bar<'_>> = run.cells.iter().filter(|c| c.test == "4K random write").map(|c| ("", c)).collect();
        let cell = |id: &str| bars.iter().find(|(_, c)| c.id == id).unwrap().1;
        for (id, efficiency) in
            [("perc12-044", 0.738), ("perc12-045", 0.827), ("perc12-046", 0.578), ("perc12-047", 0.609)]
        {
            let share = cell(id).figures.iops.unwrap() / expected(cell(id), &bars, true).unwrap();
            assert!((share - efficiency).abs() < 0.001, "{id} {share}");
        }
        let svg = chart("4K random write", &bars, true);
        assert!(svg.contains("76 % kept") && svg.contains("28 % kept"), "{svg}");
    }
}
