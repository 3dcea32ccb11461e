//! Files and importers: prefix lists as text (plain or gzip) and the output of `ip route`.

pub mod iproute;
pub mod text;

use crate::{IpPrefix, Prefix};
use std::boxed::Box;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::string::String;
use std::vec::Vec;

/// Why a file could not be read as prefixes.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
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
        /// What is wrong and what was expected.
        what: String,
    },
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

/// Calls `each` with every line of `path` (`-` is standard input) that is not blank or a comment (`#` to the line's end).
/// A gzip file is recognised by its first bytes.
fn for_each_line(path: &Path, mut each: impl FnMut(&str) -> Result<(), String>) -> Result<(), ImportError> {
    let failed = |source: std::io::Error| {
        let source = match source.kind() {
            // Nothing else ends too early: plain text may end anywhere.
            ErrorKind::UnexpectedEof => {
                std::io::Error::new(ErrorKind::UnexpectedEof, "the gzip file is cut short")
            }
            _ => source,
        };
        ImportError::Io { path: path.into(), source }
    };
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut source = BufReader::with_capacity(1 << 16, source);
    let zipped = source.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    let mut lines: Box<dyn BufRead> = if zipped {
        Box::new(BufReader::with_capacity(1 << 16, flate2::bufread::MultiGzDecoder::new(source)))
    } else {
        Box::new(source)
    };
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(failed)? == 0 {
            break;
        }
        let bad = |what: String| ImportError::Line {
            path: path.into(),
            line,
            text: shortened(String::from_utf8_lossy(&text).trim_end(), 100, 0),
            // It quotes a word of the line, then says what was expected.
            what: shortened(&what, 100, 100),
        };
        let content = std::str::from_utf8(&text)
            .map_err(|_| bad("not UTF-8 text; expected a text or gzip file".into()))?;
        let content = content.split('#').next().unwrap_or_default().trim();
        if !content.is_empty() {
            each(content).map_err(bad)?;
        }
    }
    Ok(())
}

/// The first and the last so many characters of a text, for a message.
fn shortened(text: &str, first: usize, last: usize) -> String {
    let characters = text.chars().count();
    if characters <= first + last {
        return text.into();
    }
    let begin = text.chars().take(first);
    begin.chain(['…']).chain(text.chars().skip(characters - last)).collect()
}

/// Writes a table as text: `prefix value` lines, as [`text::read`] reads them.
pub fn write_text<'a>(
    to: &mut impl Write,
    prefixes: impl Iterator<Item = (IpPrefix, u32)> + 'a,
) -> std::io::Result<()> {
    for (prefix, value) in prefixes {
        writeln!(to, "{prefix} {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn said(content: &[u8]) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        text::read(file.path()).unwrap_err().to_string()
    }

    #[test]
    fn a_long_line_is_quoted_in_part() {
        let said = said("ä".repeat(100_000).as_bytes());
        assert!(said.chars().count() < 500 && said.contains("ä…\""), "{said}");
        assert!(said.contains("no prefix"), "{said}");
        assert_eq!((shortened("abc", 3, 0), shortened("abcde", 1, 2)), ("abc".into(), "a…de".into()));
    }

    #[test]
    fn a_gzip_file_that_is_cut_short_is_called_that() {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for number in 0..1000u32 {
            writeln!(zip, "{}", Prefix::host(number.wrapping_mul(0x9e37_79b9))).unwrap();
        }
        let zip = zip.finish().unwrap();
        for length in [zip.len() / 2, zip.len() - 4, 12] {
            let said = said(&zip[..length]);
            assert!(said.ends_with("the gzip file is cut short"), "{length}: {said}");
        }
    }
}
