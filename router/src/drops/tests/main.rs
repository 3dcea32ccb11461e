//! The fates of packets after redirect: real frames to devices that are full, that take none, or that belong to others.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use common::cases::{SOURCE4, adjacency};
use common::netns::Line;
use common::packet::{Frame, ipv4};
use common::*;
use std::collections::BTreeSet;
use std::fs;
use trieline_lpm::{Image, Table};
use trieline_router::drops::{AfterRedirect, Drops, EgressCount, Source, read_pinned};
use trieline_router::{Action, Adjacency, AttachMode, Dataplane, ImageMemory, ReaderGrace};
use trieline_testbed::command::run;
use trieline_testbed::{eventually, needs_root};

/// [a] a0 ── n0 [n] n1 ── b0 [b]: packets from n0 to 198.51.100.0/24 leave by n1, and what becomes of them is counted.
struct Node<'l> {
    line: &'l Line,
    dataplane: Dataplane,
    drops: Drops,
    from: u32,
    to: u32,
    fs: BpfFs,
    _image: Image<ImageMemory, ReaderGrace>,
}

impl<'l> Node<'l> {
    fn new(line: &'l Line) -> Self {
        Self::between(line, "n0", "n1")
    }

    fn between(line: &'l Line, from: &str, to: &str) -> Self {
        let (fs, from, to) = (BpfFs::mount(), line.ifindex("n", from), line.ifindex("n", to));
        line.within("n", || {
            let mut dataplane = Dataplane::open(&options(&fs, map_types()[0])).unwrap();
            let mut image = Image::create(dataplane.memory(), dataplane.grace(), dataplane.tables()).unwrap();
            let id = dataplane.actions().alloc().unwrap();
            // The kernel uses a frame again as the program left it: it has to be for the port once more.
            let adjacency = Adjacency { destination: PORT_MAC, ..adjacency(to) };
            dataplane.actions().set(id, &Action::Forward(adjacency)).unwrap();
            let routes = [("198.51.100.0/24".parse().unwrap(), id)];
            Table::<u32>::create(&mut image, 0, routes).unwrap();
            dataplane.set_port(from, None, port(ALL)).unwrap();
            dataplane.set_device(to).unwrap();
            let mut drops = Drops::start(dataplane.pins());
            assert_eq!(drops.unknown(), None);
            drops.follow(BTreeSet::from([from])).unwrap();
            Self { line, dataplane, drops, from, to, fs, _image: image }
        })
    }

    /// Runs the program on frames that come in by a device, and does what it says.
    fn forward(&self, from: u32, frames: u32, batch: u32) {
        let frame = Frame::new(ipv4(SOURCE4, "198.51.100.1", 255)).bytes();
        let program = self.dataplane.program();
        self.line.within("n", || live_run(program, from, &frame, frames, batch)).unwrap();
    }

    /// Packets that the program counted as forwarded.
    fn forwarded(&self) -> u64 {
        named(&self.dataplane, "ipv4")
    }

    fn pins(&self) -> std::path::PathBuf {
        self.fs.path().join("node")
    }
}

/// The counts of a device; all 0 if it has none.
fn of(counts: &AfterRedirect, ifindex: u32) -> EgressCount {
    assert_eq!((counts.source, &counts.unknown), (Some(Source::Tracepoints), &None));
    counts.devices.iter().find(|device| device.ifindex == ifindex).cloned().unwrap_or_default()
}

/// Packets lost for a reason.
fn lost(count: &EgressCount, reason: &str) -> u64 {
    count.drops.iter().find(|drop| drop.reason == reason).map_or(0, |drop| drop.packets)
}

/// Makes a device's frames wait in its ring of 256: a thread takes them out that hardly gets the caller's processor.
fn stall(line: &Line, namespace: &str, device: &str) {
    let threads = || -> BTreeSet<u32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_poll = |process: &u32| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            name.starts_with(&format!("napi/{device}-"))
        };
        numbers.filter(is_poll).collect()
    };
    let others = threads();
    let write = format!("echo 1 > /sys/class/net/{device}/threaded");
    trieline_testbed::command::run_with(
        "ip",
        &["netns", "exec", line.name(namespace), "sh", "-ec", &write],
        "",
    )
    .ok();
    assert!(eventually(5.0, || threads().len() > others.len()), "no thread polls {device}");
    for thread in threads().difference(&others) {
        run(&format!("taskset -p 1 {thread}")).ok();
        run(&format!("chrt -i -p 0 {thread}")).ok();
    }
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
}

/// [n] n1 ── b0 [b], whose ring is full: each forwarded packet is either sent or lost, and the counts say so.
#[test]
fn a_full_ring_loses_packets_that_were_forwarded() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let node = Node::new(&line);
    // (1) there is room
    node.forward(node.from, 10, 1);
    let counts = of(&node.drops.read(), node.to);
    assert_eq!((node.forwarded(), counts.sent, counts.dropped()), (10, Some(10), 0), "{counts:?}");
    // (2) there is not
    stall(&line, "b", "b0");
    let full = eventually(20.0, || {
        node.forward(node.from, 2000, 64);
        lost(&of(&node.drops.read(), node.to), "ring_full") > 0
    });
    let counts = of(&node.drops.read(), node.to);
    assert!(full, "{counts:?}");
    let (sent, full) = (counts.sent.unwrap(), lost(&counts, "ring_full"));
    println!("{} forwarded, {sent} sent, {full} lost", node.forwarded());
    assert_eq!(node.forwarded(), sent + full);
    assert_eq!(counts.dropped(), full, "for no other reason: {counts:?}");
    // (3) readers of the pins see the same, and the driver has counted as many, as `ip -s link` shows
    assert_eq!(of(&read_pinned(&node.pins()), node.to), counts);
    let drivers = line.within("n", || AfterRedirect::default().or_drivers([("n1", node.to)]));
    assert_eq!((drivers.source, drivers.devices[0].dropped()), (Some(Source::Drivers), full), "{drivers:?}");
    let shown = run(&format!("ip -n {} -j -s link show n1", line.name("n"))).json();
    assert_eq!(shown[0]["stats64"]["tx"]["dropped"], full, "{shown:#}");
}

/// [n] n1 ── b0 [b], which has neither GRO nor XDP: n1 takes no redirected frames.
#[test]
fn a_device_that_is_no_target_loses_all() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro off");
    let node = Node::new(&line);
    node.forward(node.from, 100, 64);
    let counts = of(&node.drops.read(), node.to);
    assert_eq!((node.forwarded(), counts.sent), (100, Some(0)), "{counts:?}");
    assert_eq!((lost(&counts, "no_xdp_xmit"), counts.dropped()), (100, 100), "{counts:?}");
    // A device that is down is another reason.
    line.sh("b", "ethtool -K b0 gro on");
    line.sh("n", "ip link set n1 down");
    node.forward(node.from, 100, 64);
    let counts = of(&node.drops.read(), node.to);
    assert_eq!((node.forwarded(), lost(&counts, "down"), counts.dropped()), (200, 100, 200), "{counts:?}");
}

/// [a] a0 ── n0 [n] n1 ── b0 [b], generic XDP at n0, and b0's ring full: n1 has a queueing discipline, so its driver refuses packets.
#[test]
fn in_generic_mode_a_device_that_refuses_is_counted() {
    needs_root!();
    if trieline_testbed::linux() < (6, 16) {
        return trieline_testbed::skip("a veth refuses no packet before Linux 6.16");
    }
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    // Without TSO, so that the peer takes each packet by its ring.
    line.sh("n", "ethtool -K n1 tso off\ntc qdisc add dev n1 root pfifo");
    let mut node = Node::new(&line);
    line.within("n", || node.dataplane.attach(node.from, "n0", AttachMode::Generic)).unwrap();
    stall(&line, "b", "b0");
    let from = line.socket("a", "a0");
    let frame = Frame::new(ipv4(SOURCE4, "198.51.100.1", 64)).bytes();
    let refused = || lost(&of(&node.drops.read(), node.to), "exception");
    let lost_any = eventually(20.0, || {
        (0..500).for_each(|_| from.send(&frame));
        refused() > 0
    });
    assert!(lost_any, "{:?}", node.drops.read());
    let counts = node.drops.read().in_generic_mode();
    assert!(
        counts.unknown.is_some() && counts.devices.iter().all(|device| device.sent.is_none()),
        "{counts:?}"
    );
}

/// ```text
/// [n] n0 ─► n1     counted
/// [n] n1 ─► n0     another XDP program in the same network namespace
/// [m] n0 ─► n1     another network namespace, whose devices have the same numbers
/// ```
#[test]
fn packets_of_others_do_not_count() {
    needs_root!();
    let (line, other_line) = (Line::new(), Line::new());
    let node = Node::new(&line);
    let beside = Node::between(&line, "n1", "n0");
    let elsewhere = Node::new(&other_line);
    assert_eq!((node.from, node.to), (elsewhere.from, elsewhere.to), "the same numbers");
    for gro in ["off", "on"] {
        for (line, far) in [(&line, "a0"), (&line, "b0"), (&other_line, "b0")] {
            line.sh(&far[..1], &format!("ethtool -K {far} gro {gro}"));
        }
        node.forward(node.from, 7, 64);
        beside.forward(beside.from, 20, 64);
        elsewhere.forward(elsewhere.from, 300, 64);
    }
    for (node, packets) in [(&node, 7), (&beside, 20), (&elsewhere, 300)] {
        let counts = node.drops.read();
        let all: u64 = counts.devices.iter().map(|count| count.sent.unwrap_or(0) + count.dropped()).sum();
        assert_eq!((node.forwarded(), all), (2 * packets, 2 * packets), "{counts:?}");
        let counts = of(&counts, node.to);
        assert_eq!((counts.sent, lost(&counts, "no_xdp_xmit")), (Some(packets), packets), "{counts:?}");
    }
}

/// The counts outlive their owner and the device; each packet counts once, however often an owner starts.
#[test]
fn counts_go_on_without_an_owner() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let mut node = Node::new(&line);
    let links = || -> Vec<String> {
        let names = fs::read_dir(node.fs.path().join("node")).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("drops-")).collect();
        names.sort();
        names
    };
    let before = links();
    assert_eq!(before.len(), 3, "{before:?}");
    // (1) another owner leaves the programs that are the same
    node.drops = line.within("n", || Drops::start(node.dataplane.pins()));
    assert_eq!(links(), before);
    node.forward(node.from, 10, 64);
    assert_eq!(of(&node.drops.read(), node.to).sent, Some(10));
    // (2) a program of another version is replaced
    let pins = node.pins();
    fs::rename(pins.join(&before[0]), pins.join(format!("{}0", before[0]))).unwrap();
    node.drops = line.within("n", || Drops::start(node.dataplane.pins()));
    assert_eq!(links(), before);
    node.forward(node.from, 10, 64);
    assert_eq!(of(&node.drops.read(), node.to).sent, Some(20));
    // (3) one that is missing is named
    fs::remove_file(pins.join(&before[2])).unwrap();
    assert_eq!(
        read_pinned(&pins).unknown.as_deref(),
        Some("xdp_redirect_err: no program is attached"),
        "{before:?}"
    );
    // (4) a device that is gone leaves its counts to former devices
    node.drops.retire(|ifindex| ifindex != node.to).unwrap();
    let counts = node.drops.read().named(|_| None).devices;
    assert_eq!((counts.len(), counts[0].name(), counts[0].sent), (1, "former devices", Some(20)));
}

/// Prints the time of the program that runs once for each bulk of packets. The kernel's clock readings are in it.
#[test]
#[ignore = "measures"]
fn cost_of_a_bulk() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let node = Node::new(&line);
    let time = || {
        let programs = libbpf_rs::query::ProgInfoIter::default();
        let program = programs.filter(|program| program.name == "tl_devmap_xmit").last().unwrap();
        (program.run_time_ns, program.run_cnt)
    };
    time_programs().unwrap();
    for batch in [64, 1] {
        let before = time();
        for _ in 0..40 {
            node.forward(node.from, 8000, batch);
        }
        let after = time();
        let runs = after.1 - before.1;
        println!("batches of {batch}: {} ns a run, {runs} runs", (after.0 - before.0) / runs.max(1));
    }
}
