//! A file of messages in some format.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use trieline_trace::Message;

use super::sink::Sink;
use crate::errors::cannot_write;

/// How messages are written into a file.
pub trait Format {
    /// Writes the beginning of the file.
    fn begin(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
    /// Writes a message.
    fn message(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<()>;
    /// The thread has ended: its number may be another's.
    fn ended(&mut self, _thread: u32) {}
    /// Writes the end of the file.
    fn end(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
    /// A remark on the file.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A file of messages.
pub struct File<F> {
    format: F,
    path: PathBuf,
    out: BufWriter<fs::File>,
    buffer: Vec<u8>,
}

impl<F: Format> File<F> {
    /// Begins the file.
    pub fn create(format: F, path: &Path) -> Result<File<F>> {
        let out = fs::File::create(path).with_context(|| cannot_write(path))?;
        let mut file = File { format, path: path.to_owned(), out: BufWriter::new(out), buffer: Vec::new() };
        file.format.begin(&mut file.buffer)?;
        file.write()?;
        Ok(file)
    }

    fn write(&mut self) -> Result<()> {
        self.out.write_all(&self.buffer).with_context(|| cannot_write(&self.path))?;
        self.buffer.clear();
        Ok(())
    }
}

impl<F: Format> Sink for File<F> {
    fn take(&mut self, message: &Message) -> Result<()> {
        self.format.message(message, &mut self.buffer)?;
        self.write()
    }

    fn ended(&mut self, thread: u32) {
        self.format.ended(thread);
    }

    fn finish(&mut self) -> Result<Vec<String>> {
        self.format.end(&mut self.buffer)?;
        self.write()?;
        self.out.flush().with_context(|| cannot_write(&self.path))?;
        Ok(self.format.note().into_iter().collect())
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
}
