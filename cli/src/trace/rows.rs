//! One line for each message, as comma-separated values or as JSON.

use std::io::Write;

use serde::Serialize;
use trieline_trace::{Delta, Message};

use super::calibrate::tenths;
use super::files::Format;

/// Times are CLOCK_MONOTONIC; `inside_ns` is T2.
#[derive(Serialize)]
struct Row {
    received_ns: u64,
    left_ns: u64,
    inside_ns: u64,
    left_at: &'static str,
    thread_in: u32,
    thread_out: u32,
    transport_in: &'static str,
    transport_out: &'static str,
    socket_in: u64,
    socket_out: u64,
    bytes_in: u32,
    bytes_out: u32,
    reads: u32,
    reply: bool,
    /// What the tracer adds to a message, and the 95 % interval: the same in all rows.
    cost_ns: Option<f64>,
    cost_low: Option<f64>,
    cost_high: Option<f64>,
    /// The id's bytes as they are in the message, as a number of the machine.
    id: Option<u64>,
}

const COLUMNS: &str = "received_ns,left_ns,inside_ns,left_at,thread_in,thread_out,transport_in,transport_out,\
                       socket_in,socket_out,bytes_in,bytes_out,reads,reply,cost_ns,cost_low,cost_high,id";

impl Row {
    fn new(message: &Message, cost: Option<Delta>) -> Row {
        let Message { received, sent, reads } = *message;
        Row {
            received_ns: received.time_ns,
            left_ns: sent.time_ns,
            inside_ns: message.inside_ns(),
            left_at: sent.point.name(),
            thread_in: received.thread,
            thread_out: sent.thread,
            transport_in: received.transport.name(),
            transport_out: sent.transport.name(),
            socket_in: received.socket,
            socket_out: sent.socket,
            bytes_in: received.bytes,
            bytes_out: sent.bytes,
            reads,
            reply: message.is_reply(),
            cost_ns: cost.map(|cost| tenths(cost.ns)),
            cost_low: cost.and_then(|cost| cost.interval()).map(|(low, _)| tenths(low)),
            cost_high: cost.and_then(|cost| cost.interval()).map(|(_, high)| tenths(high)),
            id: received.id,
        }
    }

    fn csv(&self, out: &mut impl Write) -> std::io::Result<()> {
        write!(out, "{},{},{},{}", self.received_ns, self.left_ns, self.inside_ns, self.left_at)?;
        write!(out, ",{},{},{}", self.thread_in, self.thread_out, self.transport_in)?;
        write!(out, ",{},{},{}", self.transport_out, self.socket_in, self.socket_out)?;
        write!(out, ",{},{},{},{}", self.bytes_in, self.bytes_out, self.reads, self.reply)?;
        for cost in [self.cost_ns, self.cost_low, self.cost_high] {
            write!(out, ",{}", cost.map(|ns| ns.to_string()).unwrap_or_default())?;
        }
        writeln!(out, ",{}", self.id.map(|id| id.to_string()).unwrap_or_default())
    }
}

/// Comma-separated values, with the tracer's own cost a message.
pub struct Csv(pub Option<Delta>);

impl Format for Csv {
    fn begin(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(writeln!(out, "{COLUMNS}")?)
    }

    fn message(&mut self, message: &Message, _: &[u8], out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(Row::new(message, self.0).csv(out)?)
    }

    fn end(&mut self, _: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// JSON, a line each, with the tracer's own cost a message.
pub struct JsonLines(pub Option<Delta>);

impl Format for JsonLines {
    fn begin(&mut self, _: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(())
    }

    fn message(&mut self, message: &Message, _: &[u8], out: &mut Vec<u8>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut *out, &Row::new(message, self.0))?;
        out.push(b'\n');
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(())
    }
}
