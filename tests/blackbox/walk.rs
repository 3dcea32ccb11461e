//! A short walk of twin nodes with a fixed seed (docs/walk.md). The kernel alone and the kernel with trielined do the same, and the audit
//! is equal.

use std::path::Path;
use trieline_testbed::command::{binary_path, run_with};
use trieline_testbed::needs_root;

/// Steps that a fast machine takes in half a minute. An emulated one gets the same time, and takes fewer.
const STEPS: &str = "100";
const SECONDS: &str = "50";

fn walk(options: &[&str]) {
    let out = tempfile::tempdir().unwrap();
    let folder: &Path = out.path();
    let folder = folder.to_string_lossy();
    let common =
        ["run", "--seed", "1", "--steps", STEPS, "--seconds", SECONDS, "--shrink", "60", "--out", &folder];
    let answer = run_with(&binary_path("trieline-walk"), &[&common, options].concat(), "");
    println!("{}", answer.stdout);
    answer.ok();
}

#[test]
fn a_short_walk_is_clean() {
    needs_root!();
    walk(&[]);
}

#[test]
fn a_short_walk_in_generic_mode_is_clean() {
    needs_root!();
    walk(&["--generic", "--steps", "40"]);
}

#[test]
#[ignore = "needs VRF, VLAN and bond devices: run in tests/vm"]
fn a_short_walk_with_vrfs_is_clean() {
    needs_root!();
    // An emulated machine takes seconds to make the nodes and for each audit. Beside others it may take a minute for the nodes alone.
    walk(&["--vrf", "--steps", "30", "--seconds", "120", "--audit", "10"]);
}
