//! Histograms in HdrHistogram's own forms: its interval log, and its text of a distribution.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use trieline_trace::{Stage, Summary};

use super::intervals::Interval;
use super::report::{micros, stage_name};

/// Steps for each halving of what is left to 100 %, as HdrHistogram's own texts have.
const TICKS: u32 = 5;

/// An interval log (format 1.3): after each interval a line for each stage that had messages, with the stage as its tag and times in
/// nanoseconds.
pub struct Log {
    path: PathBuf,
    out: BufWriter<File>,
    serializer: V2DeflateSerializer,
}

impl Log {
    /// Begins the file; `cost` is the tracer's own.
    pub fn create(path: &Path, cost: &str) -> Result<Log> {
        let file = File::create(path).with_context(|| writing(path))?;
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
            .with_context(|| writing(path))?;
        writeln!(
            log.out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )
        .with_context(|| writing(path))?;
        Ok(log)
    }

    /// Adds an interval; it is in the file when this returns.
    pub fn write(&mut self, interval: &Interval) -> Result<()> {
        let Log { path, out, serializer } = self;
        // An existing file is appended to: a writer without a head.
        let mut writer =
            IntervalLogWriterBuilder::new().begin_log_with(out, serializer).with_context(|| writing(path))?;
        for (stage, times) in interval.times.stages() {
            writer
                .write_histogram(times, interval.from, interval.length, Tag::new(&tag(stage)))
                .map_err(|error| anyhow!("{}: {error}", writing(path)))?;
        }
        out.flush().with_context(|| writing(path))
    }
}

/// `udp-udp-queued`: tags have neither commas nor spaces.
fn tag(stage: &Stage) -> String {
    stage_name(stage).replace(", ", "-").replace([' ', '→'], "-")
}

fn writing(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// The tracer's own cost in a line.
fn comment(cost: &str) -> String {
    let words: Vec<&str> = cost.split_whitespace().collect();
    format!("[{}]", words.join(" "))
}

/// Writes each stage's distribution as HdrHistogram prints it (`.hgrm`), in microseconds; a comment before each names the stage, and one
/// before all the tracer's own `cost`.
pub fn write_percentiles(path: &Path, summary: &Summary, cost: &str) -> Result<()> {
    let mut text = format!("#{}\n", comment(cost));
    for (stage, times) in summary.stages() {
        let _ = writeln!(text, "#[Stage = {}, microseconds]", stage_name(stage));
        let _ = writeln!(
            text,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        let mut count = 0;
        for step in times.iter_quantiles(TICKS) {
            count += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let _ = write!(text, "{:>12} {quantile:>14.12} {count:>10}", micros(step.value_iterated_to()),);
            let _ = if quantile < 1.0 {
                writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile))
            } else {
                writeln!(text)
            };
        }
        let _ = writeln!(
            text,
            "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n#[Max     = {:>12}, Total count    = {:>12}]",
            times.mean() / 1e3,
            times.stdev() / 1e3,
            micros(times.max()),
            times.len(),
        );
    }
    fs::write(path, text).with_context(|| writing(path))
}
