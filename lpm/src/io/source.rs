//! Where an importer's bytes come from: a file or standard input, unpacked, its beginning looked at before it is read.

use super::error::ImportError;
use super::list::ReadOptions;
use std::boxed::Box;
use std::format;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

/// Bytes that are looked at to tell a format.
const HEAD: u64 = 1 << 16;
const BUFFER: usize = 1 << 16;
/// The longest line of a text, bytes: a packed file of a few KiB can hold one that fills the memory.
const LINE: u64 = 16 << 20;
/// The most that is read, unpacked, if the caller names no limit.
const MOST: u64 = 4 << 30;

/// A file's content, unpacked if it was packed.
pub(super) struct Source {
    path: PathBuf,
    head: Vec<u8>,
    rest: Box<dyn BufRead>,
    is_blank: bool,
}

/// The mark that programs on Windows put in front of UTF-8 text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The characters that begin a comment, which ends with its line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comments {
    /// `#` and `;`.
    #[default]
    Any,
    /// Nothing: the format has comments of its own.
    None,
}

impl Comments {
    /// The line without its comment, which may be in any encoding.
    fn cut(self, line: &[u8]) -> &[u8] {
        let begins = |byte: &u8| self == Self::Any && matches!(byte, b'#' | b';');
        &line[..line.iter().position(begins).unwrap_or(line.len())]
    }
}

/// How lines that are wrong are taken.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// They are passed over instead of being an error.
    pub skip_bad: bool,
    /// The characters that begin a comment in this format.
    pub comments: Comments,
    /// How many were.
    pub bad: u64,
    /// The error of the first one.
    pub first: Option<String>,
}

impl Source {
    /// Opens `path` (`-` is standard input). gzip, and bzip2 with feature `mrt`, are recognised by their first bytes.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, ImportError> {
        let failed = |source| failed(path, source);
        // Before it is opened: to open a pipe blocks until somebody writes.
        if options.regular && !std::fs::metadata(path).map_err(failed)?.is_file() {
            let what = "not a regular file; expected one, which has an end".into();
            return Err(ImportError::Whole { path: path.into(), what });
        }
        let file: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(path).map_err(failed)?)
        };
        let (magic, rest) = begin(Box::new(BufReader::with_capacity(BUFFER, file)), 6).map_err(failed)?;
        let packed = Cursor::new(magic.clone()).chain(rest);
        let unpacked: Box<dyn BufRead> = match magic[..] {
            [0x1f, 0x8b, ..] => {
                let unzip = flate2::bufread::MultiGzDecoder::new(packed);
                Box::new(BufReader::with_capacity(BUFFER, unzip))
            }
            #[cfg(feature = "mrt")]
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => {
                let unzip = bzip2::bufread::MultiBzDecoder::new(packed);
                Box::new(BufReader::with_capacity(BUFFER, unzip))
            }
            #[cfg(not(feature = "mrt"))]
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => {
                let what = "packed by bzip2, which this program was built without (feature `mrt`)";
                return Err(ImportError::Whole { path: path.into(), what: what.into() });
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(unpack_first(path, "xz")),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(unpack_first(path, "zstd")),
            _ => Box::new(packed),
        };
        let limit = options.limit.unwrap_or(MOST);
        let (mut head, rest) =
            begin(Box::new(Limited { rest: unpacked, limit, left: limit }), HEAD).map_err(failed)?;
        if head.starts_with(BOM) {
            head.drain(..BOM.len());
        }
        Ok(Self { path: path.into(), head, rest, is_blank: magic.is_empty() })
    }

    /// Whether the file has not one byte.
    pub fn is_blank(&self) -> bool {
        self.is_blank
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

    /// Calls `each` with every line that is not blank or a comment. Its error is what is wrong with the
    /// line and what was expected.
    pub fn for_each_line(self, each: impl FnMut(&str) -> Result<(), String>) -> Result<(), ImportError> {
        self.lines(&mut Lines::default(), each)
    }

    /// The same; `lines` decides about wrong lines, and counts them.
    pub fn lines(
        self,
        taken: &mut Lines,
        mut each: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), ImportError> {
        let path = self.path.clone();
        let mut lines = self.reader();
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let mut limited = (&mut lines).take(LINE + 1);
            let read = limited.read_until(b'\n', &mut text).map_err(|source| failed(&path, source))? as u64;
            if read == 0 {
                break;
            }
            let bad = |what: String| ImportError::Line {
                path: path.clone(),
                line,
                text: shortened(String::from_utf8_lossy(&text).trim_end(), 100, 0),
                // It quotes a word of the line, then the expected text.
                what: shortened(&what, 100, 100),
            };
            if read > LINE {
                return Err(bad(format!(
                    "a line of more than {} MiB; expected one prefix a line",
                    LINE >> 20
                )));
            }
            let content = std::str::from_utf8(taken.comments.cut(&text));
            let content = content.map_err(|_| format!("not UTF-8 text; expected {KINDS}")).map(str::trim);
            match content.and_then(|content| if content.is_empty() { Ok(()) } else { each(content) }) {
                Ok(()) => {}
                Err(what) if taken.skip_bad => {
                    taken.bad += 1;
                    taken.first.get_or_insert_with(|| bad(what).to_string());
                }
                Err(what) => return Err(bad(what)),
            }
        }
        Ok(())
    }
}

/// Formats that can be read line by line.
const KINDS: &str = if cfg!(feature = "mrt") {
    "text, packed by gzip or bzip2 or not"
} else {
    "text, packed by gzip or not"
};

/// The error of a file that is packed by a program whose format is not read.
fn unpack_first(path: &Path, by: &str) -> ImportError {
    let what = format!("packed by {by}; unpack it first ({by} -dc FILE | … -): expected {KINDS}");
    ImportError::Whole { path: path.into(), what }
}

/// An input that ends with an error behind so many bytes: a packed file of a few MiB can hold gigabytes.
struct Limited<R> {
    rest: R,
    limit: u64,
    left: u64,
}

impl<R: BufRead> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Limited<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let (left, limit) = (self.left, self.limit);
        let bytes = self.rest.fill_buf()?;
        if left == 0 && !bytes.is_empty() {
            let what = format!("more than {} MiB, unpacked; expected less", limit >> 20);
            return Err(std::io::Error::new(ErrorKind::FileTooLarge, what));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        Ok(&bytes[..bytes.len().min(most)])
    }

    fn consume(&mut self, count: usize) {
        self.left -= count as u64;
        self.rest.consume(count);
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
    use std::vec;

    fn error_text(content: &[u8]) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        text::read(file.path()).unwrap_err().to_string()
    }

    #[test]
    fn a_long_line_is_quoted_in_part() {
        let error_text = error_text("ä".repeat(100_000).as_bytes());
        assert!(error_text.chars().count() < 500 && error_text.contains("ä…\""), "{error_text}");
        assert!(error_text.contains("not a prefix"), "{error_text}");
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
        let error_text = error_text(&zip.finish().unwrap());
        assert!(
            error_text.contains(":2:") && error_text.contains("a line of more than 16 MiB"),
            "{error_text}"
        );
        assert!(error_text.len() < 500, "{error_text}");
    }

    #[test]
    fn other_compressions_are_named() {
        for (head, by) in [(&b"\xfd7zXZ\0\0\x04"[..], "xz"), (b"\x28\xb5\x2f\xfd\x04\x00", "zstd")] {
            let error_text = error_text(head);
            assert!(error_text.contains(&format!("packed by {by}; unpack it first")), "{error_text}");
        }
        assert!(error_text(b"\xff\xfe\n").contains(KINDS));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"\xef\xbb\xbf10.9.0.0/16 7\r\n").unwrap();
        assert_eq!(text::read(file.path()).unwrap().prefixes.v4.len(), 1);
    }

    #[test]
    fn a_limit_counts_unpacked_bytes() {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for _ in 0..300_000 {
            zip.write_all(b"10.0.0.0/8\n").unwrap();
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&zip.finish().unwrap()).unwrap();
        let with = |limit| {
            let options = ReadOptions { limit: Some(limit), regular: true, ..ReadOptions::default() };
            crate::io::read(file.path(), &options)
        };
        assert_eq!(with(4 << 20).unwrap().prefixes.len(), 300_000);
        let error = with(3 << 20).unwrap_err().to_string();
        assert!(error.contains("more than 3 MiB, unpacked"), "{error}");
        let options = ReadOptions { regular: true, ..ReadOptions::default() };
        let error = crate::io::read(Path::new("/dev/zero"), &options).unwrap_err().to_string();
        assert!(error.contains("/dev/zero: not a regular file"), "{error}");
    }

    #[test]
    fn a_gzip_file_that_is_cut_short_is_called_that() {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for number in 0..30_000u32 {
            writeln!(zip, "{}", Prefix::host(number.wrapping_mul(0x9e37_79b9))).unwrap();
        }
        let zip = zip.finish().unwrap();
        for length in [zip.len() / 2, zip.len() - 4, 12] {
            let error_text = error_text(&zip[..length]);
            assert!(error_text.ends_with("the packed file is cut short"), "{length}: {error_text}");
        }
    }
}
