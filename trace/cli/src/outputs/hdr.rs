//! Histograms of every interval in HdrHistogram's interval log, which its own tools read.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use trieline_trace::Stage;

use super::interval::Interval;
use crate::errors::cannot_write;
use crate::report::stage_name;

/// An interval log (format 1.3): after each interval a line for each stage that had messages. The line has the stage as its tag, and times
/// in nanoseconds.
pub struct Log {
    path: PathBuf,
    out: BufWriter<File>,
    serializer: V2DeflateSerializer,
}

impl Log {
    /// Begins the file; `cost` is the tracer's own.
    pub fn create(path: &Path, cost: &str) -> Result<Log> {
        let file = File::create(path).with_context(|| cannot_write(path))?;
        let mut log =
            Log { path: path.to_owned(), out: BufWriter::new(file), serializer: V2DeflateSerializer::new() };
        let now = SystemTime::now();
        IntervalLogWriterBuilder::new()
            .add_comment("[T2 of messages, nanoseconds, by trieline trace]")
            .add_comment(&comment(cost))
            .add_comment("[Histogram log format version 1.3]")
            .with_start_time(now)
            .with_base_time(now)
            .begin_log_with(&mut log.out, &mut log.serializer)
            .with_context(|| cannot_write(path))?;
        writeln!(
            log.out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )
        .with_context(|| cannot_write(path))?;
        Ok(log)
    }

    /// Adds an interval; it is in the file when this returns.
    pub fn write(&mut self, interval: &Interval) -> Result<()> {
        let Log { path, out, serializer } = self;
        // An existing file is appended to: a writer without a head.
        let mut writer = IntervalLogWriterBuilder::new()
            .begin_log_with(out, serializer)
            .with_context(|| cannot_write(path))?;
        for (stage, times) in interval.times.stages() {
            writer
                .write_histogram(times, interval.from, interval.length, Tag::new(&tag(stage)))
                .map_err(|error| anyhow!("{}: {error}", cannot_write(path)))?;
        }
        out.flush().with_context(|| cannot_write(path))
    }
}

/// `udp-udp-queued`: tags have neither commas nor spaces.
fn tag(stage: &Stage) -> String {
    stage_name(stage).replace(", ", "-").replace([' ', '→'], "-")
}

/// The tracer's own cost in a line.
fn comment(cost: &str) -> String {
    let words: Vec<&str> = cost.split_whitespace().collect();
    format!("[{}]", words.join(" "))
}
