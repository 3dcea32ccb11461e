//! Policy rules: thousands of addresses, from several sources and devices, go where `ip route get … from … iif …` of the kernel says.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, Leftovers, trieline, trieline_with};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::packets::{Received, UdpSink, UdpStream};
use trieline_testbed::random::Random;
use trieline_testbed::{eventually, needs_root};

pub(crate) const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const ADDRESSES: usize = 3000;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `gateway dev` of an answer of either tool; `no` where the kernel answers with an error, or the packet is its own.
fn verdict(route: &Value) -> String {
    match text(&route["type"]) {
        "" | "unicast" => format!("{} {}", text(&route["gateway"]), text(&route["dev"])),
        kind => kind.to_owned(),
    }
}

/// The kernel's action on packets from `source` that come in by `device`; errors are lines of two kinds.
pub(crate) fn kernel(
    node: &Namespace,
    option: &str,
    addresses: &[String],
    source: &str,
    device: &str,
) -> Vec<String> {
    let lines: String =
        addresses.iter().map(|address| format!("route get {address} from {source} iif {device}\n")).collect();
    let answer = node.ip_batch(&[option, "-j", "-force"], &lines);
    let (mut reason, mut failed) = ("", std::collections::BTreeMap::new());
    for line in answer.stderr.lines() {
        match line.strip_prefix("Command failed -:") {
            Some(number) => {
                let number: usize = number.trim().parse().expect("a line number");
                failed.insert(number - 1, reason.to_owned());
            }
            None => reason = line,
        }
    }
    let mut routes = serde_json::Deserializer::from_str(&answer.stdout)
        .into_iter::<Vec<Value>>()
        .map(|list| list.expect("ip prints JSON"))
        .filter(|list| !list.is_empty() && list[0].get("dst").is_some());
    (0..addresses.len())
        .map(|index| match failed.get(&index).map(String::as_str) {
            Some("RTNETLINK answers: Network is unreachable") => "none".into(),
            Some("RTNETLINK answers: No route to host") => "unreachable".into(),
            Some("RTNETLINK answers: Permission denied") => "prohibit".into(),
            Some("RTNETLINK answers: Invalid argument") => "blackhole".into(),
            Some(other) => panic!("`ip route get {}` says {other}", addresses[index]),
            None => verdict(&routes.next().expect("an answer for every address")[0]),
        })
        .collect()
}

/// XDP's action, by the image; a rule that decides by itself is named by its action's reason.
pub(crate) fn ours(node: &Namespace, addresses: &[String], source: &str, device: &str) -> Vec<String> {
    let args = format!("-j route get - --from {source} --iif {device}");
    let answer = trieline_with(node, &args, &(addresses.join("\n") + "\n"));
    let routes: Vec<Value> =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {answer:?}"));
    let printed = |route: &Value| match text(&route["type"]) {
        // A rule's `unreachable` says ENETUNREACH, as where nothing is found.
        "rule" => text(&route["reason"]).replace("unreachable", "none"),
        _ => verdict(route),
    };
    routes.iter().map(printed).collect()
}

struct Net {
    option: &'static str,
    /// A random destination.
    address: fn(&mut Random) -> String,
    sources: [&'static str; 4],
    setup: &'static [&'static str],
}

/// Rules of every kind that is followed, in one family.
fn agree(net: &Net) {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    for line in net.setup {
        bed.node.ip(&format!("{} {line}", net.option));
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let mut rng = Random::new(7);
    let addresses: Vec<String> = (0..ADDRESSES).map(|_| (net.address)(&mut rng)).collect();
    let compare = |what: &str| {
        let mut kinds = std::collections::BTreeSet::new();
        for source in net.sources {
            for device in ["n0", "n1", "n2"] {
                let mut found = Vec::new();
                let equal = eventually(10.0, || {
                    let (kernel, ours) = (
                        kernel(&bed.node, net.option, &addresses, source, device),
                        ours(&bed.node, &addresses, source, device),
                    );
                    kinds.extend(kernel.iter().cloned());
                    let pairs = addresses.iter().zip(kernel.into_iter().zip(ours));
                    found = pairs.filter(|(_, (kernel, ours))| kernel != ours).collect();
                    found.is_empty()
                });
                assert!(
                    equal,
                    "{what}: from {source} iif {device}: {} differ: {:#?}",
                    found.len(),
                    &found[..found.len().min(8)]
                );
            }
        }
        kinds
    };
    let kinds = compare("at start");
    for kind in ["none", "unreachable", "prohibit", "blackhole"] {
        assert!(kinds.contains(kind), "no address is {kind}: {kinds:?}");
    }
    assert!(kinds.len() > 6, "{kinds:?}");
    // rules that come and go, and routes in their tables
    for line in [
        "rule del pref 200",
        "rule add pref 150 iif n1 lookup 300",
        "route flush table 100",
        "rule add pref 400 prohibit",
        "rule del pref 400",
    ] {
        bed.node.ip(&format!("{} {line}", net.option));
        compare(line);
    }
    let status = trieline(&bed.node, "-j node status").json();
    let family = &status["families"][usize::from(net.option == "-6")];
    assert_eq!(family["punted"], Value::Array(Vec::new()), "{status}");
}

#[test]
fn rules_of_ipv4_are_followed() {
    agree(&Net {
        option: "-4",
        address: |rng| {
            let bits = rng.bits() as u32;
            format!("10.{}.{}.{}", 40 + (bits & 15), bits >> 8 & 3, bits >> 16 & 255)
        },
        sources: ["10.0.0.2", "10.0.0.77", "10.1.0.2", "10.2.0.200"],
        setup: &[
            "route add 10.40.0.0/14 via 10.1.0.2",
            "route add 10.48.0.0/14 via 10.2.0.2",
            "route add 10.44.0.0/14 via 10.2.0.2 table 100",
            "route add throw 10.45.0.0/16 table 100",
            "route add unreachable 10.46.1.0/24 table 100",
            "route add 10.44.0.0/15 via 10.1.0.2 table 200",
            "route add 10.52.0.0/16 via 10.1.0.2 table 200",
            "route add blackhole 10.47.2.0/24 table 200",
            "route add 10.40.1.0/24 via 10.2.0.2 table 300",
            "route add 10.0.0.0/8 via 10.0.0.2 table 300 metric 5",
            "rule add pref 100 from 10.0.0.0/25 lookup 100",
            "rule add pref 200 to 10.44.0.0/14 iif n0 lookup 200",
            "rule add pref 250 from 10.2.0.0/24 to 10.53.0.0/16 prohibit",
            "rule add pref 260 to 10.43.3.0/24 blackhole",
            "rule add pref 270 to 10.43.2.0/24 unreachable",
            "rule add pref 300 from 10.0.0.77 lookup 300",
            "rule add pref 40000 to 10.52.0.0/16 lookup 200",
            "rule add pref 40 oif n1 lookup 300",
        ],
    });
}

#[test]
fn rules_of_ipv6_are_followed() {
    agree(&Net {
        option: "-6",
        address: |rng| {
            let bits = rng.bits();
            format!("fd{:02x}:{:x}::{:x}", 0x40 + (bits & 15), bits >> 8 & 3, bits >> 16 & 0xffff)
        },
        sources: ["fd00:0::2", "fd00:0::77", "fd00:1::2", "fd00:2::200"],
        setup: &[
            "route add fd40::/14 via fd00:1::2",
            "route add fd48::/14 via fd00:2::2",
            "route add fd44::/14 via fd00:2::2 table 100",
            "route add throw fd45::/16 table 100",
            "route add unreachable fd46:1::/32 table 100",
            "route add fd44::/15 via fd00:1::2 table 200",
            "route add fd4c::/16 via fd00:1::2 table 200",
            "route add blackhole fd47:2::/32 table 200",
            "route add fd40:1::/32 via fd00:2::2 table 300",
            "route add fd00::/8 via fd00:0::2 table 300 metric 5",
            "rule add pref 100 from fd00:0::/122 lookup 100",
            "rule add pref 200 to fd44::/14 iif n0 lookup 200",
            "rule add pref 250 from fd00:2::/32 to fd4d::/16 prohibit",
            "rule add pref 260 to fd43:3::/32 blackhole",
            "rule add pref 270 to fd43:2::/32 unreachable",
            "rule add pref 300 from fd00:0::77 lookup 300",
            "rule add pref 40000 to fd4c::/16 lookup 200",
            "rule add pref 40 oif n1 lookup 300",
        ],
    });
}

/// `not`, `goto` and `suppress_prefixlength 0` in each family, with default routes of every kind: a VPN's rules among them.
fn agree_on_flow_of_rules(option: &'static str) {
    needs_root!();
    let six = option == "-6";
    let bed = Bed::new();
    bed.warm();
    // Text of IPv4, in the numbers of the bed's IPv6 where that is asked.
    let line = |text: &str| {
        let words = text.split(' ').map(|word| match word.split_once('.') {
            Some(("10", rest)) if six => {
                let (address, len) =
                    rest.split_once('/').map_or((rest, None), |(a, len)| (a, len.parse::<u8>().ok()));
                let parts: Vec<&str> = address.split('.').collect();
                let hex = |part: &str| format!("{:x}", part.parse::<u8>().expect("a number"));
                let len = len.map_or(String::new(), |len| format!("/{}", if len == 32 { 128 } else { len }));
                // 10.N.0.2 of the bed is fd00:N::2; the rest is fdNN::
                match (parts[0].parse::<u8>().expect("a number"), parts[2]) {
                    (net @ 0..=2, host) => {
                        format!("fd00:{net}::{}{}", hex(host), if len.is_empty() { "" } else { "/32" })
                    }
                    (net, host) => format!("fd{net:02x}:{}::{}{len}", hex(parts[1]), hex(host)),
                }
            }
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let run = |text: &str| bed.node.ip(&format!("{option} {}", line(text)));
    for text in [
        "route add 10.40.0.0/16 via 10.1.0.2",
        "route add 10.41.0.0/16 via 10.2.0.2 table 100",
        "route add default via 10.1.0.2 table 100",
        "route add 10.42.0.0/16 via 10.2.0.2 table 200",
        "route add unreachable default table 200",
        "route add default via 10.2.0.2 table 300",
        "route add 10.43.0.0/16 via 10.1.0.2 table 300",
    ] {
        run(text);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let mut rng = Random::new(11);
    let addresses: Vec<String> = (0..400)
        .map(|_| {
            let bits = rng.bits();
            line(&format!("10.{}.{}.{}", 40 + (bits & 7), bits >> 8 & 3, 3 + (bits >> 16 & 127)))
        })
        .collect();
    let mut kinds = std::collections::BTreeSet::new();
    let mut compare = |what: &str| {
        for source in ["10.0.0.2", "10.0.0.77", "10.2.0.200"].map(line) {
            for device in ["n0", "n1"] {
                let mut found = Vec::new();
                let equal = eventually(10.0, || {
                    let (kernel, ours) = (
                        kernel(&bed.node, option, &addresses, &source, device),
                        ours(&bed.node, &addresses, &source, device),
                    );
                    kinds.extend(kernel.iter().cloned());
                    let pairs = addresses.iter().zip(kernel.into_iter().zip(ours));
                    found = pairs.filter(|(_, (kernel, ours))| kernel != ours).collect();
                    found.is_empty()
                });
                assert!(
                    equal,
                    "{what}: from {source} iif {device}: {} differ: {:#?}",
                    found.len(),
                    &found[..found.len().min(8)]
                );
            }
        }
    };
    for text in [
        // (1) a VPN's: what main has but for its default route, and all else by a table of its own
        "rule add pref 100 lookup main suppress_prefixlength 0",
        "rule add pref 200 not from 10.2.0.200 lookup 300",
        "route add default via 10.1.0.2",
        "route change default via 10.2.0.2",
        // (2) other tables; an error is never left out as a route may be
        "rule add pref 50 from 10.0.0.77 lookup 100 suppress_prefixlength 0",
        "rule add pref 60 from 10.2.0.200 lookup 200 suppress_prefixlength 0",
        "route change default via 10.1.0.2 table 200",
        "route replace blackhole default table 200",
        "route del default table 200",
        "route add default via 10.1.0.2 table 200",
        "route del default",
        // (3) jumps: over everything, to a rule that is gone, of some packets only
        "rule add pref 10 to 10.40.0.0/14 goto 150",
        "rule add pref 150 iif n1 lookup 300",
        "rule add pref 20 not to 10.41.0.0/16 goto 200",
        "rule add pref 5 from 10.0.0.77 goto 32766",
        "rule add pref 200 prohibit",
        "rule del pref 150",
        "rule del pref 100",
        "rule add pref 110 not iif n1 lookup 300",
        "rule add pref 1 goto 110",
        "rule del pref 110",
        // onlink: IPv4 looks for the gateway by the same rules
        "route add default via 10.2.0.2 dev n2 onlink",
        "rule del pref 1",
    ] {
        run(text);
        compare(text);
    }
    assert!(kinds.len() >= 5, "{kinds:?}");
    let status = trieline(&bed.node, "-j node status").json();
    assert_eq!(status["families"][usize::from(six)]["punted"], Value::Array(Vec::new()), "{status}");
}

#[test]
fn not_goto_and_suppressed_defaults_of_ipv4_are_followed() {
    agree_on_flow_of_rules("-4");
}

#[test]
fn not_goto_and_suppressed_defaults_of_ipv6_are_followed() {
    agree_on_flow_of_rules("-6");
}

/// A restart gives default routes other numbers than those by which the rules left behind leave them out: no packet goes astray.
#[test]
fn a_restart_leaves_out_the_default_routes_it_numbers() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.side.ip("addr add 10.60.0.1/32 dev lo");
    let fill: String =
        (0..10_000u32).map(|n| format!("route add 20.{}.{}.0/24 via 10.1.0.2\n", n >> 8, n & 0xff)).collect();
    bed.node.ip_batch(&[], &fill).ok();
    for text in [
        "route add default via 10.1.0.2",
        "route add default via 10.2.0.2 table 300",
        "rule add pref 100 lookup main suppress_prefixlength 0",
        "rule add pref 200 lookup 300",
    ] {
        bed.node.ip(text);
    }
    let _leftovers = Leftovers(&bed.node);
    let mut daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("started", "10.60.0.1:9", (0, 0, 5));
    let to = "10.60.0.1:7000".parse().expect("an address with a port");
    let sink = UdpSink::open(&bed.side, to);
    let stream = UdpStream::start(&bed.generator, to, 2000);
    for _ in 0..5 {
        daemon.kill();
        daemon = Daemon::start(&bed.node, DEVICES);
    }
    bed.becomes("restarted", "10.60.0.1:9", (0, 0, 5));
    bed.becomes("by main", "20.0.9.1:9", (0, 5, 0));
    let packets = stream.stop();
    let received = sink.close_checked();
    assert!(packets > 2000, "only {packets} packets were sent");
    assert_eq!(received, Received { packets, twice: 0, wrong: 0 });
}

/// A rule that only the kernel can follow leaves it and the rules behind it to the kernel, and is named with the reason.
#[test]
fn rules_left_to_the_kernel_are_named() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    bed.node.ip("route add 10.51.0.0/16 via 10.1.0.2 table 100");
    bed.node.ip("rule add pref 10 to 10.51.0.0/16 lookup 100");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let becomes = |what: &str, to: &str, counts: (usize, usize, usize)| {
        let mut last = None;
        let equal = eventually(8.0, || {
            last = Some(bed.send(to, what, 5).counts());
            last == Some(counts)
        });
        assert!(equal, "{what}: to {to} expected {counts:?}, last seen {last:?} (passed, sink, side)");
    };
    for (rule, expected_text) in [
        ("pref 20 uidrange 0-7 lookup 300", "20: from all uidrange 0-7 lookup 300: users are not seen"),
        (
            "pref 20 tos 0x10 lookup 300",
            "20: from all tos 0x10 lookup 300: XDP does not see the type of service",
        ),
        (
            "pref 20 not from 192.0.2.1 uidrange 0-7 lookup 300",
            "20: not from 192.0.2.1 uidrange 0-7 lookup 300: users are not seen",
        ),
        (
            "pref 20 ipproto udp dport 53 lookup 300",
            "20: from all ipproto udp dport 53 lookup 300: XDP does not see the protocol or port",
        ),
        (
            "pref 20 lookup main suppress_prefixlength 8",
            "20: from all lookup main suppress_prefixlength 8: `suppress_prefixlength` is followed for 0 only",
        ),
        (
            "pref 20 lookup main suppress_ifgroup 7",
            "20: from all lookup main suppress_ifgroup 7: `suppress_ifgroup` is not followed",
        ),
    ] {
        becomes("no such rule", "10.50.0.1:9", (0, 5, 0));
        bed.node.ip(&format!("rule add {rule}"));
        // (1) packets that come to it pass, those that an earlier one decides do not
        becomes("rule", "10.50.0.1:9", (5, 5, 0));
        becomes("rule before", "10.51.0.1:9", (0, 5, 0));
        // (2) it is named
        let status = trieline(&bed.node, "node status").stdout;
        assert!(
            status.contains(&format!("left to the kernel: {expected_text}")),
            "{expected_text}\n{status}"
        );
        bed.node.ip(&format!("rule del {rule}"));
    }
    becomes("none", "10.50.0.1:9", (0, 5, 0));
}
