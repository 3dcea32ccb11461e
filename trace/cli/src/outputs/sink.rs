//! Receivers of messages, and facts about the trace that they write.

use trieline_trace::{By, Cost, Message};

use crate::report;

/// Facts about the trace, for outputs.
pub struct About<'a> {
    /// The tracer's own cost, or why it is not known.
    pub cost: &'a Result<Cost, String>,
    /// How messages are joined.
    pub by: By,
    /// Whether the report is JSON.
    pub json: bool,
    /// Whether a command runs that may write to the terminal.
    pub has_command: bool,
}

impl About<'_> {
    /// The cost in words.
    pub fn cost_text(&self) -> String {
        report::cost(self.cost).trim_end().to_owned()
    }
}

/// A form in which messages are written.
pub trait Sink {
    /// A message was found.
    fn take(&mut self, message: &Message) -> anyhow::Result<()>;
    /// The thread has ended.
    fn ended(&mut self, _thread: u32) {}
    /// There are no more. Answers what a reader of the report should know, a line each.
    fn finish(&mut self) -> anyhow::Result<Vec<String>>;
}
