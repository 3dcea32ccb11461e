//! Shared by the tests that need root: the rule for skipping.

/// Whether the test can run here; else says why not. With TRIELINE_NO_SKIP set a skip is a failure.
pub fn root_or_skip() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    println!("SKIP: needs root (network namespaces, BPF)");
    let forbidden = std::env::var("TRIELINE_NO_SKIP").is_ok_and(|value| !value.is_empty() && value != "0");
    assert!(!forbidden, "skipped although TRIELINE_NO_SKIP is set");
    false
}
