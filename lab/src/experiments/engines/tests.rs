//! A rival that fails loses its rows, and only these.

use super::engine::{Change, Subject};
use super::*;
use crate::Quiet;
use std::sync::atomic::AtomicBool;

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
    let mut random = Random::new(3);
    let mut bench = Bench {
        context: &context,
        rounds: 2,
        quick: true,
        addresses: 1 << 12,
        random: Random::new(4),
        rows: vec![],
        updates: vec![],
        skipped: vec![],
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
    let mut changed: Vec<_> = bench.updates.iter().map(|row| row.engine).collect();
    changed.dedup();
    Ok((measured, changed, bench.skipped.into_iter().map(|skip| skip.why).collect()))
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
