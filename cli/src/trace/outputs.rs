//! Where messages go as they are found: the percentiles of the report, and whatever else was asked for.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use trieline_trace::{Message, Summary};

use super::files::{Files, Rotation};
use super::rows::{Csv, JsonLines};

/// What a trace writes beside its report.
#[derive(Args, Debug)]
#[command(next_help_heading = "Outputs")]
pub struct OutputArgs {
    /// Write each message as a line of comma-separated values
    #[arg(long, value_name = "FILE", conflicts_with = "histogram")]
    csv: Option<PathBuf>,
    /// Write each message as a line of JSON
    #[arg(long, value_name = "FILE", conflicts_with = "histogram")]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    rotation: Rotation,
}

/// A form in which messages are written.
pub trait Sink {
    /// A message was found.
    fn take(&mut self, message: &Message) -> Result<()>;
    /// There are no more. Answers what a reader of the report should know, a line each.
    fn finish(&mut self) -> Result<Vec<String>>;
}

/// All that a trace's messages go to.
pub struct Outputs {
    summary: Summary,
    messages: u64,
    sinks: Vec<Box<dyn Sink>>,
    failed: Option<anyhow::Error>,
}

impl Outputs {
    /// Opens what was asked for, before anything is traced.
    pub fn open(args: &OutputArgs) -> Result<Outputs> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if let Some(path) = &args.csv {
            sinks.push(Box::new(Files::create(Csv, path, args.rotation)?));
        }
        if let Some(path) = &args.jsonl {
            sinks.push(Box::new(Files::create(JsonLines, path, args.rotation)?));
        }
        Ok(Outputs { summary: Summary::default(), messages: 0, sinks, failed: None })
    }

    /// Passes a message on. After a failure the trace is over: [`Outputs::has_failed`].
    pub fn take(&mut self, message: &Message) {
        self.summary.add(message);
        self.messages += 1;
        if self.failed.is_none() {
            self.failed = self.sinks.iter_mut().try_for_each(|sink| sink.take(message)).err();
        }
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether something could not be written.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Ends all of it: the times of all messages, and what the outputs have to say.
    pub fn finish(self) -> Result<(Summary, Vec<String>)> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let mut notes = Vec::new();
        for mut sink in self.sinks {
            notes.extend(sink.finish()?);
        }
        Ok((self.summary, notes))
    }
}
