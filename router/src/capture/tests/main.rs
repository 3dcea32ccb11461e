//! Captures and trials: frames as they come in and leave, with what became of them, for both map types.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::cases::*;
use common::packet::*;
use common::*;
use trieline_router::{CAPTURE_ALL, Capture, CaptureOptions, Captured, SNAP_MAX, open_readonly};
use trieline_testbed::needs_root;

const ALL_OF_IT: CaptureOptions =
    CaptureOptions { ifindex: None, sid: None, snap: SNAP_MAX, rate: None, ring_bytes: 64 << 10 };

fn start(bench: &Bench, options: &CaptureOptions) -> Capture {
    Capture::start(&bench.fs.path().join("node"), CAPTURE_ALL, options).unwrap()
}

fn taken(capture: &mut Capture) -> Vec<Captured> {
    capture.poll(Duration::ZERO).unwrap()
}

/// Every golden packet: once as it came in, then what became of it, with the frame that left.
#[test]
fn golden_packets_are_captured() {
    needs_root!();
    for map_type in map_types() {
        let bench = Bench::new(map_type, &routes(LO));
        bench.run(&Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes());
        let mut capture = start(&bench, &ALL_OF_IT);
        for (nth, case) in cases().into_iter().enumerate() {
            let outcome = bench.run(&case.input);
            let records = taken(&mut capture);
            let [came, left] = &records[..] else { panic!("{}: {records:?}", case.description) };
            assert_eq!((came.number, left.number), (nth as u64 + 1, nth as u64 + 1), "{}", case.description);
            assert_eq!((came.verdict, &came.frame), (None, &case.input), "{}", case.description);
            assert_eq!(left.verdict.unwrap().name, case.verdict, "{}", case.description);
            assert!(came.ifindex == LO && left.time >= came.time && came.time > 0);
            if outcome.action == XDP_REDIRECT {
                assert_eq!((&left.frame, left.ifindex), (&outcome.output, LO), "{}", case.description);
            } else {
                assert_eq!((left.frame.len(), left.ifindex), (0, 0), "{}", case.description);
            }
        }
        // Another capture begins with number 1; the frame of 8000 bytes lies in several buffers.
        drop(capture);
        bench.run(&Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes());
        let mut capture = start(&bench, &CaptureOptions { snap: 5000, ..ALL_OF_IT });
        let large = Frame::new(ipv4_of(SOURCE4, "203.0.113.1", 64, 8000)).bytes();
        bench.run(&large);
        let records = taken(&mut capture);
        assert_eq!((records[0].number, records[0].bytes as usize), (1, large.len()));
        assert_eq!(records[0].frame, large[..5000]);
    }
}

/// Captures take only the wanted packets; the others are counted.
#[test]
fn captures_have_limits() {
    needs_root!();
    for map_type in map_types() {
        let bench = Bench::new(map_type, &routes(LO));
        let plain = Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes();
        let sid = outer(SOURCE6, SID, 4, 64, &ipv4(SOURCE4, "198.51.100.1", 64));
        // By destination, also behind a tag.
        let mut capture = start(&bench, &CaptureOptions { sid: Some(SID.parse().unwrap()), ..ALL_OF_IT });
        for frame in [&plain, &Frame::new(sid.clone()).bytes(), &Frame::new(sid).vlan(0).bytes()] {
            bench.run(frame);
        }
        bench.run(&Frame::new(ipv6(SOURCE6, "2001:db8:1::1", 64)).bytes());
        assert_eq!(taken(&mut capture).len(), 4);
        drop(capture);
        // By device.
        let mut capture = start(&bench, &CaptureOptions { ifindex: Some(77), ..ALL_OF_IT });
        bench.run(&plain);
        assert_eq!(taken(&mut capture), []);
        drop(capture);
        // By rate: one at once, the next a second later.
        let mut capture = start(&bench, &CaptureOptions { rate: Some(1), ..ALL_OF_IT });
        for _ in 0..5 {
            bench.run(&plain);
        }
        assert_eq!(taken(&mut capture).len(), 2);
        let counts = capture.counts();
        assert_eq!((counts.taken, counts.limited, counts.lost), (1, 4, 0));
        drop(capture);
        // By room: a page holds few records of 1500 bytes.
        let mut capture = start(&bench, &CaptureOptions { ring_bytes: 4096, ..ALL_OF_IT });
        let long = Frame::new(ipv4_of(SOURCE4, "198.51.100.1", 64, 1400)).bytes();
        for _ in 0..10 {
            bench.run(&long);
        }
        let (records, counts) = (taken(&mut capture).len() as u64, capture.counts());
        assert!(records > 0 && counts.lost > 0, "{records} {counts:?}");
        // Stopped, nothing is taken; and none that its reader has forgotten goes on for long.
        capture.stop();
        bench.run(&plain);
        assert_eq!(capture.rest().unwrap(), []);
        taken(&mut capture);
        std::thread::sleep(Duration::from_millis(3100));
        bench.run(&plain);
        assert_eq!(capture.rest().unwrap(), []);
        assert_eq!(capture.counts().limited, 0);
    }
}

/// A trial returns the program's verdict on every golden packet, and counts nothing.
#[test]
fn a_test_run_is_the_program() {
    needs_root!();
    for map_type in map_types() {
        let bench = Bench::new(map_type, &routes(LO));
        // The daemon is gone: its image can be mapped once in a process.
        let Bench { dataplane, image, fs } = bench;
        drop((dataplane, image));
        let lookup = open_readonly(&fs.path().join("node")).unwrap();
        let before = lookup.counters().unwrap();
        let test_run = lookup.test_run().unwrap();
        for case in cases() {
            let outcome = test_run.run(LO, &case.input).unwrap();
            assert_eq!(outcome.verdict.name, case.verdict, "{}", case.description);
            assert_eq!(&outcome.frame, case.output.as_ref().unwrap_or(&case.input), "{}", case.description);
            let leaves = case.output.is_some().then_some(LO);
            assert_eq!(outcome.out, leaves, "{}", case.description);
        }
        assert_eq!(lookup.counters().unwrap(), before);
    }
}
