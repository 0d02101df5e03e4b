//! Bars by level and state: one chart for each load; what is kept of the optimal rate, and what the write penalty of
//! the RAID level would leave. All bars of one unit in a report have one scale.

use super::Section;
use super::html::{figure, figure_with};
use super::scales::Scales;
use super::svg::{Canvas, WIDTH};
use crate::findings::{count_of, short};
use crate::model::{Access, Cell, Part, Run, State};
use crate::units::{rate, si};

/// Longest bar; what is right of it is for the number.
const LONGEST: f64 = 250.0;
/// Letters of a label in one line.
const LABEL: usize = 62;
/// Bars of loads that have only one each, in one chart at most.
const SINGLES: usize = 16;
const STATES: [State; 4] = [State::Optimal, State::Degraded, State::Rebuilding, State::Rebuilt];

/// A bar's cell, and the result that it is of.
type Bar<'a> = (&'a str, &'a Cell);

/// What a chart is of. The peak of a load curve and the largest rate of a plain load are not one thing, nor are loads on
/// parts of a drive of different sizes.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    test: String,
    is_iops: bool,
    slice_percent: Option<f64>,
    peak: bool,
}

impl Key {
    fn of(cell: &Cell) -> Option<Key> {
        let (is_iops, _) = cell.headline()?;
        let peak = cell.part == Part::CurveMax;
        Some(Key { test: cell.test.clone(), is_iops, slice_percent: cell.load.slice_percent, peak })
    }

    fn caption(&self) -> String {
        let unit = if self.is_iops { "IOPS" } else { "bandwidth" };
        let slice =
            self.slice_percent.filter(|p| *p < 100.0).map_or(String::new(), |p| format!(", on {p:.0} % of each drive"));
        let peak = if self.peak { ", peak of the load curve" } else { "" };
        format!("{}, {unit}{peak}{slice}", self.test)
    }
}

/// The section, if any cell is a measurement of its own.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let mut groups: Vec<(Key, Vec<Bar<'_>>)> = vec![];
    for run in runs {
        for cell in run.cells.iter().filter(|c| is_alone(c)) {
            let Some(key) = Key::of(cell) else { continue };
            match groups.iter_mut().find(|(k, _)| *k == key) {
                Some((_, bars)) => bars.push((&run.name, cell)),
                None => groups.push((key, vec![(&run.name, cell)])),
            }
        }
    }
    if groups.is_empty() {
        return None;
    }
    if runs.len() > 1 {
        // What is compared lies together: all results under one load.
        let in_flight = |bar: &Bar<'_>| bar.1.load.outstanding().unwrap_or(0.0);
        groups.iter_mut().for_each(|(_, bars)| bars.sort_by(|a, b| in_flight(a).total_cmp(&in_flight(b))));
    }
    let states: Vec<State> = groups.iter().flat_map(|(_, bars)| bars.iter().map(|(_, c)| c.subject.state)).collect();
    let (single, several): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, bars)| bars.len() == 1);
    let mut shown: Vec<String> = several
        .iter()
        .map(|(key, bars)| drawn(&key.caption(), bars, &chart(&key.caption(), bars, key.is_iops, false, scales)))
        .collect();
    for is_iops in [true, false] {
        let bars: Vec<Bar<'_>> = single
            .iter()
            .filter(|(key, _)| key.is_iops == is_iops)
            .flat_map(|(_, bars)| bars.iter().copied())
            .collect();
        for bars in bars.chunks(SINGLES) {
            let what = if several.is_empty() { "Loads" } else { "Other loads" };
            let caption = format!("{what}, {}", if is_iops { "IOPS" } else { "bandwidth" });
            shown.push(drawn(&caption, bars, &chart(&caption, bars, is_iops, true, scales)));
        }
    }
    let mut note = "<p>All bars of one unit have one scale.".to_owned();
    if states.iter().any(|s| *s != State::Optimal) {
        note.push_str(" A percentage is the share of the optimal rate of the same configuration.");
    }
    if shown.iter().any(|svg| svg.contains("class=\"tick\"")) {
        note.push_str(
            " A thin mark on writes is the rate of the bare drives of as many controllers over the write penalty of the \
             level (RAID 10: 2, RAID 5: 4, RAID 6: 6).",
        );
    }
    note.push_str("</p>");
    let body = format!("{note}<div class=\"charts\">{}</div>", shown.concat());
    Some(Section::new("bars", "By load, level and state", body))
}

/// A chart; the colours of states are named where there is more than one.
fn drawn(caption: &str, bars: &[Bar<'_>], svg: &str) -> String {
    let is_there = |state: &State| bars.iter().any(|(_, c)| c.subject.state == *state);
    let there = STATES.iter().enumerate().filter(|(_, s)| is_there(s));
    let keys: Vec<(usize, String)> = there.map(|(nth, state)| (nth, state.to_string())).collect();
    if keys.iter().all(|(nth, _)| *nth == 0) {
        return figure(caption, svg);
    }
    figure_with(caption, &keys, svg)
}

fn is_alone(cell: &Cell) -> bool {
    matches!(cell.part, Part::Alone | Part::Unallocated | Part::CurveMax | Part::States)
}

fn value(cell: &Cell, is_iops: bool) -> f64 {
    let figure = if is_iops { cell.figures.iops } else { cell.figures.bytes_per_sec };
    figure.unwrap_or(0.0)
}

/// `by_load`: each bar is of another load, and says which.
fn chart(title: &str, bars: &[Bar<'_>], is_iops: bool, by_load: bool, scales: &Scales) -> String {
    let most = scales.most(is_iops);
    let words = Words::of(bars);
    let mut groups: Vec<(String, Vec<&Cell>)> = vec![];
    for (run, cell) in bars {
        let mut label = words.label(run, cell);
        if by_load {
            let slice =
                cell.load.slice_percent.filter(|p| *p < 100.0).map_or(String::new(), |p| format!(" on {p:.0} %"));
            let peak = if cell.part == Part::CurveMax { ", peak of the curve" } else { "" };
            label = format!("{}{slice}{peak}: {label}", cell.test);
        }
        match groups.iter_mut().find(|(l, _)| *l == label) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((label, vec![cell])),
        }
    }
    let lines: Vec<Vec<String>> = groups.iter().map(|(label, _)| wrapped(label)).collect();
    let heights =
        groups.iter().zip(&lines).map(|((_, cells), l)| 6.0 + 14.0 * l.len() as f64 + 19.0 * cells.len() as f64);
    let mut canvas = Canvas::new(heights.sum::<f64>() + 8.0, title);
    let mut y = 4.0;
    for ((_, cells), lines) in groups.iter_mut().zip(lines) {
        cells.sort_by_key(|c| c.subject.state);
        for line in lines {
            canvas.text((2.0, y + 11.0), "start", "label", &line);
            y += 14.0;
        }
        y += 3.0;
        let optimal = cells.iter().find(|c| c.subject.state == State::Optimal).map(|c| value(c, is_iops));
        for cell in cells.iter() {
            let value = value(cell, is_iops);
            let number = if is_iops { format!("{} IOPS", si(value)) } else { rate(value) };
            let kept = match (cell.subject.state, optimal) {
                (State::Degraded | State::Rebuilding | State::Rebuilt, Some(optimal)) if optimal > 0.0 => {
                    format!(", {:.0} % kept", value / optimal * 100.0)
                }
                (_, _) => String::new(),
            };
            let colour = STATES.iter().position(|s| *s == cell.subject.state).unwrap_or(0);
            let length = (value / most * LONGEST).max(1.0);
            let tip = format!("{}: {}", cell.id, cell.subject.state);
            canvas.rect((2.0, y), (length, 15.0), &format!("bar k{colour}"), &tip);
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

/// A label in lines that the width of a chart holds, broken between words.
fn wrapped(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split(' ') {
        let last = lines.last_mut().map_or(0, |l| l.chars().count());
        if last > 0 && last + 1 + word.chars().count() > LABEL {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            // One word that is longer than a line is cut: it is whole in the table.
            line.extend(word.chars().take(LABEL));
        }
    }
    lines
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

/// Which words tell the bars of a chart apart, beside the system, its level and its drives, which are always there.
struct Words {
    runs: bool,
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
        words.extend((self.runs && run != subject.system).then(|| run.to_owned()));
        words.extend((!subject.system.is_empty()).then(|| short(&subject.system)));
        words.extend(subject.level.clone());
        let drives = match subject.drive_count {
            Some(n) => count_of(n, "drive"),
            None if self.drives => short(&subject.drives),
            None => String::new(),
        };
        words.extend((!drives.is_empty()).then_some(drives));
        let controllers = match subject.controller_count {
            Some(0) => "no controller".to_owned(),
            Some(n) => count_of(n, "controller"),
            None => subject.controllers.clone().unwrap_or_default(),
        };
        words.extend((self.controllers && !controllers.is_empty()).then_some(controllers));
        words.extend(self.pressure.then(|| format!("threads x depth {}", cell.load.pressure())));
        words.extend((self.cached && cell.load.cached == Some(true)).then(|| "page cache".to_owned()));
        words.extend((self.unallocated && cell.part == Part::Unallocated).then(|| "unallocated".to_owned()));
        if words.is_empty() {
            words.push(run.to_owned());
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_and_penalty_are_those_of_the_review() {
        let run = crate::published::run("perc12").unwrap();
        let is_of = |c: &&Cell| c.test == "4K random write" && c.load.slice_percent.is_none();
        let bars: Vec<Bar<'_>> = run.cells.iter().filter(is_of).map(|c| ("", c)).collect();
        let cell = |id: &str| bars.iter().find(|(_, c)| c.id == id).unwrap().1;
        for (id, efficiency) in
            [("perc12-044", 0.738), ("perc12-045", 0.827), ("perc12-046", 0.578), ("perc12-047", 0.609)]
        {
            let share = cell(id).figures.iops.unwrap() / expected(cell(id), &bars, true).unwrap();
            assert!((share - efficiency).abs() < 0.001, "{id} {share}");
        }
        let svg = chart("4K random write", &bars, true, false, &Scales::of(std::slice::from_ref(&run)));
        assert!(svg.contains("76 % kept") && svg.contains("28 % kept"), "{svg}");
    }

    #[test]
    fn peaks_of_curves_stand_apart_and_every_label_has_system_and_drives() {
        let run = crate::published::run("perc12").unwrap();
        let runs = [run];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        assert!(body.contains("4K random write, IOPS, on 25 % of each drive"), "{body}");
        assert!(body.contains("<figcaption>4K random write, IOPS</figcaption>"));
        for label in body.split("class=\"label\">").skip(1) {
            assert!(
                label.starts_with("Dell R760 ") || label.starts_with("drives, ") || label.contains("Dell"),
                "{label:.80}"
            );
        }
        let whole = body.matches("class=\"label\"").count();
        assert!(body.matches(" drives").count() >= whole, "each names its drives");
    }

    #[test]
    fn results_under_one_load_lie_together() {
        let one = crate::published::run("perc12").unwrap().cells[0].clone();
        let run = |name: &str| {
            let mut run = Run::new(name, "", crate::model::Origin::Measured);
            run.cells.extend([1, 32].map(|depth| {
                let mut cell = one.clone();
                (cell.part, cell.load.threads, cell.load.depth) = (Part::Alone, Some(1), Some(depth));
                name.clone_into(&mut cell.subject.system);
                cell
            }));
            run
        };
        let runs = [run("NBD"), run("ublk")];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        let labels: Vec<&str> = body.split("class=\"label\">").skip(1).collect();
        let begins: Vec<&str> = labels.iter().map(|label| label.split(',').next().unwrap()).collect();
        assert_eq!(begins, ["NBD", "ublk", "NBD", "ublk"], "{body}");
    }

    #[test]
    fn a_whole_drive_is_no_part_of_it() {
        let mut run = crate::published::run("qlc24").unwrap();
        run.cells.iter_mut().for_each(|c| c.load.slice_percent = Some(100.0));
        let runs = [run];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        assert!(!body.contains("100 %"), "{body}");
    }

    #[test]
    fn bars_of_one_unit_have_one_scale() {
        let run = crate::published::run("perc12").unwrap();
        let runs = [run];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        let width_of = |number: &str| {
            let before = body.split(&format!(">{number}<")).next().unwrap();
            let rect = before.rsplit("<rect ").next().unwrap();
            rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
        };
        // They are in two charts, and each is the longest of its own.
        let ratio = width_of("41.6 GB/s") / width_of("56.5 GB/s");
        assert!((ratio - 41.6 / 56.541).abs() < 0.01, "{ratio}");
    }
}
