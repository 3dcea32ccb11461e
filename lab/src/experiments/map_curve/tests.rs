//! Points of `map-curve`: both structures in both modes and orders, and what lookups touch.

use super::*;
use crate::testing::{alone, asked, run};

#[test]
fn two_points() {
    let Some(_alone) = alone() else { return };
    let experiment: MapCurve = asked(&["--quick", "--rounds", "1", "--entries", "1,1000"]).unwrap();
    let outcome = run(&experiment, false).unwrap();
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
    let error = asked::<MapCurve>(&["--entries", "10,0"]).unwrap_err().to_string();
    assert!(error.contains("expected a number from 1 to 10000000"), "{error}");
}
