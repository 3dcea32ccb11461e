//! Points of `map-curve`: both structures in both modes and orders, and what lookups touch.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use trieline_lab::{
    Context, Quiet, Result,
    experiments::{
        Options,
        map_curve::{self, Outcome},
    },
};

mod common;

fn run(points: Vec<usize>) -> Result<Outcome> {
    let interrupt = AtomicBool::new(false);
    let options = Options {
        quick: true,
        entries: points,
        seed: 1,
        command: "test".into(),
        rounds: Some(1),
        ..Options::default()
    };
    map_curve::run(&options, &Context { progress: &Quiet, interrupt: &interrupt })
}

#[test]
fn two_points() {
    if !common::root_or_skip() {
        return;
    }
    let outcome = run(vec![1, 1000]).unwrap();
    for entries in [1, 1000] {
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.entries == entries).collect();
        assert!(
            rows.iter().filter(|row| row.structure == "lpm_trie").count() == 4,
            "modes and orders: {rows:?}"
        );
        for row in rows {
            assert!(row.ns_min <= row.ns && row.ns <= row.ns_max && row.ns > 0.5, "{row:?}");
            assert!(row.checked >= 1 << 17 && row.published_ns.is_some(), "{row:?}");
            assert!(1.0 <= row.lines && row.lines <= row.lines_max as f64, "{row:?}");
            assert!(1.0 <= row.pages && row.pages <= row.lines && row.pages_max <= row.lines_max, "{row:?}");
            assert_eq!(row.counters.is_none(), outcome.parameters.no_counters.is_some());
            match row.structure {
                // A host alone is the root; of a thousand most lie nine or ten forks deep.
                "lpm_trie" if entries == 1 => assert_eq!((row.lines, row.lines_max), (1.0, 1)),
                "lpm_trie" => assert!(row.lines > 10.0 && row.lines_max == 11, "{row:?}"),
                _ => assert!(row.lines_max <= 5, "{row:?}"),
            }
        }
    }
}

#[test]
fn a_number_of_entries_that_cannot_be_is_named() {
    if !common::root_or_skip() {
        return;
    }
    let error = run(vec![10, 0]).unwrap_err().to_string();
    assert!(error.contains("0 entries: expected 1 to 10000000"), "{error}");
}
