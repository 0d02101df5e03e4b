//! The way to a steady state: the tracked value round by round, the window that counts, and its trend.

use super::Section;
use super::html::figure;
use super::scale::Scale;
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame};
use crate::model::{Rounds, Run};
use crate::steady::{Excursion, RANGE_MAX, SLOPE_MAX, WINDOW};
use crate::units::si;

const HEIGHT: f64 = 240.0;
/// Hundredths of the mean that an axis ends at; what is above is drawn at its edge.
const SHARE_MAX: f64 = 200.0;

/// The section, if rounds were run.
pub fn section(runs: &[Run], _: &Scales) -> Option<Section> {
    let mut body = String::new();
    for run in runs {
        for rounds in &run.rounds {
            let caption = format!("{}, {}: {}", run.name, rounds.test, words(rounds));
            body.push_str(&figure(&caption, &chart(rounds)));
        }
    }
    let note = format!(
        "<p>Derived from SNIA's performance test specification, not certified: over the last {WINDOW} rounds the value \
         keeps within {:.0} % of its mean, and its trend rises or falls by {:.0} % at most.</p>",
        RANGE_MAX * 100.0,
        SLOPE_MAX * 100.0
    );
    (!body.is_empty())
        .then(|| Section::new("steady", "Steady state", format!("{note}<div class=\"charts\">{body}</div>")))
}

fn words(rounds: &Rounds) -> String {
    let badge = if rounds.steady { "STEADY" } else { "NOT STEADY" };
    match Excursion::of(&rounds.values) {
        Some(e) => format!(
            "{badge} after {} rounds, range {:.1} %, trend {:+.1} %",
            rounds.values.len(),
            e.range * 100.0,
            e.slope * 100.0
        ),
        None => format!("{badge}: {} rounds are fewer than {WINDOW}", rounds.values.len()),
    }
}

fn chart(rounds: &Rounds) -> String {
    let frame = Frame::usual(HEIGHT);
    let n = rounds.values.len();
    // One scale for all tests: a share of the mean of the window, or of all rounds.
    let mean = Excursion::of(&rounds.values).map_or(rounds.values.iter().sum::<f64>() / n.max(1) as f64, |e| e.mean);
    let share = |value: f64| if mean > 0.0 { value / mean * 100.0 } else { 0.0 };
    let x = Scale::linear((n + 1) as f64, frame.left, frame.right);
    let y = Scale::linear(SHARE_MAX, frame.bottom, frame.top);
    let mut canvas = Canvas::new(HEIGHT, &rounds.test);
    let whole: fn(f64) -> String = |v| format!("{v:.0}");
    let name = format!("{}, % of {}", rounds.tracked, si(mean));
    canvas.axes(&frame, &Axis { scale: x, name: "round", text: whole }, &Axis { scale: y, name: &name, text: whole });
    if let Some(e) = Excursion::of(&rounds.values) {
        let (first, last) = (x.at((n - WINDOW + 1) as f64), x.at(n as f64));
        let half = RANGE_MAX / 2.0;
        let (upper, lower) = (y.at(100.0 * (1.0 + half)), y.at(100.0 * (1.0 - half)));
        canvas.rect(
            (first, upper),
            (last - first, lower - upper),
            "band",
            "10 % above and below the mean of the window",
        );
        let ends = (y.at(100.0 * (1.0 - e.slope / 2.0)), y.at(100.0 * (1.0 + e.slope / 2.0)));
        canvas.line((first, ends.0), (last, ends.1), "trend");
    }
    let points: Vec<(f64, f64)> =
        rounds.values.iter().enumerate().map(|(i, v)| (x.at((i + 1) as f64), y.at(share(*v)))).collect();
    canvas.path(&points, "curve s0");
    points.iter().zip(&rounds.values).for_each(|(&at, v)| canvas.dot(at, "k0", &si(*v)));
    canvas.finish()
}
