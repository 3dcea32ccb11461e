//! Readers in threads and in processes beside a writer: never a wrong answer, even if a process is stopped or killed. The same tests find
//! out a grace period that does not wait.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod figures;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod files;
mod memory;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod processes;
mod stress;
mod threads;
