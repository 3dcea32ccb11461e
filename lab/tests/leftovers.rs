//! The next run removes the leftovers of a killed run, and nothing else.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command, sync::Mutex};

use trieline_lab::netns::{self, remove_leftovers};
use trieline_testbed::needs_root;

fn add(name: &str) {
    assert!(Command::new("ip").args(["netns", "add", name]).status().unwrap().success());
}

fn is_there(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

#[test]
fn namespaces_of_a_dead_run_go_and_others_stay() {
    needs_root!();
    let mut dead = Command::new("true").spawn().unwrap();
    let pid = dead.id();
    dead.wait().unwrap();
    let (ours, foreign) = (format!("tllab-{pid}-0-node"), format!("tllabx-{pid}-0-node"));
    add(&ours);
    add(&foreign);
    let alive = netns::create("alive").unwrap();
    let said = Mutex::new(Vec::new());
    remove_leftovers(None, &|text| said.lock().unwrap().push(text.to_owned()));
    let left = (is_there(&ours), is_there(&foreign), is_there(alive.name()));
    assert!(Command::new("ip").args(["netns", "del", &foreign]).status().unwrap().success());
    assert_eq!(left, (false, true, true));
    let said = said.into_inner().unwrap();
    assert!(said.iter().any(|text| text.contains(&ours)), "{said:?}");
}
