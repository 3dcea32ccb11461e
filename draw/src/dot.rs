//! A picture as Graphviz text, for those who want to lay it out themselves: `dot -Tpdf`.

use super::{Item, Scene, Step, Style};
use std::fmt::Write as _;

/// The whole text.
pub fn write(scene: &Scene) -> String {
    let mut text = String::from("digraph trie {\n");
    let below = [scene.title.as_str()].into_iter().chain(scene.facts.iter().map(String::as_str));
    let _ = writeln!(text, "  label={};", quoted(below));
    text += "  node [shape=box, fontname=monospace, fontsize=12];\n  edge [fontname=monospace, fontsize=11, arrowhead=none];\n";
    for (index, item) in scene.items.iter().enumerate() {
        let _ = writeln!(text, "  n{index} [{}{}];", shape(item), marked(item.step));
    }
    for (index, item) in scene.items.iter().enumerate() {
        for child in &item.children {
            let edge = &scene.items[*child];
            let label = quoted([edge.edge.as_str()]);
            let _ = writeln!(text, "  n{index} -> n{child} [label={label}{}];", marked(edge.edge_step));
        }
    }
    text += "}\n";
    text
}

fn shape(item: &Item) -> String {
    match item.look {
        Style::Empty => "shape=point".into(),
        Style::Dot => "shape=circle, width=0.15, label=\"\"".into(),
        Style::Node | Style::Leaf => {
            let lines = (0..).zip(&item.lines).map(|(line, text)| arrow(item.answer == Some(line), text));
            let rows = item.rows.iter().map(|row| {
                let value = if row.value.is_empty() { "-" } else { &row.value };
                arrow(row.step.is_some(), &format!("{}  {value}", row.slots))
            });
            let lines: Vec<String> = lines.chain(rows).collect();
            let style = if item.look == Style::Node { ", style=rounded" } else { "" };
            format!("label={}{style}", quoted(lines.iter().map(String::as_str)))
        }
    }
}

/// The answer of a lookup has a mark of its own: labels have one colour.
fn arrow(is_answer: bool, text: &str) -> String {
    if is_answer { format!("> {text}") } else { text.to_owned() }
}

fn marked(step: Option<Step>) -> String {
    let Some(step) = step else { return String::new() };
    let style = if step == Step::Back { ", style=dashed" } else { "" };
    format!(", color=\"{0}\", fontcolor=\"{0}\", penwidth=2{style}", step.colour())
}

/// Lines as one string of the language.
fn quoted<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let lines: Vec<String> =
        lines.into_iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", lines.join("\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_text() {
        let item = Item { look: Style::Leaf, lines: vec!["10.0.0.0/8  \"a\\b\"".into()], ..Item::default() };
        let text = write(&Scene { title: "a\"b".into(), items: vec![item], ..Scene::default() });
        assert!(
            text.contains(r#"label="a\"b";"#) && text.contains(r#"n0 [label="10.0.0.0/8  \"a\\b\""];"#),
            "{text}"
        );
    }
}
