//! A picture as SVG: dark on white, readable at the width of a page, with generic fonts and a legend.
//!
//! All text is monospaced, so that its width is known without a font: what must not overlap is laid out by it. Edges leave a box downwards,
//! run between two levels, where nothing else is, and end at their label, which stands on the box below.

use super::layout::{self, Place, Size};
use super::{Item, Look, Row, Scene, Step};
use std::fmt::Write as _;

const MARGIN: f64 = 14.0;
/// Between text and the border of its box.
const PAD: f64 = 7.0;
const ROUND: f64 = 4.0;
/// Across a dot, and a slot that leads nowhere.
const DOT: f64 = 11.0;
const EMPTY: f64 = 6.0;
/// Text below the picture is no narrower than this.
const LEAST_WIDTH: f64 = 560.0;

/// Text of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Font {
    class: &'static str,
    size: f64,
}

const TITLE: Font = Font { class: "title", size: 15.0 };
const TEXT: Font = Font { class: "text", size: 12.0 };
const EDGE: Font = Font { class: "edge", size: 11.0 };

impl Font {
    /// Common monospaced fonts take 0.55 to 0.602 of the size a character.
    fn width(self, text: &str) -> f64 {
        text.chars().count() as f64 * self.size * 0.61
    }

    fn line(self) -> f64 {
        (self.size * 1.35).ceil()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

#[derive(Debug)]
enum Shape {
    Edge {
        points: [(f64, f64); 3],
        step: Option<Step>,
    },
    Box {
        rect: Rect,
        look: Look,
        step: Option<Step>,
    },
    /// What a lookup ends at, behind its text.
    Mark {
        rect: Rect,
        step: Step,
    },
    Text {
        rect: Rect,
        align: Align,
        text: String,
        font: Font,
        step: Option<Step>,
        is_bold: bool,
    },
}

/// Where text stands in what it may take: fonts are narrower than that.
#[derive(Debug, Clone, Copy)]
enum Align {
    Start,
    Middle,
    End,
}

#[derive(Debug, Default)]
struct Drawing {
    width: f64,
    height: f64,
    shapes: Vec<Shape>,
}

/// The whole file. O(n log n).
pub fn write(scene: &Scene) -> String {
    let drawing = drawing(scene);
    let (width, height) = (drawing.width.ceil(), drawing.height.ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n\
         <style>text {{ font-family: monospace; font-size: {}px; fill: #1a1a1a }} .edge {{ font-size: {}px }} \
         .title {{ font-size: {}px; font-weight: bold }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(&scene.title),
        TEXT.size,
        EDGE.size,
        TITLE.size
    );
    drawing.shapes.iter().for_each(|shape| shape.write(&mut svg));
    svg += "</svg>\n";
    svg
}

/// Everything with its place.
fn drawing(scene: &Scene) -> Drawing {
    let sizes: Vec<Size> = scene.items.iter().map(size).collect();
    let children: Vec<Vec<usize>> = scene.items.iter().map(|item| item.children.clone()).collect();
    let mut places = layout::arrange(&children, &sizes);
    let wide = places.iter().zip(&sizes).map(|(place, size)| place.x + size.width / 2.0).fold(0.0, f64::max);
    let deep = places.iter().map(|place| place.level_end).fold(0.0, f64::max);
    let width = wide.max(LEAST_WIDTH).max(TITLE.width(&scene.title)) + 2.0 * MARGIN;
    let top = MARGIN + TITLE.line() + 10.0;
    for place in &mut places {
        *place =
            Place { x: place.x + (width - wide) / 2.0, y: place.y + top, level_end: place.level_end + top };
    }
    let mut drawing = Drawing { width, ..Drawing::default() };
    drawing.text((MARGIN, MARGIN), Align::Start, &scene.title, TITLE);
    // Edges first and those of the lookup last, so that they are not drawn over.
    for walked in [false, true] {
        for (item, from) in scene.items.iter().zip(&places) {
            let edges = item.children.iter().map(|child| (&scene.items[*child], places[*child]));
            for (below, to) in edges.filter(|(below, _)| below.edge_step.is_some() == walked) {
                let bottom = from.y + label_height(item) + inner(item).height;
                let points = [(from.x, bottom), (from.x, from.level_end), (to.x, to.y)];
                drawing.shapes.push(Shape::Edge { points, step: below.edge_step });
            }
        }
    }
    for (item, place) in scene.items.iter().zip(&places) {
        drawing.item(item, *place);
    }
    drawing.height = top + deep + 16.0;
    drawing.legend(scene);
    drawing.height += MARGIN;
    drawing
}

/// A box without the label above it.
fn inner(item: &Item) -> Size {
    match item.look {
        Look::Empty => Size { width: EMPTY, height: EMPTY },
        Look::Dot => Size { width: DOT, height: DOT },
        Look::Node | Look::Leaf => {
            let rows =
                item.rows.iter().map(|row| TEXT.width(&row.slots) + TEXT.width(&row.value) + 2.0 * PAD);
            let width = item.lines.iter().map(|line| TEXT.width(line)).chain(rows).fold(0.0, f64::max);
            let lines = item.lines.len() + item.rows.len();
            Size { width: width + 2.0 * PAD, height: lines.max(1) as f64 * TEXT.line() + PAD }
        }
    }
}

fn label_height(item: &Item) -> f64 {
    if item.edge.is_empty() { 0.0 } else { EDGE.line() }
}

/// A box with the label above it.
fn size(item: &Item) -> Size {
    let inner = inner(item);
    Size { width: inner.width.max(EDGE.width(&item.edge)), height: inner.height + label_height(item) }
}

impl Drawing {
    /// Text whose upper left corner, middle of the top or upper right corner is at a place.
    fn text(&mut self, (x, y): (f64, f64), align: Align, text: &str, font: Font) {
        let width = font.width(text);
        let x = match align {
            Align::Start => x,
            Align::Middle => x - width / 2.0,
            Align::End => x - width,
        };
        let rect = Rect { x, y, width, height: font.line() };
        self.shapes.push(Shape::Text { rect, align, text: text.into(), font, step: None, is_bold: false });
    }

    /// Makes the text just written bold, and gives it the colour of a step.
    fn bold(&mut self, colour: Option<Step>) {
        if let Some(Shape::Text { step, is_bold, .. }) = self.shapes.last_mut() {
            (*step, *is_bold) = (colour, true);
        }
    }

    fn item(&mut self, item: &Item, place: Place) {
        let size = inner(item);
        if !item.edge.is_empty() {
            self.text((place.x, place.y), Align::Middle, &item.edge, EDGE);
            if item.edge_step.is_some() {
                self.bold(item.edge_step);
            }
        }
        let (x, y) = (place.x - size.width / 2.0, place.y + label_height(item));
        let rect = Rect { x, y, width: size.width, height: size.height };
        self.shapes.push(Shape::Box { rect, look: item.look, step: item.step });
        let mut y = y + PAD / 2.0;
        for (line, text) in (0..).zip(&item.lines) {
            let answer = item.step.filter(|_| item.answer == Some(line));
            if let Some(step) = answer {
                self.mark(rect, y, step);
            }
            self.text((place.x, y), Align::Middle, text, TEXT);
            if answer.is_some() {
                self.bold(None);
            }
            y += TEXT.line();
        }
        for Row { slots, value, step } in &item.rows {
            if let Some(step) = step {
                self.mark(rect, y, *step);
            }
            let end = x + size.width - PAD;
            for (x, align, text) in [(x + PAD, Align::Start, slots), (end, Align::End, value)] {
                self.text((x, y), align, text, TEXT);
                if step.is_some() {
                    self.bold(None);
                }
            }
            if value.is_empty() {
                let (x, y) = (end - EMPTY, y + (TEXT.line() - EMPTY) / 2.0);
                let rect = Rect { x, y, width: EMPTY, height: EMPTY };
                self.shapes.push(Shape::Box { rect, look: Look::Empty, step: *step });
            }
            y += TEXT.line();
        }
    }

    /// Marks a line of a box.
    fn mark(&mut self, rect: Rect, y: f64, step: Step) {
        let rect = Rect { x: rect.x + 2.0, y, width: rect.width - 4.0, height: TEXT.line() };
        self.shapes.push(Shape::Mark { rect, step });
    }

    /// What the marks mean, and the facts.
    fn legend(&mut self, scene: &Scene) {
        let looks =
            [(Look::Dot, "node"), (Look::Node, "node"), (Look::Leaf, "leaf"), (Look::Empty, "leads nowhere")];
        let has = |look| {
            let has_row = |item: &Item| item.rows.iter().any(|row| row.value.is_empty());
            scene.items.iter().any(|item| item.look == look || look == Look::Empty && has_row(item))
        };
        let steps = [(Step::Down, "way of the lookup"), (Step::Back, "after it went back")];
        let (mut x, mut y) = (MARGIN, self.height);
        let limit = self.width - MARGIN;
        for (look, text) in looks.into_iter().filter(|(look, _)| has(*look)) {
            let width = match look {
                Look::Empty => EMPTY,
                Look::Dot => DOT,
                Look::Node | Look::Leaf => 2.0 * DOT,
            };
            let height = width.min(DOT);
            (x, y) = self.wrapped((x, y), limit, width, text);
            let rect = Rect { x, y: y + (TEXT.line() - height) / 2.0, width, height };
            self.shapes.push(Shape::Box { rect, look, step: None });
            x = self.explained((x, y), width, text);
        }
        let taken = |step| {
            let in_row = |item: &Item| item.rows.iter().any(|row| row.step == Some(step));
            scene
                .items
                .iter()
                .any(|item| item.edge_step == Some(step) || item.step == Some(step) || in_row(item))
        };
        for (step, text) in steps.into_iter().filter(|(step, _)| taken(*step)) {
            (x, y) = self.wrapped((x, y), limit, 2.0 * DOT, text);
            let middle = y + TEXT.line() / 2.0;
            let points = [(x, middle), (x + DOT, middle), (x + 2.0 * DOT, middle)];
            self.shapes.push(Shape::Edge { points, step: Some(step) });
            x = self.explained((x, y), 2.0 * DOT, text);
        }
        self.height = y + TEXT.line() + 4.0;
        for line in scene.facts.iter().flat_map(|fact| lines(fact, limit - MARGIN)) {
            self.text((MARGIN, self.height), Align::Start, &line, TEXT);
            self.height += TEXT.line();
        }
    }

    /// Where a symbol and its text fit: here, or on the next line.
    fn wrapped(&self, (x, y): (f64, f64), limit: f64, width: f64, text: &str) -> (f64, f64) {
        let fits = x + width + PAD + TEXT.width(text) <= limit || x == MARGIN;
        if fits { (x, y) } else { (MARGIN, y + TEXT.line()) }
    }

    /// Writes what a symbol means; where the next one may begin.
    fn explained(&mut self, (x, y): (f64, f64), width: f64, text: &str) -> f64 {
        let x = x + width + PAD;
        self.text((x, y), Align::Start, text, TEXT);
        x + TEXT.width(text) + 3.0 * PAD
    }
}

/// Lines of at most `width`, broken at blanks.
fn lines(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if TEXT.width(line) + TEXT.width(word) + TEXT.width(" ") <= width => {
                *line = format!("{line} {word}");
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

impl Shape {
    fn write(&self, svg: &mut String) {
        let _ = match self {
            Self::Edge { points, step } => {
                let points: Vec<String> =
                    points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
                let stroke = match step {
                    None => "stroke=\"#6b6b6b\"".to_owned(),
                    Some(step @ Step::Down) => format!("stroke=\"{}\" stroke-width=\"2.5\"", step.colour()),
                    Some(step) => {
                        format!("stroke=\"{}\" stroke-width=\"2.5\" stroke-dasharray=\"6 3\"", step.colour())
                    }
                };
                writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {stroke}/>", points.join(" "))
            }
            Self::Box { rect, look, step } => {
                let (fill, stroke, round) = match look {
                    Look::Empty => ("#ffffff", "#8a8a8a", EMPTY / 2.0),
                    Look::Dot => ("#e6edf5", "#4a5a6a", DOT / 2.0),
                    Look::Node => ("#eef3f9", "#4a5a6a", ROUND),
                    Look::Leaf => ("#edf6ec", "#3f6b3f", 0.0),
                };
                let stroke = step.map_or(format!("stroke=\"{stroke}\""), |step| {
                    format!("stroke=\"{}\" stroke-width=\"2.5\"", step.colour())
                });
                writeln!(svg, "<rect {} rx=\"{round}\" fill=\"{fill}\" {stroke}/>", rect.attributes())
            }
            Self::Mark { rect, step } => {
                writeln!(
                    svg,
                    "<rect {} fill=\"{}\" fill-opacity=\"0.18\"/>",
                    rect.attributes(),
                    step.colour()
                )
            }
            Self::Text { text, .. } if text.is_empty() => Ok(()),
            Self::Text { rect, align, text, font, step, is_bold } => {
                let class = if *font == TEXT { String::new() } else { format!(" class=\"{}\"", font.class) };
                let bold = if *is_bold { " font-weight=\"bold\"" } else { "" };
                let colour = step.map_or(String::new(), |step| format!(" style=\"fill: {}\"", step.colour()));
                let (x, anchor) = match align {
                    Align::Start => (rect.x, ""),
                    Align::Middle => (rect.x + rect.width / 2.0, " text-anchor=\"middle\""),
                    Align::End => (rect.x + rect.width, " text-anchor=\"end\""),
                };
                // The line of the letters' feet.
                let (x, y) = (number(x), number(rect.y + rect.height / 2.0 + font.size * 0.34));
                writeln!(
                    svg,
                    "<text x=\"{x}\" y=\"{y}\"{anchor}{class}{bold}{colour}>{}</text>",
                    escaped(text)
                )
            }
        };
    }
}

impl Rect {
    fn attributes(&self) -> String {
        let [x, y, width, height] = [self.x, self.y, self.width, self.height].map(number);
        format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
    }
}

/// Tenths of a pixel.
fn number(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::scene::{Lookup, Words, scene};
    use trieline_lpm::classic::relaxed::Threshold;
    use trieline_lpm::classic::{Binary, Fib, Patricia, Relaxed, Trie};
    use trieline_lpm::image::view::TableView;
    use trieline_lpm::view::{PathStep, View};
    use trieline_lpm::{HeapMemory, Image, Memory, NoReaders, Prefix, Table};

    impl Rect {
        fn meets(&self, other: &Rect) -> bool {
            self.x < other.x + other.width
                && other.x < self.x + self.width
                && self.y < other.y + other.height
                && other.y < self.y + self.height
        }

        fn holds(&self, other: &Rect) -> bool {
            self.x <= other.x
                && self.y <= other.y
                && other.x + other.width <= self.x + self.width
                && other.y + other.height <= self.y + self.height
        }

        /// Whether some of the line from `a` to `b` is inside.
        fn is_crossed(&self, a: (f64, f64), b: (f64, f64)) -> bool {
            // The part of the line within each pair of borders (Liang, Barsky 1984).
            let (mut from, mut to) = (0.0_f64, 1.0_f64);
            for (start, delta, low, high) in [
                (a.0, b.0 - a.0, self.x, self.x + self.width),
                (a.1, b.1 - a.1, self.y, self.y + self.height),
            ] {
                if delta == 0.0 {
                    if start <= low || start >= high {
                        return false;
                    }
                    continue;
                }
                let (one, other) = ((low - start) / delta, (high - start) / delta);
                (from, to) = (from.max(one.min(other)), to.min(one.max(other)));
            }
            from < to - 1e-9
        }
    }

    /// Texts are in the picture and touch no other text and no edge; boxes hold a text wholly or not at all, and touch no other box.
    fn check(drawing: &Drawing) {
        let picture = Rect { x: 0.0, y: 0.0, width: drawing.width, height: drawing.height };
        let (mut texts, mut boxes, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        for shape in &drawing.shapes {
            match shape {
                Shape::Text { rect, text, .. } if !text.is_empty() => texts.push((*rect, text)),
                Shape::Box { rect, look, .. } => boxes.push((*rect, *look)),
                Shape::Edge { points, .. } => edges.push(*points),
                Shape::Text { .. } | Shape::Mark { .. } => {}
            }
        }
        for (index, (rect, text)) in texts.iter().enumerate() {
            assert!(picture.holds(rect), "{text} at {rect:?} is not in {picture:?}");
            for (other, and) in &texts[index + 1..] {
                assert!(!rect.meets(other), "{text} at {rect:?} is on {and} at {other:?}");
            }
            for (other, look) in &boxes {
                assert!(
                    !rect.meets(other) || other.holds(rect),
                    "{text} at {rect:?} is on {look:?} at {other:?}"
                );
            }
            for edge in &edges {
                for line in edge.windows(2) {
                    assert!(!rect.is_crossed(line[0], line[1]), "{line:?} crosses {text} at {rect:?}");
                }
            }
        }
        for (index, (rect, look)) in boxes.iter().enumerate() {
            for (other, and) in &boxes[index + 1..] {
                let is_row = *and == Look::Empty && rect.holds(other);
                assert!(!rect.meets(other) || is_row, "{look:?} at {rect:?} is on {and:?} at {other:?}");
            }
            for edge in &edges {
                for line in edge.windows(2) {
                    assert!(!rect.is_crossed(line[0], line[1]), "{line:?} crosses {look:?} at {rect:?}");
                }
            }
        }
    }

    /// Every structure of these prefixes, and the way of a lookup in each.
    fn structures(rows: &[(Prefix<u32>, u32)], addr: u32) -> Vec<(View, Vec<PathStep>)> {
        let thresholds =
            [Threshold::default(), Threshold::all(20), Threshold { within: 4, ..Threshold::all(0) }];
        let mut tries: Vec<Box<dyn Trie<u32>>> =
            vec![Box::new(Binary::default()), Box::new(Patricia::default()), Box::new(Fib::default())];
        tries.extend(thresholds.map(|threshold| Box::new(Relaxed::new(threshold)) as Box<dyn Trie<u32>>));
        for trie in &mut tries {
            for (prefix, value) in rows {
                trie.insert(*prefix, *value);
            }
        }
        let mut all: Vec<_> = tries.iter().map(|trie| (trie.view(), trie.path(addr))).collect();
        let mut image = Image::create(HeapMemory::new(4 << 20), NoReaders::default(), 1).unwrap();
        Table::create(&mut image, 0, rows.iter().copied()).unwrap();
        let table = TableView::new(image.memory().words(), 0).unwrap();
        all.push((table.view(), table.path(addr)));
        all
    }

    #[test]
    fn nothing_is_drawn_over_a_label() {
        let mut seed = 3u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 32) as u32
        };
        for round in 0..60 {
            // Short prefixes, long ones, and near to one another.
            let (least, most) = [(1, 4), (1, 12), (8, 24), (16, 16)][round % 4];
            let rows: Vec<(Prefix<u32>, u32)> = (0..1 + random() % 50)
                .map(|_| {
                    let len = least + (random() % most) as u16;
                    let addr = if random() % 2 == 0 { random() } else { 0xc0a8_0000 | random() >> 16 };
                    (Prefix::truncated(addr, len), 1 + random() % 1_000_000_000)
                })
                .collect();
            let value = |value: u32| Some(value.to_string());
            let words = Words { bits: (round % 4 == 0).then_some(4), value: &value };
            let addr = rows[0].0.last();
            for (view, path) in structures(&rows, addr) {
                let lookup = Lookup { addr: "192.0.2.1".into(), path, answer: None };
                let facts = vec!["word ".repeat(round), String::new()];
                check(&drawing(&scene("a title".into(), facts, &view, &words, Some(&lookup))));
            }
        }
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let item = Item { look: Look::Leaf, lines: vec!["<&>".into()], ..Item::default() };
        let svg = write(&Scene { title: "a & b".into(), items: vec![item], ..Scene::default() });
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains(">&lt;&amp;&gt;</text>"), "{svg}");
        assert!(write(&Scene::default()).ends_with("</svg>\n"));
    }
}
