//! How a test says that it cannot run: the only reading of `TRIELINE_NO_SKIP` in Rust.

use std::fmt::Display;

/// Prints why the running test cannot run here; `./dev test` counts such lines. If `TRIELINE_NO_SKIP` is set, and not to 0, the
/// test fails.
#[track_caller]
pub fn skip(why: &str) {
    println!("SKIP: {why}");
    let forbidden =
        std::env::var_os("TRIELINE_NO_SKIP").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!forbidden, "skipped although TRIELINE_NO_SKIP is set: {why}");
}

/// Whether namespaces and BPF may be used. Prints the skip line when not.
#[track_caller]
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root (namespaces and BPF)");
    }
    root
}

/// Those of `kinds` that `probe` finds on this kernel. The others are skipped, each with the reason.
#[track_caller]
pub fn probed<T: Copy + Display, E: Display>(
    kinds: impl IntoIterator<Item = T>,
    probe: impl Fn(T) -> Result<(), E>,
) -> Vec<T> {
    let mut found = Vec::new();
    for kind in kinds {
        match probe(kind) {
            Ok(()) => found.push(kind),
            Err(reason) => skip(&format!("{kind}: {reason}")),
        }
    }
    found
}

/// Ends a test, which has to return nothing, where namespaces and BPF may not be used: it is skipped.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::root() {
            return;
        }
    };
}
