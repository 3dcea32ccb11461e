//! Experiment `engines`: trieline's tables in user space against the best there is elsewhere, on the same tables and addresses. All are
//! interleaved in one run, and every answer is accounted for.

mod candidates;
mod document;
mod dpdk;
mod engine;
mod rivals;
mod traffic;
mod trieline;
mod updates;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use hdrhistogram::Histogram;
use trieline_lpm::Prefix;

pub use document::{More, Outcome, Parameters, Row, UpdateRow};
pub use engine::Mode;
pub use traffic::Traffic;

use super::{
    experiment::{Compared, Experiment, Figure},
    options::{Run, Table, internet},
};
use crate::{
    Context, Error, Result, heap,
    measure::{Rounds, Samples, rounded, thread_seconds},
    report::Document,
    tables::{Random, Tables},
};
use candidates::{Built, Family, OURS};
use engine::BATCH;
use traffic::{SAMPLE, Stream};
use updates::{Clock, Meanwhile, Way};

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct Engines {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which table.
    #[command(flatten)]
    pub table: Table,
    /// Addresses of a round; the experiment's own number if unset.
    #[arg(skip)]
    pub addresses: Option<usize>,
}

impl Experiment for Engines {
    const NAME: &'static str = "engines";
    const PURPOSE: &'static str =
        "trieline's tables in user space against Poptrie, DPDK's FIBs, DIR-24-8 and Rust crates";
    const COMPARED: &'static [Compared] = &[
        Compared {
            list: "rows",
            names: &["table", "values", "engine", "traffic", "mode"],
            figures: &[Figure::higher("mlps")],
        },
        Compared {
            list: "updates",
            names: &["table", "engine", "way"],
            figures: &[Figure::higher("updates_per_s")],
        },
    ];
    const CODE: &'static [&'static str] = &["lpm/src"];
    const QUICK_SECONDS: u64 = 60;
    const FULL_SECONDS: u64 = 900;
    type Outcome = Outcome;

    /// It is for DPDK's huge pages only, which are reserved while it runs.
    fn needs_root(&self) -> bool {
        false
    }

    fn run(&self, context: &Context) -> Result<Outcome> {
        // Two at a time would measure each other, and each put back what the other reserved.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        heap::huge_pages(true);
        let pages = dpdk::reserve_pages();
        let outcome = run_here(self, context);
        drop(pages);
        heap::huge_pages(false);
        outcome
    }
}

fn run_here(asked: &Engines, context: &Context) -> Result<Outcome> {
    let rounds = asked.run.rounds(3, 7);
    let machine = asked.run.machine();
    let mut bench = Bench {
        context,
        run: &asked.run,
        rounds,
        quick: asked.run.quick,
        addresses: asked.addresses.unwrap_or(if asked.run.quick { 1 << 20 } else { 1 << 22 }),
        random: Random::new(asked.run.seed),
        rows: Vec::new(),
        more: More::default(),
    };
    let mut data = None;
    let (tables, name4, name6) = match asked.table.read(context)? {
        Some((tables, name)) => (tables, name.clone(), name),
        None => {
            data = asked.table.data.directory()?;
            (internet(data.as_deref(), asked.run.seed, context)?, "bgp4".into(), "bgp6".into())
        }
    };
    let mut part = Ok(());
    if !tables.v4.is_empty() {
        part = bench.table(&name4, &tables.v4);
    }
    if part.is_ok() && !tables.v6.is_empty() {
        part = bench.table(&name6, &tables.v6);
    }
    asked.run.ends(context, part, !bench.rows.is_empty())?;
    let parameters = parameters(asked, &tables, data.as_deref(), rounds);
    Ok(Document::new(Engines::NAME, machine, parameters, bench.rows).with(bench.more))
}

fn parameters(asked: &Engines, tables: &Tables, data: Option<&Path>, rounds: usize) -> Parameters {
    let counted = heap::held().is_some();
    Parameters {
        quick: asked.run.quick,
        table: asked.table.file.clone(),
        data: data.map(Path::to_owned),
        source: tables.source,
        prefixes4: tables.v4.len(),
        prefixes6: tables.v6.len(),
        rounds,
        clock: "CPU time of the measuring thread; p50 and p99 of changes: the monotonic clock, one reading (tens of ns) in each; p99.9, \
                max and worst: CPU time, whose reading (less than a µs) is in each",
        pages: if counted {
            "blocks of a MiB and more at multiples of 2 MiB with madvise(MADV_HUGEPAGE), for all but DPDK"
                .into()
        } else {
            "as the allocator gives them".into()
        },
        dpdk: match dpdk::get() {
            Ok(dpdk) => dpdk.about.clone(),
            Err(why) => why,
        },
        values: "64: uniform among 1 to 64; distinct: the n-th prefix has n",
        bytes: "bytes: what a lookup reads, by the structure's own account (DPDK: its arrays); bytes_total: \
                what its thread has allocated for it and holds (trieline: without chunks of the image never used; DPDK: what its heap \
                gave out)",
        checked: "answers compared one by one with a reference before the rounds, and all lookups of rounds, whose sums must be \
                  right; a structure of others that differs, or refuses changes, loses its rows (`refused` says why); ours ends the run",
        updates: "a random prefix withdrawn, and announced again about 64 changes later with one of 64 next hops; only with 64 values",
    }
}

struct Bench<'c> {
    context: &'c Context<'c>,
    run: &'c Run,
    rounds: usize,
    quick: bool,
    addresses: usize,
    random: Random,
    rows: Vec<Row>,
    more: More,
}

/// One structure under one traffic in one mode, by round.
struct Series {
    subject: usize,
    stream: usize,
    mode: Mode,
    count: usize,
    seconds: Samples,
    checked: u64,
}

impl Bench<'_> {
    fn table<A: Family>(&mut self, name: &str, prefixes: &[Prefix<A>]) -> Result<()> {
        self.context.progress.phase(&format!("{name}: drawing addresses"), 0);
        let mut streams = Vec::new();
        for traffic in Traffic::ALL {
            self.context.check()?;
            streams.push(Stream::new(traffic, prefixes, self.addresses, &mut self.random));
        }
        if !streams.iter().all(|stream| stream.agrees(prefixes)) {
            return Err(Error::References(name.to_owned()));
        }
        let next_hops: Vec<u32> = prefixes.iter().map(|_| 1 + self.random.below(64) as u32).collect();
        self.values(name, "64", prefixes, next_hops, &streams)?;
        self.values(name, "distinct", prefixes, (1..=prefixes.len() as u32).collect(), &streams)
    }

    fn values<A: Family>(
        &mut self,
        name: &str,
        label: &'static str,
        prefixes: &[Prefix<A>],
        mut values: Vec<u32>,
        streams: &[Stream<A>],
    ) -> Result<()> {
        let mut subjects = Vec::new();
        for built in self.build(name, label, prefixes, &values)? {
            match streams.iter().try_for_each(|stream| compare(name, &built, stream, &values)) {
                Ok(()) => subjects.push(built),
                Err(error) => self.lose(built.name, name, label, error)?,
            }
        }
        let series = self.measure(name, label, &subjects, streams, &values)?;
        let first = self.more.updates.len();
        if label == "64" {
            let prefix_traffic = streams.iter().find(|stream| stream.traffic == Traffic::Prefix);
            if let Some(stream) = prefix_traffic {
                self.change(name, &mut subjects, prefixes, &mut values, stream)?;
            }
        }
        for series in &series {
            let built = &subjects[series.subject];
            let rates: Samples =
                series.seconds.values().iter().map(|seconds| series.count as f64 / seconds / 1e6).collect();
            let single = |row: &&UpdateRow| row.engine == built.name && row.way == Way::Single.name();
            let updates = self.more.updates[first..].iter().find(single).map(|row| row.updates_per_s);
            let [mlps, mlps_min, mlps_max] = rates.spread(2);
            let mlps_ci = rates.interval(2);
            self.rows.push(Row {
                values: label,
                engine: built.name,
                table: name.to_owned(),
                traffic: streams[series.stream].traffic,
                mode: series.mode,
                mlps,
                mlps_min,
                mlps_max,
                mlps_ci,
                ns: rounded(1e3 / rates.median(), 2),
                bytes: built.bytes,
                bytes_total: built.bytes_total,
                build_s: rounded(built.build_s, 4),
                updates_per_s: updates,
                checked: series.checked,
                lookups: series.count,
                rounds: series.seconds.len(),
            });
        }
        Ok(())
    }

    /// All structures that hold these values.
    fn build<A: Family>(
        &mut self,
        name: &str,
        label: &'static str,
        prefixes: &[Prefix<A>],
        values: &[u32],
    ) -> Result<Vec<Built<A>>> {
        let mut subjects = Vec::new();
        for candidate in A::candidates() {
            self.context.check()?;
            self.context.progress.phase(&format!("{name}, {label}: building {}", candidate.name), 0);
            match Built::new(&candidate, prefixes, values, self.quick) {
                Ok(built) => subjects.push(built),
                Err(why) if candidate.name == OURS => return Err(Error::Image(why)),
                Err(why) => {
                    self.context.progress.note(&format!("{name}, {label}: no {}: {why}", candidate.name));
                    self.run.account.refuse(candidate.name, &case(name, label), &why);
                }
            }
        }
        Ok(subjects)
    }

    /// Rounds in which every structure has its turn in every mode under every traffic, in random order.
    fn measure<A: Family>(
        &self,
        name: &str,
        label: &'static str,
        subjects: &[Built<A>],
        streams: &[Stream<A>],
        values: &[u32],
    ) -> Result<Vec<Series>> {
        let turn = Duration::from_millis(if self.quick { 8 } else { 40 });
        let sums: Vec<Vec<u64>> = streams.iter().map(|stream| sums(stream, values)).collect();
        let mut all = Vec::new();
        for (subject, built) in subjects.iter().enumerate() {
            for (stream, addresses) in streams.iter().enumerate() {
                for mode in Mode::ALL {
                    if mode == Mode::Batch && !built.subject.batches() {
                        continue;
                    }
                    // As many as fit into a turn, the same ones every time.
                    let some = addresses.addrs.len().min(1 << 14) / BATCH * BATCH;
                    let began = thread_seconds();
                    built.subject.pass(mode, addresses, some);
                    let each = (thread_seconds() - began) / some as f64;
                    let count = (turn.as_secs_f64() / each) as usize;
                    let count = count.clamp(some, addresses.addrs.len()) / BATCH * BATCH;
                    let (seconds, checked) = (Samples::default(), SAMPLE.min(addresses.addrs.len()) as u64);
                    all.push(Series { subject, stream, mode, count, seconds, checked });
                }
            }
        }
        self.context.progress.phase(&format!("{name}, {label}: rounds"), (self.rounds * all.len()) as u64);
        let mut lost = vec![false; subjects.len()];
        let count = (self.rounds, all.len());
        let rounds = self.run.take(
            self.context,
            name,
            count,
            || false,
            |at, _| {
                let series = &all[at];
                if lost[series.subject] {
                    return Ok(f64::NAN);
                }
                let (built, stream) = (&subjects[series.subject], &streams[series.stream]);
                // The others have had the cache meanwhile.
                built.subject.pass(series.mode, stream, series.count);
                let began = thread_seconds();
                let got = built.subject.pass(series.mode, stream, series.count);
                let seconds = thread_seconds() - began;
                let expected = sums[series.stream][series.count / BATCH];
                if got == expected {
                    return Ok(seconds);
                }
                lost[series.subject] = true;
                let error = Error::Sum {
                    structure: built.name.to_owned(),
                    table: name.to_owned(),
                    what: format!("{} {}", stream.traffic.name(), series.mode.name()),
                    got,
                    expected,
                };
                self.lose(built.name, name, label, error)?;
                Ok(f64::NAN)
            },
        )?;
        for (at, series) in all.iter_mut().enumerate() {
            series.seconds = rounds.samples(at, |seconds| *seconds);
            series.checked += (series.count * rounds.len()) as u64;
        }
        all.retain(|series| !lost[series.subject]);
        Ok(all)
    }

    /// Changes every structure that can be changed, all in the same way; `values` is then what they hold.
    fn change<A: Family>(
        &mut self,
        name: &str,
        subjects: &mut [Built<A>],
        prefixes: &[Prefix<A>],
        values: &mut [u32],
        stream: &Stream<A>,
    ) -> Result<()> {
        if prefixes.len() < 2 {
            return Ok(());
        }
        let withdrawals = if self.quick { 20_000 } else { 50_000 };
        let addrs = &stream.addrs[..stream.addrs.len().min(1 << 16)];
        let steps = self.rounds * subjects.len() * Way::ALL.len();
        self.context.progress.phase(&format!("{name}: changes"), steps as u64);
        let mut changes = Vec::new();
        let mut broken = vec![false; subjects.len()];
        let mut rounds = Rounds::default();
        for round in 0..self.rounds {
            changes = updates::flap(prefixes, values, withdrawals, &mut self.random);
            let taken = self.run.round(self.context, round, subjects.len() * Way::ALL.len(), |turn, _| {
                let (at, way) = (turn / Way::ALL.len(), Way::ALL[turn % Way::ALL.len()]);
                let built = &mut subjects[at];
                if !built.subject.updates() || broken[at] {
                    return Ok(None);
                }
                let (rate, meanwhile) = updates::with_reader(&mut *built.subject, addrs, |subject| {
                    updates::rate(subject, way, &changes, built.name)
                });
                match rate {
                    Ok(rate) => Ok(rate.map(|rate| (rate, meanwhile.unwrap_or_default()))),
                    Err(error) => {
                        broken[at] = true;
                        self.lose(built.name, name, "64", error)?;
                        Ok(None)
                    }
                }
            })?;
            rounds.0.push(taken);
        }
        for turn in 0..subjects.len() * Way::ALL.len() {
            let (at, way) = (turn / Way::ALL.len(), Way::ALL[turn % Way::ALL.len()]);
            let taken: Vec<(f64, Meanwhile)> = rounds.0.iter().filter_map(|round| round[turn]).collect();
            if taken.is_empty() {
                continue;
            }
            let built = &mut subjects[at];
            self.context.check()?;
            let rates: Samples = taken.iter().map(|(rate, _)| *rate).collect();
            let lookups = taken.iter().map(|(_, meanwhile)| meanwhile.lookups as f64).sum::<f64>();
            let seconds = taken.iter().map(|(_, meanwhile)| meanwhile.seconds).sum::<f64>();
            let [updates_per_s, updates_per_s_min, updates_per_s_max] = rates.spread(0);
            let mut row = UpdateRow {
                engine: built.name,
                table: name.to_owned(),
                way: way.name(),
                updates_per_s,
                updates_per_s_min,
                updates_per_s_max,
                updates_per_s_ci: rates.interval(0),
                updates: changes.len(),
                p50_us: None,
                p99_us: None,
                p999_us: None,
                max_us: None,
                worst_prefix: updates::widest::<A>().to_string(),
                worst_ms: None,
                reader_mlps: (seconds > 0.0).then(|| rounded(lookups / seconds / 1e6, 1)),
                bytes: 0,
                checked: 0,
            };
            row.bytes = built.subject.bytes();
            let is_timed = way == Way::Single && !broken[at];
            let timed =
                if is_timed { self.times(&mut row, built, prefixes, &changes, addrs) } else { Ok(()) };
            let right = timed.and_then(|()| compare(name, built, stream, values));
            row.checked = SAMPLE.min(stream.addrs.len()) as u64;
            match right {
                // A structure that refused changes holds other routes.
                _ if broken[at] => {}
                Ok(()) => self.more.updates.push(row),
                Err(error) => {
                    broken[at] = true;
                    self.lose(built.name, name, "64", error)?;
                }
            }
        }
        let is_broken = |row: &UpdateRow| {
            subjects.iter().zip(&broken).any(|(it, broken)| *broken && it.name == row.engine)
        };
        self.more.updates.retain(|row| row.table != name || !is_broken(row));
        Ok(())
    }

    /// Lets a structure of others that fails lose its rows. An error of ours ends the run.
    fn lose(&self, engine: &str, table: &str, values: &str, error: Error) -> Result<()> {
        if engine == OURS {
            Err(error)
        } else {
            self.run.lose(self.context, engine, &case(table, values), error)
        }
    }

    /// How long single changes take, and the one that changes the most.
    fn times<A: Family>(
        &self,
        row: &mut UpdateRow,
        built: &mut Built<A>,
        prefixes: &[Prefix<A>],
        changes: &[engine::Change<A>],
        addrs: &[A],
    ) -> Result<()> {
        // Up to a minute with three digits: that cannot be refused.
        let histogram = || Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3);
        let (Ok(mut typical), Ok(mut tail)) = (histogram(), histogram()) else { return Ok(()) };
        let widest = updates::widest::<A>();
        let is_new = prefixes.binary_search(&widest).is_err();
        let times = if self.quick { 2 } else { 5 };
        let (done, _) = updates::with_reader(&mut *built.subject, addrs, |subject| {
            updates::latencies(subject, changes, Clock::Monotonic, &mut typical, built.name)?;
            updates::latencies(subject, changes, Clock::Thread, &mut tail, built.name)?;
            is_new.then(|| updates::worst(subject, times, built.name)).transpose()
        });
        let us = |nanoseconds: u64| Some(rounded(nanoseconds as f64 / 1e3, 2));
        row.worst_ms = done?.map(|ms| rounded(ms, 3));
        row.p50_us = us(typical.value_at_quantile(0.5));
        row.p99_us = us(typical.value_at_quantile(0.99));
        row.p999_us = us(tail.value_at_quantile(0.999));
        row.max_us = us(tail.max());
        Ok(())
    }
}

/// A table with its values, for refusals.
fn case(table: &str, values: &str) -> String {
    format!("{table}, values {values}")
}

/// The sum of the first 64 n answers, for each n.
fn sums<A: Family>(stream: &Stream<A>, values: &[u32]) -> Vec<u64> {
    let mut sums = vec![0];
    let mut sum = 0;
    for (n, value) in stream.expected(values).enumerate() {
        sum += u64::from(value);
        if (n + 1) % BATCH == 0 {
            sums.push(sum);
        }
    }
    sums
}

/// Compares a structure's answers one by one.
fn compare<A: Family>(name: &str, built: &Built<A>, stream: &Stream<A>, values: &[u32]) -> Result<()> {
    let expected: Vec<u32> = stream.expected(values).take(SAMPLE).collect();
    let mut answers = vec![0; expected.len()];
    built.subject.answers(stream, &mut answers);
    let differing = answers.iter().zip(&expected).filter(|(got, expected)| got != expected).count();
    let Some(at) = answers.iter().zip(&expected).position(|(got, expected)| got != expected) else {
        return Ok(());
    };
    Err(Error::Mismatch {
        structure: built.name.to_owned(),
        table: name.to_owned(),
        address: Prefix::host(stream.addrs[at]).to_string(),
        got: answers[at],
        expected: expected[at],
        differing: differing as u64,
        checked: expected.len() as u64,
    })
}

#[cfg(test)]
mod tests;
