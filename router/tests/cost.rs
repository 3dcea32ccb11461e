//! The program's cost per packet, by the kernel's clock. Prints only: times are no test.
//!
//! `cargo test --release -p trieline-router --test cost -- --ignored --nocapture`
#![allow(clippy::unwrap_used)]

mod common;

use common::cases::*;
use common::packet::*;
use common::*;
use trieline_lpm::{Prefix, Table};
use trieline_router::{
    Action, Adjacency, Endpoint, Filter, FilterAction, FilterMatch, FilterRule, Headend, PassReason,
    PortFlags, Target,
};
use trieline_testbed::needs_root;

/// Each costs some 25 ms to set up.
const CALLS: usize = 60;
/// Fewer than a TTL: the packet stays in its buffer from run to run.
const RUNS: u32 = 200;

fn median(bench: &Bench, frame: &[u8]) -> (u32, u32) {
    let mut times: Vec<u32> =
        (0..CALLS).map(|_| repeat_run(bench.dataplane.program(), frame, RUNS)).collect();
    times.sort_unstable();
    (times[CALLS / 2], times[CALLS / 20])
}

#[test]
#[ignore = "prints times"]
fn cost_of_a_packet() {
    needs_root!();
    // The next hop is the port itself, so that each run's output is the next run's input.
    let back = || Adjacency { destination: PORT_MAC, ..adjacency(LO) };
    let nowhere = || Adjacency { ifindex: 77, ..adjacency(LO) };
    let inner = ipv4(SOURCE4, "198.51.100.1", 64);
    let sid = "fd00:2::1";
    let routes = [
        ("198.51.100.0/24", Action::Forward(back())),
        ("203.0.113.1", Action::Pass(PassReason::Local)),
        ("2001:db8:1::/48", Action::Forward(back())),
        // Encapsulated, then decapsulated, and so on.
        ("10.1.0.0/16", Action::Encaps { adjacency: back(), outer: template(), headend: Headend::default() }),
        (sid, Action::endpoint(Endpoint::EndDx4, Target::Adjacency(back()))),
        // All but the rewriting: the device is not there.
        ("198.18.1.0/24", Action::Forward(nowhere())),
        (
            "198.18.2.0/24",
            Action::Encaps { adjacency: nowhere(), outer: template(), headend: Headend::default() },
        ),
        ("2001:db8:7::/48", Action::Forward(nowhere())),
        ("fd00:3::1", Action::endpoint(Endpoint::EndDx4, Target::Adjacency(nowhere()))),
    ];
    for map_type in map_types() {
        let mut bench = Bench::new(map_type, &routes);
        for (what, packet) in [
            ("IPv4 forward", ipv4(SOURCE4, "198.51.100.1", 255)),
            ("IPv6 forward", ipv6(SOURCE6, "2001:db8:1::1", 255)),
            ("encap and decap in turn", ipv4(SOURCE4, "10.1.2.3", 255)),
            ("no device: IPv4", ipv4(SOURCE4, "198.18.1.1", 64)),
            ("no device: encap", ipv4(SOURCE4, "198.18.2.1", 64)),
            ("no device: IPv6", ipv6(SOURCE6, "2001:db8:7::1", 64)),
            ("no device: decap", outer(SOURCE6, "fd00:3::1", 4, 64, &inner)),
            ("no device: decap SRH", outer(SOURCE6, "fd00:3::1", 43, 64, &srh(4, 0, &["fd00:3::1"], &inner))),
            ("IPv6 no route", ipv6(SOURCE6, "fd00:4::1", 64)),
            ("IPv4 local (pass)", ipv4(SOURCE4, "203.0.113.1", 255)),
        ] {
            let (median, low) = median(&bench, &Frame::new(packet).bytes());
            println!("{map_type}: {what}: {median} ns (5 %: {low})");
        }
        // The sets are looked up in vain.
        for hosts in [0, 120_430] {
            let set = (0..hosts).map(|n: u32| (Prefix::host(n.wrapping_mul(2_654_435_761) | 1 << 31), 1));
            Table::<u32>::create(&mut bench.image, 2, set).unwrap();
            let filter = Filter {
                rule: FilterRule::new("hosts", FilterMatch::Source, FilterAction::Drop),
                table4: Some(2),
                table6: None,
                counter: 0,
            };
            bench.dataplane.filters().set(&[vec![filter]]).unwrap();
            bench.dataplane.set_port(LO, None, port(PortFlags { filter: true, ..ALL })).unwrap();
            let (median, low) = median(&bench, &Frame::new(ipv4("10.0.2.9", "198.51.100.1", 255)).bytes());
            println!("{map_type}: IPv4 forward, a filter of {hosts} hosts: {median} ns (5 %: {low})");
        }
        bench.dataplane.set_port(LO, None, port(PortFlags::default())).unwrap();
        let (median, low) = median(&bench, &Frame::new(ipv4(SOURCE4, "198.51.100.1", 255)).bytes());
        println!("{map_type}: forwarding off (port, counter, pass): {median} ns (5 %: {low})");
    }
}
