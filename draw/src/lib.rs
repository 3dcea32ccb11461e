//! Structures of prefix tables as pictures: what is drawn (`scene`), where (`layout`, `drawing`), the formats (`svg`, `dot`). Also the options
//! and the output of the two commands that draw them, `trieline table draw` and `trieline lab draw` (`command`).

pub mod command;
pub mod dot;
pub mod drawing;
mod layout;
pub mod scene;
pub mod svg;

/// A picture before it has a format: boxes in a tree, and the facts about them.
#[derive(Debug, Default)]
pub struct Scene {
    /// The headline.
    pub title: String,
    /// Counts of its parts, a line each.
    pub facts: Vec<String>,
    /// Boxes, parents before their children; the first is the root.
    pub items: Vec<Item>,
}

/// A box, and the edge that leads to it.
#[derive(Debug, Default)]
pub struct Item {
    /// Its style.
    pub look: Style,
    /// The key bits that lead here.
    pub edge: String,
    /// Whether the lookup took that edge.
    pub edge_step: Option<Step>,
    /// Text in it.
    pub lines: Vec<String>,
    /// The line that the lookup answers by.
    pub answer: Option<usize>,
    /// Slots that it holds itself.
    pub rows: Vec<Row>,
    /// How the lookup came here first.
    pub step: Option<Step>,
    /// Boxes below, in key order.
    pub children: Vec<usize>,
}

/// Slots that hold a value or nothing.
#[derive(Debug)]
pub struct Row {
    /// The key bits that lead there.
    pub slots: String,
    /// The value of its keys; empty for none.
    pub value: String,
    /// Whether the lookup ends here.
    pub step: Option<Step>,
}

/// The style of a box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// A slot that leads nowhere.
    #[default]
    Empty,
    /// A node with nothing to say.
    Dot,
    /// A node.
    Node,
    /// A leaf.
    Leaf,
}

/// How a lookup comes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// On its way down.
    Down,
    /// After it went back.
    Back,
}

impl Step {
    /// Its colour, distinct with every colour vision and dark enough for text.
    pub fn colour(self) -> &'static str {
        match self {
            Self::Down => "#0b5cad",
            Self::Back => "#b34700",
        }
    }
}
