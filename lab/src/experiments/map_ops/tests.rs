//! The operations of `map-ops` on a small table: every one is timed, and was done.

use super::*;
use crate::{
    Error,
    testing::{alone, asked, run},
};

#[test]
fn every_operation_of_every_structure() {
    let Some(_alone) = alone() else { return };
    let experiment: MapOps = asked(&["--quick", "--rounds", "2", "--entries", "1000"]).unwrap();
    let outcome = run(&experiment, false).unwrap();
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
fn interrupted_run_ends() {
    let Some(_alone) = alone() else { return };
    let experiment: MapOps = asked(&["--quick", "--entries", "10"]).unwrap();
    assert!(matches!(run(&experiment, true), Err(Error::Interrupted)));
}

#[test]
fn a_number_of_entries_that_cannot_be_is_named() {
    for entries in ["0", "1048577"] {
        let error = asked::<MapOps>(&["--entries", entries]).unwrap_err().to_string();
        assert!(error.contains(entries) && error.contains("expected a number from 1 to 1048576"), "{error}");
    }
}
