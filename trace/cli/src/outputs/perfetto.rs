//! Messages in the Trace Event Format (the JSON that Perfetto and chrome://tracing open). It has slices on the tracks of threads, and flow
//! arrows from the thread that received a message to the one that sent it.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;

use anyhow::Result;
use trieline_trace::{Message, Record};

use super::files::Format;
use super::sink::About;
use super::threads::Threads;

/// A nanosecond: slices of no length are not drawn, and arrows hold on to nothing.
const INSTANT_NS: u64 = 1;

/// A document with the events of the messages.
///
/// A message that one thread receives and sends, and that overlaps no other on it, is one slice from B to C. Any other is a short
/// slice at B and one at C, with an arrow between them. An asynchronous slice of its process stands for the time between. Slices of a
/// thread lie in each other or apart: of two that cross, Perfetto drops the second.
pub struct Perfetto {
    threads: Threads,
    /// The tracer's own cost.
    cost: String,
    /// Messages that the file may have.
    limit: u64,
    written: u64,
    left_out: u64,
    /// Of flows and of asynchronous slices.
    next_id: u64,
    /// Processes and threads whose names are in the file.
    named: HashSet<(u32, u32)>,
    tracks: HashMap<u32, Track>,
}

/// The ends of slices that a thread's long slices must not cross.
#[derive(Default)]
struct Track {
    /// Where the last long one ends.
    end: u64,
    /// Where the last short one at a B is: other messages of the same read have theirs there, too.
    short: Option<u64>,
}

impl Perfetto {
    /// A file of at most `limit` messages; later ones are left out and counted.
    pub fn new(limit: u64, about: &About) -> Perfetto {
        Perfetto {
            threads: Threads::default(),
            cost: about.cost_text(),
            limit,
            written: 0,
            left_out: 0,
            next_id: 1,
            named: HashSet::new(),
            tracks: HashMap::new(),
        }
    }

    /// Writes the names of a thread and its process once. Answers the process.
    fn name(&mut self, record: &Record, out: &mut Vec<u8>) -> Result<u32> {
        let thread = record.thread;
        let known = self.threads.get(record);
        let process = known.process;
        let mut say = |what: &str, name: &str| -> Result<()> {
            write!(out, ",\n{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},")?;
            write!(out, "\"args\":{{\"name\":{}}}}}", serde_json::to_string(name)?)?;
            Ok(())
        };
        if self.named.insert((process, thread)) {
            say("process_name", &known.process_name)?;
            say("thread_name", &known.name)?;
        }
        Ok(process)
    }
}

/// Microseconds with three digits behind the point: the format's unit.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// An event up to its arguments: its kind, with what the kind needs, and where and when it is.
fn event(out: &mut Vec<u8>, kind: &str, (pid, tid): (u32, u32), time_ns: u64) -> Result<()> {
    write!(out, ",\n{{{kind},\"cat\":\"message\",\"pid\":{pid},\"tid\":{tid},\"ts\":{}", micros(time_ns))?;
    Ok(())
}

impl Format for Perfetto {
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let cost = serde_json::to_string(&self.cost)?;
        writeln!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"own_cost\":{cost}}},\"traceEvents\":["
        )?;
        // An event that all others can follow by a comma.
        write!(
            out,
            "{{\"ph\":\"M\",\"name\":\"trace_clock\",\"pid\":0,\"args\":{{\"name\":\"CLOCK_MONOTONIC\"}}}}"
        )?;
        Ok(())
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<()> {
        if self.written == self.limit {
            self.left_out += 1;
            return Ok(());
        }
        self.written += 1;
        let (received, sent) = (message.received, message.sent);
        let (b, c) = (received.time_ns, sent.time_ns);
        let from = (self.name(&received, out)?, received.thread);
        let to = (self.name(&sent, out)?, sent.thread);
        let name = format!("\"name\":\"{} to {}\"", received.transport, sent.transport);
        let id = received.id.map(|id| format!(",\"id\":\"{id}\"")).unwrap_or_default();
        let args = format!(
            ",\"args\":{{\"T2_ns\":{},\"bytes_in\":{},\"bytes_out\":{},\"left_at\":\"{}\"{id}}}}}",
            message.inside_ns(),
            received.bytes,
            sent.bytes,
            sent.point.name(),
        );
        let track = self.tracks.entry(received.thread).or_default();
        let is_free = b >= track.end && track.short.is_none_or(|short| b > short);
        if received.thread == sent.thread && is_free {
            track.end = c;
            event(out, &format!("\"ph\":\"X\",{name}"), from, b)?;
            write!(out, ",\"dur\":{}{args}", micros(message.inside_ns().max(INSTANT_NS)))?;
            return Ok(());
        }
        track.short = track.short.max(Some(b));
        let number = self.next_id;
        self.next_id += 1;
        for (place, time, what) in [(from, b, "received"), (to, c, "sent")] {
            event(out, &format!("\"ph\":\"X\",\"name\":\"{what}\""), place, time)?;
            write!(out, ",\"dur\":{}{args}", micros(INSTANT_NS))?;
        }
        let flow = format!("\"name\":\"message\",\"id\":{number}");
        event(out, &format!("\"ph\":\"s\",{flow}"), from, b)?;
        write!(out, "}}")?;
        event(out, &format!("\"ph\":\"f\",\"bp\":\"e\",{flow}"), to, c)?;
        write!(out, "}}")?;
        for (kind, time) in [("b", b), ("e", c)] {
            event(out, &format!("\"ph\":\"{kind}\",{name},\"id\":{number}"), from, time)?;
            write!(out, "}}")?;
        }
        Ok(())
    }

    fn ended(&mut self, thread: u32) {
        self.threads.forget(thread);
        self.named.retain(|(_, named)| *named != thread);
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b"\n]}\n");
        Ok(())
    }

    fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "{} messages are not in the Perfetto file, which holds {} (--perfetto-limit)",
                self.left_out, self.limit
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::message;
    use super::*;
    use serde_json::Value;
    use trieline_trace::By;

    fn written(limit: u64, messages: &[Message]) -> (Vec<Value>, Option<String>) {
        let about =
            About { cost: &Err("not \"measured\"".into()), by: By::Id, json: false, has_command: false };
        let mut perfetto = Perfetto::new(limit, &about);
        let mut out = Vec::new();
        perfetto.begin(&mut out).unwrap();
        messages.iter().for_each(|message| perfetto.message(message, &mut out).unwrap());
        perfetto.end(&mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        assert!(document["otherData"]["own_cost"].as_str().unwrap().contains("not \"measured\""));
        (document["traceEvents"].as_array().unwrap().clone(), perfetto.note())
    }

    fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == kind).collect()
    }

    #[test]
    fn one_thread_is_a_slice_and_two_are_joined_by_an_arrow() {
        const NOBODY: u32 = u32::MAX;
        let alone = message((NOBODY, 1_000), (NOBODY, 3_500));
        let overlapping = message((NOBODY, 2_000), (NOBODY, 4_000));
        let across = message((NOBODY, 10_000), (NOBODY - 1, 12_345));
        // Of the same read: a long slice would cross the short one of the message before.
        let with_it = message((NOBODY, 10_000), (NOBODY, 13_000));
        let (events, note) = written(9, &[alone, overlapping, across, with_it]);
        assert_eq!(note, None);
        let slices = of(&events, "X");
        let place = |event: &Value| (event["tid"].as_u64().unwrap() as u32, event["ts"].as_f64().unwrap());
        assert_eq!((place(slices[0]), &slices[0]["dur"]), ((NOBODY, 1.0), &2.5.into()));
        let (flows, ends) = (of(&events, "s"), of(&events, "f"));
        assert_eq!((flows.len(), ends.len(), slices.len()), (3, 3, 7));
        assert_eq!((place(flows[1]), place(ends[1])), ((NOBODY, 10.0), (NOBODY - 1, 12.345)));
        for (flow, end) in flows.iter().zip(&ends) {
            assert!(flow["id"] == end["id"] && end["bp"] == "e");
            // Each end holds on to a slice of its thread that begins at the same time.
            for at in [flow, end] {
                assert!(slices.iter().any(|slice| place(slice) == place(at)), "{at}");
            }
        }
        assert_ne!(flows[0]["id"], flows[1]["id"]);
        let between: Vec<_> = of(&events, "b")
            .into_iter()
            .zip(of(&events, "e"))
            .map(|(b, e)| (place(b).1, place(e).1))
            .collect();
        assert_eq!(between, [(2.0, 4.0), (10.0, 12.345), (10.0, 13.0)]);
    }

    #[test]
    fn the_next_thread_of_a_number_has_its_own_name() {
        const NUMBER: u32 = u32::MAX;
        let about = About { cost: &Err("none".into()), by: By::Id, json: false, has_command: false };
        let mut perfetto = Perfetto::new(9, &about);
        let mut out = Vec::new();
        let mut names = |perfetto: &mut Perfetto| {
            out.clear();
            perfetto.message(&message((NUMBER, 1), (NUMBER, 2)), &mut out).unwrap();
            String::from_utf8_lossy(&out).matches("thread_name").count()
        };
        assert_eq!((names(&mut perfetto), names(&mut perfetto)), (1, 0));
        perfetto.ended(NUMBER - 1);
        assert_eq!(names(&mut perfetto), 0);
        perfetto.ended(NUMBER);
        assert_eq!((names(&mut perfetto), names(&mut perfetto)), (1, 0));
    }

    #[test]
    fn messages_beyond_the_files_limit_are_counted() {
        let messages: Vec<Message> = (0..5).map(|n| message((1, 10 * n), (1, 10 * n + 5))).collect();
        let (events, note) = written(3, &messages);
        assert_eq!(of(&events, "X").len(), 3);
        assert!(note.unwrap().starts_with("2 messages are not in the Perfetto file"));
    }
}
