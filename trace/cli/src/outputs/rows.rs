//! One line for each message, as comma-separated values or as JSON.

use std::io::Write;

use serde::Serialize;
use trieline_trace::{Cost, Median, Message, Transport};

use super::files::Format;
use crate::calibrate::tenths;

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
    // As text: 64 bits are more than the numbers of jq and JavaScript hold.
    socket_in: String,
    socket_out: String,
    bytes_in: u32,
    bytes_out: u32,
    reads: u32,
    reply: bool,
    /// The tracer's cost for such a message, and the 95 % interval.
    cost_ns: Option<f64>,
    cost_low: Option<f64>,
    cost_high: Option<f64>,
    /// The id's bytes as they are in the message, as a number of the machine.
    id: Option<String>,
}

/// The tracer's cost for a message, by the transports that carry it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs([Option<Median>; Transport::ALL.len()]);

impl Costs {
    /// As they were measured, if they were.
    pub fn of(cost: &Result<Cost, String>) -> Costs {
        let of = |transport| Some(cost.as_ref().ok()?.of(transport)?.traced);
        Costs(Transport::ALL.map(of))
    }

    /// Of a message that comes by one transport and goes by another: of each a send and a receive were measured, so half of both.
    fn between(&self, from: Transport, to: Transport) -> Option<Median> {
        let (one, two) = (self.0[from as usize]?, self.0[to as usize]?);
        let half = |of: fn(&Median) -> f64| (of(&one) + of(&two)) / 2.0;
        Some(Median {
            value: half(|cost| cost.value),
            low: half(|cost| cost.low),
            high: half(|cost| cost.high),
        })
    }
}

const COLUMNS: &str = "received_ns,left_ns,inside_ns,left_at,thread_in,thread_out,transport_in,transport_out,\
                       socket_in,socket_out,bytes_in,bytes_out,reads,reply,cost_ns,cost_low,cost_high,id";

impl Row {
    fn new(message: &Message, costs: &Costs) -> Row {
        let Message { received, sent, reads } = *message;
        let cost = costs.between(received.transport, sent.transport);
        Row {
            received_ns: received.time_ns,
            left_ns: sent.time_ns,
            inside_ns: message.inside_ns(),
            left_at: sent.point.name(),
            thread_in: received.thread,
            thread_out: sent.thread,
            transport_in: received.transport.name(),
            transport_out: sent.transport.name(),
            socket_in: received.socket.to_string(),
            socket_out: sent.socket.to_string(),
            bytes_in: received.bytes,
            bytes_out: sent.bytes,
            reads,
            reply: message.is_reply(),
            cost_ns: cost.map(|cost| tenths(cost.value)),
            cost_low: cost.and_then(|cost| cost.interval()).map(|(low, _)| tenths(low)),
            cost_high: cost.and_then(|cost| cost.interval()).map(|(_, high)| tenths(high)),
            id: received.id.map(|id| id.to_string()),
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
        writeln!(out, ",{}", self.id.as_deref().unwrap_or_default())
    }
}

/// Comma-separated values, with the tracer's own cost a message.
pub struct Csv(pub Costs);

impl Format for Csv {
    fn begin(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(writeln!(out, "{COLUMNS}")?)
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(Row::new(message, &self.0).csv(out)?)
    }
}

/// JSON, a line each, with the tracer's own cost a message.
pub struct JsonLines(pub Costs);

impl Format for JsonLines {
    fn message(&mut self, message: &Message, out: &mut Vec<u8>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut *out, &Row::new(message, &self.0))?;
        out.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::files::tests::message;

    fn delta(ns: f64) -> Option<Median> {
        Some(Median { value: ns, low: ns - 1.0, high: ns + 1.0 })
    }

    #[test]
    fn a_row_has_the_cost_of_its_transports() {
        let costs = Costs([delta(100.0), delta(300.0), None, None, None]);
        let cost = |from, to| costs.between(from, to).map(|cost| (cost.value, cost.low, cost.high));
        assert_eq!(cost(Transport::Tcp, Transport::Tcp), Some((300.0, 299.0, 301.0)));
        assert_eq!(cost(Transport::Udp, Transport::Tcp), Some((200.0, 199.0, 201.0)));
        assert_eq!(cost(Transport::UnixStream, Transport::Udp), None);
    }

    /// Of two numbers that are one apart, a reader with doubles would make one.
    #[test]
    fn numbers_of_64_bits_are_text() {
        let mut one = message((1, 10), (1, 20));
        (one.received.id, one.received.socket) = (Some(u64::MAX), 1 << 63 | 1);
        let row = serde_json::to_value(Row::new(&one, &Costs::default())).unwrap();
        assert_eq!(
            (&row["id"], &row["socket_in"]),
            (&"18446744073709551615".into(), &"9223372036854775809".into())
        );
        assert!(row["cost_ns"].is_null() && row["received_ns"] == 10);
    }
}
