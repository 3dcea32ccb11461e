//! Where two tables differ: in their prefixes, or in their answers to addresses.

use super::input::{Rows, Table, typed};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use trieline_lpm::io::KeyPrefix;
use trieline_lpm::ops::{self, Change};
use trieline_lpm::{Address, Prefix, with_key};
use trieline_terminal::{List, Output};

/// A difference.
#[derive(Debug, Serialize)]
struct Difference {
    dst: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_name: Option<String>,
}

impl Difference {
    fn new(dst: String, old: Option<u32>, new: Option<u32>, names: &Names<'_>) -> Self {
        let change = match (old, new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let shown = |value: Option<u32>| value.filter(|_| names.has_values);
        let name =
            |table: &Table, value: Option<u32>| value.and_then(|value| table.names.get(&value)).cloned();
        Self {
            dst,
            change,
            from: shown(old),
            from_name: name(names.old, shown(old)),
            to: shown(new),
            to_name: name(names.new, shown(new)),
        }
    }

    fn text(&self) -> String {
        let word = |value: Option<u32>, name: &Option<String>| {
            let number = value.map(|value| value.to_string());
            name.clone().or(number).map(|word| format!(" {word}")).unwrap_or_default()
        };
        let (from, to) = (word(self.from, &self.from_name), word(self.to, &self.to_name));
        match self.change {
            "added" => format!("+ {}{to}", self.dst),
            "removed" => format!("- {}{from}", self.dst),
            _ => format!("~ {}{from} ->{to}", self.dst),
        }
    }
}

/// The names of values in both tables.
struct Names<'a> {
    old: &'a Table,
    new: &'a Table,
    has_values: bool,
}

/// Prints the differences; how many there are.
pub fn diff(old: &Table, mut new: Table, forwarding: bool, output: &Output) -> anyhow::Result<usize> {
    // A table without prefixes has nothing against the values of the other.
    let values = |table: &Table| table.has_values || table.len() == 0;
    let has_values = values(old) && values(&new) && (old.has_values || new.has_values);
    old.expect_alike(&new)?;
    // Where both have names, the same name is the same value.
    new.renumber(&old.names);
    let mut old = old.clone();
    if !has_values {
        // Values that only one has say nothing about the other.
        old.values_mut().chain(new.values_mut()).for_each(|value| *value = 1);
    }
    let names = Names { old: &old, new: &new, has_values };
    let mut list = List::new(output, output.stdout());
    family(&old.v4, &new.v4, forwarding, &names, Prefix::to_string, &mut list)?;
    family(&old.v6, &new.v6, forwarding, &names, Prefix::to_string, &mut list)?;
    let widths: BTreeSet<u16> = old.keys.keys().chain(new.keys.keys()).copied().collect();
    for bits in widths {
        let done = with_key!(bits, K => {
            let rows = |table: &Table| -> Rows<K> { table.keys.get(&bits).map_or(Vec::new(), |rows| typed(rows)) };
            let show = |prefix: &Prefix<K>| KeyPrefix::of(prefix, bits).to_string();
            family(&rows(&old), &rows(&new), forwarding, &names, show, &mut list)
        });
        done.transpose()?;
    }
    list.finish()
}

fn family<A: Address, W: Write>(
    old: &Rows<A>,
    new: &Rows<A>,
    forwarding: bool,
    names: &Names<'_>,
    show: impl Fn(&Prefix<A>) -> String,
    list: &mut List<'_, W>,
) -> anyhow::Result<()> {
    let (old, new) = (old.iter().copied(), new.iter().copied());
    let mut push = |prefix: Prefix<A>, from, to| {
        list.push(&Difference::new(show(&prefix), from, to, names), Difference::text)
    };
    if forwarding {
        for region in ops::compare(old, new).filter(|region| region.value.0 != region.value.1) {
            for prefix in region.prefixes() {
                push(prefix, region.value.0, region.value.1)?;
            }
        }
        return Ok(());
    }
    for (prefix, change) in ops::diff(old, new) {
        match change {
            Change::Added(to) => push(prefix, None, Some(to))?,
            Change::Removed(from) => push(prefix, Some(from), None)?,
            Change::Changed { from, to } => push(prefix, Some(from), Some(to))?,
        }
    }
    Ok(())
}
