//! Draws a result as bars with their spread, as SVG: one bar a row, the median as its length, minimum and maximum as a whisker.

use std::fmt::Write;

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it shows.
    pub label: String,
    /// The median.
    pub value: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Which colour: bars of the same series share it.
    pub series: usize,
    /// Text behind the bar.
    pub note: String,
}

const LEFT: f64 = 250.0;
const WIDTH: f64 = 520.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 22.0;
const TOP: f64 = 56.0;
// Distinguishable with every colour vision (Okabe and Ito).
const COLOURS: [&str; 5] = ["#999999", "#e69f00", "#0072b2", "#009e73", "#cc79a7"];

/// The picture. `unit` names the axis, `source` says where and when it was measured.
pub fn bars(title: &str, unit: &str, source: &str, bars: &[Bar]) -> String {
    let top = bars.iter().map(|bar| bar.max).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let (step, ticks) = axis(top);
    let scale = WIDTH / (step * ticks as f64);
    let bottom = TOP + ROW * bars.len() as f64;
    let (width, height) = (LEFT + WIDTH + RIGHT, bottom + 60.0);
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    );
    let _ = writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#);
    let _ = writeln!(svg, r#"<text x="12" y="24" font-size="16">{}</text>"#, escaped(title));
    for tick in 0..=ticks {
        let value = step * tick as f64;
        let x = LEFT + value * scale;
        let _ = writeln!(svg, r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="#ddd"/>"##);
        let y = bottom + 16.0;
        let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{value}</text>"#);
    }
    for (row, bar) in bars.iter().enumerate() {
        let (y, middle) = (TOP + ROW * row as f64 + 3.0, TOP + ROW * (row as f64 + 0.5));
        let (from, to) = (LEFT + bar.min * scale, LEFT + bar.max * scale);
        let colour = COLOURS[bar.series % COLOURS.len()];
        let text = middle + 4.0;
        let _ = writeln!(
            svg,
            r#"<text x="{}" y="{text}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            escaped(&bar.label)
        );
        let _ = writeln!(
            svg,
            r#"<rect x="{LEFT}" y="{y}" width="{:.1}" height="{}" fill="{colour}"/>"#,
            bar.value * scale,
            ROW - 6.0
        );
        let _ = writeln!(
            svg,
            r#"<path d="M{from:.1} {middle}H{to:.1}M{from:.1} {}v8M{to:.1} {}v8" stroke="black" fill="none"/>"#,
            middle - 4.0,
            middle - 4.0
        );
        let _ = writeln!(svg, r#"<text x="{:.1}" y="{text}">{}</text>"#, to + 8.0, escaped(&bar.note));
    }
    let _ = writeln!(
        svg,
        r#"<text x="{}" y="{}" text-anchor="middle">{}</text>"#,
        LEFT + WIDTH / 2.0,
        bottom + 34.0,
        escaped(unit)
    );
    let _ = writeln!(
        svg,
        r##"<text x="12" y="{}" fill="#666" font-size="10">{}</text>"##,
        bottom + 52.0,
        escaped(source)
    );
    svg.push_str("</svg>\n");
    svg
}

/// A round step and how many of them reach `top`.
fn axis(top: f64) -> (f64, usize) {
    let decade = 10f64.powf((top / 6.0).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|m| m * decade).into_iter().find(|step| top / step <= 6.0).unwrap_or(top);
    (step, (top / step).ceil() as usize)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_reaches_the_top_in_few_round_steps() {
        for (top, expected) in [(6.0, (1.0, 6)), (7.0, (2.0, 4)), (1768.0, (500.0, 4)), (0.5, (0.1, 5))] {
            let (step, ticks) = axis(top);
            assert!((step - expected.0).abs() < 1e-9 && ticks == expected.1, "{top}: {step} {ticks}");
        }
    }

    #[test]
    fn labels_cannot_break_the_picture() {
        let bar =
            Bar { label: "<a&b>".into(), value: 1.0, min: 0.9, max: 1.2, series: 0, note: String::new() };
        let svg = bars("t", "u", "s", &[bar]);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n"));
    }
}
