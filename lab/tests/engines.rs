//! Every structure of `engines` on a small table of both families: the answers agree before and after changes, and memory is counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{io::Write, sync::atomic::AtomicBool};

use trieline_lab::{
    Context, Error, Quiet,
    experiments::{
        Options,
        engines::{self, Mode, Outcome},
    },
    heap::Counting,
    tables::Tables,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn run(tables: &Tables, interrupted: bool) -> Result<Outcome, Error> {
    let mut file = tempfile::Builder::new().prefix("small").suffix(".txt").tempfile().unwrap();
    for prefix in &tables.v4 {
        writeln!(file, "{prefix}").unwrap();
    }
    for prefix in &tables.v6 {
        writeln!(file, "{prefix}").unwrap();
    }
    let options = Options {
        quick: true,
        table: Some(file.path().to_owned()),
        seed: 3,
        command: "test".into(),
        rounds: Some(1),
        addresses: Some(1 << 15),
        ..Options::default()
    };
    let interrupt = AtomicBool::new(interrupted);
    engines::run(&options, &Context { progress: &Quiet, interrupt: &interrupt })
}

#[test]
fn a_thousand_prefixes_of_both_families() {
    let outcome = run(&Tables::internet(800, 200, 3), false).unwrap();
    for engine in ["trieline", "poptrie", "prefix-trie", "treebitmap", "iptrie", "iptrie-lc", "dir-24-8"] {
        let families = if engine == "dir-24-8" { 1 } else { 2 };
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.engine == engine).collect();
        let modes = if rows.iter().any(|row| row.mode == Mode::Batch) { 3 } else { 2 };
        assert_eq!(rows.len(), families * 2 * 3 * modes, "{engine}: families, values, traffic, modes");
        for row in rows {
            assert!(row.mlps_min <= row.mlps && row.mlps <= row.mlps_max && row.mlps > 0.01, "{row:?}");
            assert!(row.checked >= 1 << 15 && row.bytes > 1000, "{row:?}");
            assert!(row.bytes_total.is_some_and(|total| total + 64 >= row.bytes), "{row:?}");
            assert!(!row.table.contains('/') && row.table.starts_with("small"), "{row:?}");
        }
    }
    for dpdk in ["dpdk-fib", "dpdk-fib-4b", "dpdk-fib6"] {
        let measured = outcome.rows.iter().any(|row| row.engine == dpdk && row.values == "64");
        let skipped = outcome.skipped.iter().find(|skip| skip.engine == dpdk && skip.values == "64");
        // Where it is not, the reason stands in the document.
        assert!(
            measured || skipped.is_some_and(|skip| !skip.why.is_empty()),
            "{dpdk}: {:?}",
            outcome.skipped
        );
    }
    for engine in ["trieline", "poptrie", "prefix-trie", "treebitmap"] {
        let single = outcome.updates.iter().filter(|row| row.engine == engine && row.way == "single");
        let single: Vec<_> = single.collect();
        assert_eq!(single.len(), 2, "{engine}");
        for row in single {
            assert!(row.updates_per_s > 100.0 && row.p50_us <= row.p99_us && row.checked > 0, "{row:?}");
            assert_eq!(row.reader_mlps.is_some(), engine == "trieline", "only ours is read meanwhile");
        }
    }
}

#[test]
fn it_ends_when_asked_to() {
    assert!(matches!(run(&Tables::internet(50, 50, 3), true), Err(Error::Interrupted)));
}
