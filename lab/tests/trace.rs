//! The experiments on tracing: every row is there, every message was noted, and the figures are such as can be.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
};

use trieline_lab::{
    Context, Quiet,
    experiments::{
        Options, trace_hooks,
        trace_overhead::{self, Method},
    },
    report::Report,
};

mod common;

/// The experiments count what their process sends and receives, so that only one may run in it.
static ALONE: Mutex<()> = Mutex::new(());

/// A restless machine is not a defect of the experiment: tests on one try again.
fn patiently<T>(run: impl Fn(&Context) -> trieline_lab::Result<T>) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let mut tries = 0;
    loop {
        match run(&context) {
            Err(trieline_lab::Error::Trace(trieline_trace::Error::Restless { .. })) if tries < 20 => {
                tries += 1
            }
            outcome => return outcome.unwrap(),
        }
    }
}

#[test]
fn every_hook_fires_for_every_message() {
    if !common::root_or_skip() {
        return;
    }
    let options =
        Options { quick: true, seed: 1, command: "test".into(), rounds: Some(1), ..Options::default() };
    let outcome = patiently(|context| trace_hooks::run(&options, context));
    for row in &outcome.rows {
        assert!(row.base_ns > 0.0 && row.delta_ns.is_finite() && row.ci_low.is_nan(), "{row:?}");
        let expects =
            if row.who == "traced" { row.events != Some(0) } else { row.events.is_none_or(|n| n == 0) };
        assert!(expects, "{row:?}");
    }
    let product = outcome.rows.iter().filter(|row| row.hooks == "trieline").count();
    assert_eq!((outcome.rows.len(), product), (29, 4));
}

#[test]
fn every_way_notes_every_message() {
    if !common::root_or_skip() {
        return;
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_trieline-lab"));
    // Busy brokers need two quiet processors: not a test's.
    for transport in ["udp", "tcp", "unix-stream"] {
        let options = Options {
            quick: true,
            only: Some(format!("{transport} blocking")),
            seed: 1,
            command: "test".into(),
            rounds: Some(1),
            program: Some(program.clone()),
            ..Options::default()
        };
        let outcome = patiently(|context| trace_overhead::run(&options, context));
        assert_eq!(outcome.rows.len(), Method::ALL.len());
        let text = outcome.text();
        let shares = text.lines().find(|line| line.contains("being traced adds")).unwrap();
        // By the names that the rows have.
        assert!(shares.contains(" (bystander); ") && shares.ends_with(" (hooks - bystander)"), "{shares}");
        for row in &outcome.rows {
            assert!(row.transport == transport && row.messages == 100 && row.p50 <= row.p99, "{row:?}");
            // Messages of batches come on top.
            assert!(
                row.matched.is_none_or(|matched| matched >= 100) && row.lost.unwrap_or(0) == 0,
                "{row:?}"
            );
            // Bare hooks only count, and those beside see nothing.
            use Method::{Bare, BareQueue, Bystander, SyscallHash};
            let joins = row.method >= SyscallHash && ![Bare, BareQueue, Bystander].contains(&row.method);
            assert_eq!(row.matched.is_some(), joins, "{row:?}");
            assert_eq!(row.published_delta_ns, None);
        }
    }
}
