//! Where an importer's bytes come from: a file or standard input, unpacked, its beginning looked at before it is read.

use super::ImportError;
use std::boxed::Box;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::string::String;
use std::vec::Vec;

/// Bytes that are looked at to tell a format.
const HEAD: u64 = 1 << 16;
const BUFFER: usize = 1 << 16;
/// The longest line of a text, bytes: a packed file of a few KiB can hold one that fills the memory.
const LINE: u64 = 16 << 20;
/// The most text that is read, unpacked.
const TEXT: u64 = 4 << 30;

/// A file's content, unpacked if it was packed.
pub(super) struct Source {
    path: PathBuf,
    head: Vec<u8>,
    rest: Box<dyn BufRead>,
}

impl Source {
    /// Opens `path` (`-` is standard input). gzip, and bzip2 with feature `mrt`, are recognised by their first bytes.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let failed = |source| failed(path, source);
        let file: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).map_err(failed)?)
        };
        let (magic, rest) = begin(Box::new(BufReader::with_capacity(BUFFER, file)), 4).map_err(failed)?;
        let packed = Cursor::new(magic.clone()).chain(rest);
        let unpacked: Box<dyn BufRead> = match magic[..] {
            [0x1f, 0x8b, ..] => {
                let unzip = flate2::bufread::MultiGzDecoder::new(packed);
                Box::new(BufReader::with_capacity(BUFFER, unzip))
            }
            #[cfg(feature = "mrt")]
            [b'B', b'Z', b'h', b'1'..=b'9'] => {
                let unzip = bzip2::bufread::MultiBzDecoder::new(packed);
                Box::new(BufReader::with_capacity(BUFFER, unzip))
            }
            #[cfg(not(feature = "mrt"))]
            [b'B', b'Z', b'h', b'1'..=b'9'] => {
                let what = "packed by bzip2, which this program was built without (feature `mrt`)";
                return Err(ImportError::Whole { path: path.into(), what: what.into() });
            }
            _ => Box::new(packed),
        };
        let (head, rest) = begin(unpacked, HEAD).map_err(failed)?;
        Ok(Self { path: path.into(), head, rest })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first 64 KiB.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// All of it, from its beginning.
    pub fn reader(self) -> impl BufRead {
        Cursor::new(self.head).chain(self.rest)
    }

    /// Calls `each` with every line that is not blank or a comment (`#` to the line's end); its error is what is wrong with the
    /// line and what was expected.
    pub fn for_each_line(self, mut each: impl FnMut(&str) -> Result<(), String>) -> Result<(), ImportError> {
        let path = self.path.clone();
        let mut lines = self.reader();
        let mut text = Vec::new();
        let mut left = TEXT;
        for line in 1.. {
            text.clear();
            let most = left.min(LINE);
            let mut limited = (&mut lines).take(most + 1);
            let read = limited.read_until(b'\n', &mut text).map_err(|source| failed(&path, source))? as u64;
            if read == 0 {
                break;
            }
            let bad = |what: String| ImportError::Line {
                path: path.clone(),
                line,
                text: shortened(String::from_utf8_lossy(&text).trim_end(), 100, 0),
                // It quotes a word of the line, then says what was expected.
                what: shortened(&what, 100, 100),
            };
            if read > most {
                return Err(bad(match most == LINE {
                    true => format!("a line of more than {} MiB; expected one prefix a line", LINE >> 20),
                    false => format!("more than {} GiB of text, unpacked; expected less", TEXT >> 30),
                }));
            }
            left -= read;
            let content = std::str::from_utf8(&text)
                .map_err(|_| bad("not UTF-8 text; expected a text or gzip file".into()))?;
            let content = content.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                each(content).map_err(bad)?;
            }
        }
        Ok(())
    }
}

/// Reads up to `count` bytes.
fn begin(mut from: Box<dyn BufRead>, count: u64) -> std::io::Result<(Vec<u8>, Box<dyn BufRead>)> {
    let mut head = Vec::new();
    from.by_ref().take(count).read_to_end(&mut head)?;
    Ok((head, from))
}

/// The error of a file that cannot be read.
pub(super) fn failed(path: &Path, source: std::io::Error) -> ImportError {
    let source = match source.kind() {
        // Nothing else ends too early: plain text may end anywhere.
        ErrorKind::UnexpectedEof => {
            std::io::Error::new(ErrorKind::UnexpectedEof, "the packed file is cut short")
        }
        _ => source,
    };
    ImportError::Io { path: path.into(), source }
}

/// The first and the last so many characters of a text, for a message.
pub(super) fn shortened(text: &str, first: usize, last: usize) -> String {
    let characters = text.chars().count();
    if characters <= first + last {
        return text.into();
    }
    let begin = text.chars().take(first);
    begin.chain(['…']).chain(text.chars().skip(characters - last)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;
    use crate::io::text;
    use std::io::Write;
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
    fn an_endless_line_ends_the_reading() {
        // 64 MiB of one line, packed into some 64 KiB.
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(b"10.0.0.0/8\n").unwrap();
        for _ in 0..64 {
            zip.write_all(&vec![b'1'; 1 << 20]).unwrap();
        }
        let said = said(&zip.finish().unwrap());
        assert!(said.contains(":2:") && said.contains("a line of more than 16 MiB"), "{said}");
        assert!(said.len() < 500, "{said}");
    }

    #[test]
    fn a_gzip_file_that_is_cut_short_is_called_that() {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for number in 0..30_000u32 {
            writeln!(zip, "{}", Prefix::host(number.wrapping_mul(0x9e37_79b9))).unwrap();
        }
        let zip = zip.finish().unwrap();
        for length in [zip.len() / 2, zip.len() - 4, 12] {
            let said = said(&zip[..length]);
            assert!(said.ends_with("the packed file is cut short"), "{length}: {said}");
        }
    }
}
