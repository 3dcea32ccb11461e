//! Prefix lists as text: one `PREFIX [VALUE]` a line, plain or gzip.

use super::error::ImportError;
use super::format::Format;
use super::keys::KeyPrefix;
use super::list::{PrefixList, ReadOptions};
use super::source::{Lines, Source};
use crate::image::layout::VALUE_MAX;
use crate::{IpPrefix, PrefixError};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::format;
use std::io::Write;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// Reads `path` (`-` is standard input), packed or not. A line is an address or a prefix, then optionally a value from 1 to 2^31-1
/// or a word; `#` begins a comment. Words get the values 1, 2, ... in the order they appear; numbers and words do not mix.
pub fn read(path: &Path) -> Result<PrefixList, ImportError> {
    from(Source::open(path)?, &ReadOptions::default())
}

/// A prefix of an address. `alone`: nothing else stands in the line, which the error quotes.
fn prefix(text: &str, alone: bool, truncate: bool, cut: &mut u64) -> Result<IpPrefix, String> {
    match text.parse() {
        Err(PrefixError::HostBits { network, .. }) if truncate => {
            *cut += 1;
            network.parse().map_err(|error: PrefixError| format!("{error}"))
        }
        Err(PrefixError::Syntax { example, .. }) if alone => {
            Err(format!("not a prefix; expected ADDRESS or ADDRESS/LENGTH, such as {example}"))
        }
        Err(PrefixError::HostBits { network, .. }) if alone => {
            Err(format!("host bits are set; the network is {network}"))
        }
        parsed => parsed.map_err(|error| format!("{error}")),
    }
}

/// As [`read`]; with `key_bits`, lines begin with prefixes of keys of that width instead of addresses.
pub(super) fn from(source: Source, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let key_bits = options.key_bits;
    let mut taken = Lines { skip_bad: options.skip_bad, ..Lines::default() };
    let mut cut = 0;
    let mut list = PrefixList::new(Format::Text);
    let mut values: HashMap<String, u32> = HashMap::new();
    let mut numbers = false;
    source.lines(&mut taken, |line| {
        let mut columns = line.split_ascii_whitespace();
        let first = columns.next().unwrap_or_default();
        let (mut address, mut key) = (None, None);
        match key_bits {
            None => address = Some(prefix(first, first == line, options.truncate, &mut cut)?),
            Some(bits) => key = Some((bits, KeyPrefix::of_width(first, bits)?)),
        }
        let value = match columns.next() {
            None => None,
            Some(column) => match column.parse::<u32>() {
                Ok(value) if (1..=VALUE_MAX).contains(&value) && values.is_empty() => {
                    numbers = true;
                    Some(value)
                }
                Err(_) if !numbers && is_word(column) => {
                    let next = values.len() as u32 + 1;
                    Some(*values.entry(column.into()).or_insert_with(|| {
                        list.names.insert(next, column.into());
                        next
                    }))
                }
                Err(_) | Ok(0 | 0x8000_0000..) => {
                    return Err(format!("invalid value {column:?}: expected a number from 1 to {VALUE_MAX}"));
                }
                Ok(_) => return Err(format!("the number {column} among lines whose values are words")),
            },
        };
        if let Some(more) = columns.next() {
            return Err(format!("{more:?} after the value; expected PREFIX [VALUE]"));
        }
        if let Some(prefix) = address {
            list.prefixes.push(prefix, value);
        }
        if let Some((bits, prefix)) = key {
            list.keys.entry(bits).or_default().push((prefix, value));
        }
        Ok(())
    })?;
    (list.bad, list.first_bad, list.truncated) = (taken.bad, taken.first, cut);
    Ok(list)
}

/// Whether `text` can stand as a word in the second column.
fn is_word(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
    !text.is_empty()
        && !text.starts_with(begins)
        && !text.contains(|c: char| c.is_ascii_whitespace() || c == '#')
}

/// Writes prefixes as [`read`] reads them. Where each value has a name of one word, the words stand in the second column (and may
/// come back with other numbers). Pass no names to write numbers.
pub fn write(
    to: &mut impl Write,
    prefixes: impl Iterator<Item = (impl Display, Option<u32>)> + Clone,
    names: &BTreeMap<u32, String>,
) -> std::io::Result<()> {
    let mut words: Vec<&str> = names.values().map(String::as_str).collect();
    words.sort_unstable();
    words.dedup();
    let is_named = |value: Option<u32>| value.is_some_and(|value| names.contains_key(&value));
    let are_words = words.len() == names.len()
        && names.values().all(|name| is_word(name))
        && prefixes.clone().all(|(_, value)| is_named(value));
    for (prefix, value) in prefixes {
        match (value, value.and_then(|value| names.get(&value)).filter(|_| are_words)) {
            (None, _) => writeln!(to, "{prefix}")?,
            (Some(_), Some(name)) => writeln!(to, "{prefix} {name}")?,
            (Some(value), None) => writeln!(to, "{prefix} {value}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn values_labels_comments_and_gzip() {
        let text = b"# list\n10.0.0.0/8 7\n\n2001:db8::/32\n192.0.2.1 9 # host\n";
        let plain = read(file(text).path()).unwrap();
        assert_eq!(plain.prefixes.v4[1].0.to_string(), "192.0.2.1/32");
        assert_eq!(plain.prefixes.v4.iter().map(|e| e.1).collect::<Vec<_>>(), [Some(7), Some(9)]);
        assert_eq!(plain.prefixes.v6[0].1, None);
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(text).unwrap();
        assert_eq!(read(file(&zip.finish().unwrap()).path()).unwrap(), plain);
        let words = read(file(b"10.0.0.0/8 ad\n11.0.0.0/8 de\n12.0.0.0/8 ad\n").path()).unwrap();
        assert_eq!(words.names.values().collect::<Vec<_>>(), ["ad", "de"]);
        assert_eq!(words.prefixes.v4.iter().map(|e| e.1).collect::<Vec<_>>(), [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn written_tables_are_read_back() {
        for text in
            ["10.0.0.0/8 7\n192.0.2.1/32\n2001:db8::/32 2147483647\n", "10.0.0.0/8 ad\n11.0.0.0/8 de\n"]
        {
            let list = read(file(text.as_bytes()).path()).unwrap();
            let rows = || {
                let v4 = list.prefixes.v4.iter().map(|(prefix, value)| (IpPrefix::V4(*prefix), *value));
                v4.chain(list.prefixes.v6.iter().map(|(prefix, value)| (IpPrefix::V6(*prefix), *value)))
            };
            let mut written = Vec::new();
            write(&mut written, rows(), &list.names).unwrap();
            assert_eq!(String::from_utf8(written.clone()).unwrap(), text);
            assert_eq!(read(file(&written).path()).unwrap(), list);
            // A name that would not be read back as one word: numbers.
            let names = BTreeMap::from([(1, "via 192.0.2.1".into()), (2, "x".into()), (7, "y".into())]);
            written.clear();
            write(&mut written, rows(), &names).unwrap();
            assert!(!String::from_utf8(written).unwrap().contains(['v', 'x', 'y']));
        }
    }

    #[test]
    fn errors_name_file_line_and_text() {
        for (content, line, expected) in [
            ("10.0.0.0/8\n10.0.0.0/33\n", 2, "prefix length 33 is over 32"),
            ("10.0.0.1/8\n", 1, "\"10.0.0.1/8\": host bits are set; the network is 10.0.0.0/8"),
            ("hello\n", 1, "\"hello\": not a prefix; expected"),
            ("hello 5\n", 1, "invalid prefix \"hello\""),
            ("10.0.0.0/8 0\n", 1, "invalid value"),
            ("10.0.0.0/8 2147483648\n", 1, "invalid value"),
            ("10.0.0.0/8 -5\n", 1, "invalid value"),
            ("10.0.0.0/8 4 5\n", 1, "after the value"),
            ("10.0.0.0/8 de\n11.0.0.0/8 4\n", 2, "among lines whose values are words"),
            ("10.0.0.0/8 4\n11.0.0.0/8 de\n", 2, "invalid value"),
        ] {
            let file = file(content.as_bytes());
            let error = read(file.path()).unwrap_err().to_string();
            let at = format!("{}:{line}: ", file.path().display());
            assert!(error.starts_with(&at) && error.contains(expected), "{content:?}: {error}");
        }
        let options = ReadOptions { skip_bad: true, ..ReadOptions::default() };
        let lenient = |options: &ReadOptions| {
            let file = file(b"10.0.0.0/8 7\nhello\n10.0.0.1/9 7\n\xff\n");
            super::super::read(file.path(), options).unwrap()
        };
        let list = lenient(&options);
        assert_eq!((list.prefixes.v4.len(), list.bad, list.truncated), (1, 3, 0));
        assert!(list.first_bad.unwrap().contains(":2: \"hello\": not a prefix"));
        let list = lenient(&ReadOptions { truncate: true, ..options });
        assert_eq!((list.prefixes.v4.len(), list.bad, list.truncated), (2, 2, 1));
        assert!(read(file(b"\xff\xfe\n").path()).unwrap_err().to_string().contains("not UTF-8"));
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }
}
