//! Files: prefix lists as text, JSON, the output of `ip route`, MRT dumps; and snapshots, which are mapped and used at once.
//!
//! [`read`] tells the formats apart by their content. Nothing is applied by halves: a list is returned whole, or an error names the
//! file, the place in it, the value found there and what was expected.

mod hops;
pub mod iproute;
#[cfg(feature = "json")]
pub mod json;
mod keys;
#[cfg(feature = "mrt")]
pub mod mrt;
#[cfg(all(feature = "shm", target_os = "linux"))]
pub mod shared;
mod sink;
#[cfg(feature = "snapshot")]
pub mod snapshot;
mod source;
pub mod text;

pub use keys::KeyPrefix;
pub use sink::Sink;

use crate::{IpPrefix, Prefix};
use source::Source;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::string::String;
use std::vec::Vec;

/// The error of reading a file as prefixes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {text:?}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The line's text.
        text: String,
        /// The error, and the expected text.
        what: String,
    },
    /// JSON is not what it should be.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Its column, from 1.
        column: usize,
        /// The error, and the expected text.
        what: String,
    },
    /// A record of an MRT file is not what it should be.
    #[error("{}: record {record} at byte {at}: {what}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Its record, from 1.
        record: u64,
        /// The offset of its first byte, in the unpacked file.
        at: u64,
        /// The error, and the expected content.
        what: String,
    },
    /// A snapshot cannot be read.
    #[cfg(feature = "snapshot")]
    #[error(transparent)]
    Snapshot(#[from] snapshot::SnapshotError),
    /// The file as a whole is not what it should be.
    #[error("{}: {what}", path.display())]
    Whole {
        /// The file.
        path: PathBuf,
        /// The error, and the expected content.
        what: String,
    },
}

/// Formats of files of prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `PREFIX [VALUE]` lines: [`text`].
    Text,
    /// An array of objects: `json`.
    Json,
    /// Lines of `ip route`: [`iproute`].
    IpRoute,
    /// TABLE_DUMP_V2 of RFC 6396: `mrt`.
    Mrt,
    /// An image with its prefixes: `snapshot`.
    Snapshot,
}

/// Prefixes of both families with what stands beside each, in the file's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes<T> {
    /// IPv4.
    pub v4: Vec<(Prefix<u32>, T)>,
    /// IPv6.
    pub v6: Vec<(Prefix<u128>, T)>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { v4: Vec::new(), v6: Vec::new() }
    }
}

impl<T> Prefixes<T> {
    /// Adds a prefix of either family.
    pub fn push(&mut self, prefix: IpPrefix, with: T) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push((prefix, with)),
            IpPrefix::V6(prefix) => self.v6.push((prefix, with)),
        }
    }

    /// Number of prefixes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// A list as it was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixList {
    /// The format of the file.
    pub format: Format,
    /// The prefixes in the file's order; `None` where no value stood beside one. Where a prefix stands twice, the last counts.
    pub prefixes: Prefixes<Option<u32>>,
    /// Prefixes of keys that are no addresses, by the keys' width.
    pub keys: BTreeMap<u16, Vec<(KeyPrefix, Option<u32>)>>,
    /// The meaning of values, if the file has words for them: a country code, a next hop.
    pub names: BTreeMap<u32, String>,
    /// Entries of the file that say nothing about unicast forwarding (MRT: multicast, other address families).
    pub skipped: u64,
    /// Lines passed over because they are wrong ([`ReadOptions::skip_bad`]).
    pub bad: u64,
    /// The error of the first of them.
    pub first_bad: Option<String>,
    /// Prefixes whose host bits were cleared ([`ReadOptions::truncate`]).
    pub truncated: u64,
    /// The file has not one byte: what a copy that failed leaves.
    pub is_blank: bool,
}

impl PrefixList {
    /// An empty list.
    pub fn new(format: Format) -> Self {
        let (prefixes, keys, names) = (Prefixes::default(), BTreeMap::new(), BTreeMap::new());
        let (skipped, bad, first_bad, truncated, is_blank) = Default::default();
        Self { format, prefixes, keys, names, skipped, bad, first_bad, truncated, is_blank }
    }
}

/// The source of an MRT dump's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MrtValue {
    /// The number of the distinct next hop, in the order they appear.
    #[default]
    NextHop,
    /// The number of the distinct origin AS (the last of the AS path), in the order they appear.
    Origin,
    /// The multi-exit discriminator itself, where `mrt::write` keeps values.
    Med,
}

/// Options of reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// The format; `None`: by content.
    pub format: Option<Format>,
    /// The source of an MRT dump's values.
    pub mrt_value: MrtValue,
    /// The peer whose routes of an MRT dump are taken; `None`: of each prefix the first entry.
    pub mrt_peer: Option<IpAddr>,
    /// Text only: lines that are wrong are passed over and counted, instead of being an error.
    pub skip_bad: bool,
    /// Text only: host bits behind the prefix length are cleared, instead of being an error.
    pub truncate: bool,
    /// Text only: its lines have keys of this width, in hexadecimal digits, instead of addresses.
    pub key_bits: Option<u16>,
}

/// Reads `path` (`-` is standard input), packed by gzip (with feature `mrt` also bzip2) or not. O(file).
pub fn read(path: &Path, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let source = Source::open(path)?;
    let is_blank = source.is_blank();
    let mut list = parse(source, options)?;
    list.is_blank = is_blank;
    Ok(list)
}

fn parse(source: Source, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    match options.format.unwrap_or_else(|| detect(source.head())) {
        Format::Text => text::from(source, options),
        Format::IpRoute => iproute::from(source),
        #[cfg(feature = "json")]
        Format::Json => json::from(source),
        #[cfg(feature = "mrt")]
        Format::Mrt => mrt::from(source, options),
        #[cfg(feature = "snapshot")]
        Format::Snapshot => snapshot::from(source),
        #[allow(unreachable_patterns, reason = "which formats are left depends on the features")]
        other => Err(ImportError::Whole {
            path: source.path().into(),
            what: std::format!("looks like {}, which this program was built without", name(other)),
        }),
    }
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Text => "text",
        Format::Json => "JSON (feature `json`)",
        Format::IpRoute => "the output of `ip route`",
        Format::Mrt => "an MRT dump (feature `mrt`)",
        Format::Snapshot => "a snapshot (feature `snapshot`)",
    }
}

/// Tells the format by the first bytes of the unpacked file.
pub fn detect(head: &[u8]) -> Format {
    if head.starts_with(&crate::image::layout::MAGIC.to_le_bytes()) {
        return Format::Snapshot;
    }
    // RFC 6396, section 2: a 32-bit time, then type and subtype, 16 bits each; both are small, so that one byte of each is 0,
    // which no text has.
    if let [_, _, _, _, 0, 9..=64, 0, _, ..] = head {
        return Format::Mrt;
    }
    match head.trim_ascii_start().first() {
        Some(b'[' | b'{') => return Format::Json,
        None => return Format::Text,
        _ => {}
    }
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    match lines.into_iter().find(|line| !line.is_empty()) {
        Some(line) if iproute::is_route(line) => Format::IpRoute,
        _ => Format::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_content() {
        for (head, format) in [
            ("", Format::Text),
            ("# list\n10.0.0.0/8\n", Format::Text),
            ("10.0.0.0/8 7\n", Format::Text),
            ("10.0.0.0/8 4 5\n", Format::Text),
            ("10.0.0.0/8 dev\n", Format::Text),
            ("10.0.0.0/8 dev eth0\n", Format::IpRoute),
            ("default via 192.0.2.1 dev eth0\n", Format::IpRoute),
            ("default 5\n", Format::Text),
            ("blackhole 10.0.0.0/8\n", Format::IpRoute),
            ("# saved\nroute replace 10.0.0.0/8 nhid 7\n", Format::IpRoute),
            ("203.0.113.0/24 proto static\n\tnexthop via 192.0.2.1", Format::IpRoute),
            ("\n [{\"dst\":\"10.0.0.0/8\"}]", Format::Json),
            ("TRIL\u{1}", Format::Snapshot),
            ("\u{5f}\u{6e}\u{6a}\u{6a}\0\u{d}\0\u{1}", Format::Mrt),
        ] {
            assert_eq!(detect(head.as_bytes()), format, "{head:?}");
        }
    }
}
