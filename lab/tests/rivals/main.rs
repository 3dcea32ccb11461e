//! The rivals: each answers as the list of prefixes does, and the classic tries have the properties of their papers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod engine;
#[allow(dead_code, reason = "lpm's suites use the rest")]
#[path = "../../../lpm/tests/common/sample.rs"]
mod sample;
mod tries;
