//! The report of a trace, for people and as JSON: times by stage, unjoined messages, losses and cost.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use trieline_trace::{
    Backend, By, Cost, Counts, Decoded, Histogram, HopCounts, LiveCost, Part, Payer, Refusal, Rings, Seen,
    Stage, Stamps, Summary, Usage,
};

use crate::calibrate::{self, CostJson, LiveJson, PayerJson};
use crate::following::HopResults;
use trieline_terminal::{Output, aligned};

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// The end of a trace.
pub struct Report<'a> {
    /// Hooks that were used.
    pub backend: Backend,
    /// Each of them that is attached, and who pays for it.
    pub payers: Vec<Payer>,
    /// Processor time and memory of the tracer's own process while the trace ran.
    pub usage: Usage,
    /// Memory that the hooks write into.
    pub rings: Rings,
    /// Hooks that could not be.
    pub refused: &'a [Refusal],
    /// Whether C of UDP and TCP is the device's queue.
    pub at_queue: bool,
    /// The tracer's own, or why it is not known.
    pub cost: Result<Cost, String>,
    /// Its cost for the traced processes, if it was measured.
    pub live: Option<LiveCost>,
    /// Times inside processes.
    pub summary: &'a Summary,
    /// Results outside of processes.
    pub ways: Option<HopResults<'a>>,
    /// Counts of the records.
    pub counts: Counts,
    /// Counts of bytes that the decoder could not read.
    pub decoded: Decoded,
    /// Counts of missed records.
    pub seen: Seen,
    /// How long it took.
    pub elapsed: Duration,
    /// How messages were joined.
    pub by: By,
    /// Counts of the messages to stamp.
    pub stamps: Option<Stamps>,
    /// Remarks of the outputs.
    pub notes: &'a [String],
}

impl Report<'_> {
    /// Whether no message was seen.
    pub fn is_empty(&self) -> bool {
        let Counts { received, sent, control, clients, .. } = self.counts;
        let passed =
            self.ways.and_then(|ways| ways.passes).map_or(0, |(matched, unmatched)| matched + unmatched);
        received + sent + control + clients + passed == 0
    }

    /// Prints it.
    pub fn print(&self, output: &Output) -> anyhow::Result<()> {
        if output.json { output.document(&self.json()) } else { output.text(&self.text(output)) }
    }

    fn text(&self, output: &Output) -> String {
        let mut text = calibrate::hooks_text(self.backend, &self.payers);
        for refusal in self.refused {
            let _ = writeln!(text, "       not {}: {}", refusal.backend.name(), refusal.reason);
        }
        text.push_str(&cost(&self.cost));
        if let Some(live) = &self.live {
            text.push_str(&calibrate::live_text(live));
        }
        text.push_str(&self.own());
        let seconds = self.elapsed.as_secs_f64();
        let counts = &self.counts;
        if self.is_empty() {
            let _ = writeln!(text, "no message was seen in {seconds:.1} s");
        } else {
            let _ = writeln!(text, "\nT2, from the receive to C, microseconds:");
            text.push_str(&table(&self.stages()));
            let by = if self.by == By::Id { "id" } else { "thread" };
            let _ = writeln!(
                text,
                "\n{} received, {} sent, {} matched by {by} in {seconds:.1} s; {} ambiguous, {} unmatched receives, {} unmatched sends, {} copies, {} more reads",
                counts.received,
                counts.sent,
                counts.matched,
                counts.ambiguous,
                counts.unmatched_received,
                counts.unmatched_sent,
                counts.copies,
                counts.pieces
            );
            if counts.control > 0 {
                let _ = writeln!(text, "{} messages of the connections themselves", counts.control);
            }
            if counts.clients > 0 {
                let _ = writeln!(text, "{} received or sent by clients", counts.clients);
            }
            text.push_str(&left_out(counts));
            if counts.queued_later > 0 {
                let later = counts.queued_later;
                let _ = writeln!(
                    text,
                    "{later} sends over TCP were queued later than their call: C is the end of the call"
                );
            }
            if counts.cut_off > 0 {
                let _ = writeln!(text, "{} receives were in hand where records are missing", counts.cut_off);
            }
            let hops = self.ways.and_then(|ways| ways.hops);
            if let Some(HopCounts { matched, unmatched, one_ended, unknown, ambiguous, without_id }) = hops {
                let _ = writeln!(
                    text,
                    "from process to process: {matched} matched, {unmatched} unmatched, {one_ended} by streams with one end traced, {ambiguous} ambiguous, {unknown} of sockets not known, \
                     {without_id} over UDP without an id"
                );
            }
            if let Some((matched, unmatched)) = self.ways.and_then(|ways| ways.passes) {
                let _ =
                    writeln!(text, "at devices: {matched} arrivals of these messages, {unmatched} of others");
            }
            if self.by == By::Id {
                let _ = writeln!(
                    text,
                    "{} too short for the id, {} without one, {} not readable",
                    counts.short, counts.absent, counts.unreadable
                );
            } else if counts.ambiguous * 20 > counts.received {
                let _ = writeln!(
                    text,
                    "{} % of what was received came in batches and is not in these times, which are too short for it: --decode or --id tell \
                     such messages apart",
                    counts.ambiguous * 100 / counts.received.max(1)
                );
            }
        }
        if let Some(Stamps { written, taken, short, several, failed }) = self.stamps {
            let _ = writeln!(
                text,
                "{written} messages stamped; not: {taken} as other bytes were there, {short} too short, {several} of several in a packet or \
                 parts of one, {failed} as the packet could not be written"
            );
        }
        if self.decoded != Decoded::default() {
            let Decoded { malformed, unseen, bytes } = self.decoded;
            let line = format!(
                "decoder: {malformed} calls malformed, {unseen} with messages behind the captured bytes: {bytes} bytes were not decoded; the \
                 messages in them are in no count (--capture sees more of each call)"
            );
            let _ = writeln!(text, "{}", output.bad(&line));
        }
        let Seen { lost, missed, late, discarded } = self.seen;
        let lost = format!("{lost} records lost, {discarded} discarded, {missed} events missed, {late} late");
        for note in self.notes {
            let _ = writeln!(text, "{note}");
        }
        let is_whole = self.seen == Seen::default();
        let _ = writeln!(text, "{}", if is_whole { lost } else { output.bad(&lost) });
        text
    }

    /// Processor time and memory of the tracer's own process.
    fn own(&self) -> String {
        let (Usage { user, system, resident }, Rings { rings, slots, bytes, .. }) = (self.usage, self.rings);
        let share = (user + system).as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        format!(
            "tracer: its own process took {:.2} s of processor time ({:.2} user, {:.2} system; {:.1} % of a CPU) and {} of memory; its \
             rings {} ({slots} records on each of {rings} CPUs)\n",
            (user + system).as_secs_f64(),
            user.as_secs_f64(),
            system.as_secs_f64(),
            share * 100.0,
            mebibytes(resident),
            mebibytes(bytes),
        )
    }

    /// All times, in the order of a message's way.
    fn stages(&self) -> Vec<(&Stage, &Histogram<u64>)> {
        let ways = self.ways.iter().flat_map(|ways| ways.times.stages());
        let mut stages: Vec<_> = ways.chain(self.summary.stages()).collect();
        stages.sort_by_key(|(stage, _)| **stage);
        stages
    }

    fn json(&self) -> Value {
        let counts = &self.counts;
        let stages: Vec<Value> =
            self.stages().into_iter().map(|(stage, times)| stage_json(stage, times)).collect();
        let refused: Vec<Value> = self
            .refused
            .iter()
            .map(|refusal| json!({ "hooks": refusal.backend.name(), "reason": refusal.reason }))
            .collect();
        let mut report = json!({
            "hooks": self.backend.name(),
            "refused": refused,
            "joined_by": if self.by == By::Id { "id" } else { "thread" },
            "at_queue": self.at_queue,
            "cost": self.cost.as_ref().ok().map(CostJson::from),
            "live": self.live.map(LiveJson::from),
            "seconds": (self.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            "stages": stages,
            "malformed": self.decoded.malformed,
            "unseen": self.decoded.unseen,
            "undecoded_bytes": self.decoded.bytes,
            "stamps": self.stamps.map(stamps_json),
            "hops": self.ways.and_then(|ways| ways.hops).map(ways_json),
            "arrivals": self.ways.and_then(|ways| ways.passes).map(passes_json),
            "lost": self.seen.lost,
            "missed": self.seen.missed,
            "late": self.seen.late,
            "discarded": self.seen.discarded,
            "notes": self.notes,
        });
        if let (Value::Object(all), Value::Object(counts)) = (&mut report, counts_json(counts)) {
            all.extend(counts);
        }
        report["attached"] = self.payers.iter().copied().map(|payer| json!(PayerJson::from(payer))).collect();
        report["tracer"] = json!({
            "user_s": self.usage.user.as_secs_f64(), "system_s": self.usage.system.as_secs_f64(),
            "resident_bytes": self.usage.resident, "rings_bytes": self.rings.bytes, "ring_records": self.rings.slots,
            "rings": self.rings.rings,
        });
        report
    }
}

/// The tracer's own cost, or why it is not known.
pub fn cost(cost: &Result<Cost, String>) -> String {
    match cost {
        Ok(cost) => calibrate::text(cost),
        Err(why) => format!("cost: {why}\n"),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Nanoseconds as microseconds.
pub fn micros(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1000.0)
}

/// A stage in few words: `tcp to udp, queued`.
pub fn stage_name(stage: &Stage) -> String {
    let part = if stage.part == Part::INSIDE { String::new() } else { format!("{} ", stage.part.name()) };
    let reply = if stage.is_reply { " (same socket)" } else { "" };
    format!("{part}{} to {}{reply}, {}", stage.from, stage.to, c_point(stage))
}

/// A stage's times.
pub fn stage_json(stage: &Stage, times: &Histogram<u64>) -> Value {
    let mut row = json!({
        "stage": stage.part.name(), "from": stage.from.name(), "to": stage.to.name(),
        "same_socket": stage.is_reply, "left_at": c_point(stage), "messages": times.len(), "max_ns": times.max(),
    });
    for (name, quantile) in QUANTILES {
        row[format!("{name}_ns")] = times.value_at_quantile(quantile).into();
    }
    row
}

/// Percent of what was received that is ambiguous, where it is more than a twentieth.
pub fn few(counts: &Counts) -> Option<u64> {
    (counts.ambiguous * 20 > counts.received).then(|| counts.ambiguous * 100 / counts.received.max(1))
}

/// Receives and sends that belong to no message that was found.
pub fn not_joined(counts: &Counts) -> u64 {
    let of_ids = counts.short + counts.absent + counts.unreadable;
    let shared = counts.shared + counts.early;
    counts.ambiguous + counts.unmatched_received + counts.unmatched_sent + counts.cut_off + of_ids + shared
}

/// Counts of receives and sends: the same keys for a trace and for traces that are joined.
pub fn counts_json(counts: &Counts) -> Value {
    json!({
        "received": counts.received,
        "sent": counts.sent,
        "matched": counts.matched,
        "ambiguous": counts.ambiguous,
        "undecided": counts.undecided,
        "unmatched_received": counts.unmatched_received,
        "unmatched_sent": counts.unmatched_sent,
        "copies": counts.copies,
        "more_reads": counts.pieces,
        "more_sends": counts.ways,
        "aside": counts.aside,
        "shared": counts.shared,
        "early": counts.early,
        "clients": counts.clients,
        "queued_later": counts.queued_later,
        "streamed": counts.streamed,
        "short": counts.short,
        "absent": counts.absent,
        "control": counts.control,
        "unreadable": counts.unreadable,
        "cut_off": counts.cut_off,
        "given_up": counts.given_up,
        "forgotten": counts.forgotten,
    })
}

/// Messages that have no T2, or more than one, and why.
pub fn left_out(counts: &Counts) -> String {
    let Counts { streamed, early, ways, aside, shared, undecided, given_up, forgotten, .. } = *counts;
    let lines = [
        (
            ways,
            "more T2 of messages that left in several ways: passed on and answered, or by several transports",
        ),
        (aside, "datagrams and lines sent meanwhile, as logs are: they end no T2"),
        (undecided, "sends of an unknown message: they end no T2"),
        (given_up, "receives dropped before their send came, as too many others waited"),
        (forgotten, "ids dropped early, as too many came: their later sends are unmatched"),
        (
            shared,
            "receives of processes whose runtime (Go, tokio, Erlang) moves messages between threads: --decode or --id join them; \
             --trust-threads joins them by thread",
        ),
        (streamed, "began to leave before all of their bytes had come: they have no T2"),
        (
            early,
            "answers that began before all of their request had come, and such requests: they have no T2",
        ),
    ];
    lines.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}\n")).collect()
}

/// Which point is C.
pub fn c_point(stage: &Stage) -> &'static str {
    if stage.at_queue { "queued" } else { "sent" }
}

/// Times by stage, for people.
pub fn table(stages: &[(&Stage, &Histogram<u64>)]) -> String {
    let mut rows = vec![["stage", "from", "to", "sent", "messages"].map(String::from).to_vec()];
    rows[0].extend(QUANTILES.map(|(name, _)| name.to_owned()));
    rows[0].push("max".into());
    for (stage, times) in stages {
        let to = if stage.is_reply { format!("{} (same socket)", stage.to) } else { stage.to.to_string() };
        let part = stage.part.name();
        let mut row = vec![part, stage.from.to_string(), to, c_point(stage).into(), times.len().to_string()];
        row.extend(QUANTILES.map(|(_, quantile)| micros(times.value_at_quantile(quantile))));
        row.push(micros(times.max()));
        rows.push(row);
    }
    aligned(&rows, 4)
}

fn stamps_json(stamps: Stamps) -> Value {
    let Stamps { written, taken, short, several, failed } = stamps;
    json!({ "written": written, "taken": taken, "short": short, "several": several, "failed": failed })
}

/// Arrivals at devices in JSON, those on a way that was found and those that are not.
pub fn passes_json((matched, unmatched): (u64, u64)) -> Value {
    json!({ "matched": matched, "unmatched": unmatched })
}

/// Counts of the ways between processes, in JSON.
pub fn ways_json(counts: HopCounts) -> Value {
    json!({
        "matched": counts.matched, "unmatched": counts.unmatched, "one_ended": counts.one_ended, "ambiguous": counts.ambiguous,
        "unknown": counts.unknown, "without_id": counts.without_id,
    })
}
