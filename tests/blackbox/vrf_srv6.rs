//! SRv6 in and across VRFs: a gateway of tenants, the L3VPN as FRR writes its routes, and SIDs wherever people put them. The bytes are those of
//! the kernel alone. The virtual machines of tests/vm have VRF and VLAN devices.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{craft, needs_root, packets};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"a tenant's packet";

/// A frame on its way into the node.
struct Case {
    name: String,
    /// From the core (by s0 to n1) or from a tenant (by g0 to n0, with this tag).
    from: From,
    packet: Vec<u8>,
}

enum From {
    Core,
    Tenant(Option<u16>),
}

fn case(name: impl Into<String>, from: From, packet: Vec<u8>) -> Case {
    Case { name: name.into(), from, packet }
}

/// Whether the node's kernel had a frame, and the frames that left to the generator, the sink and the side.
fn send(bed: &Bed, case: &Case) -> (bool, Vec<String>) {
    let (namespace, device, to): (&Namespace, _, u8) = match case.from {
        From::Core => (&bed.sink, "s0", 0x10),
        From::Tenant(_) => (&bed.generator, "g0", 0x01),
    };
    let kind: [u8; 2] = if case.packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    let tag = match case.from {
        From::Tenant(Some(vlan)) => [[0x81, 0], vlan.to_be_bytes()].concat(),
        _ => Vec::new(),
    };
    let frame = [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 0x99][..], &tag, &kind, &case.packet].concat();
    let taps = [&bed.node, &bed.generator, &bed.sink, &bed.side].map(packets::Tap::open);
    packets::send_frames(namespace, device, &[frame]);
    std::thread::sleep(std::time::Duration::from_secs_f64(0.1 * trieline_testbed::patience().min(3.0)));
    let [node, generator, sink, side] = taps.map(|tap| tap.close_with(MARKER));
    let sent = |frames: Vec<Vec<u8>>, own: u8| {
        let own = [2, 0, 0, 0, 0, own];
        let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        frames.iter().filter(|frame| frame[6..12] == own).map(hex).collect::<Vec<_>>()
    };
    (!node.is_empty(), [sent(generator, 0x01), sent(sink, 0x10), sent(side, 0x20)].concat())
}

fn forwarded(bed: &Bed) -> u64 {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let forwarded = counters.iter().filter(|counter| counter["kind"] == "forward");
    forwarded.filter_map(|counter| counter["packets"].as_u64()).sum()
}

/// Each frame through the kernel alone, then with trielined: the same bytes leave, and no frame of `cases` meets the kernel. Those of
/// `kernels` do, and as many leave.
fn compare(bed: &Bed, cases: &[Case], kernels: &[Case]) {
    let all = || cases.iter().chain(kernels);
    let alone: Vec<_> = all().map(|case| send(bed, case)).collect();
    for (case, (_, left)) in cases.iter().zip(&alone) {
        assert_eq!(left.len(), 1, "{}: through the kernel: {left:?}", case.name);
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let before = forwarded(bed);
    for (number, (case, (_, alone))) in all().zip(&alone).enumerate() {
        let (passed, left) = send(bed, case);
        if number < cases.len() {
            assert_eq!(alone, &left, "{}: kernel's bytes left, with trielined right", case.name);
        }
        // ICMP messages of the kernel have numbers of their own.
        assert_eq!(alone.len(), left.len(), "{}: how many frames left", case.name);
        assert_eq!(passed, number >= cases.len(), "{}: whether the kernel had it", case.name);
    }
    assert!(forwarded(bed) >= before + cases.len() as u64, "not counted: {}", status(&bed.node)["counters"]);
}

fn four(from: &str, to: &str) -> Vec<u8> {
    craft::ipv4(from, to, MARKER, |_| {})
}

fn six(from: &str, to: &str) -> Vec<u8> {
    craft::ipv6(from, to, (17, &craft::udp(MARKER)), |_| {})
}

/// An outer header around a packet, towards a SID.
fn to_sid(sid: &str, packet: &[u8]) -> Vec<u8> {
    let next = if packet[0] >> 4 == 4 { 4 } else { 41 };
    craft::ipv6("fd00:1::2", sid, (43, &craft::srh(&[sid], 0, (next, packet))), |_| {})
}

fn vrf(bed: &Bed, name: &str, table: u32) {
    bed.node.ip(&format!("link add {name} type vrf table {table}"));
    bed.node.ip(&format!("link set {name} up"));
    bed.node.sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "0");
}

/// ```text
/// [tenant i] ══(VLAN i)══ n0.i [VRF cluster i] ── [VRF red i] ══(SRv6)══ n1 [core]
/// ```
/// Three tenants with the same addresses. Out: cluster, then red, whose route encapsulates. Back: End.DX4 (End.DX6) to a next hop in red, or
/// End.DT4 (End.DT6); its default route leads to cluster, and that to the VLAN.
#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn a_gateway_of_tenants() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.sysctl("net.vrf.strict_mode", "1");
    bed.node.ip("-6 route add fd00:b::/32 via fd00:1::2");
    let (mut cases, mut fill) = (Vec::new(), Vec::new());
    for i in 1..=3_u16 {
        let (red, cluster, vlan, mac) =
            (format!("red{i}"), format!("cluster{i}"), format!("n0.{i}"), format!("02:00:00:00:07:0{i}"));
        vrf(&bed, &red, 100 + u32::from(i));
        vrf(&bed, &cluster, 200 + u32::from(i));
        bed.node.ip(&format!("link add link n0 name {vlan} type vlan id {i}"));
        bed.node.ip(&format!("link set {vlan} master {cluster}"));
        bed.node.ip(&format!("link set {vlan} up"));
        bed.node.sysctl(&format!("net/ipv4/conf/{vlan}/rp_filter"), "0");
        for line in [
            format!("addr add 10.7.0.1/24 dev {vlan}"),
            format!("-6 addr add fd07::1/64 dev {vlan} nodad"),
            format!("neigh add 10.7.0.2 lladdr {mac} dev {vlan} nud permanent"),
            format!("-6 neigh add fd07::2 lladdr {mac} dev {vlan} nud permanent"),
            format!("route add default dev {cluster} table {}", 100 + i),
            format!("-6 route add default dev {cluster} table {}", 100 + i),
            format!(
                "route add 10.50.0.0/16 encap seg6 mode encap segs fd00:b:{i}::d4 dev n1 table {}",
                100 + i
            ),
            format!(
                "-6 route add fd50::/32 encap seg6 mode encap.red segs fd00:b:{i}::d6,fd00:b::9 dev n1 table {}",
                100 + i
            ),
            format!("route add 10.50.0.0/16 dev {red} table {}", 200 + i),
            format!("-6 route add fd50::/32 dev {red} table {}", 200 + i),
            format!("route add 169.254.0.{i} dev {red}"),
            format!("-6 route add fd99::{i} dev {red}"),
            format!("-6 route add fd00:a::{i} encap seg6local action End.DX4 nh4 169.254.0.{i} dev n1"),
            format!("-6 route add fd00:a::1{i} encap seg6local action End.DX6 nh6 fd99::{i} dev n1"),
            format!(
                "-6 route add fd00:a::2{i} encap seg6local action End.DT4 vrftable {} dev {red}",
                100 + i
            ),
            format!(
                "-6 route add fd00:a::3{i} encap seg6local action End.DT6 vrftable {} dev {red}",
                100 + i
            ),
        ] {
            bed.node.ip(&line);
        }
        let tenant = || From::Tenant(Some(i));
        cases.extend([
            case(format!("tenant {i}, H.Encaps of IPv4"), tenant(), four("10.7.0.2", "10.50.0.1")),
            case(format!("tenant {i}, H.Encaps.Red of IPv6"), tenant(), six("fd07::2", "fd50::1")),
        ]);
        let (inner4, inner6) = (four("10.50.0.1", "10.7.0.2"), six("fd50::1", "fd07::2"));
        for (what, sid, inner) in [
            ("End.DX4", format!("fd00:a::{i}"), &inner4),
            ("End.DX6", format!("fd00:a::1{i}"), &inner6),
            ("End.DT4", format!("fd00:a::2{i}"), &inner4),
            ("End.DT6", format!("fd00:a::3{i}"), &inner6),
        ] {
            cases.push(case(format!("tenant {i}, {what}"), From::Core, to_sid(&sid, inner)));
        }
        fill.push(case(
            format!("tenant {i}, TTL 1"),
            tenant(),
            craft::ipv4("10.7.0.2", "10.50.0.1", MARKER, |header| header[8] = 1),
        ));
    }
    compare(&bed, &cases, &fill);
}

/// ```text
/// [customer] ── n0 [VRF red] ══(SRv6)══ n1 [core]
/// ```
/// Zebra puts an unreachable default route and the other router's locator into the VRF's tables, as the kernel looks outer packets up there.
#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn the_l3vpn_of_frr() {
    needs_root!();
    let bed = Bed::new();
    vrf(&bed, "red", 100);
    bed.node.ip("link set n0 master red");
    bed.node.ip("-6 addr replace fd00:0::1/64 dev n0 nodad");
    bed.node.sysctl("net.vrf.strict_mode", "1");
    for line in [
        "-6 route add fd00:b::/48 via fd00:1::2 dev n1 proto isis metric 20",
        "route add unreachable default metric 4278198272 table 100",
        "-6 route add unreachable default metric 4278198272 table 100",
        "-6 route add fd00:b::/48 via fd00:1::2 dev n1 proto static metric 20 table 100",
        "route add 10.50.0.0/16 encap seg6 mode encap segs fd00:b:0:1:: dev n1 proto bgp metric 20 table 100",
        "-6 route add fd50::/32 encap seg6 mode encap segs fd00:b:0:2:: dev n1 proto bgp metric 20 table 100",
        "-6 route add fd00:a:0:1:: encap seg6local action End.DT4 vrftable 100 dev red proto bgp metric 20",
        "-6 route add fd00:a:0:2:: encap seg6local action End.DT6 table 100 dev red proto bgp metric 20",
        "-6 route add fd00:a:0:3:: encap seg6local action End.DT46 vrftable 100 dev red proto bgp metric 20",
        "neigh add 10.0.0.2 lladdr 02:00:00:00:00:00 dev n0 nud permanent",
        "-6 neigh add fd00::2 lladdr 02:00:00:00:00:00 dev n0 nud permanent",
        "-6 neigh add fd00:1::2 lladdr 02:00:00:00:00:11 dev n1 nud permanent",
    ] {
        bed.node.ip(line);
    }
    let (inner4, inner6) = (four("10.50.0.1", "10.0.0.2"), six("fd50::1", "fd00::2"));
    let cases = [
        case("H.Encaps of IPv4", From::Tenant(None), four("10.0.0.2", "10.50.0.1")),
        case("H.Encaps of IPv6", From::Tenant(None), six("fd00::2", "fd50::1")),
        case("End.DT4", From::Core, to_sid("fd00:a:0:1::", &inner4)),
        case("End.DT6 table", From::Core, to_sid("fd00:a:0:2::", &inner6)),
        case("End.DT46, IPv4", From::Core, to_sid("fd00:a:0:3::", &inner4)),
        case("End.DT46, IPv6", From::Core, to_sid("fd00:a:0:3::", &inner6)),
    ];
    compare(&bed, &cases, &[]);
}

/// SIDs in a table of their own, on a device that sends nothing, of type `local` or on `lo`; a VRF that has table main.
#[test]
#[ignore = "needs VRF devices: run in tests/vm"]
fn sids_wherever_they_are() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    vrf(&bed, "vrfdefault", 254);
    bed.node.sysctl("net.vrf.strict_mode", "1");
    bed.node.ip("link add sr0 type dummy");
    bed.node.ip("link set sr0 up");
    for line in [
        "-6 rule add pref 500 to fd00:a::/32 lookup 500",
        "-6 route add blackhole default table 500",
        "-6 route add fd00:77::/64 via fd00:1::2",
        "-6 route add fd60::/32 via fd00:2::2",
        "route add 10.9.9.9/32 via 10.2.0.2",
        "route add 10.50.0.0/16 via 10.2.0.2",
        "-6 route add fd00:a::1 encap seg6local action End.DX4 nh4 10.9.9.9 dev sr0 table 500",
        "-6 route add fd00:a::2 encap seg6local action End.DX6 nh6 fd00:2::2 dev sr0 table 500",
        "-6 route add fd00:a::3 encap seg6local action End.DT4 vrftable 254 dev vrfdefault table 500",
        "-6 route add fd00:a::4 encap seg6local action End.DT6 table 254 dev sr0 table 500",
        "-6 route add fd00:a::5 encap seg6local action End.DX6 nh6 fd00:2::2 dev lo table 500",
        "-6 route add local fd00:d::6 encap seg6local action End.DX6 nh6 fd00:2::2 dev sr0",
        "-6 route add fd00:e::/32 via fd00:1::2",
        "-6 rule add pref 600 from fd00::/64 to fd50::/32 lookup 600",
        "sr tunsrc set fd00:1::1",
        "-6 route add default encap seg6 mode encap segs fd00:e::1 dev sr0 table 600",
    ] {
        bed.node.ip(line);
    }
    let (inner4, inner6) = (four("10.7.0.1", "10.50.0.1"), six("fd07::1", "fd60::1"));
    let cases = [
        case("End.DX4", From::Core, to_sid("fd00:a::1", &inner4)),
        case("End.DX6", From::Core, to_sid("fd00:a::2", &inner6)),
        case("End.DT4 of table main", From::Core, to_sid("fd00:a::3", &inner4)),
        case("End.DT6", From::Core, to_sid("fd00:a::4", &inner6)),
        case("steered by source", From::Tenant(None), six("fd00::2", "fd50::1")),
    ];
    let kernels = [
        case("on lo", From::Core, to_sid("fd00:a::5", &inner6)),
        case("of type local", From::Core, to_sid("fd00:d::6", &inner6)),
    ];
    compare(&bed, &cases, &kernels);
}
