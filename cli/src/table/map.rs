//! Tables read from BPF maps of type LPM_TRIE: `map:PATH` where one is pinned, `map:id:N` for one by its number.

use anyhow::{anyhow, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trieline_bpf::{Entries, LpmTrie};
use trieline_lpm::image::layout::VALUE_MAX;
use trieline_lpm::io::{Format, PrefixList};
use trieline_lpm::{IpPrefix, Prefix};

const SCHEME: &str = "map:";

/// The map that a FILE names, if it does. (A file of such a name is `./map:…`.)
pub fn named(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(SCHEME)
}

/// How a map is named where a FILE is expected.
pub fn path(name: &str) -> PathBuf {
    let has_scheme = name.starts_with(SCHEME);
    PathBuf::from(if has_scheme { name.to_owned() } else { format!("{SCHEME}{name}") })
}

/// Reads a map; says on standard error when it changed meanwhile.
pub fn read(name: &str) -> anyhow::Result<PrefixList> {
    let trie = match name.strip_prefix("id:") {
        Some(id) => {
            let id =
                id.parse().map_err(|_| anyhow!("map:{name}: {id:?} is no number of a map; expected id:N"))?;
            LpmTrie::by_id(id)?
        }
        None => LpmTrie::pinned(Path::new(name))?,
    };
    let prefix = match trie.key_bits() {
        32 => |addr: &[u8], len| {
            let addr = u32::from_be_bytes(*addr.first_chunk()?);
            Some(IpPrefix::V4(Prefix::truncated(addr, len)))
        },
        128 => |addr: &[u8], len| {
            let addr = u128::from_be_bytes(*addr.first_chunk()?);
            Some(IpPrefix::V6(Prefix::truncated(addr, len)))
        },
        bits => bail!("map:{name}: keys of {bits} bits; expected addresses of IPv4 (32) or IPv6 (128)"),
    };
    let reading = trie.read()?;
    let entries = &reading.entries;
    if let Some(before) = reading.changing {
        eprintln!(
            "map:{name} changes while it is read: {before} entries, then {}; this is the last reading",
            entries.len()
        );
    }
    let mut list = PrefixList::new(Format::Text);
    let values = Values::of(&trie, entries);
    for (len, addr, value) in entries.iter() {
        let prefix =
            prefix(addr, len as u16).ok_or_else(|| anyhow!("map:{name}: a key without an address"))?;
        list.prefixes.push(prefix, Some(values.number(&trie, value)));
    }
    list.names = values.names();
    Ok(list)
}

/// What values become: themselves, or the numbers of their words.
enum Values {
    Kept,
    Numbered(BTreeMap<String, u32>),
}

impl Values {
    fn of(trie: &LpmTrie, entries: &Entries) -> Self {
        let is_kept = |value| kept(trie, value).is_some();
        if entries.iter().all(|(_, _, value)| is_kept(value)) {
            return Values::Kept;
        }
        let mut words: BTreeMap<String, u32> =
            entries.iter().map(|(_, _, value)| (trie.values().word(value), 0)).collect();
        // In the order of the words, so that the same entries get the same numbers whenever they are read.
        words.values_mut().zip(1..).for_each(|(number, next)| *number = next);
        Values::Numbered(words)
    }

    fn number(&self, trie: &LpmTrie, value: &[u8]) -> u32 {
        match self {
            Values::Kept => kept(trie, value).unwrap_or_default(),
            Values::Numbered(words) => words.get(&trie.values().word(value)).copied().unwrap_or_default(),
        }
    }

    fn names(self) -> BTreeMap<u32, String> {
        match self {
            Values::Kept => BTreeMap::new(),
            Values::Numbered(words) => words.into_iter().map(|(word, number)| (number, word)).collect(),
        }
    }
}

/// A value that can be a prefix's as it is.
fn kept(trie: &LpmTrie, value: &[u8]) -> Option<u32> {
    let number = u32::try_from(trie.values().number(value)?).ok()?;
    (1..=VALUE_MAX).contains(&number).then_some(number)
}
