//! The base of tests and of the lab: network namespaces, frames, the daemon as a process, skips, random numbers.
//!
//! Everything here drives the real programs (`ip`, `trielined`, `trieline`) as a user would and looks at real packets. All that it makes
//! (namespaces, processes, forwarding, file systems) goes away when its owner is dropped, also when a test panics.
//!
//! Functions that return this crate's [`Result`] are for the lab, too; the others are for tests, and panic if they fail.

// A failed expectation here is a failed test, also outside of functions marked as such.
#![allow(clippy::expect_used, clippy::unwrap_used)]

pub mod bed;
pub mod bpffs;
pub mod command;
pub mod craft;
pub mod daemon;
mod error;
pub mod namespace;
pub mod packets;
pub mod random;
pub mod socket;
pub mod wire;

mod skip;

pub use error::{Error, Result};
pub use skip::{probed, root, skip};

/// The running kernel's series, such as (6, 12).
pub fn linux() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Polls until `condition` holds or `seconds` have passed; says which.
pub fn eventually(seconds: f64, mut condition: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs_f64(seconds * patience());
    loop {
        if condition() {
            return true;
        }
        if std::time::Instant::now() >= end {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Factor on every waiting time: emulated CPUs (test VMs) are an order slower.
pub fn patience() -> f64 {
    std::env::var("TRIELINE_PATIENCE").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1.0)
}
