//! A setup that fails half-way leaves nothing pinned, and one that was there stays: it is made to run out of descriptors and memory.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trieline_router::{Dataplane, ImageMapType, Options, open_readonly};
use trieline_testbed::needs_root;

/// `<limit> <map_type> <pins>`, for [`attempt`].
const ATTEMPT: &str = "TLDP_ATTEMPT";
/// The adjacencies of [`attempt`] fill this, half of [`Limit::Memory`] too much.
const ADJACENCY_BYTES: u64 = 32 << 20;

/// A resource that an attempt has too little of.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Descriptors(u64),
    /// Fits all but the adjacencies, which are mapped once everything is pinned.
    Memory,
}

/// One attempt to open, in a process of its own: libbpf remembers for good what it found out about the kernel. That holds for
/// a lack of descriptors too.
#[test]
#[ignore = "run by nothing_half_done_stays"]
fn attempt() {
    let Ok(attempt) = std::env::var(ATTEMPT) else { return };
    let words: Vec<&str> = attempt.split(' ').collect();
    let options = Options {
        pins: words[2].into(),
        map_type: Some(if words[1] == ImageMapType::Arena.to_string() {
            ImageMapType::Arena
        } else {
            ImageMapType::Array
        }),
        image_bytes: 1 << 20,
        tables: 2,
        actions: 16,
        adjacencies: (ADJACENCY_BYTES / 128) as u32,
        rules: 4096,
        frags: true,
    };
    let (resource, limit) = match words[0].parse() {
        Ok(descriptors) => (Resource::Nofile, descriptors),
        Err(_) => {
            let pages: u64 =
                fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
            (Resource::As, pages * 4096 + ADJACENCY_BYTES / 2)
        }
    };
    setrlimit(resource, Rlimit { current: Some(limit), ..getrlimit(resource) }).unwrap();
    match Dataplane::open(&options) {
        Ok(dataplane) => println!("reopened {}", dataplane.reopened()),
        Err(error) => println!("failed {}", error.to_string().replace('\n', " ")),
    }
}

/// The error of an attempt.
fn with(limit: Limit, map_type: ImageMapType, pins: &Path) -> String {
    let limit = match limit {
        Limit::Descriptors(n) => n.to_string(),
        Limit::Memory => "memory".into(),
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "attempt", "--nocapture"])
        .env(ATTEMPT, format!("{limit} {map_type} {}", pins.display()))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|l| l.find("reopened ").or(l.find("failed ")).map(|at| &l[at..]));
    line.unwrap_or_else(|| panic!("{limit}: {text}")).to_owned()
}

fn pinned(pins: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(pins) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn nothing_half_done_stays() {
    needs_root!();
    let map_type = map_types()[0];
    let fs = BpfFs::mount();
    let pins = fs.path().join("node");
    let mut before = Vec::new();
    for whole in ["reopened false", "reopened true"] {
        let late = with(Limit::Memory, map_type, &pins);
        assert!(late.starts_with("failed cannot map the actions"), "{late}");
        assert_eq!(pinned(&pins), before, "{late}");
        // One descriptor more each time, so that each step that takes one is the last once.
        let mut failures = 0;
        let found = (4..100).map(|n| with(Limit::Descriptors(n), map_type, &pins)).find(|outcome| {
            let failed = outcome.starts_with("failed");
            if failed {
                failures += 1;
                assert_eq!(pinned(&pins), before, "{outcome}");
            }
            !failed
        });
        println!("{failures} failures, then {found:?}");
        assert_eq!(found.as_deref(), Some(whole));
        assert!(failures > 10);
        before = pinned(&pins);
    }
    assert_eq!(before.len(), 23, "{before:?}");
    open_readonly(&pins).unwrap();
}
