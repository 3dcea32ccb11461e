//! How a test says that it cannot run: the only reading of `TRIELINE_NO_SKIP` in Rust. Tests of every box include this file.

/// Prints why the running test cannot run here; `./dev test` counts such lines. If `TRIELINE_NO_SKIP` is set, and not to 0, the
/// test fails.
#[track_caller]
pub fn skip(why: &str) {
    println!("SKIP: {why}");
    let forbidden =
        std::env::var_os("TRIELINE_NO_SKIP").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!forbidden, "skipped although TRIELINE_NO_SKIP is set: {why}");
}
