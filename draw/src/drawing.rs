//! A picture's shapes and where each stands, without a format.
//!
//! All text is monospaced, so that its width is known without a font: what must not overlap is laid out by it. Edges leave a box downwards,
//! run between two levels, where nothing else is, and end at their label, which stands on the box below.

use super::layout::{self, Place, Size};
use super::{Item, Row, Scene, Step, Style};

const MARGIN: f64 = 14.0;
/// Between text and the border of its box.
const PAD: f64 = 7.0;
/// Across a dot, and a slot that leads nowhere.
const DOT: f64 = 11.0;
const EMPTY: f64 = 6.0;
/// Text below the picture is at least this wide.
const LEAST_WIDTH: f64 = 700.0;

/// Text of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Font {
    /// Its class in a style sheet.
    pub class: &'static str,
    /// Pixels.
    pub size: f64,
}

/// The headline.
pub const TITLE: Font = Font { class: "title", size: 15.0 };
/// In boxes and below the picture.
pub const TEXT: Font = Font { class: "text", size: 12.0 };
/// At edges.
pub const EDGE: Font = Font { class: "edge", size: 11.0 };

impl Font {
    /// Common monospaced fonts take 0.55 to 0.602 of the size a character.
    fn width(self, text: &str) -> f64 {
        text.chars().count() as f64 * self.size * 0.61
    }

    fn line(self) -> f64 {
        (self.size * 1.35).ceil()
    }
}

/// Pixels, from the upper left corner on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    /// Left border.
    pub x: f64,
    /// Upper border.
    pub y: f64,
    /// Across.
    pub width: f64,
    /// Down.
    pub height: f64,
}

/// Something to draw. Shapes on the way of a lookup have its step.
#[derive(Debug)]
pub enum Shape {
    /// A line that bends once.
    Edge {
        /// Its ends, and where it bends.
        points: [(f64, f64); 3],
        /// How a lookup takes it.
        step: Option<Step>,
    },
    /// A node, a leaf or an empty slot.
    Box {
        /// Its borders.
        rect: Rect,
        /// Its style.
        look: Style,
        /// How a lookup comes to it.
        step: Option<Step>,
    },
    /// The lookup's answer, behind its text.
    Mark {
        /// Its borders.
        rect: Rect,
        /// How the lookup came here.
        step: Step,
    },
    /// One line of text.
    Text {
        /// The place that it may take.
        rect: Rect,
        /// Where it stands there.
        align: Align,
        /// The text.
        text: String,
        /// Its size.
        font: Font,
        /// The lookup's step whose colour it has.
        step: Option<Step>,
        /// Whether it is bold.
        is_bold: bool,
    },
}

/// Where text stands in what it may take: fonts are narrower than that.
#[derive(Debug, Clone, Copy)]
pub enum Align {
    /// At its left border.
    Start,
    /// In its middle.
    Middle,
    /// At its right border.
    End,
}

/// A picture.
#[derive(Debug, Default)]
pub struct Drawing {
    /// Pixels across.
    pub width: f64,
    /// Pixels down.
    pub height: f64,
    /// In the order in which they are drawn.
    pub shapes: Vec<Shape>,
}

/// Everything with its place. O(n).
pub fn drawing(scene: &Scene) -> Drawing {
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
        Style::Empty => Size { width: EMPTY, height: EMPTY },
        Style::Dot => Size { width: DOT, height: DOT },
        Style::Node | Style::Leaf => {
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
                self.shapes.push(Shape::Box { rect, look: Style::Empty, step: *step });
            }
            y += TEXT.line();
        }
    }

    /// Marks a line of a box.
    fn mark(&mut self, rect: Rect, y: f64, step: Step) {
        let rect = Rect { x: rect.x + 2.0, y, width: rect.width - 4.0, height: TEXT.line() };
        self.shapes.push(Shape::Mark { rect, step });
    }

    /// The meaning of the marks, and the facts.
    fn legend(&mut self, scene: &Scene) {
        let looks = [
            (Style::Dot, "node"),
            (Style::Node, "node"),
            (Style::Leaf, "leaf"),
            (Style::Empty, "no further prefix"),
        ];
        let has = |look| {
            let has_row = |item: &Item| item.rows.iter().any(|row| row.value.is_empty());
            scene.items.iter().any(|item| item.look == look || look == Style::Empty && has_row(item))
        };
        let steps = [(Step::Down, "way of the lookup"), (Step::Back, "after it went back")];
        let (mut x, mut y) = (MARGIN, self.height);
        let limit = self.width - MARGIN;
        for (look, text) in looks.into_iter().filter(|(look, _)| has(*look)) {
            let width = match look {
                Style::Empty => EMPTY,
                Style::Dot => DOT,
                Style::Node | Style::Leaf => 2.0 * DOT,
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
