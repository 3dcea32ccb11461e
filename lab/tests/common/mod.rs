//! Shared by the tests that need root: the rule for skipping.

#[path = "../../../tests/src/skip.rs"]
mod skip;

/// Whether the test can run here; else says why not. With TRIELINE_NO_SKIP set a skip is a failure.
pub fn root_or_skip() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip::skip("needs root (network namespaces, BPF)");
    false
}
