//! Over block size: bandwidth and requests of one load, as its blocks grow.

use super::Section;
use super::html::{COLOURS, figure_of};
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame};
use crate::findings::{Build, Unit, short};
use crate::model::{Cell, Part, Run};
use crate::units::{block, rate, si};

const HEIGHT: f64 = 260.0;

/// A load whose blocks differ.
struct Line<'a> {
    name: String,
    like: &'a Cell,
    /// Block size, and the cell.
    points: Vec<(u64, &'a Cell)>,
}

/// The section, if a load was measured with several block sizes.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let mut lines: Vec<Line<'_>> = vec![];
    for run in runs {
        let is_plain = |c: &&Cell| matches!(c.part, Part::Alone | Part::CurveMax | Part::States | Part::Matrix);
        for cell in run.cells.iter().filter(is_plain) {
            let (Some(bytes), Some(_)) = (cell.load.block_bytes, cell.load.access) else { continue };
            let name = name(run, cell, runs.len() > 1);
            match lines.iter_mut().find(|l| l.name == name && is_like(l.like, cell)) {
                Some(line) => add(&mut line.points, bytes, cell),
                None => lines.push(Line { name, like: cell, points: vec![(bytes, cell)] }),
            }
        }
    }
    lines.retain(|l| l.points.len() > 1);
    lines.iter_mut().for_each(|l| l.points.sort_by_key(|(bytes, _)| *bytes));
    let mut body = String::new();
    for shown in lines.chunks(COLOURS) {
        let names: Vec<String> = shown.iter().map(|l| l.name.clone()).collect();
        for (caption, unit) in [("bandwidth over block size", Unit::Bytes), ("IOPS over block size", Unit::Iops)] {
            body.push_str(&figure_of(caption, &names, &chart(caption, shown, unit, scales)));
        }
    }
    (!body.is_empty()).then(|| Section::new("sizes", "Over block size", format!("<div class=\"charts\">{body}</div>")))
}

/// Of one size printed twice the larger counts: the same figure in two units is one.
fn add<'a>(points: &mut Vec<(u64, &'a Cell)>, bytes: u64, cell: &'a Cell) {
    match points.iter_mut().find(|(b, _)| *b == bytes) {
        Some((_, known)) if known.bytes_per_sec() < cell.bytes_per_sec() => *known = cell,
        Some(_) => {}
        None => points.push((bytes, cell)),
    }
}

fn is_like(a: &Cell, b: &Cell) -> bool {
    let mut load = a.load.clone();
    load.block_bytes = b.load.block_bytes;
    load == b.load && a.subject == b.subject && (a.part == Part::Matrix) == (b.part == Part::Matrix)
}

fn name(run: &Run, cell: &Cell, several: bool) -> String {
    let mut load = cell.load.clone();
    load.block_bytes = None;
    let mut words = vec![load.name()];
    words.extend(several.then(|| run.name.clone()));
    words.push(short(&cell.subject.system));
    words.push(Build::of(cell).text());
    words.extend((load.threads.is_some() || load.depth.is_some()).then(|| load.pressure()));
    words.retain(|w| !w.is_empty());
    words.join(", ")
}

/// Whether two lines have the same sizes and nearly the same values.
fn lies_on(line: &Line<'_>, other: &Line<'_>, unit: Unit) -> bool {
    let values = |l: &Line<'_>| l.points.iter().map(|(bytes, c)| (*bytes, unit.value(c))).collect::<Vec<_>>();
    let (these, those) = (values(line), values(other));
    let is_near = |a: f64, b: f64| (a - b).abs() < a.abs().max(b.abs()) / 50.0;
    these.len() == those.len()
        && these
            .iter()
            .zip(&those)
            .all(|((at, a), (there, b))| at == there && a.zip(*b).is_some_and(|(a, b)| is_near(a, b)))
}

fn chart(title: &str, lines: &[Line<'_>], unit: Unit, scales: &Scales) -> String {
    let frame = Frame::usual(HEIGHT);
    let mut sizes: Vec<u64> = lines.iter().flat_map(|l| l.points.iter().map(|(bytes, _)| *bytes)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let place = |bytes: u64| {
        let nth = sizes.iter().position(|s| *s == bytes).unwrap_or(0);
        frame.left + (nth as f64 + 0.5) / sizes.len() as f64 * (frame.right - frame.left)
    };
    // What is reckoned from the other unit may be more than anything that was printed in this one.
    let reckoned = lines.iter().flat_map(|l| &l.points).filter_map(|(_, c)| unit.value(c)).fold(0.0, f64::max);
    let is_iops = unit == Unit::Iops;
    let wide = Scales { iops: scales.iops.max(reckoned), bytes: scales.bytes.max(reckoned), ..*scales };
    let y = wide.rate(is_iops, frame.bottom, frame.top);
    let mut canvas = Canvas::new(HEIGHT, title);
    let (name, text): (_, fn(f64) -> String) = if is_iops { ("IOPS", si) } else { ("bandwidth", rate) };
    let marks: Vec<(f64, String)> = sizes.iter().map(|s| (place(*s), block(*s))).collect();
    canvas.named_axes(&frame, &marks, "block size", &Axis { scale: y, name, text });
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            line.points.iter().filter_map(|(bytes, c)| Some((place(*bytes), y.at(unit.value(c)?)))).collect();
        // A line that lies on one before it lets that show through.
        let is_there = lines[..i].iter().any(|other| lies_on(line, other, unit));
        canvas.path(&points, &format!("curve s{i}{}", if is_there { " dashed" } else { "" }));
        for (&at, (bytes, cell)) in points.iter().zip(&line.points) {
            let value = unit.value(cell).map_or(String::new(), |v| unit.text(v));
            canvas.dot(at, &format!("k{i}"), &format!("{}: {} {value}", cell.id, block(*bytes)));
        }
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_two_sizes_is_a_line_and_others_are_not() {
        let runs = [crate::published::run("qlc24").unwrap()];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        for name in ["sequential read", "sequential write", "random read"] {
            assert!(body.contains(&format!("{name}, Viking VSS2249P, JBOD, 24 drives")), "{name}: {body}");
        }
        assert!(!body.contains("random 70/30"), "one size is no line");
        assert_eq!(body.matches("<polyline").count(), 6, "three lines, two units");
        // RAID 5 and 6 read alike: both are seen.
        let runs = [crate::published::run("perc11").unwrap()];
        assert!(section(&runs, &Scales::of(&runs)).unwrap().body.contains("curve s1 dashed"));
        let runs = [crate::published::run("ssd24").unwrap()];
        assert!(section(&runs, &Scales::of(&runs)).is_none());
    }
}
