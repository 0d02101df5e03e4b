//! A chart as PNG, with its caption and its legend, in the light colours of the page and a font that is built in.

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use crate::error::Error;
use crate::report::{Chart, STYLE};

/// Pixels for each unit of a chart: text is sharp on paper at half a page's width.
const SCALE: f32 = 3.0;
/// Height of a line of the caption or the legend.
const LINE: f64 = 16.0;
/// Characters in a line of the title, at most.
const LETTERS: usize = 56;
/// Mean width of a character, in pixels.
const LETTER: f64 = 6.8;
/// Width of a mark in the legend and of the space around its name.
const KEY: f64 = 30.0;
/// Letters and signs of European languages; `LICENCE` beside it has its terms.
const FONTS: [&[u8]; 2] =
    [include_bytes!("../../data/font/DejaVuSans.ttf"), include_bytes!("../../data/font/DejaVuSans-Bold.ttf")];
const FONT: &str = "DejaVu Sans";

/// The picture.
///
/// # Errors
/// When the chart is no SVG.
pub fn png(chart: &Chart) -> Result<Vec<u8>, Error> {
    let wrong = |why: &dyn ToString| Error::format(format!("chart \"{}\"", chart.caption), why.to_string());
    let mut options = Options { font_family: FONT.to_owned(), ..Options::default() };
    FONTS.iter().for_each(|font| options.fontdb_mut().load_font_data(font.to_vec()));
    let tree = Tree::from_str(&standalone(chart), &options).map_err(|e| wrong(&e))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| wrong(&"it has no size"))?;
    let mut pixmap = Pixmap::new(size.width(), size.height()).ok_or_else(|| wrong(&"it is too large"))?;
    pixmap.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|e| wrong(&e))
}

/// The chart as a file of its own: its style inside, caption and legend above.
fn standalone(chart: &Chart) -> String {
    let (width, height) = size(&chart.svg);
    let mut above = String::new();
    let mut y = 0.0;
    for line in lines(&chart.caption) {
        y += LINE;
        above.push_str(&format!("<text x=\"4\" y=\"{y:.0}\" class=\"label\">{}</text>", crate::report::escape(&line)));
    }
    let mut x = width;
    for (colour, name) in &chart.legend {
        let names = lines(name);
        let wide = KEY + LETTER * name.chars().count() as f64;
        // Short names share a line.
        if names.len() > 1 || x + wide > width {
            (x, y) = (4.0, y + LINE);
        }
        let key = format!("<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"9\" height=\"9\" class=\"k{colour}\"/>", y - 9.0);
        above.push_str(&key);
        for (nth, line) in names.iter().enumerate() {
            y += if nth == 0 { 0.0 } else { LINE };
            let text = crate::report::escape(line);
            above.push_str(&format!("<text x=\"{:.0}\" y=\"{y:.0}\">{text}</text>", x + 14.0));
        }
        x = if names.len() > 1 { width } else { x + wide };
    }
    let top = y + LINE / 2.0;
    let inner = chart.svg.split_once('>').map_or("", |(_, rest)| rest);
    let inner = inner.strip_suffix("</svg>").unwrap_or(inner);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\">\
         <style>{}</style>{above}<g transform=\"translate(0 {top})\">{inner}</g></svg>",
        style(),
        total = height + top
    )
}

/// Width and height that a chart is drawn in.
fn size(svg: &str) -> (f64, f64) {
    let viewed = svg.split("viewBox=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let numbers: Vec<f64> = viewed.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers.as_slice() {
        [_, _, width, height] => (*width, *height),
        _ => (0.0, 0.0),
    }
}

/// Words in lines.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full =
            lines.last().is_some_and(|l| !l.is_empty() && l.chars().count() + 1 + word.chars().count() > LETTERS);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

/// The rules of the page's style that are about charts, with its light colours in their places.
fn style() -> String {
    let light = STYLE.split("@media").next().unwrap_or_default();
    let mut colours: Vec<(&str, &str)> = vec![];
    let root = light.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(root, _)| root);
    for declaration in root.split(';') {
        if let Some((name, value)) = declaration.trim().split_once(':') {
            colours.push((name.trim(), value.trim()));
        }
    }
    let rules = STYLE.split('}').filter_map(|rule| {
        let (selector, declarations) = rule.rsplit_once('{')?;
        let selector = selector.trim().strip_prefix("svg ")?;
        let mut declarations = declarations.replace("font-family:inherit", &format!("font-family:'{FONT}'"));
        for (name, value) in &colours {
            declarations = declarations.replace(&format!("var({name})"), value);
        }
        Some(format!("{selector}{{{declarations}}}"))
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_the_page_and_letters_are_in_the_picture() {
        let style = style();
        assert!(!style.contains("var(") && style.contains("#1f6feb") && style.contains(FONT), "{style}");
        let chart = |svg: &str, legend: &[(usize, &str)]| Chart {
            caption: "A caption that is long enough to need more than one line of a picture of this width".to_owned(),
            legend: legend.iter().map(|(n, name)| (*n, (*name).to_owned())).collect(),
            svg: svg.to_owned(),
        };
        let bar =
            "<svg viewBox=\"0 0 420 40\"><rect x=\"0\" y=\"0\" width=\"400\" height=\"40\" class=\"bar k0\"/></svg>";
        let pixels = |chart: &Chart| {
            let map = Pixmap::decode_png(&png(chart).unwrap()).unwrap();
            let count = |r: u8, g: u8, b: u8| {
                map.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == (r, g, b)).count()
            };
            (map.width(), map.height(), count(0x1f, 0x6f, 0xeb), count(0x1b, 0x1f, 0x24), count(0xbc, 0x4c, 0))
        };
        let (width, height, blue, ink, orange) = pixels(&chart(bar, &[]));
        assert_eq!((width, blue, orange), (1260, 1200 * 120, 0));
        assert!(height > 120 && ink > 1000, "its caption is drawn: {ink} pixels of {height} lines");
        let (_, taller, _, _, orange) = pixels(&chart(bar, &[(1, "a second result")]));
        assert!(taller > height && orange > 400, "{taller} {orange}");
        assert!(png(&chart("<p>", &[])).is_err());
    }
}
