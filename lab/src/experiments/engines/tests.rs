//! Every structure on a small table of both families: the answers agree before and after changes, and memory is counted. A rival that fails
//! loses its rows, and only these.

use super::engine::{Change, Subject};
use super::*;
use crate::{Quiet, testing::asked};
use std::{io::Write, sync::atomic::AtomicBool};

fn whole(tables: &Tables, is_interrupted: bool) -> Result<Outcome> {
    let mut file = tempfile::Builder::new().prefix("small").suffix(".txt").tempfile().unwrap();
    for prefix in &tables.v4 {
        writeln!(file, "{prefix}").unwrap();
    }
    for prefix in &tables.v6 {
        writeln!(file, "{prefix}").unwrap();
    }
    let words = ["--quick", "--seed", "3", "--rounds", "1", "--table", file.path().to_str().unwrap()];
    let experiment = Engines { addresses: Some(1 << 15), ..asked(&words).unwrap() };
    crate::testing::run(&experiment, is_interrupted)
}

#[test]
fn every_structure_on_a_thousand_prefixes_of_both_families() {
    let outcome = whole(&Tables::internet(800, 200, 3), false).unwrap();
    for engine in ["trieline", "poptrie", "prefix-trie", "treebitmap", "dir-24-8"] {
        let families = if engine == "dir-24-8" { 1 } else { 2 };
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.engine == engine).collect();
        let modes = if rows.iter().any(|row| row.mode == Mode::Batch) { 3 } else { 2 };
        assert_eq!(rows.len(), families * 2 * 3 * modes, "{engine}: families, values, traffic, modes");
        for row in rows {
            assert!(row.mlps_min <= row.mlps && row.mlps <= row.mlps_max && row.mlps > 0.01, "{row:?}");
            assert!(row.checked >= 1 << 15 && row.bytes > 1000, "{row:?}");
            assert!(row.bytes_total.is_some_and(|total| total + 64 >= row.bytes), "{row:?}");
            assert!(!row.table.contains('/') && row.table.starts_with("small"), "{row:?}");
        }
    }
    for dpdk in ["dpdk-fib", "dpdk-fib-4b", "dpdk-fib6"] {
        let measured = outcome.rows.iter().any(|row| row.engine == dpdk && row.values == "64");
        let refused = outcome.refused.iter().find(|one| one.rival == dpdk && one.case.ends_with(" 64"));
        // Where it is not, the reason stands in the document.
        assert!(
            measured || refused.is_some_and(|refused| !refused.reason.is_empty()),
            "{dpdk}: {:?}",
            outcome.refused
        );
    }
    for engine in ["trieline", "poptrie", "prefix-trie", "treebitmap"] {
        let single = outcome.more.updates.iter().filter(|row| row.engine == engine && row.way == "single");
        let single: Vec<_> = single.collect();
        assert_eq!(single.len(), 2, "{engine}");
        for row in single {
            assert!(row.updates_per_s > 100.0 && row.p50_us <= row.p99_us && row.checked > 0, "{row:?}");
            assert_eq!(row.reader_mlps.is_some(), engine == "trieline", "only ours is read meanwhile");
        }
    }
}

#[test]
fn interrupted_run_ends() {
    assert!(matches!(whole(&Tables::internet(50, 50, 3), true), Err(Error::Interrupted)));
}

/// A real structure that fails as one of others may: from a number of changes on it refuses them, or its answers are wrong.
struct Failing {
    inner: Box<dyn Subject<u32>>,
    changes_left: usize,
    is_wrong: bool,
}

impl Subject<u32> for Failing {
    fn pass(&self, mode: Mode, stream: &Stream<u32>, count: usize) -> u64 {
        self.inner.pass(mode, stream, count) + u64::from(self.is_wrong)
    }
    fn answers(&self, stream: &Stream<u32>, values: &mut [u32]) {
        self.inner.answers(stream, values);
    }
    fn batches(&self) -> bool {
        self.inner.batches()
    }
    fn updates(&self) -> bool {
        self.inner.updates()
    }
    fn change(&mut self, changes: &[Change<u32>]) -> usize {
        let some = changes.len().min(self.changes_left);
        self.changes_left -= some;
        self.inner.change(&changes[..some])
    }
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

/// Measures ours and another that fails; returns the names with rows, those with rows of changes, and the reasons.
fn run(
    changes_left: usize,
    is_wrong: bool,
    name: &'static str,
) -> Result<(Vec<&'static str>, Vec<&'static str>, Vec<String>)> {
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let options = Run::default();
    let mut random = Random::new(3);
    let mut bench = Bench {
        context: &context,
        run: &options,
        rounds: 2,
        quick: true,
        addresses: 1 << 12,
        random: Random::new(4),
        rows: vec![],
        more: More::default(),
    };
    let prefixes: Vec<Prefix<u32>> = (1..400u32).map(|n| Prefix::truncated(n << 20, 24)).collect();
    let mut values: Vec<u32> = prefixes.iter().map(|_| 1 + random.below(64) as u32).collect();
    let stream = Stream::new(Traffic::Prefix, &prefixes, 1 << 12, &mut random);
    let mut subjects: Vec<_> = u32::candidates()
        .iter()
        .take(2)
        .map(|candidate| Built::new(candidate, &prefixes, &values, true).unwrap())
        .collect();
    let failing = subjects.pop().unwrap();
    subjects.push(Built {
        name,
        subject: Box::new(Failing { inner: failing.subject, changes_left, is_wrong }),
        ..failing
    });
    let streams = [stream];
    let series = bench.measure("t", "64", &subjects, &streams, &values)?;
    let mut measured: Vec<_> = series.iter().map(|series| subjects[series.subject].name).collect();
    measured.dedup();
    bench.change("t", &mut subjects, &prefixes, &mut values, &streams[0])?;
    let mut changed: Vec<_> = bench.more.updates.iter().map(|row| row.engine).collect();
    changed.dedup();
    Ok((measured, changed, options.account.refused().into_iter().map(|refused| refused.reason).collect()))
}

#[test]
fn one_that_fails_loses_its_rows_and_not_the_run() {
    // In the rounds; in the single changes that are timed after them; never.
    let all = 2 * 2 * 20_000;
    for changes_left in [0, 100, all - 1, all, all + 77] {
        let (measured, changed, why) = run(changes_left, false, "other").unwrap();
        assert_eq!((measured, changed), (vec![OURS, "other"], vec![OURS]), "{changes_left}");
        assert!(why.len() == 1 && why[0].starts_with("other refuses "), "{why:?}");
    }
    let (measured, changed, why) = run(usize::MAX, true, "other").unwrap();
    assert_eq!((measured, changed), (vec![OURS], vec![OURS, "other"]));
    assert!(why[0].contains("other"), "{why:?}");
    let (_, changed, why) = run(usize::MAX, false, "other").unwrap();
    assert_eq!((changed, why.len()), (vec![OURS, "other"], 0));
    // Ours may not.
    assert!(matches!(run(100, false, OURS), Err(Error::Refused { .. })));
    assert!(matches!(run(usize::MAX, true, OURS), Err(Error::Sum { .. })));
}
