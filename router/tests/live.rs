//! The mirror against the running kernel: random changes of routes, addresses, links and neighbours, then the kernel's answers
//! beside ours. Decisions are compared, too, beside what is in the image and in the actions.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "live/audited.rs"]
mod audited;
#[path = "live/parts.rs"]
mod parts;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use trieline_lpm::{Memory, Prefix};
use trieline_router::api::instance::{self, enter_namespace};
use trieline_router::fib::action_index::ActionOwner;
use trieline_router::fib::publish::Publisher;
use trieline_router::kernel::TABLE_MAIN;
use trieline_router::kernel::route::kind;
use trieline_router::kernel::socket::{Netlink, Received};
use trieline_router::rib::family::{Decision, Family, NexthopState};
use trieline_router::rib::mirror::Mirror;
use trieline_router::rib::table::Ip;
use trieline_router::{Action, Dataplane, Endpoint, ImageMapType, Options};
use trieline_testbed::command::Answer;
use trieline_testbed::namespace::Namespace;
use trieline_testbed::random::Random;
use trieline_testbed::root;

/// A network namespace with three veth devices whose other ends are in it too.
struct Bed(Namespace);

impl Bed {
    fn new(tag: &str) -> Option<Self> {
        if !root() {
            return None;
        }
        let bed = Self(Namespace::new(tag));
        let mut lines = String::new();
        for net in 0..3 {
            lines += &format!(
                "link add n{net} type veth peer name p{net}\nlink set p{net} up\nlink set n{net} up\n"
            );
            lines +=
                &format!("addr add 10.{net}.0.1/24 dev n{net}\naddr add fd00:{net}::1/64 dev n{net} nodad\n");
        }
        // Without a family: with -4, `ip` ends at the first IPv6 address.
        let made = bed.0.ip_batch(&[], &lines);
        assert_eq!(made.code, 0, "{made:?}");
        // The tests are about a router. A host treats neighbours it cannot reach in another way.
        // And IPv6 addresses stay when a link goes down: without them soon nothing is left.
        for setting in ["ipv4.ip_forward", "ipv6.conf.all.forwarding", "ipv6.conf.all.keep_addr_on_down"] {
            bed.0.sysctl(&format!("net.{setting}"), "1");
        }
        Some(bed)
    }

    /// Runs `ip` commands; some of them fail, as an administrator's do.
    fn batch(&self, family: &str, lines: &str) {
        self.0.ip_batch(&[family, "-force"], lines);
    }
}

fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match std::thread::spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Differences between the families.
trait Tested: Ip {
    const OPTION: &'static str;
    const LENGTHS: &'static [usize];
    const GATEWAYS: &'static [&'static str];
    const ADDRESSES: &'static [&'static str];
    /// A random address in a corner so small that prefixes nest.
    fn random(rng: &mut Random) -> Self;
    fn of(mirror: &Mirror) -> &Family<Self>;
}

impl Tested for u32 {
    const OPTION: &'static str = "-4";
    const LENGTHS: &'static [usize] = &[8, 10, 14, 16, 20, 23, 24, 24, 26, 28, 30, 31, 32, 32];
    const GATEWAYS: &'static [&'static str] = &[
        "via 10.0.0.2",
        "via 10.1.0.2",
        "via 10.1.0.3",
        "via 10.2.0.9",
        "via 172.16.0.1 dev n1 onlink",
        "via inet6 fd00:2::9",
        "via inet6 fe80::9 dev n0",
    ];
    const ADDRESSES: &'static [&'static str] =
        &["10.1.0.9/24", "10.64.1.1/20", "10.64.1.5/32", "10.64.200.1/25", "10.2.0.200/16"];
    fn random(rng: &mut Random) -> Self {
        0x0a40_0000 | (rng.below(1 << 16) & [0xffff, 0xf1ff, 0x01ff][rng.below(3)]) as u32
    }
    fn of(mirror: &Mirror) -> &Family<Self> {
        &mirror.v4
    }
}

impl Tested for u128 {
    const OPTION: &'static str = "-6";
    const LENGTHS: &'static [usize] = &[16, 32, 40, 47, 48, 56, 63, 64, 64, 96, 127, 128, 128];
    const GATEWAYS: &'static [&'static str] = &[
        "via fd00:0::2",
        "via fd00:1::2",
        "via fd00:1::3",
        "via fd00:2::9",
        "via fe80::9 dev n1",
        "via fe80::9 dev n2",
    ];
    const ADDRESSES: &'static [&'static str] = &[
        "fd00:0::1/64 nodad",
        "fd00:1::1/64 nodad",
        "fd00:1::9/64 nodad",
        "fd64:0:1::1/48 nodad",
        "fd64:0:1::5/128 nodad",
        "fd64::1/16 nodad",
    ];
    fn random(rng: &mut Random) -> Self {
        let high = rng.below(4) << 16 | rng.below(4);
        let hosts = [4, 1 << 16][rng.below(2)];
        0xfd64 << 112 | (high as u128) << 64 | rng.below(hosts) as u128
    }
    fn of(mirror: &Mirror) -> &Family<Self> {
        &mirror.v6
    }
}

fn prefix<A: Tested>(rng: &mut Random) -> String {
    let len = A::LENGTHS[rng.below(A::LENGTHS.len())] as u8;
    Prefix::truncated(A::random(rng), len.into()).to_string()
}

/// Random lines for `ip -batch`.
fn changes<A: Tested>(rng: &mut Random, given: &mut Vec<String>, count: usize) -> String {
    let ipv4 = A::WIDTH == 32;
    let nexthops = if ipv4 { 40 } else { 60 };
    let mut lines = String::new();
    for _ in 0..count {
        let key = if !given.is_empty() && rng.below(2) == 0 {
            given[rng.below(given.len())].clone()
        } else {
            let key = format!("{} {}", prefix::<A>(rng), rng.pick(&["", "", "", "metric 7", "metric 2000"]));
            given.push(key.clone());
            key
        };
        let (gateway, device) = (rng.pick(A::GATEWAYS), rng.pick(&["n0", "n1", "n2"]));
        // Packets left to the kernel prove nothing: only small prefixes of it.
        let small = format!("{}/{}", A::random(rng).ip(), A::WIDTH - 2 * rng.below(3) as u16);
        let small = small
            .parse::<Prefix<A>>()
            .map_or_else(|_| Prefix::host(A::random(rng)).to_string(), |small| small.to_string());
        let plain = A::GATEWAYS[rng.below(3)].trim_start_matches("via ");
        let near = A::GATEWAYS[rng.below(3)].trim_start_matches("via ");
        let line = match rng.below(if ipv4 { 50 } else { 46 }) {
            0..=6 => format!("route del {key}"),
            7..=13 => format!("route replace {key} {gateway}"),
            14..=19 => format!("route add {key} {gateway}"),
            20 => format!("route replace {} {key}", rng.pick(&["blackhole", "unreachable", "prohibit"])),
            21 | 22 => format!("route replace {key} dev {device}"),
            23 => format!("route replace local {small} dev lo table local"),
            24 => format!(
                "route replace {key} nexthop via {plain} nexthop via {} weight 3",
                A::GATEWAYS[1].trim_start_matches("via ")
            ),
            25 => format!("link set {device} {}", rng.pick(&["down", "up", "up"])),
            26 => format!("link set {} {}", rng.pick(&["p1", "p2"]), rng.pick(&["down", "up", "up"])),
            27 => format!("addr add {} dev {device}", rng.pick(A::ADDRESSES)),
            28 => format!("addr del {} dev {device}", rng.pick(A::ADDRESSES)),
            29 => format!(
                "neigh replace {} lladdr 02:00:00:00:00:0{} dev {device}",
                A::random(rng).ip(),
                rng.below(9)
            ),
            30 => format!("neigh del {} dev {device}", A::random(rng).ip()),
            31 => format!("route append {key} {gateway}"),
            // Objects that actions depend on.
            32 | 33 => format!("neigh replace {near} lladdr 02:00:00:00:00:1{} dev {device}", rng.below(9)),
            34 => format!("neigh del {near} dev {device}"),
            35 => format!("link set {device} mtu {}", rng.pick(&["1300", "1500", "9000"])),
            36 => format!("link set {device} address 02:00:00:00:01:0{}", rng.below(9)),
            37 | 38 if ipv4 => {
                format!(
                    "route replace {key} encap seg6 mode encap segs {} dev {device}",
                    rng.pick(&["fd00:1::3", "fd00:2::9", "fd64:1::1"])
                )
            }
            37 | 38 => format!(
                "route replace {key} encap seg6local action End.DX4 nh4 {} dev {device}",
                rng.pick(&["10.64.1.1", "10.1.0.2", "0.0.0.0"])
            ),
            39 | 40 => format!(
                "route replace {key} encap seg6 mode encap segs fd64:2::{} dev {device}",
                rng.below(3)
            ),
            41 => format!("route replace {key} {gateway} mtu 1400"),
            42 => format!("route add throw {small}"),
            43 => format!("nexthop replace id {} via {near} dev n1", nexthops + rng.below(3)),
            44 if rng.below(2) == 0 => format!("nexthop del id {}", nexthops + rng.below(3)),
            44 => format!("nexthop replace id {} blackhole", nexthops + rng.below(3)),
            45 => format!("route replace {key} nhid {}", nexthops + rng.below(3)),
            46 => format!("route prepend {key} {gateway}"),
            47 => format!("route add {small} tos 0x10 {gateway}"),
            48 => format!("route replace {key} {gateway} src 10.64.1.1"),
            _ => format!("route change {key} {gateway}"),
        };
        lines += &line;
        lines.push('\n');
    }
    lines
}

/// Our answer for one address.
#[derive(Debug)]
enum Ours {
    Says(String),
    /// One of these.
    OneOf(Vec<String>),
    /// It is left to the kernel.
    Passes,
}

fn ours<A: Tested>(mirror: &Mirror, found: Option<Decision<A>>) -> Ours {
    let path = match found {
        None => return Ours::Says("none".into()),
        Some(Decision::Kernel | Decision::Throw) => return Ours::Passes,
        Some(Decision::Neighbour(_, link, _)) => {
            return Ours::Says(format!("unicast  dev {}", mirror.kernel.name(link)));
        }
        Some(Decision::NexthopGroup(path)) => mirror.nhgs.get(path).unwrap(),
    };
    let hop = |hop: &trieline_router::kernel::route::Nexthop| {
        let gateway = hop.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
        format!("unicast {gateway} dev {}", mirror.kernel.name(hop.ifindex))
    };
    match &path.hops[..] {
        _ if path.kind != kind::UNICAST => Ours::Says(kind::name(path.kind).into()),
        [one] => Ours::Says(hop(one)),
        many => Ours::OneOf(many.iter().map(hop).collect()),
    }
}

/// The answer of `ip route get` for each address.
fn kernel<A: Tested>(bed: &Bed, addresses: &[A]) -> Vec<String> {
    // `ip -batch` ends some errors with the line's number; one process an answer would take far too long.
    let lines: String = addresses.iter().map(|address| format!("route get {}\n", address.ip())).collect();
    let Answer { stdout, stderr, .. } = bed.0.ip_batch(&[A::OPTION, "-o", "-force"], &lines);
    let mut answers = vec![String::new(); addresses.len()];
    let mut reason = "";
    for line in stderr.lines() {
        let Some(number) = line.strip_prefix("Command failed -:") else {
            reason = line;
            continue;
        };
        answers[number.trim().parse::<usize>().unwrap() - 1] = match reason {
            "RTNETLINK answers: Network is unreachable" => "none",
            "RTNETLINK answers: No route to host" => "unreachable",
            "RTNETLINK answers: Permission denied" => "prohibit",
            "RTNETLINK answers: Invalid argument" => "blackhole",
            other => panic!("`ip route get` says {other}"),
        }
        .into();
    }
    let mut reported = stdout.lines();
    for answer in answers.iter_mut().filter(|answer| answer.is_empty()) {
        let words: Vec<&str> = reported.next().unwrap().split_whitespace().collect();
        let after = |word: &str| words.iter().position(|w| *w == word).map(|at| words[at + 1]);
        let gateway = match after("via") {
            Some("inet6") => after("inet6"),
            gateway => gateway,
        };
        *answer = match words[0] {
            kind @ ("local" | "broadcast" | "anycast" | "multicast" | "unreachable" | "blackhole"
            | "prohibit") => kind.into(),
            _ => format!("unicast {} dev {}", gateway.unwrap_or_default(), after("dev").unwrap()),
        };
    }
    answers
}

/// Follows all changes that are queued.
fn read(mirror: &mut Mirror, events: &mut Netlink) {
    loop {
        match events.changes(64, |message| mirror.apply(message)).unwrap() {
            Received::All => return,
            Received::More => {}
            Received::Overrun => panic!("the test's buffer is too small"),
        }
    }
}

/// Reads all changes, and asks for everything where the daemon would.
fn settle(mirror: &mut Mirror, events: &mut Netlink, requests: &mut Netlink) -> u32 {
    let mut doubts = 0;
    for _ in 0..20 {
        read(mirror, events);
        let resync = &mirror.resync;
        if !resync.v4.needs_dump() && !resync.v6.needs_dump() && !resync.is_interrupted() {
            break;
        }
        doubts += 1;
        mirror.dump_objects(requests).unwrap();
        if mirror.resync.v4.needs_dump() {
            let mut dump = mirror.begin_ipv4(requests).unwrap();
            while dump.go_on(&mut mirror.nhgs, requests).unwrap() {}
            read(mirror, events);
            mirror.adopt_ipv4(dump);
        }
        if mirror.resync.v6.needs_dump() {
            let mut dump = mirror.begin_ipv6(requests).unwrap();
            while dump.go_on(&mut mirror.nhgs, requests).unwrap() {}
            read(mirror, events);
            mirror.adopt_ipv6(dump);
        }
    }
    doubts
}

/// The differences, how many answers were left to the kernel, and how many were forwarded by both.
fn compare<A: Tested>(bed: &Bed, mirror: &Mirror, addresses: &[A]) -> (Vec<String>, usize, usize) {
    let lookup = NexthopState::new(&mirror.nhgs, &mirror.kernel);
    let family = A::of(mirror);
    let mut table = BTreeMap::new();
    family.decide_all(TABLE_MAIN, lookup, |prefix, decision| {
        assert!(table.insert(prefix, decision).is_none(), "{prefix} twice")
    });
    for (prefix, decision) in &table {
        assert_eq!(
            family.decide(TABLE_MAIN, *prefix, lookup),
            Some(*decision),
            "{prefix}: decided alone and with all others"
        );
    }
    let (mut passes, mut forwards) = (0, 0);
    let mut differ = Vec::new();
    for (address, kernel) in addresses.iter().zip(kernel(bed, addresses)) {
        let longest = |len: u16| table.get(&Prefix::truncated(*address, len)).copied();
        let found = (0..=A::WIDTH).rev().find_map(longest);
        let agrees = match ours(mirror, found) {
            Ours::Passes => {
                passes += 1;
                true
            }
            Ours::Says(found) => {
                forwards += usize::from(found.starts_with("unicast"));
                found == kernel
            }
            Ours::OneOf(found) => found.contains(&kernel),
        };
        if !agrees {
            differ.push(format!("{}: kernel `{kernel}`, mirror {:?}", address.ip(), ours(mirror, found)));
        }
    }
    (differ, passes, forwards)
}

/// The dataplane of a test: nothing attached, but real maps.
struct Published {
    dataplane: Dataplane,
    publisher: Publisher,
    pins: std::path::PathBuf,
    /// Answers by what is done.
    kinds: BTreeMap<&'static str, usize>,
}

impl Published {
    fn new(tag: &str) -> Self {
        instance::ensure_bpffs().unwrap();
        let pins = format!("/sys/fs/bpf/tlnd-{}-{tag}", std::process::id()).into();
        // An arena has one place in a process; tests run side by side.
        let map_type = Some(ImageMapType::Array);
        let options = Options {
            pins,
            map_type,
            image_bytes: 4 << 20,
            tables: 4,
            actions: 4096,
            adjacencies: 4096,
            rules: 64,
            frags: true,
        };
        let mut dataplane = Dataplane::open(&options).unwrap();
        let publisher = Publisher::new(&mut dataplane).unwrap();
        Self { dataplane, publisher, pins: options.pins, kinds: BTreeMap::new() }
    }

    fn publish(&mut self, mirror: &mut Mirror) {
        let devices = mirror.kernel.links.values().filter(|link| link.name.starts_with('n'));
        let devices = devices.map(|link| link.ifindex).collect();
        self.publisher.publish(mirror, self.dataplane.parts(), &devices);
    }

    /// The image holds the decisions, and each action equals one that is found again from the state.
    fn check<A: Tested>(&mut self, mirror: &mut Mirror, addresses: &[A]) {
        let lookup = NexthopState::new(&mirror.nhgs, &mirror.kernel);
        let mut table = BTreeMap::new();
        A::of(mirror).decide_all(TABLE_MAIN, lookup, |prefix, decision| {
            assert!(table.insert(prefix, decision).is_none())
        });
        let numbers = self.publisher.action_index.numbers();
        let memory = self.dataplane.memory();
        let reader = trieline_lpm::Reader::new(memory.words()).unwrap();
        for address in addresses {
            let longest = |len: u16| table.get(&Prefix::truncated(*address, len)).copied();
            let decided = (0..=A::WIDTH).rev().find_map(longest);
            let id = reader.lookup(u32::from(A::WIDTH == 128), *address);
            let found = id.map(|id| match numbers.get(&id) {
                Some(ActionOwner::NexthopGroup(path)) => Decision::NexthopGroup(*path),
                Some(ActionOwner::Neighbour(link, mtu)) => Decision::Neighbour(*address, *link, *mtu),
                None => Decision::Kernel,
            });
            assert_eq!(found, decided, "{}", address.ip());
            let kind = match id.and_then(|id| self.dataplane.actions().get(id)) {
                None => "no route",
                Some(Action::Pass(reason)) => reason.name(),
                Some(Action::Drop(reason)) => reason.name(),
                Some(Action::Forward(_) | Action::Deliver(_)) => "forward",
                Some(Action::Encaps { .. }) => "h_encaps",
                Some(Action::Endpoint { endpoint: Endpoint::EndDx4, .. }) => "end_dx4",
                Some(Action::Table(_)) => "table",
                Some(Action::Group(_)) => "group",
                Some(_) => "seg6",
            };
            *self.kinds.entry(kind).or_default() += 1;
        }
        let before = self.publisher.action_index.rewritten;
        (mirror.changes.kernel, mirror.changes.addresses) = (true, true);
        self.publish(mirror);
        assert_eq!(self.publisher.action_index.rewritten, before, "actions were out of date");
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = trieline_router::detach_all(&self.pins);
    }
}

/// A run of random changes: the kernel, its mirror, the image.
struct Run {
    bed: Bed,
    rng: Random,
    events: Netlink,
    requests: Netlink,
    mirror: Mirror,
    published: Published,
    compared: usize,
    passed: usize,
    forwarded: usize,
    audited: usize,
    dumps: u32,
}

impl Run {
    fn new(bed: Bed, seed: u64) -> Self {
        let mut events = Netlink::route().unwrap();
        // links, neighbours, addresses, routes, rules, settings, next hops
        events.subscribe(&[1, 3, 5, 9, 7, 11, 8, 19, 24, 25, 32], 32 << 20).unwrap();
        let published = Published::new(&seed.to_string());
        Self {
            bed,
            rng: Random::new(seed),
            events,
            requests: Netlink::route().unwrap(),
            mirror: Mirror::default(),
            published,
            compared: 0,
            passed: 0,
            forwarded: 0,
            audited: 0,
            dumps: 0,
        }
    }

    fn change<A: Tested>(&mut self, given: &mut Vec<String>, count: usize) {
        self.bed.batch(A::OPTION, &changes::<A>(&mut self.rng, given, count));
        if given.len() > 400 {
            given.drain(..200);
        }
    }

    fn settle(&mut self) {
        self.dumps += settle(&mut self.mirror, &mut self.events, &mut self.requests);
        self.published.publish(&mut self.mirror);
    }

    /// Compares until the kernel has come to rest: a link that came up takes its time, carriers and addresses follow later.
    fn compare<A: Tested + trieline_router::audit::sampler::Sampled>(&mut self, round: usize) {
        let addresses: Vec<A> = (0..200).map(|_| A::random(&mut self.rng)).collect();
        let end = Instant::now() + Duration::from_secs(5);
        let (differ, passes, forwards) = loop {
            self.settle();
            let (differ, passes, forwards) = compare(&self.bed, &self.mirror, &addresses);
            if differ.is_empty() || Instant::now() > end {
                break (differ, passes, forwards);
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if !differ.is_empty() {
            // Was it the following that failed, or the deciding?
            self.mirror.resync.lose_routes();
            self.settle();
            let (still, ..) = compare(&self.bed, &self.mirror, &addresses);
            let reported = differ[..differ.len().min(10)].join("\n");
            panic!("round {round}: {} differences, {} after a dump:\n{reported}", differ.len(), still.len());
        }
        self.published.check(&mut self.mirror, &addresses);
        let (differ, equal) = audited::sampled(self, &addresses);
        assert!(differ.is_empty(), "round {round}: the audit differs:\n{}", differ.join("\n"));
        self.audited += equal;
        self.compared += addresses.len();
        self.passed += passes;
        self.forwarded += forwards;
    }
}

#[test]
fn decisions_equal_the_kernels() {
    for seed in 1..=6 {
        let Some(bed) = Bed::new(&seed.to_string()) else { return };
        in_thread(move || {
            enter_namespace(bed.0.name()).unwrap();
            let mut run = Run::new(bed, seed);
            let (mut given4, mut given6) = (Vec::new(), Vec::new());
            // The first changes are dumped, the others followed.
            run.change::<u32>(&mut given4, 300);
            run.change::<u128>(&mut given6, 300);
            run.mirror.dump_kernel_state(&mut run.requests).unwrap();
            run.mirror.resync.lose_routes();
            for round in 0..40 {
                run.change::<u32>(&mut given4, 40);
                run.change::<u128>(&mut given6, 40);
                run.compare::<u32>(round);
                run.compare::<u128>(round);
            }
            let Run { compared, passed, forwarded, dumps, published, .. } = &run;
            println!(
                "seed {seed}: {compared} answers agree, {forwarded} forwarded, {passed} left to the kernel; {dumps} dumps; \
                 {} actions rewritten, {:?} seen",
                published.publisher.action_index.rewritten, published.kinds
            );
            assert!(passed * 4 < *compared && forwarded * 8 > *compared, "this proves too little");
            assert!(run.audited * 16 > *compared, "{} of {compared} audited", run.audited);
        });
    }
}

/// Addresses of the standard library and of the tables are the same numbers.
#[test]
fn addresses_convert() {
    assert_eq!(
        u32::from_ip("192.0.2.1".parse().unwrap()).unwrap().ip(),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))
    );
    assert_eq!(u128::from_ip(IpAddr::V6(Ipv6Addr::LOCALHOST)), Some(1));
    assert_eq!(u32::from_bytes(&[]), Some(0));
    assert_eq!(u32::from_bytes(&[1, 2, 3]), None);
}
