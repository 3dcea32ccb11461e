//! Tables read from BPF maps of type LPM_TRIE: `map:PATH` where one is pinned, `map:id:N` for one by its number.

use anyhow::{anyhow, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trieline_bpf::{Entries, KeyType, LpmTrie};
use trieline_lpm::Prefix;
use trieline_lpm::image::layout::VALUE_MAX;
use trieline_lpm::io::{Format, KeyPrefix, PrefixList};

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

fn open(name: &str) -> anyhow::Result<LpmTrie> {
    Ok(match name.strip_prefix("id:") {
        Some(id) => {
            let id =
                id.parse().map_err(|_| anyhow!("map:{name}: invalid map number {id:?}: expected id:N"))?;
            LpmTrie::by_id(id)?
        }
        None => LpmTrie::pinned(Path::new(name))?,
    })
}

/// The type of a map's keys, if its BTF has it.
pub fn key(name: &str) -> anyhow::Result<Option<String>> {
    Ok(open(name)?.keys().map(KeyType::to_string))
}

/// The family of a trie's keys, 0 for other keys: that of the options, else by their type.
fn family_of(trie: &LpmTrie, key: Option<u16>, family: Option<u8>) -> u8 {
    let of_width = match trie.key_bits() {
        32 => 4,
        128 => 6,
        _ => 0,
    };
    let looks_so = trie.keys().is_none_or(KeyType::is_address);
    if key.is_none() && (looks_so || family == Some(of_width)) { of_width } else { 0 }
}

/// Reads a map; prints on standard error the kind of its keys, and whether it changed meanwhile. `key` and `family` as the user
/// asks for them.
pub fn read(name: &str, key: Option<u16>, family: Option<u8>) -> anyhow::Result<PrefixList> {
    let trie = open(name)?;
    let bits = trie.key_bits();
    let width = u16::try_from(bits).ok().filter(|bits| (1..=2048).contains(bits));
    let width = width.ok_or_else(|| anyhow!("map:{name}: keys of {bits} bits; expected 1 to 2048"))?;
    if let Some(asked) = key.filter(|asked| *asked != width) {
        bail!("map:{name}: keys of {bits} bits; --key expects {asked}");
    }
    let family = family_of(&trie, key, family);
    let is = if family == 0 { format!("keys of {bits} bits") } else { format!("IPv{family} addresses") };
    let made_of = trie.keys().map(|keys| format!(" ({keys})")).unwrap_or_default();
    eprintln!("map:{name}: {is}{made_of}");
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
        let (len, value) = (len as u16, Some(values.number(&trie, value)));
        match (family, addr.first_chunk(), addr.first_chunk()) {
            (4, Some(addr), _) => {
                list.prefixes.v4.push((Prefix::truncated(u32::from_be_bytes(*addr), len), value));
            }
            (6, _, Some(addr)) => {
                list.prefixes.v6.push((Prefix::truncated(u128::from_be_bytes(*addr), len), value));
            }
            _ => list.keys.entry(width).or_default().push((KeyPrefix::truncated(addr, len), value)),
        }
    }
    list.names = values.names();
    Ok(list)
}

/// The numbers for values: themselves, or numbers of their words.
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
