//! Prefix lists as text: one `PREFIX [VALUE]` a line, plain or gzip.

use super::error::ImportError;
use super::format::Format;
use super::keys::KeyPrefix;
use super::list::{PrefixList, ReadOptions};
use super::set::{Elements, Nft, is_nft};
use super::source::{Comments, Lines, Source};
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
/// or a word; `#` and `;` begin a comment. Words get the values 1, 2, ... in the order they appear; numbers and words do not mix.
pub fn read(path: &Path) -> Result<PrefixList, ImportError> {
    let options = ReadOptions::default();
    from(Source::open(path, &options)?, &options)
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

/// As [`read`], with its options.
pub(super) fn from(source: Source, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let path = source.path().to_path_buf();
    let mut taken = Lines { skip_bad: options.skip_bad, ..Lines::default() };
    let mut list = PrefixList::new(Format::Text);
    match options.set {
        true => set(source, options, &mut taken, &mut list)?,
        false => table(source, options, &mut taken, &mut list)?,
    }
    (list.bad, list.first_bad) = (taken.bad, taken.first);
    match &list.first_bad {
        // An error page, or a format of another kind.
        Some(first) if list.prefixes.is_empty() && list.keys.is_empty() => Err(ImportError::Whole {
            path,
            what: format!("{} bad lines and no good one, the first: {first}", list.bad),
        }),
        _ => Ok(list),
    }
}

/// The prefixes of a published list.
fn set(
    source: Source,
    options: &ReadOptions,
    taken: &mut Lines,
    list: &mut PrefixList,
) -> Result<(), ImportError> {
    let mut elements =
        Elements { to: &mut list.prefixes, truncate: options.truncate, truncated: &mut list.truncated };
    if is_nft(source.head()) {
        let mut nft = Nft::default();
        taken.comments = Comments::None;
        return source.lines(taken, |line| nft.line(line, &mut elements));
    }
    source.lines(taken, |line| elements.line(line))
}

/// The second column of a line.
enum Value<'a> {
    Number(u32),
    Word(&'a str),
}

/// Prefixes with values; with `key_bits`, lines begin with prefixes of keys of that width instead of addresses.
fn table(
    source: Source,
    options: &ReadOptions,
    taken: &mut Lines,
    list: &mut PrefixList,
) -> Result<(), ImportError> {
    let key_bits = options.key_bits;
    let mut words: HashMap<String, u32> = HashMap::new();
    let mut numbers = false;
    source.lines(taken, |line| {
        let mut columns = line.split_ascii_whitespace();
        let first = columns.next().unwrap_or_default();
        let mut cut = 0;
        let (mut address, mut key) = (None, None);
        match key_bits {
            None => address = Some(prefix(first, first == line, options.truncate, &mut cut)?),
            Some(bits) => key = Some((bits, KeyPrefix::of_width(first, bits)?)),
        }
        let value = columns.next().map(|column| value(column, numbers, !words.is_empty())).transpose()?;
        if let Some(more) = columns.next() {
            return Err(format!("{more:?} after the value; expected PREFIX [VALUE]"));
        }
        // The line is good: only now may it change what others mean.
        let value = value.map(|value| match value {
            Value::Number(number) => {
                numbers = true;
                number
            }
            Value::Word(word) => {
                let next = words.len() as u32 + 1;
                *words.entry(word.into()).or_insert_with(|| {
                    list.names.insert(next, word.into());
                    next
                })
            }
        });
        list.truncated += cut;
        if let Some(prefix) = address {
            list.prefixes.push(prefix, value);
        }
        if let Some((bits, prefix)) = key {
            list.keys.entry(bits).or_default().push((prefix, value));
        }
        Ok(())
    })
}

/// Reads a second column, where lines before have had numbers, or words.
fn value(column: &str, numbers: bool, words: bool) -> Result<Value<'_>, String> {
    match column.parse::<u32>() {
        Ok(value) if (1..=VALUE_MAX).contains(&value) && !words => Ok(Value::Number(value)),
        Err(_) if is_part_of_a_prefix(column) => Err(format!(
            "{column:?} is part of an address, a prefix or a range; expected one prefix a line, and a value behind it"
        )),
        Err(_) if !numbers && is_word(column) => Ok(Value::Word(column)),
        Err(_) | Ok(0 | 0x8000_0000..) => {
            Err(format!("invalid value {column:?}: expected a number from 1 to {VALUE_MAX}, or a word"))
        }
        Ok(_) => Err(format!("the number {column} among lines whose values are words")),
    }
}

/// Whether a column is an address, a prefix, a length or the half of a range: then the first column is not all of the line's prefix.
fn is_part_of_a_prefix(column: &str) -> bool {
    let address = column.strip_prefix('-').unwrap_or(column);
    let is_prefix = matches!(address.parse::<IpPrefix>(), Ok(_) | Err(PrefixError::HostBits { .. }));
    column.starts_with('/') || column == "-" || is_prefix
}

/// Whether `text` can stand as a word in the second column.
fn is_word(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
    !text.is_empty()
        && !text.starts_with(begins)
        && !text.contains(|c: char| c.is_ascii_whitespace() || c == '#' || c == ';')
        && !is_part_of_a_prefix(text)
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
        let text = b"# list\n; by R\xe9mi\n10.0.0.0/8 7\n\n2001:db8::/32 ; SBL1\n192.0.2.1 9 # host\n";
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
            ("2001:db8::/32 fd00::/8\n", 1, "\"fd00::/8\" is part of"),
            ("192.0.2.0 /24\n", 1, "\"/24\" is part of"),
            ("fc00:: fdff::1\n", 1, "part of an address"),
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
        // A line that is passed over changes no other one.
        let leak = |content: &[u8]| super::super::read(file(content).path(), &options).unwrap();
        let list = leak(b"1.0.0.0/8 us extra\n2.0.0.0/8\n");
        assert_eq!((list.names.len(), list.prefixes.v4[0].1), (0, None));
        let list = leak(b"1.0.0.0/8 5 extra\n2.0.0.0/8 us\n3.0.0.0/8 de\n");
        assert_eq!((list.bad, list.names.len()), (1, 2));
        assert!(read(file(b"\xff\xfe\n").path()).unwrap_err().to_string().contains("not UTF-8"));
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }
}
