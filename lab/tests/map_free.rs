//! Memory that `map-free` frees is gone, the entries that stay answer as before, and the figures are plausible.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use trieline_lab::{
    Context, Quiet, Result,
    experiments::{
        Options,
        map_free::{self, MOST, Outcome, What},
    },
};

mod common;

fn run(size: usize) -> Result<Outcome> {
    let interrupt = AtomicBool::new(false);
    let options = Options {
        quick: true,
        entries: vec![size],
        seed: 1,
        command: "test".into(),
        rounds: Some(1),
        ..Options::default()
    };
    map_free::run(&options, &Context { progress: &Quiet, interrupt: &interrupt })
}

#[test]
fn whole_maps_and_one_table_beside_another() {
    if !common::root_or_skip() {
        return;
    }
    // Large enough for the rival's time to stand out of the noise.
    let outcome = run(100_000).unwrap();
    let rival = &outcome.rows[0];
    assert_eq!(
        (rival.structure, rival.what, rival.bytes, rival.unmap_ms),
        ("lpm_trie", What::Map, None, None)
    );
    assert!(rival.cpu_ms > 1.0, "{rival:?}");
    let ours: Vec<_> = outcome.rows[1..].iter().map(|row| (row.map_type, row.what)).collect();
    assert!(ours.ends_with(&[("array", What::Map), ("array", What::Table)]), "{ours:?}");
    for row in &outcome.rows {
        assert_eq!((row.entries, row.rounds), (100_000, 1));
        assert!(row.cpu_ms_min <= row.cpu_ms && row.cpu_ms <= row.cpu_ms_max, "{row:?}");
        assert!(row.own_ms > 0.0 && row.own_ms <= row.cpu_ms + 0.001, "{row:?}");
        assert!(row.stall_ms > 0.0 && row.stall_ms <= row.stall_ms_max && row.idle_stall_ms > 0.0, "{row:?}");
        assert_eq!(row.unmap_ms.is_some(), row.structure == "trieline" && row.what == What::Map, "{row:?}");
        if row.structure == "trieline" {
            assert!(row.bytes.is_some_and(|bytes| bytes > 100_000), "{row:?}");
        }
    }
}

#[test]
fn a_number_of_entries_that_cannot_be_is_named() {
    if !common::root_or_skip() {
        return;
    }
    for size in [0, MOST + 1] {
        let error = run(size).unwrap_err().to_string();
        assert!(error.contains(&size.to_string()) && error.contains("expected 1 to"), "{error}");
    }
}
