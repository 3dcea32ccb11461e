//! Tables written: as lines or JSON on standard output, or as a file of any format.

use super::input::{Rows, Table, format_parser, typed};
use super::prefix::AnyPrefix;
use anyhow::{Context, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use trieline_lpm::io::Format;
use trieline_lpm::io::snapshot::{Builder, Saved};
use trieline_lpm::io::{Sink, iproute, json, mrt, text};
use trieline_lpm::with_key;
use trieline_terminal::{List, Output};

/// Tables of an image that this command makes; those of the daemon have the same numbers.
const TABLE4: u32 = 0;
const TABLE6: u32 = 1;
/// Of other keys: the first, the others behind it.
const TABLE_KEYS: u32 = 2;

/// A prefix in JSON; keys of `ip -j route` where they fit.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The prefix, or the address asked about.
    pub dst: String,
    /// `get`: the prefix that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// `none` where nothing matches.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u32>,
    /// The meaning of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Row {
    /// A prefix of a table.
    pub fn new(prefix: &AnyPrefix, value: Option<u32>, names: &BTreeMap<u32, String>) -> Self {
        let name = value.and_then(|value| names.get(&value)).cloned();
        Self { dst: prefix.to_string(), prefix: None, kind: None, value, name }
    }

    /// As a line.
    pub fn text(&self) -> String {
        let mut text = self.dst.clone();
        if let Some(kind) = self.kind {
            text = format!("{kind} {text}");
        }
        if let Some(prefix) = &self.prefix {
            text += &format!(" in {prefix}");
        }
        match (&self.name, self.value) {
            (Some(name), _) => text + " " + name,
            (None, Some(value)) => format!("{text} {value}"),
            (None, None) => text,
        }
    }
}

/// Prints rows as JSON or as lines.
pub fn list(rows: impl Iterator<Item = Row>, output: &Output) -> anyhow::Result<usize> {
    let mut list = List::new(output, output.stdout());
    for row in rows {
        list.push(&row, Row::text)?;
    }
    list.finish()
}

/// Where and how a table is written.
#[derive(Debug, Clone, clap::Args)]
pub struct WriteArgs {
    /// Write text, json, iproute, mrt or image
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), hide_possible_values = true)]
    format: Option<Format>,
    /// Write this file (`.gz` packs it) [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
    /// Print numbers, even for values with names
    #[arg(long)]
    numeric: bool,
}

impl WriteArgs {
    /// To a file, in a format.
    pub fn file(format: Format, output: &Path) -> Self {
        Self { format: Some(format), output: Some(output.into()), numeric: false }
    }
}

/// Writes a table as asked for.
pub fn table(table: &Table, args: &WriteArgs, output: &Output) -> anyhow::Result<()> {
    let none = BTreeMap::new();
    let names = if args.numeric { &none } else { &table.names };
    if args.output.is_none() && (args.format.is_none() || args.format == Some(Format::Json) && output.json) {
        list(table.rows().map(|(prefix, value)| Row::new(&prefix, value, names)), output)?;
        return Ok(());
    }
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    let format = args.format.unwrap_or(if output.json { Format::Json } else { Format::Text });
    if format == Format::Snapshot {
        image(table, names, path)?;
        return Ok(());
    }
    if matches!(format, Format::IpRoute | Format::Mrt)
        && let Some(bits) = table.keys.keys().next()
    {
        bail!(
            "{}: keys of {bits} bits; files of this format have addresses: expected text, json or image",
            path.display()
        );
    }
    let mut to = Sink::create(path).with_context(|| path.display().to_string())?;
    let written = match format {
        Format::Text => text::write(&mut to, table.rows(), names),
        Format::Json => json::write(&mut to, table.rows(), names),
        Format::IpRoute => iproute::write(&mut to, table.ip_rows(), names),
        Format::Mrt => mrt::write(&mut to, table.ip_rows(), names, now()),
        Format::Snapshot => Ok(()),
    };
    written.and_then(|()| to.finish()).with_context(|| path.display().to_string())
}

/// Builds an image of a table and saves it.
pub fn image(table: &Table, names: &BTreeMap<u32, String>, path: &Path) -> anyhow::Result<Saved> {
    let mut builder = Builder::new();
    builder.table(TABLE4, table.v4.iter().copied())?;
    builder.table(TABLE6, table.v6.iter().copied())?;
    for (id, (bits, rows)) in (TABLE_KEYS..).zip(&table.keys) {
        let done = with_key!(*bits, K => {
            let rows: Rows<K> = typed(rows);
            builder.table_narrow(id, *bits, rows)
        });
        done.transpose()?;
    }
    for (value, name) in names {
        builder.name(*value, name);
    }
    Ok(builder.save(path)?)
}

/// Seconds since 1970.
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32)
}
