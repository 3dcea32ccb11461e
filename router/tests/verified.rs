//! The instructions that the verifier follows in the XDP program: they are most of the time of a start, and Linux allows a million.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{map_types, options};
use std::fs;
use std::os::fd::AsRawFd;
use trieline_router::Dataplane;
use trieline_testbed::bpffs::BpfFs;
use trieline_testbed::needs_root;

/// Room for a twentieth more than on Linux 6.18: 257,678 with an arena, 226,631 with an array.
const MOST: u32 = 270_000;

/// Other kernels follow more. So much leaves them room.
const MOST_ELSEWHERE: u32 = 900_000;

#[test]
fn the_verifier_follows_no_more_than_before() {
    needs_root!();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let most = if release.starts_with("6.18.") { MOST } else { MOST_ELSEWHERE };
    for map_type in map_types() {
        let fs = BpfFs::mount();
        let node = Dataplane::open(&options(&fs, map_type)).unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", node.program().as_raw_fd())).unwrap();
        let verified = info.lines().find_map(|line| line.strip_prefix("verified_insns:")).unwrap();
        let verified: u32 = verified.trim().parse().unwrap();
        println!("{map_type}: {verified} instructions on Linux {release}");
        assert!((1..=most).contains(&verified), "{map_type}: {verified}, at most {most}");
    }
}
