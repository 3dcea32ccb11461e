//! Readers in threads and in processes beside a writer: never a wrong answer, whoever is stopped or killed; and a grace period that
//! is none is found out by the same tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod figures;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod files;
mod memory;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod processes;
mod stress;
mod threads;
