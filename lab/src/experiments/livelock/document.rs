//! The document of `livelock`: its parameters, a row for each receiver and rate, its text and its picture.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trieline_plot::curve::{self, Curve, Marks, Point, Stroke, Words};

use super::{
    receiver::{Napi, Receiver},
    trial::Got,
};
use crate::{
    Result,
    measure::{Samples, rounded},
    report::{Column, Document, Picture, Report, Table, dash, table},
};

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// The parameters, for the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Interleaved rounds that were made.
    pub rounds: usize,
    /// Seconds that a trial sends.
    pub trial_s: f64,
    /// Nanoseconds of computing that a reader adds to each frame.
    pub work_ns: u64,
    /// CPU that sends.
    pub sender_cpu: usize,
    /// CPU that reads, and on which the kernel's part of most receivers runs.
    pub reader_cpu: usize,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// The meaning of `offered_kpps` and `delivered_kpps`.
    pub counted: &'static str,
    /// The meaning of the processor times.
    pub cpu: &'static str,
}

/// A receiver at a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub receiver: Receiver,
    /// Where the kernel polls the device.
    pub napi: Napi,
    /// Thousand frames a second that were asked for.
    pub rate_kpps: f64,
    /// Thousand a second that were really sent: median of the rounds. Null, as all that follows, if `error` says why.
    pub offered_kpps: Option<f64>,
    /// Whether that is within 2 % of the rate.
    pub paced: Option<bool>,
    /// Thousand a second that the reading program got: median of the rounds.
    pub delivered_kpps: Option<f64>,
    /// Least round.
    pub delivered_min: Option<f64>,
    /// Best round.
    pub delivered_max: Option<f64>,
    /// Nanoseconds of the reading thread for a delivered frame: median.
    pub reader_ns: Option<f64>,
    /// Of the thread of threaded NAPI.
    pub napi_ns: Option<f64>,
    /// Of softirq on the reader's CPU.
    pub softirq_ns: Option<f64>,
    /// Of softirq on the sender's CPU.
    pub sender_softirq_ns: Option<f64>,
    /// Frames sent, all rounds.
    pub frames: u64,
    /// Frames that the reading program got, all rounds.
    pub delivered: u64,
    /// Rounds that count.
    pub rounds: usize,
    /// Why a round, or the row, lacks a figure.
    pub error: Option<String>,
}

impl Row {
    pub(super) fn of(receiver: Receiver, kpps: f64, trials: &[Got], error: Option<String>) -> Row {
        let median = |of: &dyn Fn(&Got) -> f64| {
            let samples: Samples = trials.iter().map(of).collect();
            (!samples.is_empty()).then(|| samples.spread(1))
        };
        let offered = median(&|got| got.offered as f64 / got.seconds / 1e3).map(|[median, ..]| median);
        let delivered = median(&|got| got.delivered as f64 / got.seconds / 1e3);
        let middle = |of: &dyn Fn(&Got) -> f64| median(of).map(|[median, ..]| median);
        Row {
            receiver,
            napi: receiver.napi(),
            rate_kpps: rounded(kpps, 1),
            offered_kpps: offered,
            paced: offered.map(|offered| (offered / kpps - 1.0).abs() <= 0.02),
            delivered_kpps: delivered.map(|[median, ..]| median),
            delivered_min: delivered.map(|[_, min, _]| min),
            delivered_max: delivered.map(|[.., max]| max),
            reader_ns: middle(&|got| got.times.reader_ns),
            napi_ns: middle(&|got| got.times.napi_ns),
            softirq_ns: middle(&|got| got.times.softirq_ns),
            sender_softirq_ns: middle(&|got| got.times.sender_softirq_ns),
            frames: trials.iter().map(|got| got.offered).sum(),
            delivered: trials.iter().map(|got| got.delivered).sum(),
            rounds: trials.len(),
            error,
        }
    }
}

fn whole(value: Option<f64>) -> String {
    dash(value, |value| format!("{value:.0}"))
}

const COLUMNS: [Column<Row>; 11] = [
    ("receiver", |row| row.receiver.name().into()),
    ("rate kpps", |row| whole(Some(row.rate_kpps))),
    ("offered", |row| whole(row.offered_kpps)),
    ("", |row| if row.paced == Some(false) { "!" } else { "" }.into()),
    ("delivered", |row| whole(row.delivered_kpps)),
    ("min", |row| whole(row.delivered_min)),
    ("max", |row| whole(row.delivered_max)),
    ("reader ns", |row| whole(row.reader_ns)),
    ("NAPI ns", |row| whole(row.napi_ns)),
    ("softirq ns", |row| whole(row.softirq_ns)),
    ("sender's", |row| whole(row.sender_softirq_ns)),
];

/// A receiver's highest figure and the one at its highest offered load.
fn peaks(rows: &[Row]) -> String {
    let mut text = String::new();
    for receiver in Receiver::ALL {
        let of = || rows.iter().filter(|row| row.receiver == receiver);
        let best = of().filter_map(|row| row.delivered_kpps).fold(f64::NAN, f64::max);
        let last = of()
            .filter(|row| row.offered_kpps.is_some())
            .max_by(|a, b| a.offered_kpps.partial_cmp(&b.offered_kpps).unwrap_or(std::cmp::Ordering::Equal));
        if let Some((offered, delivered)) = last.and_then(|row| row.offered_kpps.zip(row.delivered_kpps)) {
            let share = 100.0 * delivered / best;
            let _ = writeln!(
                text,
                "{}: peak {best:.0} kpps; {delivered:.0} at {offered:.0} offered ({share:.0} % of the peak)",
                receiver.name()
            );
        }
    }
    text
}

impl Report for Outcome {
    fn tables(&self) -> Vec<Table> {
        vec![table(&self.rows, 1, &COLUMNS)]
    }

    fn notes(&self) -> String {
        let p = &self.parameters;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}{} rounds, trials of {} s, {} ns of work a frame; sender on CPU {}, reader on CPU {}.\nCounted: {}.\nProcessor time, ns a delivered frame: {}.\n!: the sender did not reach the rate within 2 %; `offered` is what it sent.",
            peaks(&self.rows),
            p.rounds,
            p.trial_s,
            p.work_ns,
            p.sender_cpu,
            p.reader_cpu,
            p.counted,
            p.cpu
        );
        for row in &self.rows {
            if let Some(error) = &row.error {
                let _ = writeln!(text, "{} at {:.0} kpps: {error}", row.receiver.name(), row.rate_kpps);
            }
        }
        text
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let curves: Vec<Curve> = curve::by_label(self.rows.iter().filter_map(|row| {
            let (series, stroke) = match row.receiver {
                Receiver::Udp => (0, Stroke::Solid),
                Receiver::UdpThreaded => (1, Stroke::Solid),
                Receiver::UdpRps => (1, Stroke::Thin),
                Receiver::UdpBusyPoll => (4, Stroke::Solid),
                Receiver::XskAdaptive => (2, Stroke::Solid),
                Receiver::XskPolling => (3, Stroke::Solid),
                Receiver::XskAdaptiveSoftirq => (2, Stroke::Thin),
            };
            let point = Point {
                x: row.offered_kpps?,
                y: row.delivered_kpps?,
                least: row.delivered_min?,
                most: row.delivered_max?,
            };
            Some(((row.receiver.name().to_owned(), series, stroke), point))
        }));
        let words = Words {
            title: "Receive livelock: delivered against offered load",
            x: "offered load, thousand frames a second",
            marks: Marks::Numbers,
            y: "delivered to the program, thousand frames a second",
            source: &self.caption(),
        };
        Ok(vec![Picture { name: self.experiment.to_owned(), svg: curve::picture(words, &curves)? }])
    }
}
