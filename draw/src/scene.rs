//! The drawing of a structure: its nodes and leaves in words, slots that lead nowhere run by run, and the way of a lookup.

use super::{Item, Row, Scene, Step, Style};
use trieline_lpm::IpPrefix;
use trieline_lpm::graph::{Graph, GraphEdge, GraphNode, PathStep};

/// How keys and values are written.
pub struct Words<'a> {
    /// Show keys as so many bits; None shows them as addresses.
    pub bits: Option<u16>,
    /// The name of a value; None for tables without values.
    pub value: &'a dyn Fn(u32) -> Option<String>,
}

impl Words<'_> {
    /// A prefix or an address.
    pub fn key(&self, text: &str) -> String {
        let digits = self.bits.and_then(|most| Some((most, text.parse::<IpPrefix>().ok()?)));
        let Some((most, prefix)) = digits else { return text.to_owned() };
        let (key, len) = match prefix {
            IpPrefix::V4(prefix) => (u128::from(prefix.addr()) << 96, prefix.len()),
            IpPrefix::V6(prefix) => (prefix.addr(), prefix.len()),
        };
        let digits = (0..len.min(most)).map(|bit| if key >> (127 - bit) & 1 == 0 { '0' } else { '1' });
        digits.chain((len < most).then_some('*')).collect()
    }

    fn entry(&self, (prefix, value): &(String, u32)) -> String {
        let key = self.key(prefix);
        (self.value)(*value).map_or(key.clone(), |value| format!("{key} {value}"))
    }
}

/// A lookup to show.
pub struct Lookup {
    /// The address asked for.
    pub addr: String,
    /// The steps that it visits.
    pub path: Vec<PathStep>,
    /// The prefix that decides and its value; an image knows the value alone.
    pub answer: Option<(Option<String>, u32)>,
}

impl Lookup {
    fn went_back(&self) -> bool {
        self.path.iter().any(|step| step.back)
    }

    fn steps(&self, node: usize) -> impl Iterator<Item = (usize, &PathStep)> {
        (1..).zip(&self.path).filter(move |(_, step)| step.node == node)
    }

    /// How the lookup came by one of the edges of a node.
    fn took(&self, node: usize, edges: std::ops::Range<usize>) -> Option<Step> {
        let mut steps =
            self.steps(node).filter(|(_, step)| step.edge.is_some_and(|edge| edges.contains(&edge)));
        steps.next().map(|(_, step)| by(step))
    }

    /// In a line.
    fn reported(&self, words: &Words<'_>) -> String {
        let back = self.path.iter().filter(|step| step.back).count();
        let visits = match (self.path.len(), back) {
            (1, 0) => "1 visit".to_owned(),
            (all, 0) => format!("{all} visits"),
            (all, back) => format!("{all} visits, {back} of them after going back"),
        };
        let value = |value| (words.value)(value).map(|value| format!("value {value}"));
        let answer = match &self.answer {
            None => "no prefix".to_owned(),
            Some((None, found)) => value(*found).unwrap_or("a prefix".into()),
            Some((Some(prefix), found)) => {
                let found = value(*found).map(|value| format!(", {value}")).unwrap_or_default();
                format!("prefix {}{found}", words.key(prefix))
            }
        };
        format!("lookup of {}: {answer}; {visits}", words.key(&self.addr))
    }
}

fn by(step: &PathStep) -> Step {
    if step.back { Step::Back } else { Step::Down }
}

/// The picture of a structure; `facts` stand below it. O(nodes + edges), times the visits of a lookup.
pub fn scene(
    title: String,
    mut facts: Vec<String>,
    graph: &Graph,
    words: &Words<'_>,
    lookup: Option<&Lookup>,
) -> Scene {
    // Where slots hold values, those that lead to no node are rows of the box.
    let has_rows = graph.nodes.iter().flat_map(|node| &node.children).any(|edge| edge.value.is_some());
    facts.extend(lookup.map(|lookup| lookup.reported(words)));
    let mut items: Vec<Item> =
        (0..).zip(&graph.nodes).map(|(index, node)| item(index, node, words, lookup)).collect();
    for (index, node) in graph.nodes.iter().enumerate() {
        let mut first = 0;
        // Rows name their slots themselves.
        let is_run = |one: &GraphEdge, next: &GraphEdge| !has_rows && one.to.is_none() && next.to.is_none();
        for run in node.children.chunk_by(is_run) {
            let edges = first..first + run.len();
            first = edges.end;
            let step = lookup.and_then(|lookup| lookup.took(index, edges));
            let edge = run_label(run);
            match run.first().and_then(|edge| edge.to) {
                Some(to) => {
                    items[index].children.push(to);
                    items[to].edge = edge;
                    items[to].edge_step = step;
                }
                None if has_rows => {
                    let value = run.first().and_then(|edge| edge.value);
                    let value = value.map(|value| (words.value)(value).unwrap_or("yes".into()));
                    let value = value.unwrap_or_default();
                    items[index].rows.push(Row { slots: edge, value, step });
                }
                None => {
                    let nowhere = items.len();
                    items[index].children.push(nowhere);
                    items.push(Item { edge, edge_step: step, step, ..Item::default() });
                }
            }
        }
    }
    Scene { title, facts, items }
}

/// The key bits of neighbouring slots.
fn run_label(run: &[GraphEdge]) -> String {
    match run {
        [first, .., last] => format!("{}-{}", first.label, last.label),
        [only] => only.label.clone(),
        [] => String::new(),
    }
}

fn item(index: usize, node: &GraphNode, words: &Words<'_>, lookup: Option<&Lookup>) -> Item {
    let mut lines = Vec::new();
    // Kinds that the structure tells apart by more than having children.
    if !matches!(node.kind, "node" | "leaf") {
        lines.push(node.kind.to_owned());
    }
    // A key that its entries repeat is shown once.
    let addr = |prefix: &str| prefix.split('/').next().map(str::to_owned);
    let said = |line: &str| node.entries.iter().any(|(prefix, _)| addr(prefix) == addr(line));
    let rest: Vec<String> =
        node.label.iter().filter(|line| !said(line)).map(|line| words.key(line)).collect();
    let has_words = !lines.is_empty() || !rest.is_empty();
    if has_words && node.kind != "leaf" {
        lines.push(window(node.at, node.bits));
    }
    lines.extend(rest);
    let answer = lookup.and_then(|lookup| {
        lookup.steps(index).next()?;
        let (prefix, _) = lookup.answer.as_ref()?;
        let prefix = prefix.as_ref()?;
        Some(lines.len() + node.entries.iter().position(|entry| entry.0 == *prefix)?)
    });
    lines.extend(node.entries.iter().map(|entry| words.entry(entry)));
    let visits: Vec<String> =
        lookup.iter().flat_map(|lookup| lookup.steps(index)).map(|(number, _)| number.to_string()).collect();
    if !visits.is_empty() && lookup.is_some_and(Lookup::went_back) {
        lines.push(format!("visit {}", visits.join(", ")));
    }
    let look = match (node.kind, lines.is_empty()) {
        ("leaf", _) => Style::Leaf,
        (_, true) => Style::Dot,
        _ => Style::Node,
    };
    let step = lookup.and_then(|lookup| lookup.steps(index).next()).map(|(_, step)| by(step));
    Item { look, lines, answer, step, ..Item::default() }
}

/// Key bits that a node looks at.
fn window(at: u16, bits: u16) -> String {
    match bits {
        0 => "no bit".into(),
        1 => format!("bit {at}"),
        _ => format!("bits {at}-{}", at + bits - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(label: &str, to: Option<usize>, value: Option<u32>) -> GraphEdge {
        GraphEdge { label: label.into(), to, value }
    }

    fn node(kind: &'static str, bits: u16, children: Vec<GraphEdge>) -> GraphNode {
        GraphNode { kind, bits, children, ..GraphNode::default() }
    }

    #[test]
    fn keys_are_shown_as_bits() {
        let value = |value: u32| Some(value.to_string());
        let words = Words { bits: Some(4), value: &value };
        let shown =
            ["48.0.0.0/4", "48.0.0.0", "128.0.0.0/2", "0.0.0.0/0", "f000::/4", "skips 01", "18 bytes"];
        let shown = shown.map(|text| words.key(text));
        assert_eq!(shown, ["0011", "0011", "10*", "*", "1111", "skips 01", "18 bytes"]);
        assert_eq!(Words { bits: None, value: &value }.key("48.0.0.0/4"), "48.0.0.0/4");
    }

    /// Slots that lead nowhere are one box where they are neighbours; a lookup that ends there marks it.
    #[test]
    fn empty_slots_are_drawn_as_runs() {
        let slots = [None, None, Some(1), None].into_iter().zip(["00", "01", "10", "11"]);
        let root = node("node", 2, slots.map(|(to, label)| edge(label, to, None)).collect());
        let graph = Graph { nodes: vec![root, node("leaf", 0, Vec::new())] };
        let path = vec![PathStep { node: 0, edge: Some(1), back: false }];
        let lookup = Lookup { addr: "64.0.0.0".into(), path, answer: None };
        let words = Words { bits: Some(2), value: &|_| None };
        let scene = scene("title".into(), Vec::new(), &graph, &words, Some(&lookup));
        let drawn = scene.items[0].children.iter().map(|child| &scene.items[*child]);
        let drawn: Vec<_> = drawn.map(|item| (item.edge.as_str(), item.look, item.edge_step)).collect();
        let (empty, down) = (Style::Empty, Some(Step::Down));
        assert_eq!(drawn, [("00-01", empty, down), ("10", Style::Leaf, None), ("11", empty, None)]);
        assert_eq!(scene.facts, ["lookup of 01: no prefix; 1 visit"]);
    }

    /// Hosts with the same value are no run of slots.
    #[test]
    fn slots_with_values_are_rows_of_their_own() {
        let hosts =
            vec![edge("0x0001", None, Some(7)), edge("0x0009", None, Some(7)), edge("others", None, None)];
        let graph = Graph { nodes: vec![node("hosts", 16, hosts)] };
        let words = Words { bits: None, value: &|_| None };
        let scene = scene("title".into(), Vec::new(), &graph, &words, None);
        let rows = scene.items[0].rows.iter().map(|row| (row.slots.as_str(), row.value.as_str()));
        assert_eq!(rows.collect::<Vec<_>>(), [("0x0001", "yes"), ("0x0009", "yes"), ("others", "")]);
        assert_eq!(scene.items[0].lines, ["hosts", "bits 0-15"]);
    }
}
