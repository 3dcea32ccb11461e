//! `trieline trace join`: what hooks noted on several hosts, put together; their clocks are compared by the messages themselves.

use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use trieline_trace::{Counts, Event, Hop, HopCounts, Hops, Joiner, Offset, Passes, Record, Summary, offsets};

use crate::records::RecordFile;
use crate::report;
use trieline_terminal::Output;

/// Join the records of several hosts into ways between them
///
/// Reads files of `trieline trace --records`, and joins messages by their streams.
#[derive(Args, Debug)]
pub struct JoinArgs {
    /// Join these files, one of each trace
    ///
    /// Times are given by the clock of the first one's host.
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,
}

/// The joined files.
struct Joined {
    files: Vec<RecordFile>,
    /// Of each file's host.
    clocks: Vec<Option<Offset>>,
    summary: Summary,
    counts: Counts,
    ways: HopCounts,
    /// Devices that are on a way, and that are not.
    passes: (u64, u64),
    /// Ways between hosts whose clocks could not be compared.
    untimed: u64,
}

/// Runs `trieline trace join`.
pub fn run(args: &JoinArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.files.len() > usize::from(u8::MAX) {
        bail!("{} files: expected at most {}", args.files.len(), u8::MAX);
    }
    let files = args.files.iter().map(|path| RecordFile::read(path)).collect::<anyhow::Result<_>>()?;
    let joined = join(files)?;
    if output.json {
        output.document(&joined.json())?
    } else {
        output.text(&joined.text(output))?
    }
    Ok(ExitCode::SUCCESS)
}

fn join(files: Vec<RecordFile>) -> anyhow::Result<Joined> {
    let (mut hops, mut passes) = (Hops::new(None), Passes::new(usize::MAX));
    let mut summary = Summary::default();
    let (mut ways, mut counts) = (Vec::new(), Counts::default());
    let hosts: Vec<_> = files.iter().map(|file| (&file.trace.machine, &file.trace.boot)).collect();
    for file in &files {
        let mut joiner = Joiner::new(file.trace.by(), file.trace.at_queue);
        for event in &file.events {
            joiner.event(event, |message| summary.add(&message));
        }
        joiner.finish(|message| summary.add(&message));
        counts += joiner.counts();
    }
    for (file, event) in in_order(&files) {
        // Files of one boot are of one host.
        let host = hosts.iter().position(|host| *host == hosts[file]).unwrap_or(file);
        hops.take(host as u8, event, |hop| ways.push(hop));
        if let Event::Passed(record) = event {
            // Of each trace its own first arrival counts.
            passes.take(file as u8, *record);
        }
    }
    hops.finish();
    let compared: Vec<Hop> = ways.iter().flat_map(|hop| iter::once(*hop).chain(passes.around(hop))).collect();
    let clocks = offsets(&hosts, &compared);
    for (file, clock) in files.iter().zip(&clocks) {
        if clock.is_some_and(|clock| clock.bound_ns < 0) {
            bail!(
                "{}: its clock and that of {} ran at different speeds, by more than messages took: expected traces of a shorter time",
                file.path.display(),
                files[0].path.display()
            );
        }
    }
    let mut untimed = 0;
    for way in ways {
        match corrected(way, &clocks) {
            Some(way) => {
                summary.add_hop(&way);
                let parts = passes.split(&way, |host, record| by_first(host, record, &clocks));
                parts.iter().for_each(|part| summary.add_hop(part));
            }
            None => untimed += 1,
        }
    }
    passes.finish();
    Ok(Joined { files, clocks, summary, counts, ways: hops.counts(), passes: passes.counts(), untimed })
}

/// The events of all files, in the order of their hosts' wall clocks, with the numbers of their files. A socket comes just before its first
/// record.
fn in_order(files: &[RecordFile]) -> Vec<(usize, &Event)> {
    let mut all = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let mut last_ns = 0;
        for event in &file.events {
            if let Event::Record(record) | Event::Passed(record) = event {
                last_ns = record.time_ns;
            }
            all.push((file.trace.wall_ns(last_ns), number, event));
        }
    }
    // Stable: what has the same time stays in the order of its file.
    all.sort_by_key(|(wall_ns, number, _)| (*wall_ns, *number));
    all.into_iter().map(|(_, number, event)| (number, event)).collect()
}

/// A way with both its times by the first host's clock.
fn corrected(way: Hop, clocks: &[Option<Offset>]) -> Option<Hop> {
    let of = |host, record: Record| Some(Record { time_ns: by_first(host, &record, clocks)?, ..record });
    match (of(way.hosts.0, way.sent), of(way.hosts.1, way.received)) {
        (Some(sent), Some(received)) => Some(Hop { sent, received, ..way }),
        _ => (way.hosts.0 == way.hosts.1).then_some(way),
    }
}

fn by_first(host: u8, record: &Record, clocks: &[Option<Offset>]) -> Option<u64> {
    clocks[usize::from(host)].map(|clock| record.time_ns.saturating_add_signed(-clock.ns))
}

impl Joined {
    fn text(&self, output: &Output) -> String {
        let mut text = String::new();
        for (file, clock) in self.files.iter().zip(&self.clocks) {
            let clock = match clock {
                Some(Offset { ns: 0, bound_ns: 0 }) => "all times are by this clock".to_owned(),
                Some(Offset { ns, bound_ns }) => {
                    format!("its clock is {ns} ns ahead, right to {bound_ns} ns")
                }
                None => "its clock is not known: no messages at the device's queue went both ways".to_owned(),
            };
            text += &format!("{}: {} events; {clock}\n", file.path.display(), file.events.len());
            match file.end {
                None => text += &(output.bad("       it has no end: the trace was cut off") + "\n"),
                Some(end) if end.lost + end.missed + end.late > 0 => {
                    let missed = format!(
                        "       {} records lost, {} events missed, {} late",
                        end.lost, end.missed, end.late
                    );
                    text += &(output.bad(&missed) + "\n");
                }
                Some(_) => {}
            }
        }
        let stages: Vec<_> = self.summary.stages().collect();
        text += "\nmicroseconds:\n";
        text += &report::table(&stages);
        let Counts {
            received,
            sent,
            matched,
            ambiguous,
            unmatched_received,
            unmatched_sent,
            copies,
            cut_off,
            ..
        } = self.counts;
        text += &format!(
            "\n{received} received, {sent} sent, {matched} matched inside; {ambiguous} ambiguous, {unmatched_received} unmatched receives, {unmatched_sent} unmatched sends, \
             {copies} copies, {cut_off} in hand where records are missing\n"
        );
        text += &report::left_out(&self.counts);
        let HopCounts { matched, unmatched, one_ended, unknown, ambiguous, without_id } = self.ways;
        text += &format!(
            "between processes: {matched} matched, {unmatched} unmatched, {one_ended} by streams with one end traced, {ambiguous} ambiguous, "
        );
        text += &format!(
            "{unknown} of sockets not known, {without_id} over UDP without an id, {} between hosts whose clocks could not be compared\n",
            self.untimed
        );
        let (matched, unmatched) = self.passes;
        if matched + unmatched > 0 {
            text += &format!("at devices: {matched} points on these ways, {unmatched} on others\n");
        }
        text
    }

    fn json(&self) -> Value {
        let files: Vec<Value> = self
            .files
            .iter()
            .zip(&self.clocks)
            .map(|(file, clock)| {
                json!({
                    "file": file.path, "machine": file.trace.machine, "events": file.events.len(),
                    "offset_ns": clock.map(|clock| clock.ns), "offset_bound_ns": clock.map(|clock| clock.bound_ns),
                    "lost": file.end.map(|end| end.lost), "missed": file.end.map(|end| end.missed),
                    "late": file.end.map(|end| end.late),
                })
            })
            .collect();
        let stages: Vec<Value> =
            self.summary.stages().map(|(stage, times)| report::stage_json(stage, times)).collect();
        let mut report = json!({
            "files": files,
            "stages": stages,
            "hops": report::ways_json(self.ways),
            "devices": report::passes_json(self.passes),
            "untimed": self.untimed,
        });
        if let (Value::Object(all), Value::Object(counts)) = (&mut report, report::counts_json(&self.counts))
        {
            all.extend(counts);
        }
        report
    }
}
