//! The mirror equals the kernel: after thousands of random changes `trieline route get` and `ip route get` agree on every
//! address.

use crate::status;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, trieline_with};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::random::Random;
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const CHANGES: usize = 10_000;
const ADDRESSES: usize = 10_000;

/// Which family a random run is about, with its corner of the address space.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn option(self) -> &'static str {
        if self == Family::V4 { "-4" } else { "-6" }
    }

    /// A random address inside 10.64.0.0/10 or fd64::/16, crowded enough that prefixes nest.
    fn address(self, rng: &mut Random) -> u128 {
        match self {
            Family::V4 => u128::from(
                0x0a40_0000 | (rng.bits() as u32 & 0x003f_ffff & !(rng.below(4) as u32 * 0x0015_5000)),
            ),
            Family::V6 => {
                let low =
                    if rng.below(2) == 0 { u128::from(rng.bits() & 0xffff) } else { u128::from(rng.bits()) };
                0xfd64_u128 << 112 | u128::from(rng.bits() & 0x0f0f_00ff_0003) << 64 | low
            }
        }
    }

    fn text(self, address: u128) -> String {
        match self {
            Family::V4 => Ipv4Addr::from(address as u32).to_string(),
            Family::V6 => Ipv6Addr::from(address).to_string(),
        }
    }

    fn prefix(self, rng: &mut Random) -> String {
        let (bits, length) = match self {
            Family::V4 => (32, rng.pick(&[10, 12, 16, 17, 20, 22, 24, 24, 25, 28, 30, 31, 32, 32])),
            Family::V6 => {
                (128, rng.pick(&[16, 20, 29, 32, 40, 44, 48, 48, 56, 64, 64, 65, 96, 112, 127, 128, 128]))
            }
        };
        let mask = u128::MAX.checked_shl(bits - length).unwrap_or(0);
        format!("{}/{length}", self.text(self.address(rng) & mask))
    }

    fn gateways(self) -> &'static [&'static str] {
        match self {
            Family::V4 => &[
                "via 10.1.0.2",
                "via 10.1.0.3",
                "via 10.1.0.77",
                "via 10.2.0.2",
                "via 10.2.0.9",
                "via 10.0.0.2",
            ],
            Family::V6 => &[
                "via fd00:1::2",
                "via fd00:1::3",
                "via fd00:2::2",
                "via fd00:2::9",
                "via fe80::2 dev n1",
                "via fe80::2 dev n2",
            ],
        }
    }
}

/// `count` random lines for `ip -batch`; some of them fail, as an administrator's do.
fn changes(family: Family, rng: &mut Random, count: usize) -> String {
    let mut lines = String::new();
    let mut given: Vec<String> = Vec::new();
    for _ in 0..count {
        let again = !given.is_empty() && rng.below(3) == 0;
        let mut route = if again { rng.pick(&given) } else { family.prefix(rng) };
        if !again {
            if rng.below(4) == 0 {
                route += rng.pick(&[" metric 10", " metric 20", " metric 4000"]);
            }
            given.push(route.clone());
        }
        let (prefix, metric) = route.split_once(' ').unwrap_or((&route, ""));
        let line = match rng.below(20) {
            0..=4 => format!("route del {prefix} {metric}"),
            5 => format!("route replace blackhole {prefix} {metric}"),
            6 => format!("route replace unreachable {prefix} {metric}"),
            7 => format!("route replace prohibit {prefix} {metric}"),
            8 => format!("route replace {prefix} dev {} {metric}", rng.pick(&["n1", "n2"])),
            // A second route of equal metric behind the first: only IPv4 keeps it apart.
            9 if family == Family::V4 => {
                format!("route append {prefix} {} {metric}", rng.pick(family.gateways()))
            }
            9..=13 => format!("route add {prefix} {} {metric}", rng.pick(family.gateways())),
            _ => format!("route replace {prefix} {} {metric}", rng.pick(family.gateways())),
        };
        lines += &line;
        lines.push('\n');
    }
    lines
}

/// The decision about a packet: kind, gateway, device.
type Verdict = String;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One line of either tool's JSON in common words.
fn verdict(route: &Value) -> Verdict {
    let kind = match text(&route["type"]) {
        "" => "unicast",
        kind => kind,
    };
    let gateway = match &route["via"] {
        Value::Null => text(&route["gateway"]),
        via => text(&via["host"]),
    };
    match kind {
        "unicast" => format!("unicast {gateway} dev {}", text(&route["dev"])),
        kind => kind.to_owned(),
    }
}

/// `ip route get` for every address, in one process.
fn kernel(namespace: &Namespace, family: Family, addresses: &[String]) -> Vec<Verdict> {
    let lines: String = addresses.iter().map(|address| format!("route get {address}\n")).collect();
    let answer = namespace.ip_batch(&[family.option(), "-j", "-force"], &lines);
    // Errors come as two lines: the reason, then `Command failed -:LINE`.
    let mut reason = "";
    let mut failed = std::collections::BTreeMap::new();
    for line in answer.stderr.lines() {
        if let Some(number) = line.strip_prefix("Command failed -:") {
            let number: usize = number.trim().parse().expect("a line number");
            let kind = match reason {
                "RTNETLINK answers: Network is unreachable" => "none",
                "RTNETLINK answers: No route to host" => "unreachable",
                "RTNETLINK answers: Permission denied" => "prohibit",
                "RTNETLINK answers: Invalid argument" => "blackhole",
                other => panic!("`ip route get {}` says {other}", addresses[number - 1]),
            };
            failed.insert(number - 1, kind);
        } else {
            reason = line;
        }
    }
    let mut routes = serde_json::Deserializer::from_str(&answer.stdout)
        .into_iter::<Vec<Value>>()
        .map(|list| list.expect("ip prints JSON"))
        .filter(|list| !list.is_empty() && list[0].get("dst").is_some());
    (0..addresses.len())
        .map(|index| match failed.get(&index) {
            Some(kind) => (*kind).to_owned(),
            None => {
                let route = routes.next().expect("an answer for every address");
                assert_eq!(text(&route[0]["dst"]), addresses[index], "ip answers out of order");
                verdict(&route[0])
            }
        })
        .collect()
}

/// `trieline route get -` for every address.
fn ours(namespace: &Namespace, addresses: &[String]) -> Vec<Verdict> {
    let answer = trieline_with(namespace, "-j route get -", &(addresses.join("\n") + "\n"));
    // Exit code 1 says that some address has no route; the answers are there all the same.
    assert!(answer.code == 0 || answer.code == 1, "{answer:?}");
    let routes: Vec<Value> =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {answer:?}"));
    assert_eq!(routes.len(), addresses.len(), "one answer per address");
    routes.iter().map(|route| checked(route, verdict(route))).collect()
}

/// The verdict, if what XDP does fits it: the image that packets meet, not only the daemon's idea of it.
fn checked(route: &Value, verdict: Verdict) -> Verdict {
    // Neighbours that answer; others stay unresolved, and packets to them are passed.
    let known = ["10.0.0.2", "10.1.0.2", "10.2.0.2", "fd00:1::2", "fd00:2::2"];
    let next_hop = match verdict.split(' ').nth(1) {
        Some("") => text(&route["dst"]),
        gateway => gateway.unwrap_or_default(),
    };
    let resolved = known.contains(&next_hop);
    let fits = text(&route["source"]) == "image+daemon"
        && match (verdict.as_str(), text(&route["action"])) {
            ("blackhole", action) => action == "drop",
            (_, "forward") => {
                resolved && route["out"] == route["dev"] && text(&route["lladdr"]).starts_with("02:")
            }
            (_, action) => action == "pass" && !resolved,
        };
    if fits { verdict } else { format!("{verdict}, but XDP: {route}") }
}

/// Addresses that differ, with both answers.
fn differences(namespace: &Namespace, family: Family, addresses: &[String]) -> Vec<String> {
    let (kernel, ours) = (kernel(namespace, family, addresses), ours(namespace, addresses));
    let pairs = addresses.iter().zip(kernel.iter().zip(&ours));
    pairs
        .filter(|(_, (kernel, ours))| kernel != ours)
        .map(|(address, (kernel, ours))| format!("{address}: kernel `{kernel}`, trieline `{ours}`"))
        .collect()
}

/// Compares until the mirror has caught up, then reports what still differs.
#[track_caller]
fn assert_mirrored(namespace: &Namespace, family: Family, addresses: &[String]) {
    let mut found = Vec::new();
    let equal = eventually(15.0, || {
        found = differences(namespace, family, addresses);
        found.is_empty()
    });
    assert!(
        equal,
        "{} differences of {}:\n{}",
        found.len(),
        addresses.len(),
        found[..found.len().min(20)].join("\n")
    );
}

fn addresses(family: Family, rng: &mut Random, count: usize) -> Vec<String> {
    let mut set = BTreeSet::new();
    while set.len() < count {
        set.insert(family.text(family.address(rng)));
    }
    // Addresses of the node as well: local, broadcast, neighbours, nothing at all.
    let known: &[&str] = match family {
        Family::V4 => {
            &["10.0.0.1", "10.1.0.0", "10.1.0.2", "10.1.0.255", "10.2.0.200", "192.0.2.1", "127.0.0.1"]
        }
        Family::V6 => &["fd00::1", "fd00:1::", "fd00:1::2", "fd00:2::abcd", "2001:db8::1"],
    };
    set.extend(known.iter().map(|&address| address.to_owned()));
    set.into_iter().collect()
}

fn random_changes(family: Family, seed: u64) {
    needs_root!();
    println!("seed {seed}");
    let bed = Bed::new();
    bed.warm();
    let mut rng = Random::new(seed);
    // (1) half of the changes before the daemon starts: the dump
    bed.node.ip_batch(&[family.option(), "-force"], &changes(family, &mut rng, CHANGES / 2));
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let asked = addresses(family, &mut rng, ADDRESSES);
    assert_mirrored(&bed.node, family, &asked);
    // A comparison of nothing with nothing would prove nothing.
    let kinds: BTreeSet<Verdict> = kernel(&bed.node, family, &asked).into_iter().collect();
    for kind in ["blackhole", "unreachable", "prohibit", "none", "local", "unicast  dev n1"] {
        assert!(kinds.contains(kind), "no address is {kind}: {kinds:?}");
    }
    assert!(kinds.len() >= 12, "too few next hops in use: {kinds:?}");
    // (2) half of them under its eyes: the events
    bed.node.ip_batch(&[family.option(), "-force"], &changes(family, &mut rng, CHANGES / 2));
    assert_mirrored(&bed.node, family, &asked);
    // (3) other addresses agree as well
    let asked = addresses(family, &mut rng, ADDRESSES);
    assert_mirrored(&bed.node, family, &asked);
}

#[test]
fn random_changes_ipv4() {
    random_changes(Family::V4, 4);
}

#[test]
fn random_changes_ipv6() {
    random_changes(Family::V6, 6);
}

/// More changes than the netlink buffer holds while the daemon sleeps: it notices (ENOBUFS), dumps again, and agrees.
#[test]
fn flood_overruns_and_recovers() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let daemon = Daemon::start(&bed.node, DEVICES);
    let before = status::overruns(&bed.node);
    // (1) asleep, so that nothing is read
    run(&format!("kill -STOP {}", daemon.pid())).ok();
    let mut lines = String::new();
    for round in 0..2 {
        for number in 0..60_000u32 {
            let address = Ipv4Addr::from(0x0a80_0000 | number << 8);
            let gateway = if (number + round) % 3 == 0 { "10.1.0.2" } else { "10.2.0.2" };
            lines += &format!("route replace {address}/24 via {gateway}\n");
        }
    }
    bed.node.ip_batch(&[], &lines).ok();
    // (2) awake
    run(&format!("kill -CONT {}", daemon.pid())).ok();
    let mut rng = Random::new(1);
    let asked: Vec<String> = (0..1000)
        .map(|_| Ipv4Addr::from(0x0a80_0000 | (rng.bits() as u32 & 0x00ff_ffff)).to_string())
        .collect();
    assert_mirrored(&bed.node, Family::V4, &asked);
    assert!(status::overruns(&bed.node) > before, "the buffer was never overrun: the test proves nothing");
    // (3) and it still follows
    bed.node.ip("route add 10.64.0.0/24 via 10.1.0.2");
    assert_mirrored(&bed.node, Family::V4, &["10.64.0.1".to_owned()]);
}
