//! Pins, restarts, attaching, and errors.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::cases::*;
use common::netns::*;
use common::packet::*;
use common::*;
use libbpf_rs::MapCore;
use trieline_bpf as bpf;
use trieline_lpm::{Grace, Image, Table};
use trieline_router::{
    Action, AttachMode, Dataplane, Error, Headend, Options, PassReason, Port, ReaderGrace, detach_all,
    difference, open_readonly,
};
use trieline_testbed::command::sh;
use trieline_testbed::needs_root;

/// A route to the next hop by `ifindex`, in an owner's image.
fn publish(dataplane: &mut Dataplane, ifindex: u32) -> u32 {
    let id = dataplane.actions().alloc().unwrap();
    dataplane.actions().set(id, &Action::Forward(adjacency(ifindex))).unwrap();
    let (memory, grace) = (dataplane.memory(), dataplane.grace());
    let mut image = match dataplane.reopened() {
        false => Image::create(memory, grace, dataplane.tables()).unwrap(),
        true => Image::open(memory, grace).unwrap(),
    };
    Table::<u32>::create(&mut image, 0, [("198.51.100.0/24".parse().unwrap(), id)]).unwrap();
    id
}

#[test]
fn restart_keeps_forwarding() {
    needs_root!();
    for map_type in map_types() {
        let fs = BpfFs::mount();
        let options = options(&fs, map_type);
        let frame = Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes();
        let mut first = Dataplane::open(&options).unwrap();
        assert!(!first.reopened());
        let old = publish(&mut first, LO);
        first.set_port(LO, None, port(ALL)).unwrap();
        first.set_port(LO, Some(9), port(ALL)).unwrap();
        first.set_device(LO).unwrap();
        assert_eq!(test_run(first.program(), &frame).0, XDP_REDIRECT);
        assert!(
            matches!(Dataplane::open(&options), Err(Error::Bpf(bpf::Error::InUse { .. }))),
            "one owner at a time"
        );
        let (program, counted) = (first.program().try_clone_to_owned().unwrap(), first.counters().unwrap());
        drop(first);
        assert_eq!(test_run(&program, &frame).0, XDP_REDIRECT, "without an owner");

        let mut second = Dataplane::open(&Options { map_type: None, ..options.clone() }).unwrap();
        assert!(second.reopened());
        assert_eq!(second.map_type(), map_type);
        assert_eq!(test_run(second.program(), &frame).0, XDP_REDIRECT, "before the second publishes");
        assert_eq!(second.actions().get(old), Some(Action::Forward(adjacency(LO))));
        assert_eq!(second.ports().unwrap().len(), 2);
        let new = publish(&mut second, LO);
        assert_ne!(old, new, "the old action stays until nothing can hold it");
        assert_eq!(second.actions().release_inherited(), 1);
        let mut grace = second.grace();
        let ticket = grace.begin();
        grace.wait(ticket);
        second.actions().reclaim();
        assert_eq!(second.actions().get(old), None);
        assert_eq!(test_run(second.program(), &frame).0, XDP_REDIRECT);
        let now = second.counters().unwrap();
        assert_eq!(now.total[0].packets, counted.total[0].packets + 3, "counters go on");
        drop(second);

        let pinned = open_readonly(&options.pins).unwrap();
        assert_eq!((pinned.map_type(), pinned.image_bytes(), pinned.tables()), (map_type, 16 << 20, 8));
        assert_eq!(pinned.action(new), Some(Action::Forward(adjacency(LO))));
        assert_eq!(pinned.actions_used(), 1);
        assert_eq!(pinned.ports().unwrap().len(), 2);
        assert_eq!(pinned.counters().unwrap(), now);
        drop(pinned);

        for (different, map) in [
            (Options { actions: 128, ..options.clone() }, "actions"),
            (Options { adjacencies: 128, ..options.clone() }, "adjacencies"),
            (Options { image_bytes: 32 << 20, ..options.clone() }, "image"),
            (Options { tables: 9, ..options.clone() }, "image"),
            (Options { frags: false, ..options.clone() }, "sid_hook_programs"),
        ] {
            let reported = difference(&different).unwrap().unwrap();
            assert!(reported.starts_with(&format!("pinned `{map}` ")), "{reported}");
            // Made aside, and not put in their place: what is pinned stays.
            let aside = Dataplane::open(&different).unwrap();
            assert!(aside.supersedes() && !aside.reopened());
            drop(aside);
            assert_eq!(difference(&options).unwrap(), None);
            assert!(Dataplane::open(&options).unwrap().reopened());
        }
        assert_eq!(detach_all(&options.pins).unwrap(), 0);
        assert!(!options.pins.exists());
        assert!(matches!(detach_all(&options.pins), Err(Error::NotPinned { .. })));
        assert!(matches!(open_readonly(&options.pins), Err(Error::NotPinned { .. })));
    }
}

#[test]
fn attached_devices() {
    needs_root!();
    let line = Line::new();
    let (fs, receiver_fs) = (BpfFs::mount(), BpfFs::mount());
    let options = options(&fs, map_types()[0]);
    let frame = Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes();
    let (n0, n1) = (line.ifindex("n", "n0"), line.ifindex("n", "n1"));
    let _receiver = line.within("b", || {
        let mut receiver = Dataplane::open(&common::options(&receiver_fs, map_types()[0])).unwrap();
        receiver.attach(line.ifindex("b", "b0"), "b0", AttachMode::Native).unwrap();
        receiver
    });
    let (from, to) = (line.socket("a", "a0"), line.socket("b", "b0"));
    let arrives = || {
        from.send(&frame);
        to.receive(Duration::from_millis(300), |f| f[..6] == NEXT_HOP_MAC).is_some()
    };
    line.within("n", || {
        let mut node = Dataplane::open(&options).unwrap();
        publish(&mut node, n1);
        node.set_port(n0, None, port(ALL)).unwrap();
        assert!(!arrives(), "not attached");
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        assert!(!arrives(), "n1 is not given");
        assert_eq!(common::named(&node, "no_device"), 1);
        node.set_device(n1).unwrap();
        assert!(arrives());
        let attachments = node.attachments().unwrap();
        assert_eq!(
            attachments.iter().map(|a| (a.ifindex, a.mode)).collect::<Vec<_>>(),
            [(n0, AttachMode::Native)]
        );

        // Wrong wishes.
        let busy = BpfFs::mount();
        let mut other = Dataplane::open(&common::options(&busy, map_types()[0])).unwrap();
        match other.attach(n0, "n0", AttachMode::Native) {
            Err(Error::DeviceBusy { device, owner }) => {
                assert_eq!(device, "n0");
                assert!(owner.starts_with("another trieline"), "{owner}");
            }
            result => panic!("{result:?}"),
        }
        let lo = line.ifindex("n", "lo");
        assert!(matches!(node.attach(lo, "lo", AttachMode::Native), Err(Error::NoNativeXdp { .. })));
        node.attach(lo, "lo", AttachMode::Generic).unwrap();
        assert_eq!(node.attachments().unwrap().len(), 2);
        assert!(node.detach(lo).unwrap());
        assert!(!node.detach(lo).unwrap());
        assert!(matches!(node.attach(9999, "ghost", AttachMode::Native), Err(Error::NoDevice { .. })));
        assert!(matches!(node.attach(70_000, "ghost", AttachMode::Native), Err(Error::NoDevice { .. })));
        assert!(matches!(node.set_device(9999), Err(Error::NoDevice { .. })));
        assert!(matches!(node.set_device(70_000), Err(Error::NoDevice { .. })));
        assert!(matches!(node.set_port(0, None, port(ALL)), Err(Error::NoDevice { .. })));

        // Generic and back.
        node.attach(n0, "n0", AttachMode::Generic).unwrap();
        assert_eq!(node.attachments().unwrap()[0].mode, AttachMode::Generic);
        assert!(arrives(), "generic");
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        assert!(arrives());

        // Stopping leaves forwarding on; a new owner takes the device over.
        let program = program_of(n0);
        drop(node);
        assert!(arrives(), "without an owner");
        let node = Dataplane::open(&options).unwrap();
        assert_ne!(program_of(n0), program, "this build's program");
        assert!(arrives(), "with the next");
        let per_port = &node.counters().unwrap().ports;
        assert_eq!((per_port.len(), per_port[0].ifindex, per_port[0].logical), (1, n0, LO));
        assert!(per_port[0].counts[0].packets >= 5);
        drop(node);
        assert_eq!(detach_all(&options.pins).unwrap(), 1);
        assert!(!arrives(), "detached");
    });

    // A device that goes takes its attachment with it, and its pin does not hinder its successor.
    line.within("n", || {
        let mut node = Dataplane::open(&options).unwrap();
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        sh("ip link del n0");
        assert!(node.attachments().unwrap().is_empty());
        drop(node);
        let mut node = Dataplane::open(&options).unwrap();
        sh(&format!("ip link add name n0 index {n0} type veth peer name p0"));
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        assert_eq!(node.attachments().unwrap().len(), 1);
    });

    // The same pins met from another network namespace: those of one that is gone.
    line.within("a", || {
        let node = Dataplane::open(&options).unwrap();
        assert!(!node.reopened());
        assert!(node.attachments().unwrap().is_empty());
    });
}

/// A program that reads another image than the one that is pinned is never put on a device.
#[test]
fn image_of_another_version() {
    needs_root!();
    let line = Line::new();
    let fs = BpfFs::mount();
    let options = options(&fs, map_types()[0]);
    line.within("n", || {
        let n0 = line.ifindex("n", "n0");
        let mut old = Dataplane::open(&options).unwrap();
        old.attach(n0, "n0", AttachMode::Native).unwrap();
        drop(old);
        let program = program_of(n0);
        let map = libbpf_rs::MapHandle::from_pinned_path(options.pins.join("instance")).unwrap();
        let key = 0u32.to_ne_bytes();
        let good = map.lookup(&key, libbpf_rs::MapFlags::ANY).unwrap().unwrap();
        let at = core::mem::offset_of!(trieline_router::layout::tl_instance, image_version);
        for version in [0u32, 99] {
            let mut other = good.clone();
            other[at..at + 4].copy_from_slice(&version.to_ne_bytes());
            map.update(&key, &other, libbpf_rs::MapFlags::ANY).unwrap();
            let error = open_readonly(&options.pins).map(drop).unwrap_err();
            assert!(matches!(&error, Error::Pins { map, .. } if map == "image"), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("version {version}")) && text.contains("restart"), "{text}");
            assert!(Dataplane::open(&options).unwrap().supersedes());
            assert_eq!(program_of(n0), program, "goes on forwarding");
        }
        map.update(&key, &good, libbpf_rs::MapFlags::ANY).unwrap();
        assert!(Dataplane::open(&options).unwrap().reopened());
        assert_ne!(program_of(n0), program);
        assert_eq!(detach_all(&options.pins).unwrap(), 1, "without asking for versions");
    });
}

fn program_of(ifindex: u32) -> u32 {
    let mut id = 0;
    // SAFETY: a plain call with a valid pointer.
    let ret = unsafe { libbpf_rs::libbpf_sys::bpf_xdp_query_id(ifindex as i32, 0, &mut id) };
    assert_eq!(ret, 0);
    id
}

/// A veth whose peer has neither XDP nor GRO loses redirected frames; its features show it beforehand.
#[test]
fn devices_that_take_redirects() {
    needs_root!();
    let line = Line::new();
    let fs = BpfFs::mount();
    let taken = || line.within("n", || trieline_router::takes_redirects(line.ifindex("n", "n1")));
    let before = taken();
    line.within("b", || {
        let mut receiver = Dataplane::open(&options(&fs, map_types()[0])).unwrap();
        receiver.attach(line.ifindex("b", "b0"), "b0", AttachMode::Native).unwrap();
        assert_ne!(taken(), Some(false));
        // A kernel that tells, tells the difference.
        assert_eq!(before.is_some(), taken() == Some(true));
        assert_ne!(before, Some(true));
    });
    assert_eq!(trieline_router::takes_redirects(60_000), None);
}

/// The error for root without capabilities names the missing ones.
#[test]
fn missing_capabilities_are_named() {
    needs_root!();
    let fs = BpfFs::mount();
    let good = options(&fs, map_types()[0]);
    std::thread::spawn(move || {
        let none = rustix::thread::CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        match Dataplane::open(&good) {
            Err(error @ Error::Bpf(bpf::Error::Permission { .. })) => {
                let text = error.to_string();
                for capability in ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
                    assert!(text.contains(capability), "{text}");
                }
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(trieline_router::probe().missing_capabilities.len(), 3);
    })
    .join()
    .unwrap();
}

#[test]
fn wrong_options() {
    needs_root!();
    let fs = BpfFs::mount();
    let map_type = map_types()[0];
    let good = options(&fs, map_type);
    let outside = std::env::temp_dir().join("tldp-not-bpffs");
    assert!(matches!(
        Dataplane::open(&Options { pins: outside, ..good.clone() }),
        Err(Error::Bpf(bpf::Error::NotBpffs { .. }))
    ));
    for image_bytes in [0, 4096, 3 << 20, map_type.max_bytes() * 2] {
        let wrong = Options { image_bytes, ..good.clone() };
        assert!(matches!(Dataplane::open(&wrong), Err(Error::Bpf(bpf::Error::Argument(_)))), "{image_bytes}");
    }
    assert!(matches!(
        Dataplane::open(&Options { actions: 0, ..good.clone() }),
        Err(Error::Bpf(bpf::Error::Argument(_)))
    ));
    // An attempt that did not finish is not in the way.
    assert!(!Dataplane::open(&good).unwrap().reopened());
}

/// The look at which records are in use comes when no action is half written: a group's first members lead nowhere yet.
#[test]
fn a_repair_frees_no_record_of_a_group_that_is_being_written() {
    needs_root!();
    let fs = BpfFs::mount();
    let small = Options { actions: 16, adjacencies: 8, ..options(&fs, map_types()[0]) };
    let mut dataplane = Dataplane::open(&small).unwrap();
    let actions = dataplane.actions();
    let ids: Vec<u32> = (0..7).map(|_| actions.alloc().unwrap()).collect();
    let to = |mtu| Action::Forward(trieline_router::Adjacency { mtu, ..adjacency(LO) });
    for (id, mtu) in ids[..6].iter().zip(1000..) {
        actions.set(*id, &to(mtu)).unwrap();
    }
    // Two records are left. A repair takes one, and the one before it is free only when it was counted.
    actions.repair(ids[5], &to(1005)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let group = |mtus: std::ops::Range<u16>| Action::Group(mtus.map(|mtu| (1, to(mtu))).collect());
    assert!(matches!(actions.set(ids[6], &group(2000..2003)), Err(Error::Bpf(bpf::Error::Full { .. }))));
    actions.count();
    actions.set(ids[6], &group(2000..2002)).unwrap();
    assert!(actions.holds(ids[6], &group(2000..2002)));
    for (id, mtu) in ids[..6].iter().zip(1000..) {
        assert_eq!(actions.get(*id), Some(to(mtu)));
    }
}

#[test]
fn actions_are_reused_only_after_a_grace_period() {
    needs_root!();
    let fs = BpfFs::mount();
    let small = Options { actions: 4, adjacencies: 3, ..options(&fs, map_types()[0]) };
    let mut dataplane = Dataplane::open(&small).unwrap();
    let actions = dataplane.actions();
    assert_eq!((actions.capacity(), actions.used()), (3, 0));
    let ids: Vec<u32> = (0..3).map(|_| actions.alloc().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3], "0 means no route");
    assert!(matches!(actions.alloc(), Err(Error::Bpf(bpf::Error::Full { what: "action", .. }))));
    for id in &ids {
        actions.set(*id, &Action::Forward(adjacency(LO))).unwrap();
    }
    // Every record is in use: a changed neighbour needs one aside.
    let other = Action::Forward(trieline_router::Adjacency { mtu: 9000, ..adjacency(LO) });
    assert!(matches!(actions.set(1, &other), Err(Error::Bpf(bpf::Error::Full { what: "adjacency", .. }))));
    assert_eq!(actions.get(1), Some(Action::Forward(adjacency(LO))), "and the old one stays");
    actions.set(2, &Action::Pass(PassReason::Unresolved)).unwrap();
    let began = Instant::now();
    actions.set(1, &other).unwrap();
    println!("waited {:?} for a record", began.elapsed());
    assert_eq!(actions.get(1), Some(other));
    actions.release(3);
    actions.release(3);
    assert_eq!(actions.used(), 2);
    assert_eq!(actions.alloc().unwrap(), 3);
    assert_eq!(actions.get(3), None);
    assert!(matches!(
        actions.set(77, &Action::Pass(PassReason::Local)),
        Err(Error::Bpf(bpf::Error::Argument(_)))
    ));
    let outer = vec![0u8; 64];
    assert!(matches!(
        actions.set(3, &Action::Encaps { adjacency: adjacency(LO), outer, headend: Headend::default() }),
        Err(Error::Bpf(bpf::Error::Argument(_)))
    ));
    for vlan in [0, 4095] {
        let tagged = trieline_router::Adjacency { vlan: Some(vlan), ..adjacency(LO) };
        assert!(matches!(actions.set(3, &Action::Forward(tagged)), Err(Error::Bpf(bpf::Error::Argument(_)))));
    }
}

/// A grace period ends only after programs that ran when it began: the program is kept running in long test runs.
#[test]
fn grace_period_waits_for_running_programs() {
    needs_root!();
    let mut grace = ReaderGrace::new().unwrap();
    assert_eq!(grace.passed(), 0);
    let tickets = [grace.begin(), grace.begin(), grace.begin()];
    assert!(tickets.is_sorted() && tickets[0] > 0);
    let mut other = grace.clone();
    other.wait(tickets[2]);
    assert!(grace.passed() >= tickets[2]);

    // Tables and actions are replaced as fast as it goes, beside packets on the other CPU. Memory freed too early is another table's, or an
    // action that is not set: both would be counted.
    let mut bench = Bench::new(map_types()[0], &[("198.51.100.0/24", Action::Pass(PassReason::Local))]);
    let frame = Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes();
    let program = bench.dataplane.program().try_clone_to_owned().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut packets = 0u64;
            while !stop.load(Ordering::Relaxed) {
                // One by one: repeated runs would patch the kernel's text, which not every emulator survives.
                test_run(&program, &frame);
                packets += 1;
            }
            packets
        })
    };
    let prefix = "198.51.100.0/24".parse().unwrap();
    let mut before = None;
    let began = Instant::now();
    let mut updates = 0u64;
    while began.elapsed() < Duration::from_secs(3) {
        let reason = [PassReason::Local, PassReason::Unresolved][updates as usize % 2];
        let actions = bench.dataplane.actions();
        let id = actions.alloc().unwrap();
        actions.set(id, &Action::Pass(reason)).unwrap();
        Table::<u32>::create(&mut bench.image, 0, [(prefix, id)]).unwrap();
        if let Some(before) = before.replace(id) {
            bench.dataplane.actions().release(before);
        }
        updates += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let packets = reader.join().unwrap();
    let (local, unresolved) = (named(&bench.dataplane, "local"), named(&bench.dataplane, "unresolved"));
    println!("{updates} tables replaced beside {packets} packets: {local} met one, {unresolved} the other");
    assert_eq!(local + unresolved, packets, "every packet met the old or the new route");
    assert!(updates > 100 && local > 0 && unresolved > 0);
}

/// A tagged port that is set again stays where it is, so that a packet that holds it never finds another's. A cleared place is used again,
/// for another tag.
#[test]
fn tagged_ports_keep_their_places() {
    /// Behind those of devices.
    const FIRST: u32 = 65536;
    needs_root!();
    let fs = BpfFs::mount();
    let options = options(&fs, map_types()[0]);
    let mut node = Dataplane::open(&options).unwrap();
    let places = || {
        let map = libbpf_rs::MapHandle::from_pinned_path(options.pins.join("tagged")).unwrap();
        let mut all: Vec<(u16, u32)> = map
            .keys()
            .map(|key| {
                let place = map.lookup(&key, libbpf_rs::MapFlags::ANY).unwrap().unwrap();
                (u16::from_ne_bytes([key[4], key[5]]), u32::from_ne_bytes(place.try_into().unwrap()))
            })
            .collect();
        all.sort_unstable();
        all
    };
    for vlan in [100, 200] {
        node.set_port(LO, Some(vlan), port(ALL)).unwrap();
    }
    assert_eq!(places(), [(100, FIRST), (200, FIRST + 1)]);
    let changed = Port { table4: 7, ..port(ALL) };
    node.set_port(LO, Some(100), changed).unwrap();
    assert_eq!(places(), [(100, FIRST), (200, FIRST + 1)]);
    node.clear_port(LO, Some(200)).unwrap();
    node.set_port(LO, Some(300), port(ALL)).unwrap();
    assert_eq!(places(), [(100, FIRST), (300, FIRST + 1)]);
    let mut ports = node.ports().unwrap();
    ports.sort_unstable_by_key(|(_, vlan, _)| *vlan);
    assert_eq!(ports, [(LO, Some(100), changed), (LO, Some(300), port(ALL))]);
    // As the next owner finds them.
    drop(node);
    let mut node = Dataplane::open(&options).unwrap();
    node.set_port(LO, Some(400), port(ALL)).unwrap();
    assert_eq!(places(), [(100, FIRST), (300, FIRST + 1), (400, FIRST + 2)]);
}
