//! Draws figures over thresholds: those of one table are joined by a line, and beside them stand structures that have no threshold.

use plotters::{prelude::*, style::text_anchor::HPos};

use crate::{
    Result,
    draw::{Axis, FAINT, GREY, described, failed, line, text},
};

/// The figures of one table.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub label: String,
    /// Its figures, in the order of their places.
    pub spots: Vec<Spot>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Spot {
    /// A threshold in percent, or a structure's name.
    pub place: String,
    /// The median.
    pub value: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// The texts around the figures.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// The title.
    pub title: &'a str,
    /// Of the figures.
    pub y: &'a str,
    /// Where and when it was measured; two lines.
    pub source: &'a str,
}

const SIZE: (i32, i32) = (960, 560);
/// Left, top, right, bottom of the figures' room.
const ROOM: (i32, i32, i32, i32) = (84, 76, 940, 450);
/// Distinguishable with every colour vision (Okabe and Ito), all dark enough to be read.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 130, 95), RGBColor(90, 90, 90)];

fn is_threshold(place: &str) -> bool {
    place.parse::<u32>().is_ok()
}

/// The picture; its heights are logarithmic, and a figure of 0 is left out.
pub fn picture(words: Words, series: &[Series]) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (SIZE.0 as u32, SIZE.1 as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    text(&root, words.title, (12, 22), 18, BLACK, HPos::Left)?;
    for (row, part) in (0..).zip(words.source.splitn(2, '\n')) {
        text(&root, part, (12, SIZE.1 - 30 + 15 * row), 11, GREY, HPos::Left)?;
    }
    let mut places: Vec<&str> = Vec::new();
    for spot in series.iter().flat_map(|series| &series.spots) {
        if !places.contains(&spot.place.as_str()) {
            places.push(&spot.place);
        }
    }
    let step = (ROOM.2 - ROOM.0) / places.len().max(1) as i32;
    let at = |place: &str| {
        let index = places.iter().position(|other| *other == place).unwrap_or(0);
        ROOM.0 + step * index as i32 + step / 2
    };
    let spots = || series.iter().flat_map(|series| &series.spots).filter(|spot| spot.least > 0.0);
    let y = Axis::around(spots().flat_map(|spot| [spot.least, spot.most]), 1.25, ROOM.3, ROOM.1);
    // Of narrow axes more than the decades are named.
    let steps: &[f64] = if y.to / y.from > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    for value in (-6..10).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))) {
        if y.holds(value) {
            line(&root, (ROOM.0, y.at(value)), (ROOM.2, y.at(value)), FAINT)?;
            text(&root, &crate::draw::grouped(value), (ROOM.0 - 8, y.at(value)), 12, GREY, HPos::Right)?;
        }
    }
    text(&root, &format!("{}; logarithmic", words.y), (12, 52), 13, BLACK, HPos::Left)?;
    for place in &places {
        let shown = if is_threshold(place) { format!("{place} %") } else { (*place).to_owned() };
        text(&root, &shown, (at(place), ROOM.3 + 16), 12, BLACK, HPos::Center)?;
    }
    let under = "threshold of all nodes with the root; others by their names";
    text(&root, under, ((ROOM.0 + ROOM.2) / 2, ROOM.3 + 40), 13, BLACK, HPos::Center)?;
    for (n, series) in (0..).zip(series) {
        let colour = COLOURS[n as usize % COLOURS.len()];
        // Side by side, so that equal figures of two tables are both seen.
        let aside = 5 * n - 5 * (n.min(2)) / 2;
        let drawn: Vec<(&Spot, (i32, i32))> = series
            .spots
            .iter()
            .filter(|spot| spot.least > 0.0)
            .map(|spot| (spot, (at(&spot.place) + aside, y.at(spot.value))))
            .collect();
        for (spot, place) in &drawn {
            line(&root, (place.0, y.at(spot.least)), (place.0, y.at(spot.most)), colour)?;
            root.draw(&Circle::new(*place, 4, colour.filled())).map_err(failed)?;
        }
        let joined: Vec<(i32, i32)> =
            drawn.iter().filter(|(spot, _)| is_threshold(&spot.place)).map(|(_, place)| *place).collect();
        root.draw(&PathElement::new(joined, colour.stroke_width(2))).map_err(failed)?;
        let named = (ROOM.2 - 420 + 140 * n, 52);
        root.draw(&Circle::new((named.0, named.1), 4, colour.filled())).map_err(failed)?;
        text(&root, &series.label, (named.0 + 10, named.1), 13, colour, HPos::Left)?;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(described(&svg, words.title, words.y, words.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_joined_and_others_are_not() {
        let spot = |place: &str, value| Spot { place: place.into(), value, least: value, most: value };
        let words = Words { title: "<a>", y: "nodes", source: "here\nthere" };
        let draw = |spots| picture(words, &[Series { label: "t".into(), spots }]).unwrap();
        let svg = draw(vec![spot("0", 1.0), spot("20", 10.0), spot("kernel", 3.0)]);
        assert!(svg.contains("&lt;a&gt;") && svg.contains("20 %") && svg.contains("kernel"));
        // Three figures and the name's.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(draw(vec![spot("0", 0.0), spot("20", 10.0)]).matches("<circle").count(), 2);
        assert!(picture(words, &[]).is_ok());
    }
}
