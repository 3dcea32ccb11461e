//! Memory that `map-free` frees is gone, the entries that stay answer as before, and the figures are plausible.

use super::*;
use crate::testing::{alone, asked, run};

#[test]
fn whole_maps_and_one_table_beside_another() {
    let Some(_alone) = alone() else { return };
    // Large enough for the rival's time to stand out of the noise.
    let experiment: MapFree = asked(&["--quick", "--rounds", "1", "--entries", "100000"]).unwrap();
    let outcome = run(&experiment, false).unwrap();
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
