//! The output of commands: data on standard output as text or JSON, colours only for people; a closed pipe is a success.

use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Whether text is coloured, and where JSON is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Print JSON.
    pub json: bool,
    /// Indent it.
    pub pretty: bool,
    /// Colour text.
    pub colour: bool,
}

impl Output {
    /// As the flags and the environment (`NO_COLOR`) say.
    pub fn new(json: bool, pretty: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { json, pretty, colour: wanted && !json && io::stdout().is_terminal() }
    }

    /// Standard output, buffered.
    pub fn stdout(&self) -> BufWriter<StdoutLock<'static>> {
        BufWriter::with_capacity(1 << 16, io::stdout().lock())
    }

    /// Prints one JSON document.
    pub fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut out = self.stdout();
        self.write(&mut out, value)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }

    /// Writes a value as JSON.
    pub fn write(&self, out: &mut impl Write, value: &impl Serialize) -> anyhow::Result<()> {
        let written = if self.pretty {
            serde_json::to_writer_pretty(out, value)
        } else {
            serde_json::to_writer(out, value)
        };
        // The I/O error inside, so that a closed pipe is seen as one.
        Ok(written.map_err(io::Error::from)?)
    }

    /// Prints text.
    pub fn text(&self, text: &str) -> anyhow::Result<()> {
        let mut out = self.stdout();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// `text` in bold, where there are colours.
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// `text` in green.
    pub fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    /// `text` in red.
    pub fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A list of values, written one by one: a JSON array without holding all of it.
#[derive(Debug)]
pub struct List<'a, W: Write> {
    output: &'a Output,
    out: W,
    count: usize,
}

impl<'a, W: Write> List<'a, W> {
    /// Opens the list.
    pub fn new(output: &'a Output, out: W) -> Self {
        Self { output, out, count: 0 }
    }

    /// Writes a value as JSON, or the line that `text` makes of it.
    pub fn push<T: Serialize>(&mut self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        if self.output.json {
            // Not before the first value: what fails until then prints nothing.
            self.out.write_all(if self.count > 0 { b"," } else { b"[" })?;
            if self.output.pretty || self.count > 0 {
                self.out.write_all(b"\n")?;
            }
            self.output.write(&mut self.out, value)?;
        } else {
            self.out.write_all(text(value).as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        self.count += 1;
        Ok(())
    }

    /// Shows what was pushed.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }

    /// Closes the list; how many values it had.
    pub fn finish(mut self) -> anyhow::Result<usize> {
        if self.output.json {
            self.out.write_all(if self.count > 0 { b"]\n" } else { b"[]\n" })?;
        }
        self.out.flush()?;
        Ok(self.count)
    }
}

/// Whether an error only means that the reader of a pipe has ended.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
