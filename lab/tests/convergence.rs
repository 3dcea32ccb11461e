//! Routes that change while packets run, by the kernel and by trielined: each event really happens, and everything is counted.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool};

use trieline_lab::{
    Context, Error, Quiet,
    experiments::{
        churn::{self, Churn},
        convergence::{self, Convergence},
        options::{Only, Run},
    },
    netns,
};
use trieline_testbed::{daemon::Programs, needs_root};

/// Both want the last CPU for themselves.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run() -> Run {
    Run { quick: true, seed: 5, rounds: Some(1), command: "test".into(), ..Run::default() }
}

const ROUTES: usize = 1000;
const RATE: u32 = 20_000;

#[test]
fn every_change_of_routes_is_seen_by_packets() {
    needs_root!();
    let _alone = alone();
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let options = Convergence { run: run(), only: Only::default(), routes: Some(ROUTES), rate: RATE };
    let outcome = convergence::run(&options, Some(Programs::built()), &context).unwrap();
    let rows: Vec<_> = outcome.rows.iter().map(|row| (row.event, row.routes, row.plane.name())).collect();
    let events = [
        ("routes", 1),
        ("routes", ROUTES),
        ("nexthop", ROUTES),
        ("nexthop-compat", ROUTES),
        ("link-multipath", ROUTES),
        ("link-metric", ROUTES),
    ];
    let expected =
        events.iter().flat_map(|(event, routes)| ["kernel", "xdp"].map(|plane| (*event, *routes, plane)));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    for row in &outcome.rows {
        assert!(row.changes >= 1 && row.probes >= 1 && row.sent > 0, "{row:?}");
        assert!(row.p50_ms >= 0.0 && row.p50_ms <= row.p99_ms && row.p99_ms <= row.max_ms, "{row:?}");
        assert_eq!((row.wrong, row.duplicated), (0, 0), "{row:?}");
        assert_eq!(row.beyond_kernel_ms.is_some(), row.plane.name() == "xdp", "{row:?}");
        // A link that goes down takes packets with it. Nothing else does.
        if !row.event.starts_with("link") {
            assert_eq!(row.lost, 0, "{row:?}");
        }
    }
    assert_eq!(netns::left(), [""; 0]);
}

#[test]
fn nothing_is_lost_while_everything_changes() {
    needs_root!();
    let _alone = alone();
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let options = Churn {
        run: run(),
        only: Only::default(),
        routes: Some(ROUTES),
        changes: 10_000,
        rate: RATE,
        trial: Some(0.3),
    };
    let outcome = churn::run(&options, Some(Programs::built()), &context).unwrap();
    let rows: Vec<_> = outcome.rows.iter().map(|row| (row.event, row.plane.name())).collect();
    let mut expected = vec![("none", "kernel"), ("none", "xdp"), ("routes", "kernel"), ("routes", "xdp")];
    expected.extend(["status", "reload", "kill", "upgrade", "all"].map(|event| (event, "xdp")));
    assert_eq!(rows, expected);
    for row in &outcome.rows {
        assert!(row.sent > 0 && row.routes == ROUTES, "{row:?}");
        assert_eq!((row.lost, row.duplicated, row.wrong, row.reordered), (0, 0, 0, 0), "{row:?}");
        assert_eq!((row.filtered > 0, row.leaked), (row.plane.name() == "xdp", 0), "{row:?}");
        let done = &row.done;
        let counts = [done.changes, done.asked, done.reloaded, done.killed, done.upgraded];
        let happened = counts.map(|count| count > 0);
        let expected = match row.event {
            "none" => [false; 5],
            "all" => [true; 5],
            event => ["routes", "status", "reload", "kill", "upgrade"].map(|name| name == event),
        };
        assert_eq!(happened, expected, "{row:?}");
    }
    assert_eq!(netns::left(), [""; 0]);
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    needs_root!();
    let _alone = alone();
    let interrupt = AtomicBool::new(true);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let options = Convergence { run: run(), routes: Some(10), rate: RATE, ..Convergence::default() };
    let error = convergence::run(&options, None, &context).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    let options = Churn { run: run(), routes: Some(10), rate: RATE, changes: 1, ..Churn::default() };
    let error = churn::run(&options, None, &context).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    let only = Only { part: Some("no such event".into()) };
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let error = convergence::run(&Convergence { only, ..options_of(10) }, None, &context).unwrap_err();
    assert!(matches!(error, Error::NoCase(_)), "{error}");
    assert_eq!(netns::left(), [""; 0]);
}

fn options_of(routes: usize) -> Convergence {
    Convergence { run: run(), only: Only::default(), routes: Some(routes), rate: RATE }
}
