//! The fields that distinguish flows when they choose among next hops. The kernel's own choice and XDP's are compared, for pairs of
//! packets that differ in one field. Both take another way for some of the pairs, or neither for any, under each
//! `fib_multipath_hash_policy` and a number of fields.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::cases::adjacency;
use common::netns::Line;
use common::packet::*;
use common::*;
use trieline_router::{Action, Adjacency, FlowKeys};
use trieline_testbed::needs_root;
use trieline_testbed::random::Random;

const WAYS: u8 = 8;
/// The chance that so many pairs of distinct flows all go one way is 8^-7.
const PAIRS: usize = 7;

type Pair = (Vec<u8>, Vec<u8>);
type Packet<'a> = &'a dyn Fn(&str, &str, [u16; 2]) -> Vec<u8>;

fn udp4(source: &str, destination: &str, ports: [u16; 2]) -> Vec<u8> {
    with_ports(ipv4(source, destination, 64), 20, ports)
}

fn udp6(source: &str, destination: &str, ports: [u16; 2]) -> Vec<u8> {
    with_ports(ipv6(source, destination, 64), 40, ports)
}

fn with_ports(mut packet: Vec<u8>, at: usize, ports: [u16; 2]) -> Vec<u8> {
    packet[at..at + 2].copy_from_slice(&ports[0].to_be_bytes());
    packet[at + 2..at + 4].copy_from_slice(&ports[1].to_be_bytes());
    packet
}

/// IPv4 of that protocol around a payload.
fn over4(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(source, destination, 64)[..20].to_vec();
    packet.extend(payload);
    let total = packet.len() as u16;
    edit_ipv4(packet, |p| {
        p[9] = protocol;
        p[2..4].copy_from_slice(&total.to_be_bytes());
    })
}

/// An ICMP error about a packet.
fn error(source: &str, destination: &str, kind: u8, about: &[u8]) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0, 0, 0, 0, 0], about].concat();
    if about[0] >> 4 == 4 {
        over4(source, destination, 1, &message)
    } else {
        outer(source, destination, 58, 64, &message)
    }
}

/// The ways in which two packets of a family differ. `of(n)` is an address of it.
fn pairs(four: bool, random: &mut Random) -> Vec<(&'static str, Pair)> {
    let address = |n: usize| {
        if four { format!("198.51.100.{}", n % 250 + 1) } else { format!("2001:db8:1::{:x}", n + 1) }
    };
    let plain: Packet<'_> = if four { &udp4 } else { &udp6 };
    let wrap = |source: &str, to: &str, next: u8, inner: &[u8]| {
        if four { over4(source, to, next, inner) } else { outer(source, to, next, 64, inner) }
    };
    let number = random.below(60);
    let [a, b, c] = [number, number + 61, number + 131].map(address);
    let ports = [2000 + random.below(30000) as u16, 40000 + random.below(20000) as u16];
    let one = plain(&a, &b, ports);
    let transport = if four { 20 } else { 40 };
    let edited = |packet: &[u8], edit: &dyn Fn(&mut [u8])| {
        let mut packet = packet.to_vec();
        edit(&mut packet);
        if four { edit_ipv4(packet, |_| {}) } else { packet }
    };
    let protocol_at = if four { 9 } else { 6 };
    let tcp = |packet: &[u8]| edited(packet, &|p| p[protocol_at] = 6);
    let inner =
        |source: &str, to: &str, ports| udp4(&format!("10.9.{source}.1"), &format!("10.8.{to}.1"), ports);
    let inner6 = |n: u16| udp6(&format!("fd01::{n:x}"), "fd02::1", ports);
    let around = |inner: &[u8]| wrap(&a, &b, if inner[0] >> 4 == 4 { 4 } else { 41 }, inner);
    let gre = |inner: &[u8]| wrap(&a, &b, 47, &[&[0x20, 0, 8, 0, 0, 0, 0, 7], inner].concat());
    let random_byte = random.below(250).to_string();
    let base = inner(&random_byte, "1", ports);
    let kind = if four { 3 } else { 2 };
    let mut list = vec![
        ("the same", (one.clone(), one.clone())),
        ("source", (one.clone(), plain(&c, &b, ports))),
        ("destination", (one.clone(), plain(&a, &c, ports))),
        ("source port", (one.clone(), plain(&a, &b, [ports[0] + 1, ports[1]]))),
        ("destination port", (one.clone(), plain(&a, &b, [ports[0], ports[1] + 1]))),
        ("protocol", (one.clone(), tcp(&one))),
        ("payload", (one.clone(), edited(&one, &|p| p[transport + 8] ^= 0xff))),
        ("the way back", (one.clone(), plain(&b, &a, [ports[1], ports[0]]))),
        ("addresses turned", (one.clone(), plain(&b, &a, ports))),
        ("an error about it", (one.clone(), error(&c, &a, kind, &one))),
        ("an error that is none", (one.clone(), error(&c, &a, if four { 8 } else { 128 }, &one))),
        ("inner source", (around(&base), around(&inner("251", "1", ports)))),
        ("inner destination", (around(&base), around(&inner(&random_byte, "2", ports)))),
        ("inner port", (around(&base), around(&inner(&random_byte, "1", [ports[0], 9])))),
        ("inner protocol", (around(&base), around(&edit_ipv4(base.clone(), |p| p[9] = 6)))),
        ("around another", (around(&base), wrap(&a, &c, 4, &base))),
        ("inner IPv6", (around(&inner6(number as u16)), around(&inner6(number as u16 + 7)))),
        ("inner of GRE", (gre(&base), gre(&inner(&random_byte, "2", ports)))),
        ("inner port of GRE", (gre(&base), gre(&inner(&random_byte, "1", [ports[0], 9])))),
    ];
    if four {
        let fragment = |packet: &[u8]| edited(packet, &|p| p[6] = 0x20);
        list.push(("port of a fragment", (fragment(&one), fragment(&plain(&a, &b, [9, 9])))));
    } else {
        let label = random.bits().to_ne_bytes();
        let labelled = |n: usize| edited(&one, &|p| p[2..4].copy_from_slice(&label[n..n + 2]));
        list.push(("label", (labelled(0), labelled(2))));
        list.push(("class", (one.clone(), edited(&one, &|p| p[1] ^= 0x20))));
        let options =
            |packet: &[u8]| outer(&a, &b, 60, 64, &[&[17, 0, 1, 4, 0, 0, 0, 0], &packet[40..]].concat());
        list.push(("port behind options", (options(&one), options(&plain(&a, &b, [9, 9])))));
        let fragment =
            |packet: &[u8]| outer(&a, &b, 44, 64, &[&[17, 0, 0, 1, 0, 0, 0, 7], &packet[40..]].concat());
        list.push(("port of a fragment", (fragment(&one), fragment(&plain(&a, &b, [9, 9])))));
    }
    list
}

#[test]
fn flows_are_hashed_as_by_linux() {
    needs_root!();
    let line = Line::new();
    let hops = |of: &dyn Fn(u8) -> String| (0..WAYS).map(|n| of(n + 2)).collect::<Vec<_>>().join(" ");
    line.sh(
        "n",
        &format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
             net.ipv4.conf.n0.rp_filter=0 net.ipv4.conf.all.send_redirects=0
             ip address add 192.0.2.1/24 dev n0
             ip address add 192.0.66.1/24 dev n1
             ip -6 address add 2001:db8::1/64 dev n0 nodad
             ip -6 address add 2001:db8:66::1/64 dev n1 nodad
             for n in {neighbours}; do
               ip neigh add 192.0.66.$n lladdr 02:00:00:00:01:0$n dev n1 nud permanent
               ip neigh add 2001:db8:66::$n lladdr 02:00:00:00:01:0$n dev n1 nud permanent; done
             ip route add 198.51.100.0/24 {four}
             ip -6 route add 2001:db8:1::/48 {six}",
            neighbours = hops(&|n| n.to_string()),
            four = hops(&|n| format!("nexthop via 192.0.66.{n}")),
            six = hops(&|n| format!("nexthop via 2001:db8:66::{n}")),
        ),
    );
    let (from, to) = (line.socket("a", "a0"), line.socket("b", "b0"));
    let by_kernel = |packet: &[u8]| {
        from.send(&Frame::new(packet.to_vec()).bytes());
        let hop = |frame: &[u8]| frame[..5] == NEXT_HOP_MAC[..5];
        to.receive(Duration::from_secs(2), hop).map(|frame| frame[5]).expect("no frame")
    };
    let members = (0..WAYS).map(|n| {
        let destination = [2, 0, 0, 0, 1, n + 2];
        (1, Action::Forward(Adjacency { destination, ..adjacency(LO) }))
    });
    let group = Action::Group(members.collect());
    let benches: Vec<_> = map_types()
        .into_iter()
        .map(|map_type| {
            Bench::new(map_type, &[("198.51.100.0/24", group.clone()), ("2001:db8:1::/48", group.clone())])
        })
        .collect();
    let mut random = Random::new(0x666c_6f77);
    let mut apart = 0;
    for (policy, fields) in [(0, 7), (1, 7), (2, 7), (3, 0x31), (3, 0xa), (3, 0xfc0)] {
        let keys = FlowKeys { policy, fields };
        for four in [true, false] {
            let family = if four { 4 } else { 6 };
            line.sh(
                "n",
                &format!(
                    "sysctl -qw net.ipv{family}.fib_multipath_hash_policy={policy} \
                     net.ipv{family}.fib_multipath_hash_fields={fields}"
                ),
            );
            // The other family's settings do not matter.
            let other = FlowKeys { policy: 1, fields: 0x3f };
            for bench in &benches {
                let (four, six) = if four { (keys, other) } else { (other, keys) };
                bench.dataplane.local_addrs().set_flows(four, six);
            }
            let rounds: Vec<_> = (0..PAIRS).map(|_| pairs(four, &mut random)).collect();
            for at in 0..rounds[0].len() {
                let what = rounds[0][at].0;
                let differs = |way: &dyn Fn(&[u8]) -> u8| {
                    rounds.iter().any(|round| way(&round[at].1.0) != way(&round[at].1.1))
                };
                let kernel = differs(&by_kernel);
                apart += usize::from(kernel);
                for bench in &benches {
                    let way = |packet: &[u8]| {
                        let outcome = bench.run(&Frame::new(packet.to_vec()).bytes());
                        assert_eq!(outcome.action, XDP_REDIRECT, "{what}: {}", outcome.counted);
                        outcome.output[5]
                    };
                    assert_eq!(
                        differs(&way),
                        kernel,
                        "IPv{family}, policy {policy}, fields {fields:#x}: {what}"
                    );
                }
            }
        }
    }
    assert!(apart > 60, "{apart}");
}
