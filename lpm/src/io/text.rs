//! Prefix lists as text: one `PREFIX [VALUE]` a line, plain or gzip.

use super::{ImportError, Prefixes, for_each_line};
use crate::IpPrefix;
use crate::image::layout::VALUE_MAX;
use std::collections::HashMap;
use std::format;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// A prefix list: each prefix with the value that stood beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextTable {
    /// The prefixes; `None` where the line had no value.
    pub prefixes: Prefixes<Option<u32>>,
    /// Where the second column holds words (such as country codes) instead of numbers: the word of value 1, of value 2, ...
    pub labels: Vec<String>,
}

/// Reads `path` (`-` is standard input), gzip or not: an address or a prefix a line, then optionally a value from 1 to 2^31-1
/// or a word; `#` begins a comment. Words get the values 1, 2, ... in the order they appear; numbers and words do not mix.
pub fn read(path: &Path) -> Result<TextTable, ImportError> {
    let mut table = TextTable::default();
    let mut values: HashMap<String, u32> = HashMap::new();
    let mut numbers = false;
    for_each_line(path, |line| {
        let mut columns = line.split_ascii_whitespace();
        let prefix: IpPrefix =
            columns.next().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
        let value = match columns.next() {
            None => None,
            Some(column) => match column.parse::<u32>() {
                Ok(value) if (1..=VALUE_MAX).contains(&value) && values.is_empty() => {
                    numbers = true;
                    Some(value)
                }
                Err(_) if !numbers && !column.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                    let next = values.len() as u32 + 1;
                    Some(*values.entry(column.into()).or_insert_with(|| {
                        table.labels.push(column.into());
                        next
                    }))
                }
                Err(_) | Ok(0 | 0x8000_0000..) => {
                    return Err(format!("{column:?} is no value; expected a number from 1 to {VALUE_MAX}"));
                }
                Ok(_) => return Err(format!("the number {column} among lines whose values are words")),
            },
        };
        if let Some(more) = columns.next() {
            return Err(format!("{more:?} after the value; expected PREFIX [VALUE]"));
        }
        table.prefixes.push(prefix, value);
        Ok(())
    })?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
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
        assert_eq!(words.labels, ["ad", "de"]);
        assert_eq!(words.prefixes.v4.iter().map(|e| e.1).collect::<Vec<_>>(), [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn errors_name_file_line_and_text() {
        for (content, line, expected) in [
            ("10.0.0.0/8\n10.0.0.0/33\n", 2, "prefix length 33 is over 32"),
            ("10.0.0.1/8\n", 1, "host bits are set; the network is 10.0.0.0/8"),
            ("hello\n", 1, "is no prefix"),
            ("10.0.0.0/8 0\n", 1, "is no value"),
            ("10.0.0.0/8 2147483648\n", 1, "is no value"),
            ("10.0.0.0/8 -5\n", 1, "is no value"),
            ("10.0.0.0/8 4 5\n", 1, "after the value"),
            ("10.0.0.0/8 de\n11.0.0.0/8 4\n", 2, "among lines whose values are words"),
            ("10.0.0.0/8 4\n11.0.0.0/8 de\n", 2, "is no value"),
        ] {
            let file = file(content.as_bytes());
            let error = read(file.path()).unwrap_err().to_string();
            let at = format!("{}:{line}: ", file.path().display());
            assert!(error.starts_with(&at) && error.contains(expected), "{content:?}: {error}");
        }
        assert!(read(file(b"\xff\xfe\n").path()).unwrap_err().to_string().contains("not UTF-8"));
        assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }
}
