//! Shared by pictures with logarithmic axes: axes, texts and lines in pixels.

use std::fmt::Display;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{Error, Result};
use trieline_sampling::rounded;

/// Letters of every text.
const FONT: &str = "sans-serif";
/// Lines of a grid.
pub const FAINT: RGBColor = RGBColor(226, 226, 226);
/// Numbers beside it.
pub const GREY: RGBColor = RGBColor(90, 90, 90);

/// A picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Where a value lies between two others on a logarithmic axis of pixels.
pub struct Axis {
    /// Its least value.
    pub from: f64,
    /// Its largest.
    pub to: f64,
    start: i32,
    end: i32,
}

impl Axis {
    /// Wide enough for the values, with some room on either side.
    pub fn around(values: impl Iterator<Item = f64> + Clone, room: f64, start: i32, end: i32) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
        let most = values.fold(least, f64::max);
        Axis { from: least / room, to: most * room, start, end }
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> i32 {
        let share = (value / self.from).ln() / (self.to / self.from).ln();
        self.start + (share * f64::from(self.end - self.start)).round() as i32
    }

    /// Whether a value lies on it.
    pub fn holds(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }
}

/// Writes a text, centred on its height.
pub fn text(root: &Area, what: &str, at: (i32, i32), size: u32, colour: RGBColor, side: HPos) -> Result<()> {
    let style = (FONT, size).into_text_style(root).color(&colour).pos(Pos::new(side, VPos::Center));
    root.draw_text(what, &style, at).map_err(failed)
}

/// Draws a thin line.
pub fn line(root: &Area, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
    root.draw(&PathElement::new([from, to], colour)).map_err(failed)
}

/// The number with its thousands apart.
pub fn grouped(value: f64) -> String {
    if value < 1000.0 {
        return format!("{}", rounded(value, 6));
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The picture with a name and a description for those who do not see it.
pub fn described(svg: &str, title: &str, unit: &str, source: &str) -> String {
    let (start, rest) = svg.split_once('>').unwrap_or(("<svg", ""));
    let (title, description) = (escaped(title), escaped(&format!("{unit}; {source}")));
    format!("{start} role=\"img\"><title>{title}</title><desc>{description}</desc>{rest}")
}

/// The text as XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The error of plotters.
pub fn failed(error: impl Display) -> Error {
    Error(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!((grouped(1_000_000.0), grouped(0.5)), ("1,000,000".into(), "0.5".into()));
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let svg = described("<svg width=\"1\">\n<g/></svg>\n", "a</title>", "b & c", "d");
        let expected = "<svg width=\"1\" role=\"img\"><title>a&lt;/title&gt;</title><desc>b &amp; c; d</desc>\n<g/></svg>\n";
        assert_eq!(svg, expected);
    }

    #[test]
    fn axes_are_logarithmic() {
        let axis = Axis::around([1.0, 100.0].into_iter(), 10.0, 0, 400);
        assert_eq!((axis.at(0.1), axis.at(10.0), axis.at(1000.0)), (0, 200, 400));
    }
}
