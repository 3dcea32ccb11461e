//! The document of `rss`: how evenly hashes spread flows, what real packets did, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::lines::{self, Line};

use super::{balance::Filling, fields::Fields, flows::Traffic};
use crate::{
    Result,
    report::{Column, Document, Picture, Report, Table, dash, table},
    tables::Source,
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row, More>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// The table of the destinations: read or generated.
    pub source: Source,
    /// IPv4 prefixes in it.
    pub routes4: usize,
    /// Flows of each draw.
    pub flows: usize,
    /// Draws of flows.
    pub rounds: usize,
    /// Entries of the indirection table.
    pub entries: usize,
    /// CPUs that served the two queues of the real packets.
    pub cpus: [usize; 2],
    /// The hash, in words.
    pub hash: &'static str,
    /// The meaning of the rows' keys.
    pub keys: &'static str,
}

/// How evenly one choice of key, fields and table spreads flows, in a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `uniform table zipf`.
    pub traffic: Traffic,
    /// SRv6 tunnels that the flows are in; 0 = none.
    pub tunnels: usize,
    /// `ip ip-ports outer outer-label inner`.
    pub fields: Fields,
    /// `microsoft symmetric`.
    pub key: &'static str,
    /// How the indirection table was filled: `equal weighted`.
    pub table: Filling,
    /// Queues.
    pub queues: usize,
    /// Flows.
    pub flows: usize,
    /// Flows of the largest queue over the mean: median of the draws; 1 = even.
    pub flow_share: f64,
    /// Least draw.
    pub flow_share_min: f64,
    /// Largest.
    pub flow_share_max: f64,
    /// Packets of the largest queue over the mean: median of the draws.
    pub packet_share: f64,
    /// Least draw.
    pub packet_share_min: f64,
    /// Largest.
    pub packet_share_max: f64,
    /// Queues without a flow, in the first draw.
    pub idle: usize,
    /// Share of the flows whose answers come to the same queue, in the first draw.
    pub both_ways: f64,
}

/// Real packets over two queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The choice of the queue; `packet`: each in turn, which reorders.
    pub fields: Fields,
    /// The flow label that the kernel's headend wrote: `zero hash`; null without a tunnel.
    pub flow_label: Option<&'static str>,
    /// Different labels that arrived; null without a tunnel.
    pub labels: Option<usize>,
    /// Queues.
    pub queues: usize,
    /// Flows that had packets.
    pub flows: usize,
    /// Packets sent; each one arrived.
    pub packets: u64,
    /// Packets of each queue.
    pub per_queue: Vec<u64>,
    /// Packets of the largest queue over the mean.
    pub packet_share: f64,
    /// Packets that came after one of the same flow with a higher number.
    pub reordered: u64,
    /// Flows with such packets.
    pub flows_reordered: usize,
}

/// Results besides the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct More {
    /// Real packets.
    pub order: Vec<Order>,
    /// Commands for an operator, with comments.
    pub advice: Vec<String>,
}

const COLUMNS: [Column<Row>; 11] = [
    ("traffic", |row| row.traffic.name().into()),
    ("fields", |row| row.fields.name().into()),
    ("key", |row| row.key.into()),
    ("table", |row| row.table.name().into()),
    ("tunnels", |row| if row.tunnels == 0 { "-".into() } else { row.tunnels.to_string() }),
    ("queues", |row| row.queues.to_string()),
    ("flows", |row| format!("{:.3}", row.flow_share)),
    ("packets", |row| format!("{:.3}", row.packet_share)),
    ("most", |row| format!("{:.3}", row.packet_share_max)),
    ("idle", |row| row.idle.to_string()),
    ("both ways", |row| format!("{:.3}", row.both_ways)),
];

const ORDERS: [Column<Order>; 8] = [
    ("fields", |row| row.fields.name().into()),
    ("label", |row| dash(row.flow_label, str::to_owned)),
    ("labels", |row| dash(row.labels, |count| count.to_string())),
    ("flows", |row| row.flows.to_string()),
    ("packets", |row| row.packets.to_string()),
    ("queue 0", |row| row.per_queue.first().map(u64::to_string).unwrap_or_default()),
    ("queue 1", |row| row.per_queue.get(1).map(u64::to_string).unwrap_or_default()),
    ("reordered", |row| row.reordered.to_string()),
];

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        let order =
            "Real packets over two queues, through the kernel's headend; packet sends each to the next queue";
        vec![table(&self.rows, 4, &COLUMNS), table(&self.more.order, 2, &ORDERS).titled(order)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} flows, {} draws, {} entries. flows, packets: the largest queue over the mean, median of the draws (1 is even); most: the\n\
             packets' worst draw. idle: queues without a flow. both ways: flows whose answers come to the same queue.\n\
             Every packet arrived, at the queue that the hash says.\n\nFor a NIC:",
            p.flows, p.rounds, p.entries
        );
        for line in &self.more.advice {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let most = self.rows.iter().map(|row| row.queues).max().unwrap_or_default();
        let line = |row: &Row| Line {
            label: format!(
                "{} {}{}{}",
                row.traffic.name(),
                row.fields.name(),
                if row.tunnels > 0 { format!(", {} tunnels", row.tunnels) } else { format!(", {}", row.key) },
                if row.table == Filling::Weighted { ", weighted" } else { "" }
            ),
            value: row.packet_share,
            min: row.packet_share_min,
            max: row.packet_share_max,
            series: match row.traffic {
                Traffic::Uniform => 0,
                Traffic::Table => 2,
                Traffic::Zipf => 1,
            },
            note: format!("{:.2}", row.packet_share),
        };
        let lines: Vec<Line> = self.rows.iter().filter(|row| row.queues == most).map(line).collect();
        let title = format!("Packets of the largest of {most} queues over the mean");
        let unit = "largest queue over the mean, median with minimum and maximum of the draws";
        let svg = lines::picture(&title, unit, &self.caption(), &lines)?;
        Ok(vec![Picture { name: "rss".into(), svg }])
    }
}
