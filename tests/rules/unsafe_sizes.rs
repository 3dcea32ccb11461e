//! Where `unsafe` code is, sizes that it relies on are computed by arithmetic that the compiler watches.

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose arithmetic is inside bounds that were checked before; a comment at each `unsafe` names the check. These are the lookups,
/// which it would slow down, C's pointers, whose sizes come from C, and the model of a protocol.
const CHECKED_OTHERWISE: [&str; 9] = [
    "lpm/src/image/lookup.rs",
    "lpm/src/image/place.rs",
    "lpm/src/image/batch/ipv4.rs",
    "lpm/src/image/batch/ipv6.rs",
    "lpm/src/image/batch/mod.rs",
    "lpm/src/image/model.rs",
    "capi/src/error.rs",
    "capi/src/handle.rs",
    "capi/src/table.rs",
];

fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).expect("a directory of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn sizes_that_unsafe_code_relies_on_do_not_wrap() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the tree");
    let mut found = Vec::new();
    for source in ["lpm/src", "bpf/src", "capi/src", "router/src", "trace/src", "trace/cli/src", "cli/src"] {
        sources(&root.join(source), &mut found);
    }
    let mut watched = 0;
    for path in found {
        let name = path.strip_prefix(root).expect("below the root").display().to_string();
        let text = fs::read_to_string(&path).expect("a source");
        // The compiler compares the two sizes of a transmute.
        let transmutes = |after: &str| after.trim_start().starts_with("std::mem::transmute");
        if text.split("unsafe {").skip(1).all(transmutes) || CHECKED_OTHERWISE.contains(&name.as_str()) {
            continue;
        }
        assert!(
            text.contains("#![warn(clippy::arithmetic_side_effects"),
            "{name} has unsafe code: expected #![warn(clippy::arithmetic_side_effects, reason = ...)] at its head"
        );
        watched += 1;
    }
    assert!(watched >= 10, "{watched} files only");
}
