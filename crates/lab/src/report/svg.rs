//! Charts as text: a canvas with classes that the page's style colours.

use super::html::escape;
use super::scale::Scale;

/// Width of every chart: that of a phone, so that text is read at its own size.
pub const WIDTH: f64 = 420.0;
/// Width of a letter, about: charts are drawn without knowing the font.
const LETTER: f64 = 6.2;

/// A drawing.
pub struct Canvas {
    height: f64,
    title: String,
    body: String,
}

impl Canvas {
    /// An empty one; `title` is what a screen reader says.
    pub fn new(height: f64, title: &str) -> Canvas {
        Canvas { height, title: title.to_owned(), body: String::new() }
    }

    /// A line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.body.push_str(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// Lines through points.
    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        if points.is_empty() {
            return;
        }
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.body.push_str(&format!("<polyline points=\"{}\" class=\"{class}\"/>", points.join(" ")));
    }

    /// A filled area.
    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), class: &str, tip: &str) {
        let (w, h) = (w.max(0.0), h.max(0.0));
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        self.body.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" class=\"{class}\">{tip}</rect>"
        ));
    }

    /// The area between two lines: for each place across, its lower and its upper edge.
    pub fn area(&mut self, edges: &[(f64, f64, f64)], class: &str) {
        if edges.len() < 2 {
            return;
        }
        let there = edges.iter().map(|(x, low, _)| format!("{x:.1},{low:.1}"));
        let back = edges.iter().rev().map(|(x, _, high)| format!("{x:.1},{high:.1}"));
        let points: Vec<String> = there.chain(back).collect();
        self.body.push_str(&format!("<polygon points=\"{}\" class=\"{class}\"/>", points.join(" ")));
    }

    /// A filled area of a given strength of a class's colour, from 0 to 1.
    pub fn shade(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), class: &str, strength: f64) {
        self.body.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" class=\"{class}\" fill-opacity=\"{strength:.2}\"/>"
        ));
    }

    /// A dot.
    pub fn dot(&mut self, (x, y): (f64, f64), class: &str, tip: &str) {
        self.body.push_str(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"><title>{}</title></circle>",
            escape(tip)
        ));
    }

    /// Words; `anchor` is "start", "middle" or "end". What would leave the chart on its right is moved in.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
        let width = text.chars().count() as f64 * LETTER;
        let right_of_anchor = match anchor {
            "start" => width,
            "middle" => width / 2.0,
            _ => 0.0,
        };
        let x = x.min((WIDTH - right_of_anchor).max(0.0));
        self.body.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            escape(text)
        ));
    }

    /// Marks, grid and names of both axes within a frame.
    pub fn axes(&mut self, frame: &Frame, x: &Axis<'_>, y: &Axis<'_>) {
        for mark in y.scale.marks() {
            let at = y.scale.at(mark);
            self.line((frame.left, at), (frame.right, at), "grid");
            self.text((frame.left - 5.0, at + 3.5), "end", "mark", &(y.text)(mark));
        }
        let marks = x.scale.marks();
        // Marks closer than words are long are left out.
        let every = marks.len().div_ceil(7);
        // From the right, where the last one is moved in: it tells where the axis ends.
        let mut left_of = f64::INFINITY;
        for mark in marks.into_iter().step_by(every).collect::<Vec<_>>().into_iter().rev() {
            let at = x.scale.at(mark);
            self.line((at, frame.top), (at, frame.bottom), "grid");
            let text = (x.text)(mark);
            let half = text.chars().count() as f64 * LETTER / 2.0;
            let middle = at.min(WIDTH - half);
            if middle + half + LETTER <= left_of {
                self.text((at, frame.bottom + 14.0), "middle", "mark", &text);
                left_of = middle - half;
            }
        }
        self.line((frame.left, frame.bottom), (frame.right, frame.bottom), "axis");
        self.line((frame.left, frame.top), (frame.left, frame.bottom), "axis");
        self.text(((frame.left + frame.right) / 2.0, frame.bottom + 29.0), "middle", "name", x.name);
        self.text((2.0, frame.top - 8.0), "start", "name", y.name);
    }

    /// Named places across, and a scale upwards.
    pub fn named_axes(&mut self, frame: &Frame, across: &[(f64, String)], name: &str, y: &Axis<'_>) {
        for mark in y.scale.marks() {
            let at = y.scale.at(mark);
            self.line((frame.left, at), (frame.right, at), "grid");
            self.text((frame.left - 5.0, at + 3.5), "end", "mark", &(y.text)(mark));
        }
        for (at, text) in across {
            self.line((*at, frame.bottom), (*at, frame.bottom + 3.0), "axis");
            self.text((*at, frame.bottom + 14.0), "middle", "mark", text);
        }
        self.line((frame.left, frame.bottom), (frame.right, frame.bottom), "axis");
        self.line((frame.left, frame.top), (frame.left, frame.bottom), "axis");
        self.text(((frame.left + frame.right) / 2.0, frame.bottom + 29.0), "middle", "name", name);
        self.text((2.0, frame.top - 8.0), "start", "name", y.name);
    }

    /// The whole of it.
    pub fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.height,
            escape(&self.title),
            self.body
        )
    }
}

/// Where the data of a chart lies.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its right edge.
    pub right: f64,
    /// Its lower edge.
    pub bottom: f64,
}

impl Frame {
    /// The usual one, for a chart of this height.
    pub fn usual(height: f64) -> Frame {
        Frame { left: 58.0, top: 22.0, right: WIDTH - 12.0, bottom: height - 36.0 }
    }
}

/// An axis and its words.
pub struct Axis<'a> {
    /// Its scale.
    pub scale: Scale,
    /// Its name and unit.
    pub name: &'a str,
    /// How a mark is written.
    pub text: fn(f64) -> String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::rate;

    /// Places and words of the marks below a chart, from the left.
    fn marks_below(svg: &str, bottom: f64) -> Vec<(f64, String)> {
        let of = |text: &str| {
            let (x, rest) = text.strip_prefix(" x=\"")?.split_once("\" y=\"")?;
            let (y, rest) = rest.split_once('"')?;
            let below = y.parse::<f64>().ok()? > bottom + 10.0 && rest.contains("class=\"mark\"");
            let words = rest.split_once('>')?.1.split_once('<')?.0.to_owned();
            below.then_some((x.parse().ok()?, words))
        };
        let mut marks: Vec<(f64, String)> = svg.split("<text").filter_map(of).collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        marks
    }

    #[test]
    fn marks_do_not_lie_on_each_other_and_the_last_one_stays() {
        for most in [28.1e9, 5.55e6, 1.2e9, 930.0] {
            let frame = Frame::usual(300.0);
            let mut canvas = Canvas::new(300.0, "a chart");
            let x = Axis { scale: Scale::linear(most, frame.left, frame.right), name: "achieved", text: rate };
            let y = Axis { scale: Scale::log([10.0].into_iter(), frame.bottom, frame.top), name: "y", text: rate };
            let last = x.scale.marks().last().copied().map(rate);
            canvas.axes(&frame, &x, &y);
            let marks = marks_below(&canvas.finish(), frame.bottom);
            assert!(marks.len() > 3, "{marks:?}");
            assert_eq!(marks.last().map(|(_, words)| words.clone()), last);
            for pair in marks.windows(2) {
                let half = |at: usize| pair[at].1.chars().count() as f64 * LETTER / 2.0;
                assert!(pair[0].0 + half(0) < pair[1].0 - half(1), "{pair:?}");
            }
        }
    }
}
