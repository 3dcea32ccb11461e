//! Draws memory against time, a panel for each table, every point named beside it: what the choice of a structure weighs.

use plotters::{prelude::*, style::text_anchor::HPos};

use crate::{
    Result,
    draw::{Area, Axis, FAINT, GREY, failed, line, text},
};

/// One table's picture.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// The structures.
    pub points: Vec<Point>,
}

/// A structure: where it lies.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its name.
    pub label: String,
    /// Memory.
    pub bytes: f64,
    /// Median time of a lookup.
    pub ns: f64,
    /// Fastest.
    pub least: f64,
    /// Slowest.
    pub most: f64,
    /// Whether it is the product.
    pub ours: bool,
}

const COLUMNS: usize = 2;
const PANEL: (i32, i32) = (560, 330);
const HEAD: i32 = 44;
const FOOT: i32 = 60;
/// Around a panel's plot: left, right, above, below.
const LEFT: i32 = 62;
const RIGHT: i32 = 34;
const ABOVE: i32 = 28;
const BELOW: i32 = 42;
const TEXT: i32 = 12;
// Without font libraries the width of a text is not known: generous for a sans-serif of 12 pixels.
const CHARACTER: i32 = 7;
const OURS: RGBColor = RGBColor(213, 94, 0);
const OTHER: RGBColor = RGBColor(0, 90, 150);

/// Left, top, right, bottom.
type Room = (i32, i32, i32, i32);

/// The picture, all axes logarithmic. `source` names the place and time of the measurement.
pub fn picture(title: &str, source: &str, panels: &[Panel]) -> Result<String> {
    let rows = panels.len().div_ceil(COLUMNS).max(1) as i32;
    let size = (PANEL.0 * COLUMNS as i32, HEAD + PANEL.1 * rows + FOOT);
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    text(&root, title, (12, 22), 18, BLACK, HPos::Left)?;
    for (line, part) in (0..).zip(source.splitn(2, '\n')) {
        text(&root, part, (12, size.1 - 30 + 15 * line), 11, GREY, HPos::Left)?;
    }
    for (n, panel) in (0..).zip(panels) {
        let corner = (PANEL.0 * (n % COLUMNS as i32), HEAD + PANEL.1 * (n / COLUMNS as i32));
        draw(&root, panel, corner)?;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(svg)
}

fn draw(root: &Area, panel: &Panel, (left, top): (i32, i32)) -> Result<()> {
    let room = (left + LEFT, top + ABOVE, left + PANEL.0 - RIGHT, top + PANEL.1 - BELOW);
    let points = &panel.points;
    let x = Axis::around(points.iter().map(|p| p.bytes), 2.0, room.0, room.2);
    let y = Axis::around(points.iter().flat_map(|p| [p.least, p.most]), 1.25, room.3, room.1);
    text(root, &panel.title, (left + 12, top + 12), 14, BLACK, HPos::Left)?;
    for power in (10..40).step_by(if x.to / x.from > 4096.0 { 2 } else { 1 }) {
        let bytes = 2f64.powi(power);
        if x.holds(bytes) {
            line(root, (x.at(bytes), room.1), (x.at(bytes), room.3), FAINT)?;
            text(root, &size(power), (x.at(bytes), room.3 + 10), 11, GREY, HPos::Center)?;
        }
    }
    let steps: &[f64] = if y.to / y.from > 20.0 { &[1.0, 2.0, 5.0] } else { &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0] };
    for ns in (-1..6).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))) {
        if y.holds(ns) {
            line(root, (room.0, y.at(ns)), (room.2, y.at(ns)), FAINT)?;
            text(root, &format!("{ns}"), (room.0 - 6, y.at(ns)), 11, GREY, HPos::Right)?;
        }
    }
    text(root, "memory", ((room.0 + room.2) / 2, room.3 + 26), 11, GREY, HPos::Center)?;
    text(root, "ns", (left + 12, (room.1 + room.3) / 2), 11, GREY, HPos::Left)?;
    let places: Vec<(i32, i32)> = points.iter().map(|p| (x.at(p.bytes), y.at(p.ns))).collect();
    let mut taken: Vec<Room> = Vec::new();
    for (point, (x, middle)) in points.iter().zip(&places) {
        taken.push((x - 5, middle - 5, x + 5, middle + 5));
        taken.push((x - 2, y.at(point.most), x + 2, y.at(point.least)));
    }
    for (point, place) in points.iter().zip(&places) {
        let colour = if point.ours { OURS } else { OTHER };
        line(root, (place.0, y.at(point.least)), (place.0, y.at(point.most)), colour)?;
        let radius = if point.ours { 5 } else { 4 };
        root.draw(&Circle::new(*place, radius, colour.filled())).map_err(failed)?;
        let (label, joined) = beside(*place, point.label.chars().count() as i32 * CHARACTER, room, &taken);
        taken.push(label);
        if joined {
            let near = (place.0.clamp(label.0, label.2), place.1.clamp(label.1, label.3));
            line(root, *place, near, colour)?;
        }
        text(root, &point.label, (label.0 + 2, (label.1 + label.3) / 2), TEXT as u32, colour, HPos::Left)?;
    }
    Ok(())
}

/// A free place for a label of so many pixels near a point, and whether it is so far away that a line must lead there.
fn beside((x, y): (i32, i32), width: i32, room: Room, taken: &[Room]) -> (Room, bool) {
    let at = |left: i32, middle: i32| (left, middle - TEXT / 2 - 1, left + width, middle + TEXT / 2 + 1);
    let rings = (0..14).flat_map(|ring| {
        let away = 14 + 13 * ring;
        let sides = [(x + 8, y), (x - 8 - width, y)];
        let shifted = [-away, away]
            .into_iter()
            .flat_map(move |up| [x - width / 2, x + 6, x - 6 - width].map(|left| (left, y + up)));
        sides
            .into_iter()
            .take(if ring == 0 { 2 } else { 0 })
            .chain(shifted)
            .map(move |place| (place, ring > 0))
    });
    let all: Vec<(Room, bool)> = rings.map(|((left, middle), far)| (at(left, middle), far)).collect();
    let inside =
        |label: &Room| label.0 >= room.0 && label.2 <= room.2 && label.1 >= room.1 && label.3 <= room.3;
    let free = |label: &Room| {
        taken
            .iter()
            .all(|other| label.2 <= other.0 || other.2 <= label.0 || label.3 <= other.1 || other.3 <= label.1)
    };
    all.iter().find(|(label, _)| inside(label) && free(label)).copied().unwrap_or((at(x + 8, y), false))
}

fn size(power: i32) -> String {
    match power {
        10..20 => format!("{} KiB", 1 << (power - 10)),
        20..30 => format!("{} MiB", 1 << (power - 20)),
        _ => format!("{} GiB", 1u64 << (power - 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_apart_and_inside() {
        let room = (0, 0, 400, 300);
        let mut taken = vec![(95, 95, 105, 105)];
        for _ in 0..12 {
            let (label, _) = beside((100, 100), 90, room, &taken);
            let apart = |other: &Room| {
                label.2 <= other.0 || other.2 <= label.0 || label.3 <= other.1 || other.3 <= label.1
            };
            assert!(taken.iter().all(apart), "{label:?} {taken:?}");
            assert!(label.0 >= 0 && label.1 >= 0 && label.2 <= 400 && label.3 <= 300);
            taken.push(label);
        }
    }

    #[test]
    fn nothing_measured_is_no_failure() {
        assert!(picture("<nothing>", "here\nthere", &[]).is_ok_and(|svg| svg.contains("&lt;nothing&gt;")));
        let lone = Point { label: "a".into(), bytes: 1024.0, ns: 5.0, least: 4.0, most: 6.0, ours: true };
        let panel = Panel { title: "one".into(), points: vec![lone] };
        assert!(picture("", "", &[panel]).is_ok_and(|svg| svg.contains("KiB")));
    }
}
