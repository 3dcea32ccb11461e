//! Draws a result as points with their spread, as SVG: one line a row, the median as a dot, minimum and maximum as a whisker.

use plotters::{
    coord::{
        Shift,
        combinators::BindKeyPoints,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    Picture, Result,
    draw::{described, failed},
};
use trieline_sampling::rounded;

/// One line of the picture.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// The median.
    pub value: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Which colour: lines of the same series share it.
    pub series: usize,
    /// Text behind it.
    pub note: String,
}

const WIDTH: u32 = 960;
const ROW: u32 = 24;
const TITLE: u32 = 44;
const FOOT: u32 = 92;
const AXIS: u32 = 44;
const FONT: &str = "sans-serif";
// Without font libraries the width of a text is not known: generous for a sans-serif of 13 pixels.
const CHARACTER: u32 = 8;
// Distinguishable with every colour vision (Okabe and Ito); the kernel is the grey one.
const COLOURS: [RGBColor; 5] = [
    RGBColor(110, 110, 110),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// A picture of times by the `name`.
pub fn times(name: &str, title: &str, source: &str, lines: &[Line]) -> Result<Picture> {
    let unit = "nanoseconds, median with minimum and maximum";
    Ok(Picture { name: name.to_owned(), svg: picture(title, unit, source, lines)? })
}

/// The picture. `unit` names the axis, `source` the place and time of the measurement. The axis is logarithmic when the values
/// span more than a decade, which `unit` is given a word about; else it begins at zero.
pub fn picture(title: &str, unit: &str, source: &str, lines: &[Line]) -> Result<String> {
    let least = lines.iter().map(|line| line.min).fold(f64::INFINITY, f64::min);
    let top = lines.iter().map(|line| line.max).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut svg = String::new();
    let size = (WIDTH, TITLE + ROW * lines.len().max(1) as u32 + FOOT);
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    root.draw_text(title, &(FONT, 18).into_text_style(&root), (12, 12)).map_err(failed)?;
    let small = (FONT, 11).into_text_style(&root).color(&RGBColor(90, 90, 90));
    // Machine on one line, command on the next.
    for (line, text) in source.splitn(2, '\n').enumerate() {
        root.draw_text(text, &small, (12, (size.1 - 32) as i32 + 14 * line as i32)).map_err(failed)?;
    }
    if least > 0.0 && top / least > 10.0 {
        let ticks = ticks(least, top);
        let (from, to) = (ticks.first().copied().unwrap_or(least), ticks.last().copied().unwrap_or(top));
        // A bar's length means nothing on such an axis: a thin line leads from the label to the point.
        let axis = (from..to).log_scale().with_key_points(ticks);
        draw(&root, axis, (from, 1), &format!("{unit}; logarithmic"), lines)?;
    } else {
        draw(&root, 0.0..top, (0.0, 8), unit, lines)?;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(described(&svg, title, unit, source))
}

fn draw<X>(
    root: &DrawingArea<SVGBackend, Shift>,
    axis: X,
    (left, stroke): (f64, u32),
    unit: &str,
    lines: &[Line],
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let longest =
        |text: fn(&Line) -> &str| lines.iter().map(|l| text(l).chars().count()).max().unwrap_or(0) as u32;
    let rows = lines.len();
    // The first line is the uppermost; two steps a line, so that half a line is left above and below.
    let height = |line: usize| 2 * (rows - line) as i32;
    let heights: Vec<i32> = (0..rows).map(height).collect();
    let mut chart = ChartBuilder::on(root)
        .margin_left(12)
        .margin_right(CHARACTER * longest(|line| &line.note) + 16)
        .margin_top(TITLE)
        .margin_bottom(FOOT - AXIS)
        .x_label_area_size(AXIS)
        .y_label_area_size(CHARACTER * longest(|line| &line.label))
        .build_cartesian_2d(axis, (1..2 * rows.max(1) as i32 + 1).with_key_points(heights))
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_labels(16)
        .y_labels(rows)
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(221, 221, 221))
        .x_desc(unit)
        .x_label_formatter(&|value| format!("{}", rounded(*value, 6)))
        .axis_desc_style((FONT, 13))
        .label_style((FONT, 13))
        .y_label_formatter(&|at| {
            lines.get(rows - (*at as usize / 2).min(rows)).map(|line| line.label.clone()).unwrap_or_default()
        })
        .draw()
        .map_err(failed)?;
    let text = (FONT, 13).into_text_style(root).pos(Pos::new(HPos::Left, VPos::Center));
    for (n, line) in lines.iter().enumerate() {
        let colour = COLOURS[line.series % COLOURS.len()];
        let at = |x| (x, height(n));
        chart
            .draw_series([PathElement::new([at(left), at(line.value)], colour.mix(0.4).stroke_width(stroke))])
            .map_err(failed)?;
        chart
            .draw_series([ErrorBar::new_horizontal(
                height(n),
                line.min,
                line.value,
                line.max,
                colour.filled(),
                10,
            )])
            .map_err(failed)?;
        chart
            .draw_series([
                EmptyElement::at(at(line.max)) + Text::new(line.note.clone(), (10, 0), text.clone())
            ])
            .map_err(failed)?;
    }
    Ok(())
}

/// 1, 2 and 5 of every decade, of many decades 1 alone: from the last one below `least` to the first one above `top`.
fn ticks(least: f64, top: f64) -> Vec<f64> {
    let decades = least.log10().floor() as i32..=top.log10().ceil() as i32;
    let steps: &[f64] = if top / least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> =
        decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).collect();
    let from = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let to = all.iter().position(|tick| *tick >= top).unwrap_or(all.len() - 1);
    all[from..=to].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, value: f64) -> Line {
        let (label, note) = (label.to_owned(), format!("{value} ns"));
        Line { label, value, min: value * 0.9, max: value * 1.1, series: 0, note }
    }

    #[test]
    fn round_ticks_enclose_the_values() {
        assert_eq!(ticks(31.0, 420.0), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(ticks(10.0, 1000.0), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(ticks(0.7, 3.0), [0.5, 1.0, 2.0, 5.0]);
        assert_eq!(ticks(20.0, 900_000.0), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0, 1_000_000.0]);
    }

    #[test]
    fn labels_cannot_break_the_picture() {
        let svg = picture("<title>", "ns", "here & now", &[line("<a&b>", 1.0)]).unwrap();
        assert!(
            svg.contains("&lt;a&amp;b&gt;") && svg.contains("here &amp; now") && svg.ends_with("</svg>\n")
        );
    }

    #[test]
    fn values_of_several_decades_get_a_logarithmic_axis() {
        let lines = [line("kernel", 2000.0), line("ours", 50.0)];
        assert!(picture("", "ns", "", &lines).unwrap().contains("ns; logarithmic"));
        assert!(!picture("", "ns", "", &lines[..1]).unwrap().contains("logarithmic"));
        assert!(picture("nothing measured", "ns", "", &[]).is_ok());
    }
}
