//! The memory that a trace states holds while its cost is measured, too: no second tracer's rings beside it, and none are left.
//! In a process of its own, as all that it holds is counted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trieline_testbed::needs_root;
use trieline_trace::{Effort, Error, Filter, Options, Rings, calibrate};

/// `BPF_MAP_TYPE_ARRAY`: rings are such, and what is small besides.
const ARRAY: u64 = 2;
/// The small ones: what is asked for, who is traced, stamps.
const SMALL: u64 = 1 << 16;

/// Bytes in all BPF arrays that this process holds, by its descriptors.
fn arrays() -> u64 {
    let mut maps = HashMap::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        // It may be closed by now.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(ARRAY), Some(id)) = (field("map_type"), field("map_id")) {
            let bytes = field("value_size").unwrap().next_multiple_of(8) * field("max_entries").unwrap();
            maps.insert(id, bytes);
        }
    }
    maps.values().sum()
}

#[test]
fn measuring_takes_no_more_memory_than_is_stated() {
    needs_root!();
    let filter = Filter { processes: vec![1], ..Filter::default() };
    let plain = Options::new(filter);
    let http =
        Options { decode: Some("http".parse().unwrap()), capture: 1024, slots: 1 << 14, ..plain.clone() };
    for options in [plain, http] {
        let stated = Rings::of(&options).unwrap().bytes;
        assert_eq!(arrays(), 0);
        let is_over = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    most = arrays().max(most);
                    thread::sleep(Duration::from_millis(1));
                }
                most
            });
            let effort = Effort { rounds: 8, chunks: 2, messages: 100 };
            let cost = calibrate(&options, effort);
            // The result does not matter here.
            assert!(matches!(cost, Ok(_) | Err(Error::Restless { .. })), "{cost:?}");
            is_over.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert!((stated..=stated + SMALL).contains(&most), "{most} bytes, {stated} are stated");
        assert_eq!(arrays(), 0);
    }
}
