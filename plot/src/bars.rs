//! Draws a result as groups of bars, as SVG: one bar a structure, named and numbered at its end, with the spread of its rounds.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    Result,
    draw::{described, failed},
};

/// Bars that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// The bars' common name.
    pub label: String,
    /// Name, median, least and largest.
    pub bars: Vec<(&'static str, f64, f64, f64)>,
}

const WIDTH: i32 = 960;
const BAR: i32 = 14;
const GAP: i32 = 12;
const TOP: i32 = 74;
const FOOT: i32 = 56;
const LEFT: i32 = 140;
const RIGHT: i32 = 190;
const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(213, 94, 0);
// Distinct with every colour vision (Okabe and Ito).
const OTHERS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
];

/// The picture. `unit` names the axis, which begins at zero; the bars of `ours` stand out; `source` names the place and time of the
/// measurement.
pub fn picture(title: &str, unit: &str, source: &str, ours: &str, groups: &[Group]) -> Result<String> {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let top = bars().map(|(.., max)| *max).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { 1.0 };
    // A colour for each structure, the same in all groups.
    let mut names: Vec<&str> = Vec::new();
    for (name, ..) in bars() {
        if *name != ours && !names.contains(name) {
            names.push(name);
        }
    }
    let height = TOP + FOOT + groups.iter().map(|group| GAP + BAR * group.bars.len() as i32).sum::<i32>();
    let scale = f64::from(WIDTH - LEFT - RIGHT) / top;
    // A difference may be below zero.
    let x = |value: f64| LEFT + (value.max(0.0) * scale) as i32;
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    root.draw_text(title, &(FONT, 18).into_text_style(&root), (12, 12)).map_err(failed)?;
    let small = (FONT, 11).into_text_style(&root).color(&RGBColor(90, 90, 90));
    for (line, text) in source.splitn(2, '\n').enumerate() {
        root.draw_text(text, &small, (12, height - 32 + 14 * line as i32)).map_err(failed)?;
    }
    root.draw_text(unit, &small, (12, 36)).map_err(failed)?;
    let centred = small.pos(Pos::new(HPos::Center, VPos::Top));
    let step = step(top);
    for tick in (0..=(top / step) as u32).map(|tick| f64::from(tick) * step) {
        let line = PathElement::new([(x(tick), TOP), (x(tick), height - FOOT)], RGBColor(221, 221, 221));
        root.draw(&line).map_err(failed)?;
        root.draw_text(&tick.to_string(), &centred, (x(tick), TOP - 14)).map_err(failed)?;
    }
    let text = (FONT, 11).into_text_style(&root).pos(Pos::new(HPos::Left, VPos::Center));
    let label = (FONT, 13).into_text_style(&root).pos(Pos::new(HPos::Left, VPos::Top));
    let mut y = TOP + GAP / 2;
    for group in groups {
        root.draw_text(&group.label, &label, (12, y)).map_err(failed)?;
        for (name, value, min, max) in &group.bars {
            let colour = match names.iter().position(|other| other == name) {
                None => OURS,
                Some(at) => OTHERS[at % OTHERS.len()],
            };
            let area = [(LEFT, y + 2), (x(*value), y + BAR - 1)];
            root.draw(&Rectangle::new(area, colour.mix(0.75).filled())).map_err(failed)?;
            let middle = y + BAR / 2;
            root.draw(&PathElement::new([(x(*min), middle), (x(*max), middle)], BLACK)).map_err(failed)?;
            let end = format!("{name} {value:.*}", if *value < 10.0 { 1 } else { 0 });
            root.draw_text(&end, &text, (x(*max) + 6, middle)).map_err(failed)?;
            y += BAR;
        }
        y += GAP;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(described(&svg, title, unit, source))
}

/// 1, 2 or 5 of a decade, so that there are four to ten ticks.
fn step(top: f64) -> f64 {
    let decade = 10f64.powf((top / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * decade)
        .find(|step| top / step <= 10.0)
        .unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_structure_and_round_ticks() {
        let bars = vec![("trieline", 250.0, 240.0, 260.0), ("<other>", 5.25, 5.0, 6.0)];
        let groups = [Group { label: "rand single".into(), bars }];
        let svg = picture("a & b", "Mlps", "here\ncommand", "trieline", &groups).unwrap();
        for part in ["a &amp; b", "rand single", "trieline 250", "&lt;other&gt; 5.2", "here", "command"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!((step(260.0), step(95.0), step(1.0)), (50.0, 10.0, 0.1));
        assert!(picture("nothing measured", "", "", "", &[]).is_ok());
    }
}
