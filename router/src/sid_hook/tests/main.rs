//! SID hooks: what is bound to a SID, and what leaves after it, for both map types; the example of examples/sid-hook among them.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::cases::*;
use common::packet::*;
use common::program::{pin, returning};
use common::*;
use trieline_lpm::Table;
use trieline_router::{
    Action, Capture, CaptureOptions, Filter, FilterAction, FilterMatch, FilterRule, PassReason, PortFlags,
    SNAP_MAX, SidHook,
};
use trieline_testbed::needs_root;

fn bench(map_type: trieline_router::ImageMapType, sid_hook: SidHook) -> Bench {
    let mut bench = Bench::new(map_type, &routes(LO));
    bench.dataplane.set_port(LO, None, port(PortFlags { sid_hook: true, ..ALL })).unwrap();
    bench.dataplane.sid_hooks().set(&BTreeMap::from([(SID.parse().unwrap(), sid_hook)])).unwrap();
    assert_eq!(bench.dataplane.sid_hooks().get().unwrap()[&SID.parse().unwrap()], sid_hook);
    bench
}

fn inner() -> Vec<u8> {
    ipv4(SOURCE4, "198.51.100.1", 64)
}

fn to(sid: &str, inner: &[u8]) -> Vec<u8> {
    Frame::new(outer(SOURCE6, sid, 4, 64, inner)).bytes()
}

/// Filters check the packet inside, behind an SRH too; that of another SID they do not.
#[test]
fn filters_on_the_packet_inside() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type, SidHook::Filter(3));
        Table::<u32>::create(&mut bench.image, 2, [("198.51.100.1/32".parse().unwrap(), 1)]).unwrap();
        let filter = |action| Filter {
            rule: FilterRule {
                protocol: Some(17),
                ports: vec![53..=53],
                ..FilterRule::new("inner", FilterMatch::Destination, action)
            },
            table4: Some(2),
            table6: None,
            counter: 0,
        };
        let with_srh = Frame::new(outer(SOURCE6, SID, 43, 64, &srh(4, 0, &[SID], &inner()))).bytes();
        let open = ipv4(SOURCE4, "198.51.100.2", 64);
        let other = edit_ipv4(inner(), |p| p[9] = 6);
        for (action, verdict) in [
            (FilterAction::Drop, "filtered"),
            (FilterAction::Pass, "filter"),
            (FilterAction::Allow, "end_dx4"),
        ] {
            let lists = [vec![], vec![], vec![], vec![filter(action)]];
            bench.dataplane.filters().set(&lists).unwrap();
            assert_eq!(bench.run(&to(SID, &inner())).counted, verdict);
            assert_eq!(bench.run(&with_srh).counted, verdict);
            assert_eq!(bench.run(&to(SID, &open)).counted, "end_dx4");
            assert_eq!(bench.run(&to(SID, &other)).counted, "end_dx4", "another protocol inside");
            assert_eq!(bench.run(&to(SID_TABLE, &inner())).counted, "end_dx4", "another SID");
            assert_eq!(bench.run(&Frame::new(inner()).bytes()).counted, "ipv4", "no SID");
        }
        bench.dataplane.sid_hooks().set(&BTreeMap::new()).unwrap();
        bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![filter(FilterAction::Drop)]]).unwrap();
        assert_eq!(bench.run(&to(SID, &inner())).counted, "end_dx4", "unbound");
    }
}

/// No packet with an inner one that is filtered gets by, whatever leaves it to the kernel. Where what is inside cannot be found, it
/// is dropped. With a filter that lets it through, each fares as without.
#[test]
fn filters_hold_for_packets_passed_to_the_kernel() {
    needs_root!();
    let extension = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let options = |count: usize, kind: u8| {
        let mut headers = vec![extension(60); count - 1].concat();
        headers.extend(extension(4));
        headers.extend(inner());
        Frame::new(outer(SOURCE6, SID, kind, 64, &headers)).bytes()
    };
    let fragment = |offset: u8| {
        let headers = [&[4, 0, 0, offset, 0, 0, 0, 1], &inner()[..]].concat();
        Frame::new(outer(SOURCE6, SID, 44, 64, &headers)).bytes()
    };
    let sids = vec![SID; 70];
    let far = Frame::new(outer(SOURCE6, SID, 43, 64, &srh(4, 0, &sids, &inner()))).bytes();
    let cut = |inner: &[u8]| Frame::new(outer(SOURCE6, SID, 4, 64, inner)).bytes();
    let off = PortFlags { forward6: false, ..ALL };
    let no_seg6 = PortFlags { seg6: false, ..ALL };
    let from_link_local = Frame::new(outer("fe80::9", SID, 4, 64, &inner())).bytes();
    let unresolved = "fd00:c::1";
    // Flags, frame, what becomes of it under a filter that drops, and under one that allows.
    let cases = [
        (ALL, options(1, 60), "filtered", "seg6_headers"),
        (ALL, options(6, 60), "filtered", "seg6_headers"),
        (ALL, options(7, 60), "sid_hook_headers", "sid_hook_headers"),
        (ALL, options(1, 0), "filtered", "ipv6_hop_by_hop"),
        (ALL, fragment(0), "filtered", "seg6_headers"),
        (ALL, fragment(8), "sid_hook_headers", "sid_hook_headers"),
        (ALL, far, "sid_hook_headers", "sid_hook_headers"),
        (ALL, cut(&inner()[..19]), "sid_hook_headers", "sid_hook_headers"),
        (ALL, from_link_local, "filtered", "ipv6_special_purpose"),
        (ALL, to(unresolved, &inner()), "filtered", "unresolved"),
        (ALL, to("fd00:ffff::1", &inner()), "filtered", "no_route"),
        (off, to(SID, &inner()), "filtered", "forwarding_off"),
        (no_seg6, to(SID, &inner()), "filtered", "seg6_off"),
        (ALL, Frame::new(ipv6(SOURCE6, SID, 64)).bytes(), "seg6_headers", "seg6_headers"),
    ];
    for map_type in map_types() {
        let routes: Vec<_> =
            routes(LO).into_iter().chain([(unresolved, Action::Pass(PassReason::Unresolved))]).collect();
        let mut bench = Bench::new(map_type, &routes);
        let bound = [SID, unresolved, "fd00:ffff::1"].map(|sid| (sid.parse().unwrap(), SidHook::Filter(3)));
        bench.dataplane.sid_hooks().set(&BTreeMap::from(bound)).unwrap();
        Table::<u32>::create(&mut bench.image, 2, [("0.0.0.0/0".parse().unwrap(), 1)]).unwrap();
        for action in [FilterAction::Drop, FilterAction::Allow] {
            let every = Filter {
                rule: FilterRule::new("all", FilterMatch::Source, action),
                table4: Some(2),
                table6: None,
                counter: 0,
            };
            bench.dataplane.filters().set(&[vec![], vec![], vec![], vec![every]]).unwrap();
            for (number, (flags, frame, dropped, allowed)) in cases.iter().enumerate() {
                let flags = PortFlags { sid_hook: true, ..*flags };
                bench.dataplane.set_port(LO, None, port(flags)).unwrap();
                let outcome = bench.run(frame);
                let verdict = if action == FilterAction::Drop { dropped } else { allowed };
                assert_eq!(outcome.counted, *verdict, "{action}, case {number}");
                assert_eq!(&outcome.output, frame, "{action}, case {number}");
            }
        }
    }
}

/// Programs and samples get them too.
#[test]
fn programs_and_samples_get_packets_passed_to_the_kernel() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type, SidHook::Program(7));
        let frame = Frame::new(outer("fe80::9", SID, 4, 64, &inner())).bytes();
        assert_eq!(bench.run(&frame).counted, "sid_hook_missing");
        for (value, verdict) in [(64, "ipv6_special_purpose"), (1, "sid_hook_drop")] {
            let path = bench.fs.path().join(format!("returns{value}"));
            pin(&returning(value, true), &path);
            bench.dataplane.sid_hooks().set_program(7, &path).unwrap();
            assert_eq!(bench.run(&frame).counted, verdict);
        }
        let sampled = BTreeMap::from([(SID.parse().unwrap(), SidHook::Pcap(5))]);
        bench.dataplane.sid_hooks().set(&sampled).unwrap();
        let options = CaptureOptions { ifindex: None, sid: None, snap: 60, rate: None, ring_bytes: 64 << 10 };
        let mut capture = Capture::start(&bench.fs.path().join("node"), 5, &options).unwrap();
        assert_eq!(bench.run(&frame).counted, "ipv6_special_purpose");
        assert_eq!(capture.poll(Duration::ZERO).unwrap().len(), 1);
    }
}

/// Packets to the SID are in the capture of its slot, and go on.
#[test]
fn samples_of_a_sid() {
    needs_root!();
    for map_type in map_types() {
        let bench = bench(map_type, SidHook::Pcap(5));
        let options = CaptureOptions { ifindex: None, sid: None, snap: 60, rate: None, ring_bytes: 64 << 10 };
        let mut capture = Capture::start(&bench.fs.path().join("node"), 5, &options).unwrap();
        let frame = to(SID, &inner());
        for packet in [&frame, &to(SID_TABLE, &inner()), &frame] {
            assert_eq!(bench.run(packet).counted, "end_dx4");
        }
        let records = capture.poll(Duration::ZERO).unwrap();
        assert_eq!(records.len(), 2);
        assert!(records.iter().all(|record| record.frame == frame[..60] && record.verdict.is_none()));
        assert!(options.snap < SNAP_MAX);
    }
}

/// Each value that a program can return, and no program at all.
#[test]
fn return_values() {
    needs_root!();
    for map_type in map_types() {
        let mut bench = bench(map_type, SidHook::Program(7));
        let frame = to(SID, &inner());
        assert_eq!(bench.run(&frame).counted, "sid_hook_missing");
        for (value, verdict) in [
            (64, "end_dx4"),
            (1, "sid_hook_drop"),
            (2, "sid_hook_pass"),
            (4, "sid_hook_redirect"),
            (3, "sid_hook_bad_return"),
            (0, "sid_hook_bad_return"),
            (-1, "sid_hook_bad_return"),
        ] {
            let path = bench.fs.path().join(format!("returns{value}"));
            pin(&returning(value, true), &path);
            bench.dataplane.sid_hooks().set_program(7, &path).unwrap();
            assert_eq!(bench.run(&frame).counted, verdict, "{value}");
        }
        let path = bench.fs.path().join("one-buffer");
        pin(&returning(64, false), &path);
        let error = bench.dataplane.sid_hooks().set_program(7, &path).unwrap_err().to_string();
        assert!(error.contains("xdp.frags"), "{error}");
        assert!(bench.dataplane.sid_hooks().set_program(7, Path::new("/sys/fs/bpf/none")).is_err());
        bench.dataplane.sid_hooks().clear_program(7).unwrap();
        assert_eq!(bench.run(&frame).counted, "sid_hook_missing");
    }
}

/// The example, as its Makefile builds it: DSCP from the SID's argument, checksum right, then End.DX4.
#[test]
fn the_example_marks_the_packet_inside() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("dscp.bpf.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sid-hook/dscp.bpf.c");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let built = Command::new(std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I"])
        .arg(include)
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap();
    assert!(built.success());
    let example = libbpf_rs::ObjectBuilder::default().open_file(&object).unwrap().load().unwrap();
    let program = example.progs().next().unwrap();
    for map_type in map_types() {
        let mut bench = bench(map_type, SidHook::Program(1));
        let path = bench.fs.path().join("dscp");
        pin(&program, &path);
        bench.dataplane.sid_hooks().set_program(1, &path).unwrap();
        // fd00:a::1: DSCP 1, ECN as it was.
        let came = edit_ipv4(inner(), |p| p[1] = 0xb9);
        let marked = edit_ipv4(inner(), |p| p[1] = 1 << 2 | 1);
        let expected = sent(&[], &hop(&marked));
        let outcome = bench.run(&to(SID, &came));
        assert_eq!((outcome.counted, &outcome.output), ("end_dx4", &expected));
        let with_srh = Frame::new(outer(SOURCE6, SID, 43, 64, &srh(4, 0, &[SID], &came))).vlan(0).bytes();
        let outcome = bench.run(&with_srh);
        assert_eq!((outcome.counted, &outcome.output), ("end_dx4", &expected));
        // fd00:a::ff has no DSCP.
        let bind = |bench: &mut Bench, sid: &str| {
            let bound = BTreeMap::from([(sid.parse().unwrap(), SidHook::Program(1))]);
            bench.dataplane.sid_hooks().set(&bound).unwrap();
        };
        bind(&mut bench, "fd00:a::ff");
        assert_eq!(bench.run(&to("fd00:a::ff", &came)).counted, "sid_hook_drop", "else the kernel's");
        bind(&mut bench, "2001:db8:1::1");
        let forwarded = Frame::new(ipv6(SOURCE6, "2001:db8:1::1", 64)).bytes();
        assert_eq!(bench.run(&forwarded).counted, "ipv6", "SID hooks are of endpoints only");
    }
}
