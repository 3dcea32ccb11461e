//! The page as Markdown, whose pictures are files beside it: for README and docs.

use std::fmt::Write as _;

use super::{
    contents::{Entry, Page},
    figures::FIGURES,
};
use crate::{
    Result,
    report::{Picture, Table},
};

impl Page {
    /// The page as Markdown; its links lead to `NAME.svg` of each of [`Page::pictures`], in the same folder.
    ///
    /// # Errors
    /// A file of published numbers is invalid.
    pub fn markdown(&self) -> Result<String> {
        let mut text = format!("# {}\n\n{}\n", self.title(), self.summary());
        for figure in &FIGURES {
            let entry = self.entry(figure.experiment);
            let mark = entry.map_or("", Entry::mark);
            let (number, title) = (figure.number, figure.title);
            let _ = write!(text, "\n## {number}: {mark}{title}\n\n{}\n\n", escaped(figure.shows));
            if let Some(entry) = entry {
                entry.pictures_of(figure).for_each(|picture| show(&mut text, picture));
            } else {
                let missing = self.missing(figure);
                text += &escaped(&missing.why);
                if let Some(command) = missing.command {
                    let _ = write!(text, " This command makes it: {}", code(&command));
                }
                text += "\n\n";
            }
            let compared =
                figure.compared(entry.map_or(&serde_json::Value::Null, |entry| &entry.document))?;
            rows(&mut text, &compared);
            if let Some(entry) = entry {
                entry.write_origin(&mut text);
            }
        }
        text += "\n## The experiments, whole\n";
        for entry in &self.entries {
            entry.write(&mut text);
        }
        Ok(text)
    }
}

impl Entry {
    fn write(&self, text: &mut String) {
        let _ = write!(text, "\n### {}\n\n", self.finished.title());
        self.write_origin(text);
        text.push('\n');
        self.other_pictures().for_each(|picture| show(text, picture));
        for table in self.finished.tables() {
            rows(text, &table);
        }
        for line in self.finished.notes().lines() {
            let _ = writeln!(text, "{}", escaped(line));
        }
        for refusal in self.finished.refused() {
            let line = format!("No rows of {} ({}): {}.", refusal.rival, refusal.case, refusal.reason);
            let _ = write!(text, "\n{}\n", escaped(&line));
        }
    }

    fn write_origin(&self, text: &mut String) {
        for (name, what) in self.origin() {
            let what = if name == "Command" { code(&what) } else { escaped(&what) };
            let _ = writeln!(text, "- {name}: {what}");
        }
    }
}

fn show(text: &mut String, picture: &Picture) {
    let _ = write!(text, "![{}]({}.svg)\n\n", title(picture), picture.name);
}

/// A picture's title. It is XML, whose entities are Markdown's, too.
pub(super) fn title(picture: &Picture) -> String {
    picture.title().replace('[', "&#91;").replace(']', "&#93;")
}

/// Writes a table, if it has rows.
pub(super) fn rows(text: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    if !table.title.is_empty() {
        let _ = write!(text, "{}:\n\n", escaped(table.title));
    }
    let mut line = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(&mut table.heading.iter().map(|heading| escaped(heading)));
    line(&mut (0..table.heading.len()).map(|at| if at < table.left { "---" } else { "---:" }.into()));
    for cells in &table.rows {
        line(&mut cells.iter().map(|cell| escaped(cell)));
    }
    text.push('\n');
}

/// The text so that Markdown and the HTML in it mean nothing.
pub(super) fn escaped(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => found += "&amp;",
            '<' => found += "&lt;",
            '>' => found += "&gt;",
            '\\' | '`' | '*' | '_' | '|' | '[' | ']' | '#' => found.extend(['\\', letter]),
            '\n' | '\r' => found.push(' '),
            _ => found.push(letter),
        }
    }
    found
}

/// The text as code: a fence that is longer than any in it.
pub(super) fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    if longest == 0 {
        return format!("`{text}`");
    }
    let fence = "`".repeat(longest + 1);
    format!("{fence} {text} {fence}")
}
