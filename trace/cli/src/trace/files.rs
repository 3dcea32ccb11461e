//! A file of messages in some format, followed by another when it is large or old enough; every message is in exactly one of them.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use trieline_trace::Message;

use super::outputs::Sink;

/// When a file is followed by the next.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Rotation {
    /// Begin a new file after so many bytes (1000, 100K, 10M, 1G)
    ///
    /// Finished files are FILE with a number before its ending.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "messages")]
    rotate_size: Option<u64>,
    /// Begin a new file after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::args::seconds, requires = "messages")]
    rotate_time: Option<Duration>,
    /// Keep so many finished files of this trace [default: all]
    #[arg(long, value_name = "N", requires = "messages")]
    rotate_keep: Option<usize>,
}

fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}`: expected bytes above 0, as in 1000000, 100K, 10M or 1G");
    let (number, unit) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// How messages are written into a file.
pub trait Format {
    /// Writes the beginning of a file.
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<()>;
    /// A message, with its first bytes as they were sent, where they were captured.
    fn message(&mut self, message: &Message, bytes: &[u8], out: &mut Vec<u8>) -> Result<()>;
    /// The thread has ended: its number may be another's.
    fn ended(&mut self, _thread: u32) {}
    /// Writes the end of a file.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<()>;
    /// A remark on all files.
    fn note(&self) -> Option<String> {
        None
    }
}

/// The file that is being written, and those before it.
pub struct Files<F> {
    format: F,
    path: PathBuf,
    rotation: Rotation,
    out: BufWriter<fs::File>,
    buffer: Vec<u8>,
    /// Of the current file.
    bytes: u64,
    since: Instant,
    is_empty: bool,
    finished: Vec<PathBuf>,
    /// Of the next finished file.
    number: u64,
}

impl<F: Format> Files<F> {
    /// Begins the first file.
    pub fn create(format: F, path: &Path, rotation: Rotation) -> Result<Files<F>> {
        let mut files = Files {
            out: create(path)?,
            format,
            path: path.to_owned(),
            rotation,
            buffer: Vec::new(),
            bytes: 0,
            since: Instant::now(),
            is_empty: true,
            finished: Vec::new(),
            number: 1,
        };
        files.format.begin(&mut files.buffer)?;
        files.write()?;
        Ok(files)
    }

    fn write(&mut self) -> Result<()> {
        self.out.write_all(&self.buffer).with_context(|| writing(&self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.format.end(&mut self.buffer)?;
        self.write()?;
        self.out.flush().with_context(|| writing(&self.path))
    }

    /// Whether the current file is large or old enough. One without messages stays.
    fn is_full(&self) -> bool {
        let is_large = self.rotation.rotate_size.is_some_and(|most| self.bytes >= most);
        let is_old = self.rotation.rotate_time.is_some_and(|longest| self.since.elapsed() >= longest);
        !self.is_empty && (is_large || is_old)
    }

    /// Gives the finished file a name that no file has, and begins the next.
    fn rotate(&mut self) -> Result<()> {
        self.close()?;
        let mut name = numbered(&self.path, self.number);
        while name.exists() {
            self.number += 1;
            name = numbered(&self.path, self.number);
        }
        self.number += 1;
        fs::rename(&self.path, &name).with_context(|| writing(&name))?;
        self.finished.push(name);
        if self.rotation.rotate_keep.is_some_and(|keep| self.finished.len() > keep) {
            let oldest = self.finished.remove(0);
            fs::remove_file(&oldest).with_context(|| format!("cannot remove {}", oldest.display()))?;
        }
        self.out = create(&self.path)?;
        (self.bytes, self.since, self.is_empty) = (0, Instant::now(), true);
        self.format.begin(&mut self.buffer)?;
        self.write()
    }
}

impl<F: Format> Sink for Files<F> {
    fn take(&mut self, message: &Message, bytes: &[u8]) -> Result<()> {
        if self.is_full() {
            self.rotate()?;
        }
        self.format.message(message, bytes, &mut self.buffer)?;
        self.is_empty = false;
        self.write()
    }

    fn ended(&mut self, thread: u32) {
        self.format.ended(thread);
    }

    fn finish(&mut self) -> Result<Vec<String>> {
        self.close()?;
        Ok(self.format.note().into_iter().collect())
    }
}

fn writing(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn create(path: &Path) -> Result<BufWriter<fs::File>> {
    fs::File::create(path).map(BufWriter::new).with_context(|| writing(path))
}

/// `messages.csv`, 3: `messages.3.csv`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    match path.extension() {
        Some(ending) => path.with_extension(format!("{number}.{}", ending.display())),
        None => path.with_extension(number.to_string()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use trieline_trace::{Flags, Kind, Point, Record, Transport};

    /// A message received by one thread at a time and sent by another.
    pub fn message(from: (u32, u64), to: (u32, u64)) -> Message {
        let record = |(thread, time_ns), point| Record {
            time_ns,
            socket: 1,
            id: Some(5),
            thread,
            process: thread,
            bytes: 64,
            point,
            transport: Transport::Udp,
            kind: Kind::Message,
            position: 0,
            flags: Flags(1),
        };
        Message { received: record(from, Point::Received), sent: record(to, Point::Queued), reads: 1 }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((bytes("1000"), bytes("3K"), bytes("2G")), (Ok(1000), Ok(3072), Ok(2 << 30)));
        for bad in ["", "0", "K", "1T", "-1", "99999999999G", "1.5M"] {
            assert!(bytes(bad).unwrap_err().contains("100K, 10M or 1G"), "{bad}");
        }
    }

    #[test]
    fn finished_files_have_a_number_before_their_ending() {
        assert_eq!(numbered(Path::new("/a/b.csv"), 3), Path::new("/a/b.3.csv"));
        assert_eq!(numbered(Path::new("b"), 12), Path::new("b.12"));
    }
}
