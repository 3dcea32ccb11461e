//! Experiment `engines`: trieline's tables in user space against the best there is elsewhere, on the same tables and addresses,
//! interleaved in one run, every answer accounted for.

mod candidates;
mod dir24;
mod document;
mod dpdk;
mod engine;
mod rivals;
mod text;
mod traffic;
mod trieline;
mod updates;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use trieline_lpm::Prefix;

pub use document::{NAME, Outcome, Parameters, Row, Skip, UpdateRow, groups};
pub use engine::Mode;
pub use traffic::Traffic;

use super::{Options, map_tables::internet};
use crate::{
    Context, Error, Result, heap,
    measure::{Samples, rounded, thread_seconds},
    report::Machine,
    tables::{Random, Tables, source::data_directory},
};
use candidates::{Built, Family, OURS};
use engine::BATCH;
use traffic::{SAMPLE, Stream};
use updates::{Clock, Way};

/// Runs it; blocks until the end. Root is needed for DPDK's huge pages only, which are reserved while it runs.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    // Two at a time would measure each other, and each put back what the other reserved.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    heap::huge_pages(true);
    let pages = dpdk::reserve_pages();
    let outcome = run_here(options, context);
    drop(pages);
    heap::huge_pages(false);
    outcome
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 7 });
    let machine = Machine::here(options.command.clone(), options.seed);
    let mut bench = Bench {
        context,
        rounds,
        quick: options.quick,
        addresses: options.addresses.unwrap_or(if options.quick { 1 << 20 } else { 1 << 22 }),
        random: Random::new(options.seed),
        rows: Vec::new(),
        updates: Vec::new(),
        skipped: Vec::new(),
    };
    let mut data = None;
    let (tables, name4, name6) = match &options.table {
        Some(file) => {
            context.progress.phase("reading the table", 0);
            let name = file
                .file_name()
                .map_or_else(|| file.display().to_string(), |n| n.to_string_lossy().into_owned());
            (Tables::read(file)?, name.clone(), name)
        }
        None => {
            data = data_directory(options.data.as_deref())?;
            (internet(data.as_deref(), options.seed, context)?, "bgp4".into(), "bgp6".into())
        }
    };
    if !tables.v4.is_empty() {
        bench.table(&name4, &tables.v4)?;
    }
    if !tables.v6.is_empty() {
        bench.table(&name6, &tables.v6)?;
    }
    Ok(Outcome {
        experiment: NAME,
        version: 1,
        machine,
        parameters: parameters(options, &tables, data.as_deref(), rounds),
        rows: bench.rows,
        updates: bench.updates,
        skipped: bench.skipped,
    })
}

fn parameters(options: &Options, tables: &Tables, data: Option<&Path>, rounds: usize) -> Parameters {
    let counted = heap::held().is_some();
    Parameters {
        quick: options.quick,
        table: options.table.clone(),
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
        bytes: "bytes: what a lookup reads, by the structure's own account (iptrie: all it allocated; DPDK: its arrays); bytes_total: \
                what its thread has allocated for it and holds (trieline: without chunks of the image never used; DPDK: what its heap \
                gave out)",
        checked: "answers compared one by one with a reference before the rounds, and all lookups of rounds, whose sums must be \
                  right; a structure of others that differs, or refuses changes, loses its rows (`skipped` says why); ours ends the run",
        updates: "a random prefix withdrawn, and announced again about 64 changes later with one of 64 next hops; only with 64 values",
    }
}

struct Bench<'c> {
    context: &'c Context<'c>,
    rounds: usize,
    quick: bool,
    addresses: usize,
    random: Random,
    rows: Vec<Row>,
    updates: Vec<UpdateRow>,
    skipped: Vec<Skip>,
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
        let first = self.updates.len();
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
            let updates = self.updates[first..].iter().find(single).map(|row| row.updates_per_s);
            self.rows.push(Row {
                values: label,
                engine: built.name,
                table: name.to_owned(),
                traffic: streams[series.stream].traffic,
                mode: series.mode,
                mlps: rounded(rates.median(), 2),
                mlps_min: rounded(rates.min(), 2),
                mlps_max: rounded(rates.max(), 2),
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
                    let table = name.to_owned();
                    self.skipped.push(Skip { engine: candidate.name, table, values: label, why });
                }
            }
        }
        Ok(subjects)
    }

    /// Rounds in which every structure has its turn in every mode under every traffic; another one begins each round.
    fn measure<A: Family>(
        &mut self,
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
        for round in 0..self.rounds {
            let first = round * all.len() / self.rounds;
            for turn in 0..all.len() {
                self.context.check()?;
                let at = (first + turn) % all.len();
                let series = &mut all[at];
                let (built, stream) = (&subjects[series.subject], &streams[series.stream]);
                if lost[series.subject] {
                    continue;
                }
                // The others have had the cache meanwhile.
                built.subject.pass(series.mode, stream, series.count);
                let began = thread_seconds();
                let got = built.subject.pass(series.mode, stream, series.count);
                series.seconds.push(thread_seconds() - began);
                let expected = sums[series.stream][series.count / BATCH];
                if got != expected {
                    lost[series.subject] = true;
                    let error = Error::Sum {
                        structure: built.name.to_owned(),
                        table: name.to_owned(),
                        what: format!("{} {}", stream.traffic.name(), series.mode.name()),
                        got,
                        expected,
                    };
                    self.lose(built.name, name, label, error)?;
                    continue;
                }
                series.checked += series.count as u64;
                self.context.progress.advance(1);
            }
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
        let mut all: Vec<(usize, Way, Samples, f64, f64)> = Vec::new();
        self.context.progress.phase(&format!("{name}: changes"), (self.rounds * subjects.len()) as u64);
        let mut changes = Vec::new();
        let mut broken = vec![false; subjects.len()];
        for round in 0..self.rounds {
            changes = updates::flap(prefixes, values, withdrawals, &mut self.random);
            for turn in 0..subjects.len() {
                self.context.check()?;
                let at = (round + turn) % subjects.len();
                let built = &mut subjects[at];
                for way in Way::ALL {
                    if !built.subject.updates() || broken[at] {
                        continue;
                    }
                    let (rate, meanwhile) = updates::with_reader(&mut *built.subject, addrs, |subject| {
                        updates::rate(subject, way, &changes, built.name)
                    });
                    let rate = match rate {
                        Ok(Some(rate)) => rate,
                        Ok(None) => continue,
                        Err(error) => {
                            broken[at] = true;
                            self.lose(built.name, name, "64", error)?;
                            continue;
                        }
                    };
                    let found =
                        all.iter_mut().position(|(subject, other, ..)| (*subject, *other) == (at, way));
                    let found = found.unwrap_or_else(|| {
                        all.push((at, way, Samples::default(), 0.0, 0.0));
                        all.len() - 1
                    });
                    let (_, _, rates, lookups, seconds) = &mut all[found];
                    rates.push(rate);
                    if let Some(meanwhile) = meanwhile {
                        *lookups += meanwhile.lookups as f64;
                        *seconds += meanwhile.seconds;
                    }
                }
                self.context.progress.advance(1);
            }
        }
        all.sort_by_key(|(subject, ..)| *subject);
        for (at, way, rates, lookups, seconds) in all {
            let built = &mut subjects[at];
            self.context.check()?;
            let mut row = UpdateRow {
                engine: built.name,
                table: name.to_owned(),
                way: way.name(),
                updates_per_s: rates.median().round(),
                updates_per_s_min: rates.min().round(),
                updates_per_s_max: rates.max().round(),
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
                Ok(()) => self.updates.push(row),
                Err(error) => {
                    broken[at] = true;
                    self.lose(built.name, name, "64", error)?;
                }
            }
        }
        let is_broken = |row: &UpdateRow| {
            subjects.iter().zip(&broken).any(|(it, broken)| *broken && it.name == row.engine)
        };
        self.updates.retain(|row| row.table != name || !is_broken(row));
        Ok(())
    }

    /// Lets a structure of others that fails lose its rows: that says something about it, not about the run. The reason stands in the
    /// document. Any other error, or an error of ours, ends the run.
    fn lose(&mut self, engine: &'static str, table: &str, values: &'static str, error: Error) -> Result<()> {
        if engine == OURS
            || !matches!(error, Error::Refused { .. } | Error::Mismatch { .. } | Error::Sum { .. })
        {
            return Err(error);
        }
        let why = error.to_string();
        self.context.progress.note(&format!("{table}, {values}: {why}"));
        self.skipped.push(Skip { engine, table: table.to_owned(), values, why });
        Ok(())
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
