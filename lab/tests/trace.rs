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
        Experiment,
        options::{Only, Run},
        trace_hooks::TraceHooks,
        trace_overhead::{Method, TraceOverhead},
    },
    report::Report,
};
use trieline_testbed::needs_root;

/// The experiments count what their process sends and receives, so that only one may run in it.
static ALONE: Mutex<()> = Mutex::new(());

fn quick() -> Run {
    Run { quick: true, seed: 1, rounds: Some(1), command: "test".into(), ..Run::default() }
}

fn measured<E: Experiment>(experiment: &E) -> E::Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let interrupt = AtomicBool::new(false);
    experiment.run(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap()
}

#[test]
fn every_hook_fires_for_every_message() {
    trieline_testbed::needs_root!();
    let experiment = TraceHooks { run: quick() };
    let outcome = measured(&experiment);
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
    needs_root!();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_trieline-lab"));
    // Busy brokers need two quiet processors: not a test's.
    for transport in ["udp", "tcp", "unix-stream"] {
        let experiment = TraceOverhead {
            run: quick(),
            only: Only { part: Some(format!("{transport} blocking")) },
            gap: 60,
            program: Some(program.clone()),
        };
        let outcome = measured(&experiment);
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
