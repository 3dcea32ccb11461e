//! Tables read from files of any format, sorted, each prefix once.

use super::map;
use super::prefix::AnyPrefix;
use crate::client::count;
use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use trieline_lpm::io::{self, Format, KeyPrefix, MrtValue, PrefixList, ReadOptions};
use trieline_lpm::{Address, IpPrefix, Key, Prefix};

/// Takes a format by its name.
pub fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|name| Format::ALL.into_iter().find(|format| format.name() == name).unwrap_or(Format::Text))
}

/// The source of values in an MRT dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MrtValueName {
    /// The number of the next hop
    Nexthop,
    /// The number of the origin AS
    Origin,
    /// The multi-exit discriminator, as `--format mrt` writes it
    Med,
}

/// How files are read.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReadArgs {
    /// Read files in this format [default: by content]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), hide_possible_values = true)]
    from: Option<Format>,
    /// Take values of an MRT dump from nexthop, origin or med
    #[arg(long, value_name = "WHAT", value_enum, default_value = "nexthop", hide_possible_values = true)]
    mrt_value: MrtValueName,
    /// Take the routes of this peer [default: each prefix's first]
    ///
    /// Only for MRT dumps.
    #[arg(long, value_name = "ADDRESS")]
    mrt_peer: Option<IpAddr>,
    /// Skip wrong lines of text, and count them
    #[arg(long)]
    skip_bad: bool,
    /// Clear host bits of prefixes in text, and count them
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    key: KeyArgs,
}

/// The kind of a map's keys, if its BTF does not say it or is wrong.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct KeyArgs {
    /// Read keys of so many bits that are not addresses
    ///
    /// For maps and text. `-4` and `-6` read addresses.
    #[arg(long = "key", value_name = "BITS", value_parser = clap::value_parser!(u16).range(KEY_BITS))]
    pub bits: Option<u16>,
}

/// Widths of keys.
const KEY_BITS: RangeInclusive<i64> = 1..=2048;

impl ReadArgs {
    /// By the file's content.
    pub fn of(key: KeyArgs) -> Self {
        Self {
            from: None,
            mrt_value: MrtValueName::Nexthop,
            mrt_peer: None,
            skip_bad: false,
            truncate: false,
            key,
        }
    }

    /// The width of keys that the user names.
    pub fn key_bits(&self) -> Option<u16> {
        self.key.bits
    }

    fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.from,
            mrt_value: match self.mrt_value {
                MrtValueName::Nexthop => MrtValue::NextHop,
                MrtValueName::Origin => MrtValue::Origin,
                MrtValueName::Med => MrtValue::Med,
            },
            mrt_peer: self.mrt_peer,
            skip_bad: self.skip_bad,
            truncate: self.truncate,
            key_bits: self.key.bits,
            ..ReadOptions::default()
        }
    }
}

/// The prefixes of a family, in order.
pub type Rows<A> = Vec<(Prefix<A>, u32)>;

/// Prefixes of keys of one width, in order.
pub type KeyRows = Vec<(KeyPrefix, u32)>;

/// A table of both families, and of other keys.
#[derive(Debug, Clone)]
pub struct Table {
    /// IPv4.
    pub v4: Rows<u32>,
    /// IPv6.
    pub v6: Rows<u128>,
    /// Other keys, by their width in bits.
    pub keys: BTreeMap<u16, KeyRows>,
    /// The names of values.
    pub names: BTreeMap<u32, String>,
    /// Whether the file had values; if not, all are 1.
    pub has_values: bool,
    /// Entries passed over.
    pub skipped: u64,
    /// The file has not one byte.
    is_blank: bool,
}

impl Table {
    /// Reads a file, or a BPF map if it is the name of one; only `family` if one is given.
    pub fn read(path: &Path, args: &ReadArgs, family: Option<u8>) -> anyhow::Result<Self> {
        if let (Some(bits), Some(family)) = (args.key.bits, family) {
            bail!("--key {bits} and -{family}: expected one of both");
        }
        let mut list = match map::named(path) {
            Some(name) => map::read(name, args.key.bits, family)?,
            None => io::read(path, &args.options())?,
        };
        warn(path, &list);
        if family == Some(6) {
            list.prefixes.v4.clear();
        }
        if family == Some(4) {
            list.prefixes.v6.clear();
        }
        if family.is_some() {
            list.keys.clear();
        }
        Self::of(list, path).with_context(|| path.display().to_string())
    }

    /// The same of a file to ask questions of: one without a single byte is an error, not a table without prefixes.
    pub fn read_to_ask(path: &Path, args: &ReadArgs, family: Option<u8>) -> anyhow::Result<Self> {
        let table = Self::read(path, args, family)?;
        if table.is_blank {
            bail!("{}: the file is empty (0 bytes); expected a table", path.display());
        }
        Ok(table)
    }

    fn of(list: PrefixList, path: &Path) -> anyhow::Result<Self> {
        let rows = || {
            let v4 = list.prefixes.v4.iter().map(|row| (AnyPrefix::Ip(IpPrefix::V4(row.0)), row.1));
            let v6 = list.prefixes.v6.iter().map(|row| (AnyPrefix::Ip(IpPrefix::V6(row.0)), row.1));
            let keys = list.keys.values().flatten();
            v4.chain(v6).chain(keys.map(|row| (AnyPrefix::Key(row.0.clone()), row.1)))
        };
        let with = rows().filter(|row| row.1.is_some()).count();
        let all = rows().count();
        if with != 0 && with != all {
            let without = rows().find(|row| row.1.is_none());
            let first = without.map(|row| row.0.to_string()).unwrap_or_default();
            bail!(
                "{with} prefixes have a value and {} have none (the first is {first}); expected all or none",
                all - with
            );
        }
        let mut other = 0;
        let v4 = counted(list.prefixes.v4, &mut other);
        let v6 = counted(list.prefixes.v6, &mut other);
        let keys = list.keys.into_iter().map(|(bits, rows)| (bits, counted(rows, &mut other))).collect();
        if other > 0 {
            let rows = count(other, "prefix stands", "prefixes stand");
            eprintln!(
                "trieline: {}: {rows} there more than once with different values; the last value counts",
                path.display()
            );
        }
        let (names, has_values, skipped) = (list.names, with > 0, list.skipped);
        Ok(Self { v4, v6, keys, names, has_values, skipped, is_blank: list.is_blank })
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len() + self.keys.values().map(Vec::len).sum::<usize>()
    }

    /// All prefixes of addresses in order, IPv4 first; without values where the file had none.
    pub fn ip_rows(&self) -> impl Iterator<Item = (IpPrefix, Option<u32>)> + Clone + '_ {
        let v4 = self.v4.iter().map(|row| (IpPrefix::V4(row.0), self.shown(row.1)));
        v4.chain(self.v6.iter().map(|row| (IpPrefix::V6(row.0), self.shown(row.1))))
    }

    /// All prefixes in order, IPv4, IPv6, then other keys.
    pub fn rows(&self) -> impl Iterator<Item = (AnyPrefix, Option<u32>)> + Clone + '_ {
        let keys = self.keys.values().flatten();
        let keys = keys.map(|row| (AnyPrefix::Key(row.0.clone()), self.shown(row.1)));
        self.ip_rows().map(|row| (AnyPrefix::Ip(row.0), row.1)).chain(keys)
    }

    fn shown(&self, value: u32) -> Option<u32> {
        self.has_values.then_some(value)
    }

    /// The values of all prefixes.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        let keys = self.keys.values().flatten().map(|row| row.1);
        self.v4.iter().map(|row| row.1).chain(self.v6.iter().map(|row| row.1)).chain(keys)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        let keys = self.keys.values_mut().flatten().map(|row| &mut row.1);
        self.v4.iter_mut().map(|row| &mut row.1).chain(self.v6.iter_mut().map(|row| &mut row.1)).chain(keys)
    }

    /// Keeps the prefixes that `outer` covers.
    pub fn narrow(&mut self, outer: &AnyPrefix) {
        self.only(outer.family());
        match outer {
            AnyPrefix::Ip(IpPrefix::V4(outer)) => self.v4.retain(|row| outer.covers(&row.0)),
            AnyPrefix::Ip(IpPrefix::V6(outer)) => self.v6.retain(|row| outer.covers(&row.0)),
            AnyPrefix::Key(outer) => {
                self.keys.values_mut().for_each(|rows| rows.retain(|row| outer.covers(&row.0)));
            }
        }
    }

    /// Keeps the prefixes that cover `inner`.
    pub fn widen(&mut self, inner: &AnyPrefix) {
        self.only(inner.family());
        match inner {
            AnyPrefix::Ip(IpPrefix::V4(inner)) => self.v4 = covering(&self.v4, *inner),
            AnyPrefix::Ip(IpPrefix::V6(inner)) => self.v6 = covering(&self.v6, *inner),
            AnyPrefix::Key(inner) => {
                self.keys.values_mut().for_each(|rows| *rows = covering_keys(rows, inner))
            }
        }
    }

    /// Widths of its keys that are not addresses.
    pub fn widths(&self) -> Vec<u16> {
        self.keys.keys().copied().collect()
    }

    /// An error if `prefix` is of keys as none of this table's is.
    pub fn expect_keys(&self, prefix: &AnyPrefix, path: &Path) -> anyhow::Result<()> {
        match prefix {
            AnyPrefix::Key(key) => expect_width(key, &self.widths(), path),
            AnyPrefix::Ip(_) => Ok(()),
        }
    }

    /// Keeps what is of a family, 0 for other keys.
    fn only(&mut self, family: u8) {
        if family != 4 {
            self.v4.clear();
        }
        if family != 6 {
            self.v6.clear();
        }
        if family != 0 {
            self.keys.clear();
        }
    }

    /// Lays another table over this one. Names are what counts where both have them: a value that means something else there gets
    /// another number.
    pub fn lay(&mut self, mut other: Self) -> anyhow::Result<()> {
        if self.len() > 0 && other.len() > 0 && self.has_values != other.has_values {
            bail!("one file has values, another has none; expected all or none");
        }
        self.expect_alike(&other)?;
        other.renumber(&self.names);
        self.has_values |= other.has_values;
        self.skipped += other.skipped;
        self.names.append(&mut other.names);
        let lay4 = std::mem::take(&mut self.v4).into_iter().chain(other.v4);
        self.v4 = sorted(lay4.map(|(prefix, value)| (prefix, Some(value))).collect());
        let lay6 = std::mem::take(&mut self.v6).into_iter().chain(other.v6);
        self.v6 = sorted(lay6.map(|(prefix, value)| (prefix, Some(value))).collect());
        for (bits, over) in other.keys {
            let rows = self.keys.entry(bits).or_default();
            let lay = std::mem::take(rows).into_iter().chain(over);
            *rows = sorted(lay.map(|(prefix, value)| (prefix, Some(value))).collect());
        }
        Ok(())
    }

    /// An error if the values of one are words, which were numbered here, and those of the other numbers.
    pub fn expect_alike(&self, other: &Self) -> anyhow::Result<()> {
        let alike = self.has_words() == other.has_words();
        if self.len() > 0 && other.len() > 0 && self.has_values && other.has_values && !alike {
            bail!("values are numbers in one file and names in another; expected one of both");
        }
        Ok(())
    }

    /// Whether values are words. The number of a next hop object is its value, whatever words stand beside it.
    fn has_words(&self) -> bool {
        let is_id = |value: u32, name: &str| {
            let words = name.split_whitespace();
            let mut pairs = words.clone().zip(words.skip(1));
            pairs.any(|(word, id)| word == "nhid" && id.parse() == Ok(value))
        };
        self.names.iter().any(|(value, name)| !is_id(*value, name))
    }

    /// Gives values the numbers that `names` has for the same names, and new ones to names it lacks.
    pub fn renumber(&mut self, names: &BTreeMap<u32, String>) {
        if self.names.is_empty() || names.is_empty() {
            return;
        }
        let numbers: HashMap<&str, u32> = names.iter().map(|(value, name)| (name.as_str(), *value)).collect();
        let mut next = names.last_key_value().map_or(0, |(value, _)| *value);
        let mut changed = BTreeMap::new();
        let mut renamed = BTreeMap::new();
        for (value, name) in &self.names {
            let number = numbers.get(name.as_str()).copied().unwrap_or_else(|| {
                next += 1;
                next
            });
            changed.insert(*value, number);
            renamed.insert(number, name.clone());
        }
        let number = |value: &mut u32| {
            if let Some(number) = changed.get(value) {
                *value = *number;
            }
        };
        self.values_mut().for_each(number);
        self.names = renamed;
    }
}

/// Warns on standard error of skipped or changed lines.
fn warn(path: &Path, list: &PrefixList) {
    let path = path.display();
    if list.bad > 0 {
        let first = list.first_bad.as_deref().unwrap_or_default();
        eprintln!(
            "trieline: {path}: passed over {} (--skip-bad); the first: {first}",
            count(list.bad, "bad line", "bad lines")
        );
    }
    if list.truncated > 0 {
        let prefixes = count(list.truncated, "prefix", "prefixes");
        eprintln!("trieline: {path}: cleared host bits of {prefixes} (--truncate)");
    }
}

/// In order; of equal prefixes the last counts.
fn sorted<P: Ord>(rows: Vec<(P, Option<u32>)>) -> Vec<(P, u32)> {
    counted(rows, &mut 0)
}

/// The same; adds to `other` how many prefixes stand there with more than one value.
fn counted<P: Ord>(rows: Vec<(P, Option<u32>)>, other: &mut u64) -> Vec<(P, u32)> {
    let mut differs = false;
    let mut rows: Vec<_> = rows.into_iter().map(|(prefix, value)| (prefix, value.unwrap_or(1))).collect();
    if !rows.is_sorted_by(|one, next| one.0 < next.0) {
        rows.sort_by(|one, two| one.0.cmp(&two.0));
        rows.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                *other += u64::from(!differs && next.1 != kept.1);
                differs |= next.1 != kept.1;
                kept.1 = next.1;
            } else {
                differs = false;
            }
            is_same
        });
    }
    rows
}

/// The prefixes that cover `prefix`, itself included, shortest first. O(k log n).
pub fn covering<A: Address>(rows: &[(Prefix<A>, u32)], prefix: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
    let lengths = 0..=prefix.len();
    let found = lengths.filter_map(|len| {
        let at = rows.binary_search_by_key(&Prefix::truncated(prefix.addr(), len), |row| row.0).ok()?;
        rows.get(at).copied()
    });
    found.collect()
}

/// Whether `key` has as many bytes as keys of `bits` bits.
pub fn is_width(key: &KeyPrefix, bits: u16) -> bool {
    key.key().len() == usize::from(bits).div_ceil(8)
}

/// An error if `key` has not as many bytes as one of the widths that a table has.
pub fn expect_width(key: &KeyPrefix, has: &[u16], path: &Path) -> anyhow::Result<()> {
    if has.iter().any(|bits| is_width(key, *bits)) {
        return Ok(());
    }
    let has: Vec<String> = has.iter().map(u16::to_string).collect();
    let has = if has.is_empty() { "addresses".into() } else { format!("keys of {} bits", has.join(", ")) };
    bail!("{}: {key} has {} bits; expected {has}", path.display(), 8 * key.key().len())
}

/// Rows of keys in the first bits of a type that is as wide or wider.
pub fn typed<const BITS: u16, const BYTES: usize>(rows: &[(KeyPrefix, u32)]) -> Rows<Key<BITS, BYTES>> {
    rows.iter().map(|(prefix, value)| (prefix.prefix(), *value)).collect()
}

/// The same of keys that have as many bytes. O(width · log n).
pub fn covering_keys(rows: &KeyRows, prefix: &KeyPrefix) -> KeyRows {
    let lengths = 0..=prefix.len();
    let found = lengths.filter_map(|len| {
        let outer = KeyPrefix::truncated(prefix.key(), len);
        let at = rows.binary_search_by(|row| row.0.cmp(&outer)).ok()?;
        rows.get(at).cloned()
    });
    found.collect()
}

/// Whether a file is standard input or output.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
