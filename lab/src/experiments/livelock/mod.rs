//! Experiment `livelock`: what a program receives when more is offered than it can take, for each way to receive.
//!
//! Drawn as Mogul and Ramakrishnan did (Eliminating receive livelock in an interrupt-driven kernel, USENIX 1996): the output's rate over the
//! input's.

mod bed;
mod cpu;
mod document;
mod offer;
mod reader;
mod receiver;
#[cfg(test)]
mod tests;
mod trial;
mod xsk;

use std::time::{Duration, Instant};

use clap::Args;

pub use document::{Outcome, Parameters, Row};
pub use receiver::{Napi, Receiver};

use self::{
    bed::{Bed, Pair},
    reader::Work,
    trial::{Bench, Got},
};
use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Only, Run, within},
};
use crate::{
    Context, Error, Result, frames::Kind, in_own_thread, measure::rounded, netns, report::Document,
    tables::Random,
};

const RATES: [usize; 12] = [50, 100, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 4000];
const RATES_QUICK: [usize; 6] = [50, 200, 500, 1000, 2000, 4000];
/// A quick run begins no further round after this time.
const QUICK: Duration = Duration::from_secs(25);

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct Livelock {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which receivers.
    #[command(flatten)]
    pub only: Only,
    /// Offer so many thousand frames a second, with commas between
    ///
    /// By default 50 to 4000.
    #[arg(long, value_name = "KPPS", value_delimiter = ',', value_parser = |text: &str| within(text, 1..=20_000))]
    pub rates: Vec<usize>,
    /// Send for so many ms a trial [default: 1000, quick 200]
    #[arg(long, value_name = "MS", value_parser = |text: &str| within(text, 10..=60_000))]
    pub trial: Option<usize>,
    /// Compute for so many ns of CPU time a frame
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = |text: &str| within(text, 0..=1_000_000))]
    pub work: usize,
    /// Send and receive on the same CPU
    #[arg(long)]
    pub one_cpu: bool,
}

impl Experiment for Livelock {
    const NAME: &'static str = "livelock";
    const PURPOSE: &'static str =
        "packets that a program receives against those offered: UDP and AF_XDP, overloaded";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["receiver", "rate_kpps"],
        figures: &[Figure::higher("delivered_kpps").from_to("delivered_min", "delivered_max")],
    }];
    const CODE: &'static [&'static str] = &[];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

/// A receiver with its link.
struct Case {
    receiver: Receiver,
    pair: Result<Pair>,
}

fn run_here(asked: &Livelock, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let (first, last) = netns::cpus_here()?;
    if first == last && !asked.one_cpu {
        return Err(Error::OneCpu);
    }
    let (sender_cpu, reader_cpu) = (if asked.one_cpu { last } else { first }, last);
    let rates: Vec<f64> = match (asked.rates.is_empty(), asked.run.quick) {
        (false, _) => asked.rates.iter().map(|kpps| *kpps as f64).collect(),
        (true, true) => RATES_QUICK.map(|kpps| kpps as f64).to_vec(),
        (true, false) => RATES.map(|kpps| kpps as f64).to_vec(),
    };
    let length =
        Duration::from_millis(asked.trial.unwrap_or(if asked.run.quick { 200 } else { 1000 }) as u64);
    let wanted = asked.run.rounds(2, 5);
    let machine = asked.run.machine();
    netns::remove_leftovers(None, &|text| context.progress.note(text));
    let receivers: Vec<Receiver> =
        Receiver::ALL.into_iter().filter(|receiver| asked.only.takes(receiver.name())).collect();
    let receivers = asked.only.some(receivers)?;
    context.progress.phase("namespaces", 0);
    let bed = Bed::create()?;
    let cases: Vec<Case> = receivers
        .into_iter()
        .zip(0..)
        .map(|(receiver, number)| Case { receiver, pair: bed.pair(receiver, number, reader_cpu) })
        .collect();
    netns::pin_to(reader_cpu)?;
    let work = Work::of(asked.work as u64);
    netns::pin_to(sender_cpu)?;
    netns::insist_here()?;
    let bench = Bench { bed: &bed, length, work, sender_cpu, reader_cpu };
    let mut random = Random::new(asked.run.seed ^ 0x6c69_7665);
    let points: Vec<(usize, usize)> =
        (0..cases.len()).flat_map(|case| (0..rates.len()).map(move |rate| (case, rate))).collect();
    context.progress.phase("rounds", (wanted * points.len()) as u64);
    let late = || asked.run.quick && began.elapsed() > QUICK;
    let taken = asked.run.take(context, Livelock::NAME, (wanted, points.len()), late, |at, gate| {
        let (case, rate) = points[at];
        let Case { receiver, pair } = &cases[case];
        let tag = random.bits();
        // A receiver that fails loses this trial; the run goes on.
        let got = netns::between(gate, &[reader_cpu], || match pair {
            Ok(pair) => Ok(bench.trial(*receiver, pair, tag, rates[rate] * 1e3).map_err(|e| e.to_string())),
            Err(error) => Ok(Err(error.to_string())),
        })?;
        context.check()?;
        Ok(got)
    })?;
    let row = |(at, (case, rate)): (usize, &(usize, usize))| {
        let results = || taken.0.iter().map(|round| &round[at]);
        let gots: Vec<Got> = results().filter_map(|got| got.as_ref().ok()).copied().collect();
        // A round that failed does not take the figures of the others, and is named.
        let why = results().filter_map(|got| got.as_ref().err()).next_back().cloned();
        Row::of(cases[*case].receiver, rates[*rate], &gots, why)
    };
    let rows: Vec<Row> = points.iter().enumerate().map(row).collect();
    if let Some(why) = none_delivered(&rows) {
        return Err(Error::Receiver(why));
    }
    let parameters = Parameters {
        quick: asked.run.quick,
        rounds: taken.len(),
        trial_s: rounded(length.as_secs_f64(), 3),
        work_ns: asked.work as u64,
        sender_cpu,
        reader_cpu,
        frame_bytes: Kind::Ipv4.frame_bytes(),
        counted: "frames that the sender's program sent, and frames with the trial's tag that the reading program got, over the time of \
                  the sending; a veth's ring of 256 frames, not a line, is what drops the rest first",
        cpu: "threads by the scheduler's count, softirq by the ticks of /proc/stat (10 ms), which also has what other programs cause; \
              softirq that interrupts a thread may count in both",
    };
    Ok(Document::new(Livelock::NAME, machine, parameters, rows))
}

/// Why no receiver has a figure, if none has.
fn none_delivered(rows: &[Row]) -> Option<String> {
    if rows.iter().any(|row| row.delivered > 0) {
        return None;
    }
    let why = rows.iter().find_map(|row| row.error.clone());
    Some(format!("no receiver got a frame; {}", why.unwrap_or_else(|| "no trial was made".into())))
}
