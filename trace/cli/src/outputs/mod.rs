//! The ways of found messages: the percentiles of the report, and all other outputs.

mod files;
mod hdr;
mod interval;
mod intervals;
mod live;
mod otlp;
mod perfetto;
mod picture;
mod rows;
mod sink;
mod threads;

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use trieline_terminal::usage;
use trieline_trace::{Event, Message, Summary};

use crate::args::seconds;
use crate::errors::cannot_write;
use files::File;
use hdr::Log;
pub use interval::Now;
use intervals::Intervals;
use live::{Live, When};
use otlp::Otlp;
use perfetto::Perfetto;
use rows::{Costs, Csv, JsonLines};
pub use sink::About;
use sink::Sink;

/// Outputs of a trace besides its report.
#[derive(Args, Debug)]
#[command(next_help_heading = "Outputs")]
pub struct OutputArgs {
    /// Show rate, percentiles and losses while the trace runs
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, num_args = 0..=1, default_missing_value = "always",
          require_equals = true)]
    live: When,
    /// Set the seconds between views, and histogram intervals
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Write each interval's histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Draw the distributions
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write messages for Perfetto and chrome://tracing
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Limit the messages in that file; later ones are counted
    #[arg(long, value_name = "N", default_value_t = 250_000, requires = "perfetto")]
    perfetto_limit: u64,
    /// Send messages as spans by OTLP/HTTP: http://HOST:4318
    #[arg(long, value_name = "URL", value_parser = otlp::url)]
    otlp: Option<String>,
    /// Send only one of so many messages
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = otlp::sample, requires = "otlp")]
    otlp_sample: u64,
    /// Write each message as a line of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write each message as a line of JSON
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// The results after all outputs are closed.
pub struct Finished {
    /// Times of all messages.
    pub summary: Summary,
    /// Remarks for readers of the report, a line each.
    pub notes: Vec<String>,
    /// Whether an output could not be written.
    pub has_failed: bool,
}

/// All that a trace's messages go to.
pub struct Outputs {
    summary: Summary,
    messages: u64,
    sinks: Vec<Box<dyn Sink>>,
    intervals: Intervals,
    svg: Option<PathBuf>,
    /// The tracer's own.
    cost: String,
    waiting: Option<String>,
    notes: Vec<String>,
    /// Outputs that could not be written, each with the cause.
    failed: Vec<String>,
}

impl OutputArgs {
    /// Refuses two outputs in one file, and `-`, which is not a file.
    fn check(&self, records: Option<&Path>) -> anyhow::Result<()> {
        let named = [&self.csv, &self.jsonl, &self.perfetto, &self.hdr, &self.svg];
        let mut seen = HashSet::new();
        for path in named.into_iter().flatten().map(PathBuf::as_path).chain(records) {
            if path == Path::new("-") {
                return Err(
                    usage("`-`: expected a file's name; the report is on standard output".into()).into()
                );
            }
            if !seen.insert(path) {
                return Err(
                    usage(format!("{}: expected another file for each output", path.display())).into()
                );
            }
        }
        Ok(())
    }
}

impl Outputs {
    /// Opens the outputs, before the trace begins. `records` is the file of --records, which another part writes.
    pub fn open(args: &OutputArgs, records: Option<&Path>, about: &About) -> anyhow::Result<Outputs> {
        args.check(records)?;
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        let costs = Costs::of(about.cost);
        if let Some(path) = &args.csv {
            sinks.push(Box::new(File::create(Csv(costs), path)?));
        }
        if let Some(path) = &args.jsonl {
            sinks.push(Box::new(File::create(JsonLines(costs), path)?));
        }
        if let Some(path) = &args.perfetto {
            let format = Perfetto::new(args.perfetto_limit, about);
            sinks.push(Box::new(File::create(format, path)?));
        }
        if let Some(url) = &args.otlp {
            sinks.push(Box::new(Otlp::start(url, args.otlp_sample, about)?));
        }
        // Found out now, not when everything is over.
        if let Some(path) = &args.svg {
            fs::File::create(path).with_context(|| cannot_write(path))?;
        }
        let live = Live::new(args.live, about);
        let log = args.hdr.as_deref().map(|path| Log::create(path, &about.cost_text())).transpose()?;
        Ok(Outputs {
            summary: Summary::default(),
            messages: 0,
            sinks,
            intervals: Intervals::begin(args.interval, live, log),
            svg: args.svg.clone(),
            cost: about.cost_text(),
            waiting: None,
            notes: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// Passes a message on. An output that cannot be written is closed; the others go on.
    pub fn take(&mut self, message: &Message) {
        self.summary.add(message);
        self.messages += 1;
        let mut at = 0;
        while at < self.sinks.len() {
            match self.sinks[at].take(message) {
                Ok(()) => at += 1,
                Err(error) => {
                    drop(self.sinks.remove(at));
                    self.fail(&error);
                }
            }
        }
    }

    /// Ends an interval, if one is over.
    pub fn tick(&mut self, now: impl FnOnce() -> Now) {
        if self.intervals.is_due() {
            let now = Now { waiting: self.waiting.clone(), ..now() };
            for error in self.intervals.end(&self.summary, &now) {
                self.fail(&error);
            }
        }
    }

    /// Names an output that failed at once, and again in the report.
    pub fn fail(&mut self, error: &anyhow::Error) {
        let what = format!("{error:#}");
        // Standard error may be what failed.
        let _ = writeln!(io::stderr(), "trieline: {what}; this output is closed, the trace goes on");
        self.failed.push(what);
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a view of the trace is on standard error.
    pub fn are_shown(&self) -> bool {
        self.intervals.are_shown()
    }

    /// Shows that no process is traced, with the reason, or that one is again. It does so in the live view, or else in a line on standard
    /// error.
    pub fn wait(&mut self, why: Option<String>) {
        if self.waiting == why {
            return;
        }
        self.waiting = why;
        if !self.intervals.are_shown() {
            match &self.waiting {
                Some(why) => eprintln!("trieline: {why}: waiting (Ctrl-C ends the trace)"),
                None => eprintln!("trieline: a process to trace is there again"),
            }
        }
    }

    /// A line for the report, which is also said at once where no view is shown.
    pub fn note(&mut self, what: String) {
        if !self.intervals.are_shown() {
            eprintln!("trieline: {what}");
        }
        self.notes.push(what);
    }

    /// Passes on that a thread has ended, after the messages that it had: its number may be another's soon.
    pub fn event(&mut self, event: &Event) {
        if let Event::Ended { thread, .. } = event {
            self.sinks.iter_mut().for_each(|sink| sink.ended(*thread));
        }
    }

    /// Shows that no process can come any more, with the reason.
    pub fn end(&mut self, why: &str) {
        self.waiting = None;
        self.notes.push(format!("the trace ended as {why}"));
    }

    /// Ends all of them.
    pub fn finish(mut self, now: Now) -> Finished {
        for error in self.intervals.finish(&self.summary, &now) {
            self.fail(&error);
        }
        self.notes.extend(self.waiting.iter().map(|why| format!("at the end {why}")));
        for mut sink in std::mem::take(&mut self.sinks) {
            match sink.finish() {
                Ok(notes) => self.notes.extend(notes),
                Err(error) => self.fail(&error),
            }
        }
        let all = now.all(&self.summary);
        let svg = self.svg.take().map(|path| picture::write(&path, &all, &self.cost));
        if let Some(Err(error)) = svg {
            self.fail(&error);
        }
        self.notes.extend(self.failed.iter().map(|what| format!("an output failed: {what}")));
        Finished { summary: self.summary, notes: self.notes, has_failed: !self.failed.is_empty() }
    }
}
