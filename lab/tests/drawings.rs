//! Pictures of random tables in every structure: no label, box or edge lies on another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use trieline_draw::Style;
use trieline_draw::drawing::{Drawing, Rect, Shape, drawing};
use trieline_draw::scene::{Lookup, Words, scene};
use trieline_lab::rivals::{Binary, Fib, Patricia, Relaxed, Trie, relaxed::Threshold};
use trieline_lpm::graph::{Graph, PathStep};
use trieline_lpm::image::graph::TableGraph;
use trieline_lpm::{HeapMemory, Image, Memory, NoReaders, Prefix, Table};

/// How rectangles lie to one another and to lines.
trait Lies {
    fn meets(&self, other: &Rect) -> bool;
    fn holds(&self, other: &Rect) -> bool;
    /// Whether some of the line from `a` to `b` is inside.
    fn is_crossed(&self, a: (f64, f64), b: (f64, f64)) -> bool;
}

impl Lies for Rect {
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

    fn is_crossed(&self, a: (f64, f64), b: (f64, f64)) -> bool {
        // The part of the line within each pair of borders (Liang, Barsky 1984).
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for (start, delta, low, high) in
            [(a.0, b.0 - a.0, self.x, self.x + self.width), (a.1, b.1 - a.1, self.y, self.y + self.height)]
        {
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

/// Texts are in the picture and touch no other text and no edge. Boxes hold a text wholly or not at all, and touch no other box.
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
            let is_row = *and == Style::Empty && rect.holds(other);
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
fn structures(rows: &[(Prefix<u32>, u32)], addr: u32) -> Vec<(Graph, Vec<PathStep>)> {
    let thresholds = [Threshold::default(), Threshold::all(20), Threshold { within: 4, ..Threshold::all(0) }];
    let mut tries: Vec<Box<dyn Trie<u32>>> =
        vec![Box::new(Binary::default()), Box::new(Patricia::default()), Box::new(Fib::default())];
    tries.extend(thresholds.map(|threshold| Box::new(Relaxed::new(threshold)) as Box<dyn Trie<u32>>));
    for trie in &mut tries {
        for (prefix, value) in rows {
            trie.insert(*prefix, *value);
        }
    }
    let mut all: Vec<_> = tries.iter().map(|trie| (trie.graph(), trie.path(addr))).collect();
    let mut image = Image::create(HeapMemory::new(4 << 20), NoReaders::default(), 1).unwrap();
    Table::create(&mut image, 0, rows.iter().copied()).unwrap();
    let table = TableGraph::new(image.memory().words(), 0).unwrap();
    all.push((table.graph(), table.path(addr)));
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
        for (graph, path) in structures(&rows, addr) {
            let lookup = Lookup { addr: "192.0.2.1".into(), path, answer: None };
            let facts = vec!["word ".repeat(round), String::new()];
            check(&drawing(&scene("a title".into(), facts, &graph, &words, Some(&lookup))));
        }
    }
}
