//! The fates of packets after redirect: real frames to devices that are full, that take none, or that belong to others.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/mod.rs"]
mod common;

use common::cases::{SOURCE4, adjacency};
use common::netns::Line;
use common::packet::{Frame, ipv4};
use common::*;
use libbpf_rs::{MapCore, MapFlags};
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
            let mut drops = Drops::start(dataplane.pins(), dataplane.grace());
            assert_eq!(drops.unknown(), None);
            drops.follow(BTreeSet::from([from]), &BTreeSet::from([to])).unwrap();
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

    /// Another owner takes over.
    fn restart(&mut self) {
        self.drops = self.line.within("n", || Drops::start(self.dataplane.pins(), self.dataplane.grace()));
    }

    /// The owner looks once more, as it does each second.
    fn follow(&mut self) {
        self.drops.follow(BTreeSet::from([self.from]), &BTreeSet::from([self.to])).unwrap();
    }

    /// The names of the programs' links.
    fn links(&self) -> Vec<String> {
        let names = fs::read_dir(self.pins()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("drops-")).collect();
        names.sort();
        names
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

/// The keys of the map of output devices.
fn places(node: &Node<'_>) -> Vec<u32> {
    let map = libbpf_rs::MapHandle::from_pinned_path(node.pins().join("drop_devices")).unwrap();
    map.keys().map(|key| u32::from_ne_bytes(key.try_into().unwrap())).collect()
}

/// Takes counters away from a device that is going or gone, and waits until they are those of former devices.
fn retire(node: &mut Node<'_>, device: u32) {
    node.drops.retire(|ifindex| ifindex == device);
    let is_folded = eventually(5.0, || {
        node.follow();
        places(node) == [node.to]
    });
    assert!(is_folded, "{:x?}", places(node));
}

/// Why a device without XDP and GRO at the other end takes no redirected frames: before Linux 6.3, veth finds it out itself.
fn refusal() -> &'static str {
    if trieline_testbed::linux() < (6, 3) { "no_queue" } else { "no_xdp_xmit" }
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
    assert_eq!((lost(&counts, refusal()), counts.dropped()), (100, 100), "{counts:?}");
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
        assert_eq!((counts.sent, lost(&counts, refusal())), (Some(packets), packets), "{counts:?}");
    }
}

/// The counts outlive their owner; each packet counts once, however often an owner starts, and whatever is left of an earlier start.
#[test]
fn counts_go_on_without_an_owner() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let mut node = Node::new(&line);
    let (before, pins) = (node.links(), node.pins());
    assert_eq!(before.len(), 3, "{before:?}");
    let mut sent = 0;
    let mut counts = |node: &Node<'_>| {
        node.forward(node.from, 10, 64);
        sent += 10;
        assert_eq!(of(&node.drops.read(), node.to).sent, Some(sent), "{:?}", node.links());
    };
    // (1) another owner leaves the programs that are the same
    node.restart();
    assert_eq!(node.links(), before);
    counts(&node);
    // (2) a program of another version: all are replaced, and those of before count no more, even while they are attached
    let held: Vec<_> = before.iter().map(|name| libbpf_rs::Link::open(pins.join(name)).unwrap()).collect();
    let (tracepoint, rest) = before[0].split_at("drops-xdp_devmap_xmit-".len());
    fs::rename(pins.join(&before[0]), pins.join(format!("{tracepoint}0{rest}"))).unwrap();
    node.restart();
    let after = node.links();
    assert!(after.len() == 3 && after.iter().all(|name| !before.contains(name)), "{before:?}, {after:?}");
    counts(&node);
    drop(held);
    // (3) one that is missing is named, and comes back with all others
    for missing in 0..3 {
        let before = node.links();
        fs::remove_file(pins.join(&before[missing])).unwrap();
        let unknown = read_pinned(&pins).unknown.unwrap();
        assert!(unknown.ends_with(": no program is attached") && !unknown.contains(';'), "{unknown}");
        node.restart();
        assert_eq!(node.links().len(), 3);
        assert!(node.links().iter().all(|name| !before.contains(name)), "one scratch memory for all");
        counts(&node);
    }
    // (4) links of a start that ended before they counted go
    let last = node.links().pop().unwrap();
    fs::hard_link(pins.join(&last), pins.join("drops-xdp_devmap_xmit-0-1")).unwrap();
    node.restart();
    assert_eq!((node.links().len(), node.links().contains(&last)), (3, true), "{:?}", node.links());
    counts(&node);
    // (5) maps of another version: all starts over
    fs::remove_file(pins.join("drop_sources")).unwrap();
    node.restart();
    node.follow();
    assert_eq!((of(&node.drops.read(), node.to).sent, node.links().contains(&last)), (Some(0), false));
}

/// A device that is gone leaves its counts to former devices, and one that gets its number begins at 0.
#[test]
fn a_number_that_is_given_again_has_new_counts() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let mut node = Node::new(&line);
    let sent =
        |counts: &Option<EgressCount>| counts.as_ref().and_then(|count| count.sent).unwrap_or_default();
    for round in 1..=3 {
        node.forward(node.from, 10, 64);
        assert_eq!(of(&node.drops.read(), node.to).sent, Some(10));
        let to = node.to;
        retire(&mut node, to);
        let counts = node.drops.read();
        assert_eq!((of(&counts, node.to).sent, sent(&counts.former)), (Some(0), 10 * round), "{counts:?}");
    }
    // A process that ends at any step leaves what the next one finishes.
    node.forward(node.from, 10, 64);
    let map = libbpf_rs::MapHandle::from_pinned_path(node.pins().join("drop_devices")).unwrap();
    let place = map.lookup(&node.to.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let slot = u32::from_ne_bytes(place[..4].try_into().unwrap());
    let former = [slot.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
    map.update(&(slot | 1 << 31).to_ne_bytes(), &former, MapFlags::ANY).unwrap();
    assert_eq!(sent(&node.drops.read().former), 40);
    node.restart();
    assert_eq!(sent(&node.drops.read().former), 40);
    node.follow();
    let counts = node.drops.read();
    assert_eq!((of(&counts, node.to).sent, sent(&counts.former)), (Some(0), 40), "{counts:?}");
    // In metrics, they are nowhere: they would move from one series to another.
    assert!(counts.named(|_| Some("n1".into())).devices.iter().all(|device| device.dev.is_some()));
}

/// More output devices than there are counters: their packets count as those of other devices, and the counts say why.
#[test]
fn devices_without_counters_are_other_devices() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let mut node = Node::new(&line);
    let (to, sources) = (node.to, BTreeSet::from([node.from]));
    node.drops.retire(|ifindex| ifindex == to);
    let many: BTreeSet<u32> = (100_000..110_000).collect();
    let is_full = eventually(5.0, || {
        let followed = node.drops.follow(sources.clone(), &many);
        assert!(followed.unwrap_err().to_string().contains("1022 output devices"));
        let places = places(&node);
        places.len() == 1022 && places.iter().all(|device| many.contains(device))
    });
    assert!(is_full, "{:x?}", places(&node));
    let more: BTreeSet<u32> = many.iter().copied().chain([to]).collect();
    assert!(node.drops.follow(sources.clone(), &more).is_err());
    node.forward(node.from, 10, 64);
    let counts = node.drops.read().named(|ifindex| (ifindex == to).then(|| "n1".into()));
    assert!(counts.unknown.is_some_and(|why| why.contains("1022 output devices")), "no reason");
    let counted: Vec<_> = counts.devices.iter().map(|device| (device.name(), device.sent)).collect();
    assert_eq!(counted, [("other devices", Some(10))]);
    // Once others are gone, it has counters, and the reason is gone.
    node.drops.retire(|ifindex| many.contains(&ifindex));
    assert!(eventually(5.0, || node.drops.follow(sources.clone(), &BTreeSet::from([to])).is_ok()));
    node.forward(node.from, 10, 64);
    assert_eq!(of(&node.drops.read(), to).sent, Some(10));
}

/// The kernel refuses new programs: those that are attached go on, and their counts are read.
#[test]
fn a_start_that_fails_goes_on_with_what_counts() {
    needs_root!();
    let line = Line::new();
    line.sh("b", "ethtool -K b0 gro on");
    let mut node = Node::new(&line);
    node.forward(node.from, 10, 64);
    let (pins, other) = (node.pins(), node.pins().join("other"));
    fs::rename(pins.join("counters"), &other).unwrap();
    node.restart();
    fs::rename(&other, pins.join("counters")).unwrap();
    assert!(node.drops.unknown().is_some_and(|why| why.contains("counters")), "{:?}", node.drops.unknown());
    node.forward(node.from, 10, 64);
    let of_owner = node.drops.read().devices;
    assert_eq!(of_owner, read_pinned(&pins).devices);
    assert_eq!(of_owner.iter().find(|count| count.ifindex == node.to).unwrap().sent, Some(20));
    // Without programs that count, nothing is left that somebody could read.
    for name in node.links() {
        fs::remove_file(pins.join(name)).unwrap();
    }
    fs::rename(pins.join("counters"), &other).unwrap();
    node.restart();
    fs::rename(&other, pins.join("counters")).unwrap();
    assert_eq!((node.drops.read().source, read_pinned(&pins).source), (None, None));
    node.restart();
    node.follow();
    node.forward(node.from, 10, 64);
    assert_eq!(of(&node.drops.read(), node.to).sent, Some(10));
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
