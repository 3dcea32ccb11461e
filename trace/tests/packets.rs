//! A message queued at devices is noted once, and other packets never. That holds below other devices, in fragments and segments, and after
//! it has waited for its neighbour's address.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::Relay;
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;
use trieline_trace::{Filter, IdAt, Options, Point, Record, Tracer};

const MESSAGES: u64 = 50;

/// Two hosts with a cable between l0 and r0.
fn hosts(role: &str) -> (Namespace, Namespace) {
    let (left, right) = (Namespace::new(&format!("{role}-left")), Namespace::new(&format!("{role}-right")));
    left.ip(&format!("link add l0 type veth peer name r0 netns {}", right.name()));
    left.ip("link set l0 up");
    right.ip("link set r0 up");
    (left, right)
}

/// Gives both ends their addresses.
fn address(left: (&Namespace, &str), right: (&Namespace, &str)) {
    for ((host, device), number) in [(left, 1), (right, 2)] {
        host.ip(&format!("link set {device} up"));
        host.ip(&format!("address add 192.0.2.{number}/24 dev {device}"));
        host.ip(&format!("address add 2001:db8::{number}/64 dev {device} nodad"));
    }
}

/// Runs these lines of `ip`; whether the kernel can do them all.
fn can(host: &Namespace, lines: &str) -> bool {
    lines.split("; ").all(|line| host.try_ip(line).code == 0)
}

/// Two sockets that have exchanged a message.
fn connected(left: &Namespace, right: &Namespace, addresses: [&'static str; 2]) -> [UdpSocket; 2] {
    let ends = [(left, addresses[0]), (right, addresses[1])]
        .map(|(host, address)| host.enter(|| UdpSocket::bind((address, 0)).unwrap()));
    ends[0].connect(ends[1].local_addr().unwrap()).unwrap();
    ends[1].connect(ends[0].local_addr().unwrap()).unwrap();
    for end in &ends {
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    send(&ends, 0, 64);
    ends
}

fn send([from, to]: &[UdpSocket; 2], id: u64, bytes: usize) {
    let mut message = vec![7; bytes];
    message[..8].copy_from_slice(&id.to_ne_bytes());
    from.send(&message).unwrap();
    let mut back = vec![0; bytes + 1];
    assert_eq!(to.recv(&mut back).unwrap(), bytes);
    assert_eq!(back[..bytes], message);
}

/// The records of messages of so many bytes as they leave.
fn queued(ends: &[UdpSocket; 2], bytes: usize, ids: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    let filter = Filter { port: Some(ends[0].local_addr().unwrap().port()), ..Filter::default() };
    let id = Some(IdAt { received: 0, sent: 0, bytes: 8 });
    let mut tracer = Tracer::start(&Options { id, slots: 1 << 10, ..Options::new(filter) }).unwrap();
    ids.for_each(|id| send(ends, id, bytes));
    let mut found = Vec::new();
    tracer.stop(|record| found.extend((record.point == Point::Queued).then_some(record)));
    found
}

/// Every message is there once, whole.
fn check(what: &str, ends: &[UdpSocket; 2], bytes: usize) {
    let found: Vec<_> =
        queued(ends, bytes, 1..=MESSAGES).iter().map(|record| (record.id, record.bytes)).collect();
    let sent: Vec<_> = (1..=MESSAGES).map(|id| (Some(id), bytes as u32)).collect();
    assert_eq!(found, sent, "{what}");
}

/// Those that this kernel does not have are tried in the virtual machines.
#[test]
fn a_message_is_noted_at_the_first_of_several_devices() {
    needs_root!();
    let tunnel = |kind: &str| {
        [("l0", 1, 2), ("r0", 2, 1)].map(|(cable, own, other)| {
            format!(
                "address add 198.51.100.{own}/24 dev {cable}; \
                 link add top type {kind} local 198.51.100.{own} remote 198.51.100.{other}"
            )
        })
    };
    let (vxlan, ipip) = (tunnel("vxlan id 5 dstport 4789"), tunnel("ipip"));
    let bridge = "link add top type bridge; link set l0 master top";
    let bond = "link add top type bond mode active-backup; link set l0 down; link set l0 master top";
    let vlan = ["link add top link l0 type vlan id 5", "link add top link r0 type vlan id 5"];
    let vlan_of_bond = "link add low type bond mode active-backup; link set l0 down; link set l0 master low; \
                        link set low up; link add top link low type vlan id 5";
    let macvlan = "link add top link l0 type macvlan mode bridge";
    let macvlan_of_bridge = "link add low type bridge; link set l0 master low; link set low up; \
                             link add top link low type macvlan mode bridge";
    for (kind, left_lines, right_lines) in [
        ("bridge", bridge, ""),
        ("macvlan", macvlan, ""),
        ("macvlan of bridge", macvlan_of_bridge, ""),
        ("vxlan", &vxlan[0], &vxlan[1]),
        ("ipip", &ipip[0], &ipip[1]),
        ("bond", bond, ""),
        ("vlan", vlan[0], vlan[1]),
        ("vlan of bond", vlan_of_bond, vlan[1]),
    ] {
        let (left, right) = hosts("devices");
        if !can(&left, left_lines) || !(right_lines.is_empty() || can(&right, right_lines)) {
            println!("EXPECTED SKIP: {kind}: this kernel has none");
            continue;
        }
        address((&left, "top"), (&right, if right_lines.is_empty() { "r0" } else { "top" }));
        check(kind, &connected(&left, &right, ["192.0.2.1", "192.0.2.2"]), 64);
    }
}

#[test]
fn a_message_in_fragments_is_one() {
    needs_root!();
    let (left, right) = hosts("fragments");
    address((&left, "l0"), (&right, "r0"));
    check("IPv4", &connected(&left, &right, ["192.0.2.1", "192.0.2.2"]), 4000);
    check("IPv6", &connected(&left, &right, ["2001:db8::1", "2001:db8::2"]), 4000);
}

/// UDP_SEGMENT: the messages cannot be distinguished, but counted.
#[test]
fn several_messages_in_a_packet_are_several() {
    needs_root!();
    let mut relay = Relay::start("udp4", "segments");
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let id = Some(IdAt { received: 8, sent: 8, bytes: 8 });
    let mut tracer = Tracer::start(&Options { id, slots: 1 << 10, ..Options::new(filter) }).unwrap();
    (1..=MESSAGES).for_each(|id| _ = relay.pass(id));
    std::thread::sleep(Duration::from_millis(5));
    let mut packets = 0;
    tracer.stop(|record| {
        if record.point == Point::Queued {
            packets += 1;
            assert_eq!((record.flags.is_several(), record.bytes, record.id), (true, 4, None));
        }
    });
    assert_eq!(packets, MESSAGES);
    relay.end();
}

/// Whose time it leaves on then is chance.
#[test]
fn packets_that_waited_for_their_neighbour_have_no_process() {
    needs_root!();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(11)) {
        println!("EXPECTED SKIP: Linux {release} does not say so");
        return;
    }
    let (left, right) = hosts("neighbour");
    address((&left, "l0"), (&right, "r0"));
    let ends = connected(&left, &right, ["192.0.2.1", "192.0.2.2"]);
    left.ip("neigh flush dev l0");
    let found: Vec<_> = queued(&ends, 64, 1..=3).iter().map(|record| record.id).collect();
    assert_eq!(found, [Some(2), Some(3)]);
}
