//! Rebuilds: rate, 99th percentile and progress on one time axis, with what happened.

use super::Section;
use super::html::figure;
use super::scale::Scale;
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame, WIDTH};
use crate::model::{Moment, Run, Timeline};
use crate::units::{latency, si, time};

const STRIP: f64 = 130.0;
const NOTE: &str = "<p>Bands of latency, where histograms were logged: p50 to p95, p95 to p99, p99 to p99.9; the line is \
                    p99.</p>";

/// A name, what it draws, and how its marks are written.
type Strip = (&'static str, fn(&Moment) -> Option<f64>, fn(f64) -> String);

/// A percentile of a moment.
type Percentile = fn(&Moment) -> Option<f64>;

/// Lower and upper edges of the bands of latency: p50 to p95, to p99, to p99.9.
const BANDS: [(Percentile, Percentile); 3] =
    [(|m| m.p50_us, |m| m.p95_us), (|m| m.p95_us, |m| m.p99_us), (|m| m.p99_us, |m| m.p999_us)];

/// The section, if a rebuild was watched.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let all = runs.iter().flat_map(|r| &r.timelines).filter(|t| !t.moments.is_empty());
    let body: String = all.map(|t| figure(&caption(t), &chart(t, scales))).collect();
    (!body.is_empty())
        .then(|| Section::new("rebuild", "Rebuilds over time", format!("{NOTE}<div class=\"charts\">{body}</div>")))
}

fn caption(timeline: &Timeline) -> String {
    let lost = timeline.optimal_iops.map(|optimal| lost_requests(&timeline.moments, optimal));
    lost.map_or(timeline.name.clone(), |n| {
        format!("{}; {} requests fewer than at the optimal rate", timeline.name, si(n))
    })
}

/// Requests that were not served, against the optimal rate.
fn lost_requests(moments: &[Moment], optimal: f64) -> f64 {
    let steps = moments.windows(2);
    steps.filter_map(|w| Some((optimal - w[1].iops?) * (w[1].at - w[0].at))).sum()
}

fn chart(timeline: &Timeline, scales: &Scales) -> String {
    let end = timeline.moments.last().map_or(1.0, |m| m.at);
    let height = 3.0 * STRIP + 20.0;
    let mut canvas = Canvas::new(height, &timeline.name);
    let strips: [Strip; 3] = [
        ("IOPS", |m| m.iops, si),
        ("latency", |m| m.p99_us, latency),
        ("rebuilt", |m| m.rebuilt_percent, |v| format!("{v:.0} %")),
    ];
    for (i, (name, of, text)) in strips.into_iter().enumerate() {
        let top = STRIP * i as f64 + 22.0;
        let frame = Frame { left: 58.0, top, right: WIDTH - 12.0, bottom: top + STRIP - 48.0 };
        let values: Vec<f64> = timeline.moments.iter().filter_map(of).collect();
        let x = Scale::linear(end, frame.left, frame.right);
        let y = match i {
            0 => scales.rate(true, frame.bottom, frame.top),
            1 => scales.latency(frame.bottom, frame.top),
            _ => Scale::linear(100.0, frame.bottom, frame.top),
        };
        canvas.axes(&frame, &Axis { scale: x, name: "", text: time }, &Axis { scale: y, name, text });
        if values.is_empty() {
            canvas.text(
                ((frame.left + frame.right) / 2.0, (frame.top + frame.bottom) / 2.0),
                "middle",
                "mark",
                "unknown",
            );
        }
        if let Some(optimal) = timeline.optimal_iops.filter(|_| i == 0) {
            canvas.line((frame.left, y.at(optimal)), (frame.right, y.at(optimal)), "trend");
        }
        for (nth, (low, high)) in BANDS.iter().enumerate().filter(|_| i == 1) {
            let edges = timeline.moments.iter().filter_map(|m| Some((x.at(m.at), y.at(low(m)?), y.at(high(m)?))));
            canvas.area(&edges.collect::<Vec<_>>(), &format!("band b{nth}"));
        }
        let points: Vec<(f64, f64)> =
            timeline.moments.iter().filter_map(|m| Some((x.at(m.at), y.at(of(m)?)))).collect();
        canvas.path(&points, &format!("curve s{i}"));
        for event in &timeline.events {
            canvas.line((x.at(event.at), frame.top), (x.at(event.at), frame.bottom), "tick");
            if i == 0 {
                canvas.text((x.at(event.at) + 3.0, frame.top + 9.0), "start", "mark", &event.what);
            }
        }
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bands_where_they_are_known() {
        let moment = |at: f64, p999_us: Option<f64>| Moment {
            at,
            iops: Some(100.0),
            p50_us: Some(10.0),
            p95_us: Some(20.0),
            p99_us: Some(50.0),
            p999_us,
            ..Moment::default()
        };
        let drawn = |p999_us: Option<f64>| {
            let moments = vec![moment(0.0, p999_us), moment(1.0, p999_us)];
            let mut run = Run::new("r", "", crate::model::Origin::Measured);
            run.timelines.push(Timeline { name: "t".to_owned(), optimal_iops: None, moments, events: vec![] });
            let runs = [run];
            section(&runs, &Scales::of(&runs)).unwrap().body.matches("<polygon").count()
        };
        assert_eq!((drawn(Some(90.0)), drawn(None)), (3, 2));
    }

    #[test]
    fn what_a_rebuild_costs_is_the_area_below_the_optimal_rate() {
        let moment = |at: f64, iops: f64| Moment { at, iops: Some(iops), ..Moment::default() };
        assert_eq!(lost_requests(&[moment(0.0, 100.0), moment(1.0, 40.0), moment(3.0, 100.0)], 100.0), 60.0);
    }
}
