//! The same bytes as Linux: the golden packets through the kernel's own forwarding and seg6, then through XDP, compared.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::cases::*;
use common::netns::*;
use common::packet::*;
use common::srv6::*;
use common::*;
use trieline_lpm::{Image, IpPrefix, Table};
use trieline_router::{AttachMode, Dataplane, ImageMapType, LocalAddrBits};
use trieline_testbed::needs_root;

/// Cases that this kernel cannot be configured for: it has neither 802.1Q nor VRFs.
fn needs_more(case: &Case) -> bool {
    let tag = [0x81, 0x00];
    // The kernel itself takes off tags with id 0, VLAN devices or not.
    let other = case.input[12..14] == tag && case.verdict != "ipv4" && case.verdict != "ipv6";
    let tagged = case.output.as_ref().is_some_and(|o| o[12..14] == tag);
    other
        || tagged
        || is_unknown_sid(&case.input)
        || ["fd00:a::23 ", "fd00:a::24 "].iter().any(|sid| case.description.starts_with(sid))
}

/// The golden routes, in the kernel.
fn configure(line: &Line) {
    line.sh(
        "n",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.seg6_enabled=1 \
           net.ipv6.conf.n0.seg6_enabled=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.n0.rp_filter=0 \
           net.ipv4.conf.all.send_redirects=0 net.ipv4.icmp_ratelimit=0
         ip address add 192.0.2.1/24 dev n0
         ip address add 192.0.66.1/24 dev n1
         ip -6 address add 2001:db8::1/64 dev n0 nodad
         ip -6 address add 2001:db8:66::1/64 dev n1 nodad
         ip neigh add 192.0.66.2 lladdr 02:00:00:00:01:02 dev n1 nud permanent
         ip neigh add 2001:db8:66::2 lladdr 02:00:00:00:01:02 dev n1 nud permanent
         ip route add 198.51.100.0/24 via 192.0.66.2
         ip address add 203.0.113.1/32 dev lo
         ip route add unreachable 203.0.113.2
         ip route add prohibit 203.0.113.3
         ip route add blackhole 203.0.113.6
         ip route add 203.0.113.7 via 192.0.66.2
         ip sr tunsrc set fd00:1::1
         ip -6 route add fd00:2::/64 via 2001:db8:66::2
         ip route add 10.1.0.0/16 encap seg6 mode encap segs fd00:2::1 dev n1
         ip route add 10.3.0.0/16 encap seg6 mode encap segs fd00:2::1 dev n1
         ip -6 route add 2001:db8:1::/48 via 2001:db8:66::2
         ip -6 route add 2001:db8:3::/48 encap seg6 mode encap segs fd00:2::1 dev n1
         ip -6 route add 2001:db8:4::/48 via 2001:db8:66::2
         ip -6 route add blackhole 2001:db8:5::/48
         ip route add 192.0.77.1 via 192.0.66.2
         ip -6 route add fd00:a::1 encap seg6local action End.DX4 nh4 192.0.77.1 dev n1
         ip -6 route add fd00:a::2 encap seg6local action End.DX4 nh4 0.0.0.0 dev n1",
    );
    for command in srv6_commands() {
        line.sh("n", &format!("ip {command}"));
    }
}

/// Sends every case's frame and notes what arrives at the next hop. Behind each goes a marker, which is forwarded: what has not come before it
/// does not come.
fn outputs(line: &Line, cases: &[Case]) -> Vec<Option<Vec<u8>>> {
    const LONG: Duration = Duration::from_secs(10);
    let (from, to) = (line.socket("a", "a0"), line.socket("b", "b0"));
    let marker = |at: usize| ipv4_of("192.0.2.9", "198.51.100.250", 64, 100 + at % 500);
    cases
        .iter()
        .enumerate()
        .map(|(at, case)| {
            from.send(&case.input);
            from.send(&Frame::new(marker(at)).bytes());
            let end = sent(&[], &hop(&marker(at)));
            // Only what the node forwards is sent to the next hop's address.
            let next = || to.receive(LONG, |frame| frame[..6] == NEXT_HOP_MAC).unwrap();
            let mut first = None;
            loop {
                let frame = next();
                if frame == end {
                    return first;
                }
                first.get_or_insert(frame);
            }
        })
        .collect()
}

#[test]
fn same_bytes_as_linux() {
    needs_root!();
    let line = Line::new();
    configure(&line);
    let cases: Vec<Case> = cases().into_iter().chain(srv6_cases()).filter(|case| !needs_more(case)).collect();
    let by_kernel = outputs(&line, &cases);

    let mut map_types = map_types();
    let map_type = map_types.pop().unwrap_or(ImageMapType::Array);
    let fs = BpfFs::mount();
    let receiver_fs = BpfFs::mount();
    let (port_index, out_index) = (line.ifindex("n", "n0"), line.ifindex("n", "n1"));
    // veth hands redirected frames over only to a peer with an XDP program: here one without ports.
    let receiver = line.within("b", || {
        let mut receiver = Dataplane::open(&options(&receiver_fs, ImageMapType::Array)).unwrap();
        receiver.attach(line.ifindex("b", "b0"), "b0", AttachMode::Native).unwrap();
        receiver
    });
    let (dataplane, image) = line.within("n", || {
        let mut dataplane = Dataplane::open(&options(&fs, map_type)).unwrap();
        let mut image = Image::create(dataplane.memory(), dataplane.grace(), dataplane.tables()).unwrap();
        let (mut four, mut six, mut own) = (Vec::new(), Vec::new(), LocalAddrBits::default());
        own.add("203.0.113.1/32".parse().unwrap());
        dataplane.local_addrs().set(&own);
        let plain = routes(out_index).into_iter().map(|(prefix, action)| (prefix.to_owned(), action));
        for (prefix, action) in plain.chain(srv6_routes(&adjacency(out_index), [0, 1])) {
            let id = dataplane.actions().alloc().unwrap();
            dataplane.actions().set(id, &action).unwrap();
            match prefix.parse().unwrap() {
                IpPrefix::V4(prefix) => four.push((prefix, id)),
                IpPrefix::V6(prefix) => six.push((prefix, id)),
            }
        }
        Table::<u32>::create(&mut image, 0, four).unwrap();
        Table::<u128>::create(&mut image, 1, six).unwrap();
        dataplane.set_port(port_index, None, port(ALL)).unwrap();
        dataplane.set_device(out_index).unwrap();
        dataplane.attach(port_index, "n0", AttachMode::Native).unwrap();
        (dataplane, image)
    });
    let by_xdp = outputs(&line, &cases);

    let mut differences = BTreeMap::new();
    let mut forwarded = 0;
    for ((case, kernel), xdp) in cases.iter().zip(&by_kernel).zip(&by_xdp) {
        if kernel == xdp {
            forwarded += usize::from(kernel.is_some() && case.output.is_some());
            continue;
        }
        differences.insert(case.description, (case.verdict, kernel, xdp));
    }
    for (description, (verdict, kernel, xdp)) in &differences {
        println!("{description} ({verdict})\n kernel {kernel:02x?}\n    xdp {xdp:02x?}");
    }
    assert!(differences.is_empty(), "{} differ", differences.len());
    let counters = dataplane.counters().unwrap();
    let by_program: u64 =
        counters.total.iter().filter(|v| v.kind == trieline_router::Kind::Forward).map(|v| v.packets).sum();
    let passed = counters.total.iter().filter(|v| v.kind == trieline_router::Kind::Pass && v.packets > 0);
    let passed: Vec<_> = passed.map(|v| (&*v.name, v.packets)).collect();
    println!("{} packets, {forwarded} forwarded alike, {by_program} of them by XDP; {passed:?}", cases.len());
    // Where a frame's buffer has no room for a header of 16 segments or more, the kernel pushes it.
    let no_headroom = named(&dataplane, "no_headroom") as usize;
    assert!(forwarded * 10 >= cases.len() * 6 && by_program as usize + no_headroom >= forwarded);
    drop((receiver, image));
}
