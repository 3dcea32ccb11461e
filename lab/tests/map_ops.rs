//! The operations of `map-ops` on a small table: every one is timed, and was done.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use trieline_lab::{
    Context, Error, Quiet, Result,
    experiments::{
        Options,
        map_ops::{self, Outcome},
    },
};

mod common;

fn run(entries: usize, interrupted: bool) -> Result<Outcome> {
    let interrupt = AtomicBool::new(interrupted);
    let options = Options {
        quick: true,
        entries: vec![entries],
        seed: 1,
        command: "test".into(),
        rounds: Some(2),
        ..Options::default()
    };
    map_ops::run(&options, &Context { progress: &Quiet, interrupt: &interrupt })
}

#[test]
fn every_operation_of_every_structure() {
    if !common::root_or_skip() {
        return;
    }
    let outcome = run(1000, false).unwrap();
    let operations = |structure: &str, map_type: &str| {
        let of = outcome.rows.iter().filter(|row| (row.structure, row.map_type) == (structure, map_type));
        of.map(|row| (row.op, row.place)).collect::<Vec<_>>()
    };
    let rival = operations("lpm_trie", "map");
    for op in ["lookup", "update", "delete"] {
        assert!(rival.contains(&(op, "bpf")) && rival.contains(&(op, "user")), "{op}: {rival:?}");
    }
    assert_eq!(
        operations("trieline", "array"),
        [("lookup", "bpf"), ("lookup", "user"), ("update", "user"), ("delete", "user"), ("free", "kernel")]
    );
    for row in &outcome.rows {
        assert!(row.ns_min <= row.ns && row.ns <= row.ns_max && row.ns > 0.5, "{row:?}");
        assert!((row.mops * row.ns / 1e3 - 1.0).abs() < 0.02 || row.mops < 0.001, "{row:?}");
        assert!(row.stddev >= 0.0 && row.rounds == 2 && row.operations > 0, "{row:?}");
        // Filled, and in every round after each change.
        assert!(row.checked >= 1000 * (1 + 2 * 2), "{row:?}");
        assert!(row.published_ns.is_none(), "of another number of entries: {row:?}");
    }
}

#[test]
fn a_number_of_entries_that_cannot_be_is_named() {
    if !common::root_or_skip() {
        return;
    }
    for entries in [0, (1 << 20) + 1] {
        let error = run(entries, false).unwrap_err().to_string();
        assert!(error.contains(&entries.to_string()) && error.contains("expected 1 to 1048576"), "{error}");
    }
    assert!(matches!(run(10, true), Err(Error::Interrupted)));
}
