//! The tables and pictures in README and docs. A mark in a page names the document that they are from, and everything up to the end of the mark
//! is written from it.
//!
//! ```text
//! <!-- lab: map-tables; columns: table, ns; rows: bgp4 packet, bgp4 loop -->
//! <!-- /lab -->
//! ```

use std::{fmt::Write as _, path::Path};

use super::{
    contents::{Entry, Page},
    markdown::{code, escaped, rows, title},
};
use crate::{Error, Result, experiments::LIST, report::Table};

const BEGIN: &str = "<!-- lab: ";
const END: &str = "<!-- /lab -->";

/// A mark: what stands behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mark<'p> {
    experiment: &'p str,
    /// Headings of the columns to show, in this order; all of them without any.
    columns: Vec<&'p str>,
    /// Rows to show: those that have all words of one of these among their cells; all rows without any.
    rows: Vec<Vec<&'p str>>,
    /// The table whose title begins so, or which has none; all tables without it.
    table: Option<&'p str>,
    /// A picture instead of tables.
    picture: Option<&'p str>,
}

impl<'p> Mark<'p> {
    /// Of a line; none if it is not a mark.
    fn of(line: &'p str) -> Option<std::result::Result<Mark<'p>, String>> {
        let inside = line.strip_prefix(BEGIN)?.trim_end().strip_suffix("-->");
        Some(inside.map_or_else(|| Err("expected `-->` at the end of the line".into()), Mark::parse))
    }

    fn parse(inside: &'p str) -> std::result::Result<Mark<'p>, String> {
        let mut parts = inside.split(';').map(str::trim);
        let mut mark = Mark { experiment: parts.next().unwrap_or_default(), ..Mark::default() };
        if !LIST.iter().any(|listed| listed.name == mark.experiment) {
            return Err(format!("invalid {:?}: expected the name of an experiment", mark.experiment));
        }
        for part in parts {
            let (key, value) = part.split_once(':').map_or((part, ""), |(key, value)| (key, value.trim()));
            let list = || value.split(',').map(str::trim);
            match key {
                "columns" => mark.columns = list().collect(),
                "rows" => mark.rows = list().map(|words| words.split(' ').collect()).collect(),
                "table" => mark.table = Some(value),
                "picture" => mark.picture = Some(value),
                _ => return Err(format!("invalid {key:?}: expected columns, rows, table or picture")),
            }
        }
        Ok(mark)
    }

    /// A table with the rows and columns that the mark names.
    fn part(&self, table: &Table) -> std::result::Result<Table, String> {
        let place = |heading: &&str| {
            let known = || table.heading.join(", ");
            let at = table.heading.iter().position(|one| one == heading);
            at.ok_or_else(|| format!("no column {heading:?}: expected some of {}", known()))
        };
        let places: Vec<usize> = match self.columns.is_empty() {
            true => (0..table.heading.len()).collect(),
            false => self.columns.iter().map(place).collect::<std::result::Result<_, _>>()?,
        };
        let has =
            |cells: &[String], words: &[&str]| words.iter().all(|word| cells.iter().any(|cell| cell == word));
        let is_taken =
            |cells: &&Vec<String>| self.rows.is_empty() || self.rows.iter().any(|words| has(cells, words));
        let rows = table.rows.iter().filter(is_taken);
        Ok(Table {
            title: table.title,
            heading: places.iter().map(|at| table.heading[*at]).collect(),
            rows: rows.map(|cells| places.iter().map(|at| cells[*at].clone()).collect()).collect(),
            left: places.iter().take_while(|at| **at < table.left).count(),
        })
    }
}

impl Page {
    /// The text of a page with everything behind its marks written again from the documents. `pictures` is the folder of pictures, as the page
    /// links to it.
    ///
    /// # Errors
    /// [`Error::Document`] with file and line: a mark is invalid, or has no end.
    pub fn fill(&self, path: &Path, text: &str, pictures: &str) -> Result<String> {
        let refuse = |line: usize, why: String| Error::Document {
            path: path.to_owned(),
            why: format!("line {line}: {why}"),
        };
        let mut filled = String::with_capacity(text.len());
        let mut lines = text.split_inclusive('\n').zip(1..);
        while let Some((line, number)) = lines.next() {
            filled += line;
            let Some(mark) = Mark::of(line.trim_end()) else { continue };
            let mark = mark.map_err(|why| refuse(number, why))?;
            let end = lines.find(|(line, _)| line.trim_end() == END);
            let (end, _) = end.ok_or_else(|| refuse(number, format!("expected `{END}` behind it")))?;
            filled += &self.behind(&mark, pictures).map_err(|why| refuse(number, why))?;
            filled += end;
        }
        Ok(filled)
    }

    /// The text behind a mark.
    fn behind(&self, mark: &Mark, pictures: &str) -> std::result::Result<String, String> {
        let name = mark.experiment;
        let Some(entry) = self.entry(name) else {
            let command = format!("trieline lab run {name} --save");
            return Ok(format!("\nNot measured yet: {} makes it.\n\n", code(&command)));
        };
        let mut text = String::from("\n");
        match mark.picture {
            Some(name) => {
                let picture = entry.pictures.iter().find(|picture| picture.name == name);
                let picture = picture.ok_or_else(|| format!("no picture {name:?} of this experiment"))?;
                let _ = write!(text, "![{}]({pictures}/{name}.svg)\n\n", title(picture));
            }
            None => {
                let tables = entry.finished.tables();
                let is_taken = |table: &&Table| match mark.table {
                    None => true,
                    Some("") => table.title.is_empty(),
                    Some(begin) => table.title.starts_with(begin),
                };
                for table in tables.iter().filter(is_taken) {
                    rows(&mut text, &mark.part(table)?);
                }
            }
        }
        text += &entry.source();
        Ok(text)
    }
}

impl Entry {
    /// By which command, where and when, in a line.
    fn source(&self) -> String {
        let m = self.finished.machine();
        let place = format!(
            "{}, {} cores, Linux {}, commit {}, {}{}",
            m.cpu,
            m.cores,
            m.kernel,
            m.git,
            m.date,
            m.doubts()
        );
        format!("{}{}: {}.\n\n", escaped(self.mark()), code(&m.command), escaped(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String> {
        super::super::tests::page("x").fill(Path::new("docs/x.md"), text, "figures")
    }

    #[test]
    fn what_stands_behind_a_mark_is_written_from_the_document_and_all_else_stays() {
        let page =
            "# A\n<!-- lab: map-ops; columns: op, ns; rows: lookup -->\nold 12 ns\n<!-- /lab -->\nlast";
        let expected = "# A\n<!-- lab: map-ops; columns: op, ns; rows: lookup -->\n\n| op | ns |\n| --- | ---: |\n\
                        | lookup | 100 |\n\n`x`: x, 2 cores, Linux x, commit x, x.\n\n<!-- /lab -->\nlast";
        assert_eq!(filled(page).unwrap(), expected);
        // Again it is the same.
        assert_eq!(filled(expected).unwrap(), expected);
        let rows = filled("<!-- lab: map-ops; rows: update -->\n<!-- /lab -->\n").unwrap();
        assert!(!rows.contains("lookup"), "{rows}");
        let picture = filled("<!-- lab: map-ops; picture: map-ops -->\n<!-- /lab -->\n").unwrap();
        assert!(picture.contains("](figures/map-ops.svg)\n"), "{picture}");
        let missing = filled("<!-- lab: tries -->\n1 ns\n<!-- /lab -->\n").unwrap();
        let expected = "\nNot measured yet: `trieline lab run tries --save` makes it.\n\n";
        assert_eq!(missing, format!("<!-- lab: tries -->\n{expected}<!-- /lab -->\n"));
    }

    #[test]
    fn a_bad_mark_is_named_with_file_and_line() {
        for (mark, why) in [
            (
                "<!-- lab: chess -->\n<!-- /lab -->",
                "line 2: invalid \"chess\": expected the name of an experiment",
            ),
            ("<!-- lab: tries", "line 2: expected `-->`"),
            ("<!-- lab: tries -->\n", "line 2: expected `<!-- /lab -->` behind it"),
            (
                "<!-- lab: map-ops; shape: round -->\n<!-- /lab -->",
                "invalid \"shape\": expected columns, rows",
            ),
            ("<!-- lab: map-ops; columns: speed -->\n<!-- /lab -->", "no column \"speed\": expected some of"),
            ("<!-- lab: map-ops; picture: moon -->\n<!-- /lab -->", "no picture \"moon\""),
        ] {
            let error = filled(&format!("a\n{mark}")).unwrap_err().to_string();
            assert!(error.starts_with("docs/x.md: line 2: ") && error.contains(why), "{mark}: {error}");
        }
    }
}
