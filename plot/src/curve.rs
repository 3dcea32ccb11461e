//! Draws figures over sizes as curves, both axes logarithmic, every curve named at its end; what others published is dotted.

use plotters::{prelude::*, style::text_anchor::HPos};

use crate::{
    Picture, Result,
    draw::{Area, Axis, FAINT, GREY, described, failed, grouped, line, text},
};

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Its points by size.
    pub points: Vec<Point>,
    /// Which colour: curves of the same series share it.
    pub series: usize,
    /// How it is drawn.
    pub stroke: Stroke,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The size.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Point {
    /// A value without a spread.
    pub fn exact(x: f64, y: f64) -> Point {
        Point { x, y, least: y, most: y }
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// Measured.
    Solid,
    /// Measured, of a second kind.
    Thin,
    /// Published by others.
    Dotted,
    /// Of so many points that none of them is marked.
    Plain,
}

/// The marks below the upright lines of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The value.
    Numbers,
    /// Of 1 / (1 - p) the quantile p in percent, as HdrHistogram plots distributions: 10 is 90 %, 1000 is 99.9 %.
    Quantiles,
}

impl Marks {
    fn text(self, value: f64) -> String {
        match self {
            Marks::Numbers => grouped(value),
            // 1 - 1/x in percent: binary numbers have no exact tenths.
            Marks::Quantiles => {
                let digits = (value.log10() - 2.0).max(0.0) as usize;
                format!("{:.digits$}%", 100.0 * (1.0 - 1.0 / value))
            }
        }
    }
}

/// The texts around the curves.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// The title.
    pub title: &'a str,
    /// Of the sizes.
    pub x: &'a str,
    /// The marks at them.
    pub marks: Marks,
    /// Of the figures.
    pub y: &'a str,
    /// Where and when it was measured; two lines.
    pub source: &'a str,
}

const SIZE: (i32, i32) = (960, 560);
/// Left, top, right, bottom of the curves' room; to the right of it are their names.
const ROOM: (i32, i32, i32, i32) = (76, 52, 690, 460);
/// Between two names.
const NAME: i32 = 16;
/// Between two dots.
const DOTS: f64 = 6.0;
// Distinguishable with every colour vision (Okabe and Ito), all dark enough to be read; the kernel is the grey one.
const COLOURS: [RGBColor; 5] = [
    RGBColor(90, 90, 90),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 130, 95),
    RGBColor(150, 70, 130),
];

/// Points as curves: those of one label are a curve, in their order. With the label come the curve's series and stroke.
pub fn by_label(points: impl IntoIterator<Item = ((String, usize, Stroke), Point)>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for ((label, series, stroke), point) in points {
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { label, points: vec![point], series, stroke }),
        }
    }
    curves
}

/// A picture of curves over the number of entries, by the `name`.
pub fn by_entries(name: &str, title: &str, y: &str, source: &str, curves: &[Curve]) -> Result<Picture> {
    let words = Words { title, x: "entries", marks: Marks::Numbers, y, source };
    Ok(Picture { name: name.to_owned(), svg: picture(words, curves)? })
}

/// The picture. Values of 0 and less, which have no place on such an axis, are left out.
pub fn picture(words: Words, curves: &[Curve]) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (SIZE.0 as u32, SIZE.1 as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    text(&root, words.title, (12, 22), 18, BLACK, HPos::Left)?;
    for (row, part) in (0..).zip(words.source.splitn(2, '\n')) {
        text(&root, part, (12, SIZE.1 - 30 + 15 * row), 11, GREY, HPos::Left)?;
    }
    let points = || curves.iter().flat_map(|curve| &curve.points).filter(|point| is_drawable(point));
    let x = Axis::around(points().map(|point| point.x), 1.3, ROOM.0, ROOM.2);
    let y = Axis::around(points().flat_map(|point| [point.least, point.most]), 1.25, ROOM.3, ROOM.1);
    grid(&root, &x, &y, words.marks)?;
    text(&root, words.x, ((ROOM.0 + ROOM.2) / 2, ROOM.3 + 34), 13, BLACK, HPos::Center)?;
    text(&root, &format!("{}; both axes logarithmic", words.y), (12, ROOM.1 - 12), 13, BLACK, HPos::Left)?;
    let mut ends = Vec::new();
    for curve in curves {
        let colour = COLOURS[curve.series % COLOURS.len()];
        let drawn: Vec<&Point> = curve.points.iter().filter(|point| is_drawable(point)).collect();
        let path: Vec<(i32, i32)> = drawn.iter().map(|point| (x.at(point.x), y.at(point.y))).collect();
        for (point, place) in drawn.iter().zip(&path) {
            line(&root, (place.0, y.at(point.least)), (place.0, y.at(point.most)), colour)?;
        }
        trace(&root, &path, curve.stroke, colour)?;
        if let Some(end) = path.last() {
            ends.push((*end, curve.label.as_str(), colour));
        }
    }
    names(&root, ends)?;
    root.present().map_err(failed)?;
    drop(root);
    Ok(described(&svg, words.title, words.y, words.source))
}

fn is_drawable(point: &Point) -> bool {
    point.x > 0.0 && point.least > 0.0 && point.most.is_finite()
}

fn grid(root: &Area, x: &Axis, y: &Axis, marks: Marks) -> Result<()> {
    for value in (-1..12).map(|decade| 10f64.powi(decade)).filter(|value| x.holds(*value)) {
        line(root, (x.at(value), ROOM.1), (x.at(value), ROOM.3), FAINT)?;
        text(root, &marks.text(value), (x.at(value), ROOM.3 + 14), 12, GREY, HPos::Center)?;
    }
    // Of narrow axes more than the decades are named.
    let steps: &[f64] = if y.to / y.from > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    for value in (-4..9).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))) {
        if y.holds(value) {
            line(root, (ROOM.0, y.at(value)), (ROOM.2, y.at(value)), FAINT)?;
            text(root, &grouped(value), (ROOM.0 - 8, y.at(value)), 12, GREY, HPos::Right)?;
        }
    }
    Ok(())
}

fn trace(root: &Area, path: &[(i32, i32)], stroke: Stroke, colour: RGBColor) -> Result<()> {
    let dot =
        |at: (i32, i32), radius: i32| root.draw(&Circle::new(at, radius, colour.filled())).map_err(failed);
    if stroke == Stroke::Dotted {
        for pair in path.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let (right, down) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
            let dots = (right.hypot(down) / DOTS).ceil().max(1.0);
            for n in 0..dots as i32 {
                let share = f64::from(n) / dots;
                dot((from.0 + (share * right).round() as i32, from.1 + (share * down).round() as i32), 1)?;
            }
        }
        // One point alone is to be seen, too.
        return path.last().map_or(Ok(()), |end| dot(*end, 3));
    }
    let width = if stroke == Stroke::Thin { 1 } else { 2 };
    root.draw(&PathElement::new(path.to_vec(), colour.stroke_width(width))).map_err(failed)?;
    if stroke == Stroke::Plain {
        return Ok(());
    }
    path.iter().try_for_each(|at| dot(*at, if stroke == Stroke::Solid { 3 } else { 2 }))
}

/// Writes the names right of the curves, each as near to its curve's end as the others allow, and leads a line there.
fn names(root: &Area, mut ends: Vec<((i32, i32), &str, RGBColor)>) -> Result<()> {
    ends.sort_by_key(|((_, y), ..)| *y);
    let heights = apart(&ends.iter().map(|((_, y), ..)| *y).collect::<Vec<_>>());
    for ((end, label, colour), height) in ends.into_iter().zip(heights) {
        line(root, (end.0 + 4, end.1), (ROOM.2 + 14, height), light(colour))?;
        text(root, label, (ROOM.2 + 18, height), 13, colour, HPos::Left)?;
    }
    Ok(())
}

/// Ascending heights, moved so that they keep their order and [`NAME`] between them, inside the room.
fn apart(heights: &[i32]) -> Vec<i32> {
    let mut placed: Vec<i32> = Vec::with_capacity(heights.len());
    for height in heights {
        let least = placed.last().map_or(ROOM.1, |last| last + NAME);
        placed.push((*height).max(least));
    }
    let mut below = ROOM.3;
    for height in placed.iter_mut().rev() {
        *height = (*height).min(below);
        below = *height - NAME;
    }
    placed
}

/// A lighter colour.
fn light(colour: RGBColor) -> RGBColor {
    let half = |part: u8| part / 2 + 127;
    RGBColor(half(colour.0), half(colour.1), half(colour.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_inside_and_in_order() {
        for heights in [&[100, 101, 102, 300][..], &[455, 456, 457, 458], &[0, 0, 0], &[60, 61, 459, 460]] {
            let placed = apart(heights);
            assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= NAME), "{placed:?}");
            assert!(placed[0] >= ROOM.1 - NAME && placed[placed.len() - 1] <= ROOM.3, "{placed:?}");
        }
    }

    #[test]
    fn published_curves_are_dotted_and_names_escaped() {
        let points = [1.0, 100.0].map(|x| Point { x, y: 10.0 * x, least: 9.0 * x, most: 11.0 * x }).to_vec();
        let words = Words {
            title: "<curves>",
            x: "entries",
            marks: Marks::Numbers,
            y: "ns",
            source: "here & now\n$",
        };
        let solid = Curve { label: "a<b".into(), points, series: 0, stroke: Stroke::Solid };
        let dotted = Curve { stroke: Stroke::Dotted, series: 1, ..solid.clone() };
        let one = picture(words, std::slice::from_ref(&solid)).unwrap();
        let both = picture(words, &[solid, dotted]).unwrap();
        assert!(one.contains("a&lt;b") && one.contains("here &amp; now"));
        assert!(both.matches("<circle").count() > one.matches("<circle").count() + 20);
    }

    #[test]
    fn points_of_one_label_are_a_curve() {
        let of = |label: &str| (label.to_owned(), 0, Stroke::Thin);
        let point = |x| Point::exact(x, 1.0);
        let curves = by_label([(of("a"), point(1.0)), (of("b"), point(2.0)), (of("a"), point(3.0))]);
        let found: Vec<_> = curves.iter().map(|curve| (curve.label.as_str(), curve.points.len())).collect();
        assert_eq!((found, curves[0].points[1].x), (vec![("a", 2), ("b", 1)], 3.0));
    }

    #[test]
    fn tails_are_marked_by_their_quantiles() {
        let marks = [1.0, 10.0, 100.0, 1e3, 1e5].map(|value| Marks::Quantiles.text(value));
        assert_eq!(marks, ["0%", "90%", "99%", "99.9%", "99.999%"]);
    }

    #[test]
    fn nothing_measured_is_no_failure() {
        let words = Words { title: "", x: "", marks: Marks::Numbers, y: "", source: "" };
        assert!(picture(words, &[]).is_ok());
        let curve = Curve {
            label: "zero".into(),
            points: vec![Point::exact(1.0, 0.0)],
            series: 0,
            stroke: Stroke::Thin,
        };
        assert!(picture(words, &[curve]).is_ok());
    }
}
