//! Counters of SIDs, the ways of a group, and that what long headers and groups take is given back.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use common::cases::{SOURCE4, adjacency};
use common::packet::*;
use common::*;
use trieline_lpm::Grace;
use trieline_router::{
    Action, Adjacency, Endpoint, Flavours, FlowKeys, FlowLabel, Headend, PassReason, SidCount, Target,
};
use trieline_testbed::needs_root;

const SID: &str = "fd00:a::1";

fn wait(bench: &Bench) {
    let mut grace = bench.dataplane.grace();
    let ticket = Grace::begin(&mut grace);
    Grace::wait(&mut grace, ticket);
}

#[test]
fn counters_of_a_sid() {
    needs_root!();
    for map_type in map_types() {
        let routes = [
            (SID, Action::endpoint(Endpoint::End, Target::Port)),
            ("fd00:2::/64", Action::Forward(adjacency(LO))),
        ];
        let mut bench = Bench::new(map_type, &routes);
        let end =
            (1..256).find(|id| bench.dataplane.actions().get(*id) == Some(routes[0].1.clone())).unwrap();
        assert_eq!(
            bench.dataplane.sid_counters().unwrap().into_iter().collect::<Vec<_>>(),
            [(end, SidCount::default())]
        );
        let inner = ipv4(SOURCE4, "198.51.100.1", 64);
        let at = |left| outer("2001:db8::5", SID, 43, 64, &srh(4, left, &["fd00:2::1", SID], &inner));
        assert_eq!(bench.run(&Frame::new(at(1)).bytes()).counted, "end");
        // Bytes behind the packet do not count.
        let padded = [Frame::new(at(1)).bytes(), vec![0; 10]].concat();
        assert_eq!(bench.run(&padded).counted, "end");
        assert_eq!(bench.run(&Frame::new(at(0)).bytes()).counted, "no_segment");
        assert_eq!(
            bench.run(&Frame::new(outer("2001:db8::5", SID, 60, 64, &inner)).bytes()).counted,
            "seg6_headers"
        );
        let expected = SidCount { packets: 2, bytes: 2 * at(1).len() as u64, errors: 1 };
        let counted = |bench: &Bench, id: u32| bench.dataplane.sid_counters().unwrap().get(&id).copied();
        assert_eq!(counted(&bench, end), Some(expected), "{map_type}");
        // They stay while the action is another for a time, and begin at 0 with another action.
        let actions = bench.dataplane.actions();
        actions.set(end, &Action::Pass(PassReason::Unresolved)).unwrap();
        actions.set(end, &Action::endpoint(Endpoint::EndDx6, Target::Port)).unwrap();
        assert_eq!(counted(&bench, end), Some(expected), "{map_type}");
        bench.dataplane.actions().release(end);
        wait(&bench);
        bench.dataplane.actions().reclaim();
        assert_eq!(counted(&bench, end), None);
        let again = bench.dataplane.actions().alloc().unwrap();
        bench
            .dataplane
            .actions()
            .set(
                again,
                &Action::Endpoint { endpoint: Endpoint::End, flavours: Flavours::PSP, target: Target::Port },
            )
            .unwrap();
        assert_eq!(counted(&bench, again), Some(SidCount::default()));
    }
}

/// The two ways of a group, which differ in their next hop.
fn ways() -> Action {
    let other = Adjacency { destination: [2, 0, 0, 0, 1, 3], ..adjacency(LO) };
    Action::Group(vec![(3, Action::Forward(adjacency(LO))), (1, Action::Forward(other))])
}

#[test]
fn flows_of_a_group() {
    needs_root!();
    for map_type in map_types() {
        let bench = Bench::new(map_type, &[("198.51.100.0/24", ways()), ("2001:db8:1::/48", ways())]);
        let ports = FlowKeys { policy: 1, ..FlowKeys::default() };
        bench.dataplane.local_addrs().set_flows(ports, FlowKeys::default());
        let way = |packet: &[u8]| {
            let outcome = bench.run(&Frame::new(packet.to_vec()).bytes());
            assert_eq!(outcome.action, XDP_REDIRECT, "{}", outcome.counted);
            outcome.output[5]
        };
        // By destination, by port, by flow label; the TTL is none of a flow.
        let flows: [fn(u16) -> Vec<u8>; 3] = [
            |n| ipv4(SOURCE4, &format!("198.51.100.{}", n % 256), 64),
            |n| {
                let mut packet = ipv4(SOURCE4, "198.51.100.1", 64);
                packet[20..22].copy_from_slice(&n.to_be_bytes());
                packet
            },
            |n| {
                let mut packet = ipv6("2001:db8::9", "2001:db8:1::1", 64);
                packet[2..4].copy_from_slice(&n.to_be_bytes());
                packet
            },
        ];
        for flow in flows {
            let first: Vec<u8> = (0..256).map(|n| way(&flow(n))).collect();
            assert_eq!(first, (0..256).map(|n| way(&flow(n))).collect::<Vec<_>>(), "{map_type}");
            assert_eq!(first.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([2, 3]));
            let share = first.iter().filter(|way| **way == 2).count();
            // 192 of 256, and four standard deviations of 6.9.
            assert!((164..=220).contains(&share), "{map_type}: {share}");
        }
        // Fragments of one packet: one way, whatever stands where the ports were.
        let fragments = (0..64u8).map(|n| {
            let packet = ipv4(SOURCE4, "198.51.100.77", 64);
            let mut packet = edit_ipv4(packet, |p| (p[6], p[7]) = (0x20, n));
            packet[20] = n;
            way(&packet)
        });
        assert_eq!(fragments.collect::<BTreeSet<_>>().len(), 1, "{map_type}");
    }
}

/// The hash has a key of the instance: another one chooses otherwise, a successor does not.
#[test]
fn flows_keep_their_ways_over_a_restart() {
    needs_root!();
    for map_type in map_types() {
        let chosen = |program: std::os::fd::BorrowedFd<'_>| -> Vec<u8> {
            let frame = |n: u8| Frame::new(ipv4(SOURCE4, &format!("198.51.100.{n}"), 64)).bytes();
            (0..=255).map(|n| test_run(program, &frame(n)).1[5]).collect()
        };
        let routes = [("198.51.100.0/24", ways())];
        let first = Bench::new(map_type, &routes);
        let ways = chosen(first.dataplane.program());
        let Bench { dataplane, image, fs } = first;
        drop((dataplane, image));
        let next = trieline_router::Dataplane::open(&options(&fs, map_type)).unwrap();
        assert_eq!(chosen(next.program()), ways, "{map_type}");
        drop(next);
        let other = Bench::new(map_type, &routes);
        assert_ne!(chosen(other.dataplane.program()), ways, "{map_type}");
    }
}

#[test]
fn labels_by_hash() {
    needs_root!();
    for map_type in map_types() {
        let template = outer("fd00:1::1", "fd00:2::1", 4, 63, &[]);
        let by = |label| Action::Encaps {
            adjacency: adjacency(LO),
            outer: template.clone(),
            headend: Headend { label, ..Headend::default() },
        };
        let routes = [
            ("198.51.100.0/24", by(FlowLabel::Hash)),
            ("2001:db8:1::/48", by(FlowLabel::Hash)),
            ("2001:db8:2::/48", by(FlowLabel::Zero)),
        ];
        let bench = Bench::new(map_type, &routes);
        let word = |packet: Vec<u8>| {
            let out = bench.run(&Frame::new(packet).bytes()).output;
            u32::from_be_bytes(out[14..18].try_into().unwrap())
        };
        let four = |n: u8| word(ipv4(SOURCE4, &format!("198.51.100.{n}"), 64));
        let six = |n: u8| word(ipv6("2001:db8::9", &format!("2001:db8:1::{n:x}"), 64));
        let labels: BTreeSet<u32> = (0..100).map(four).collect();
        assert!(labels.len() > 95 && labels.iter().all(|word| word >> 20 == 0x600), "{map_type}");
        let labels: BTreeSet<u32> = (0..100).map(six).collect();
        assert!(
            labels.len() > 95 && labels.iter().all(|word| word >> 20 == 0x6b8),
            "the class is the inner one"
        );
        assert_eq!((four(7), six(7)), (four(7), six(7)));
        assert_eq!(word(ipv6("2001:db8::9", "2001:db8:2::1", 64)), 0x6b80_0000);
    }
}

#[test]
fn actions_give_their_memory_back() {
    needs_root!();
    let segments: Vec<String> = (1..=16).map(|i| format!("fd00:2::{i}")).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let long = outer("fd00:1::1", "fd00:2::16", 43, 63, &srh(4, 15, &segments, &[]));
    let encaps = |mtu| Action::Encaps {
        adjacency: Adjacency { mtu, ..adjacency(LO) },
        outer: long.clone(),
        headend: Headend::default(),
    };
    let mut bench = Bench::new(map_types()[0], &[]);
    let id = bench.dataplane.actions().alloc().unwrap();
    // There are 256 adjacencies.
    for round in 0..300 {
        let group = Action::Group(vec![(1, encaps(1280 + round)), (1, encaps(9000)), (1, ways_member())]);
        bench.dataplane.actions().set(id, &group).unwrap();
    }
    let Some(Action::Group(members)) = bench.dataplane.actions().get(id) else { panic!("no group") };
    assert_eq!(members.iter().map(|(share, _)| *share).collect::<Vec<_>>(), [43, 43, 42]);
    assert_eq!((&members[0].1, &members[2].1), (&encaps(1579), &ways_member()));
    let nested = Action::Group(vec![(1, ways())]);
    assert!(bench.dataplane.actions().set(id, &nested).is_err(), "a group in a group");
    assert!(bench.dataplane.actions().set(id, &Action::Group(vec![])).is_err());
}

fn ways_member() -> Action {
    Action::Pass(PassReason::Unresolved)
}
