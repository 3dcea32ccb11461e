//! Frames through the topology and the real kernel: all arrive, and their bytes are those a router sends.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::atomic::AtomicBool,
};

use trieline_lab::{
    Context, Error, Quiet,
    experiments::{
        forward::{self, Forward, Plane, Setup},
        options::Run,
    },
    frames::{ENCAPSULATION, ETHERNET, Kind},
    generator::{Destinations, Generator},
    sinks::{Sink, Sinks},
    tables::Tables,
    topology::{
        self, DECAP_DT6_SID, DECAP_FULL_SID, DECAP_SID, Device, ENCAP_SEGMENT, TUNNEL_SOURCE, Topology,
        gateway_mac, gateway4, gateway6,
    },
    xdp_fib::XdpFib,
};
use trieline_testbed::craft::checksum;
use trieline_testbed::needs_root;

const DESTINATION4: Ipv4Addr = Ipv4Addr::new(20, 1, 2, 3);
const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0x2a00, 0x1234, 0, 0, 0, 0, 0, 7);
const ENCAP: Ipv4Addr = Ipv4Addr::new(198, 18, 5, 6);
const ENCAP_RED: Ipv4Addr = Ipv4Addr::new(198, 19, 5, 6);
const ENCAP_3: Ipv4Addr = Ipv4Addr::new(198, 19, 200, 6);
/// Paths that need VRF and VLAN devices.
const NEED_VRF: [&str; 4] = ["decap-dt4", "encap-vrf", "decap-vrf", "decap-vrf-dt4"];

/// The frame that the kernel sends for one that came in, the forwarding namespace's egress being n1: its first 128 bytes.
fn through_the_kernel(
    topology: &Topology,
    sinks: &Sinks,
    generator: &Generator,
    name: &str,
    kind: Kind,
) -> Vec<u8> {
    through(&topology.k0, topology, sinks, generator, name, kind)
}

/// Likewise for a frame that came in by this device.
fn through(
    ingress: &Device,
    topology: &Topology,
    sinks: &Sinks,
    generator: &Generator,
    name: &str,
    kind: Kind,
) -> Vec<u8> {
    let out = topology.towards(ingress);
    let frame = kind.frame(out.mac, ingress.mac);
    sinks.clear(Sink::Xdp).unwrap();
    let sent = generator.run(name, &topology.source, out.index, &frame, 1000, false).unwrap();
    assert_eq!(sent.frames, 1000);
    let seen = sinks.settled(Sink::Xdp, 1000).unwrap();
    assert_eq!(seen.frames, 1000, "{name}: all delivered");
    assert_eq!(seen.frame.len() as u64, (seen.bytes / 1000).min(128), "{name}: all of one length");
    seen.frame
}

/// Ethernet towards gateway `i` and what follows.
fn routed(topology: &Topology, gateway: u32, protocol: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&gateway_mac(gateway)[..], &topology.n1.mac, &protocol, packet].concat()
}

/// One hop less, checksum renewed.
fn decremented(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8] -= 1;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn the_bytes_behind_the_node_are_those_of_a_router() {
    needs_root!();
    let interrupt = AtomicBool::new(false);
    let topology = Topology::create(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap();
    topology
        .node
        .ip_words(&["route", "add", "20.0.0.0/8", "via", &gateway4(3).to_string(), "dev", "n1"])
        .unwrap();
    topology
        .node
        .ip_words(&["route", "add", "2a00::/12", "via", &gateway6(5).to_string(), "dev", "n1"])
        .unwrap();
    let sinks = Sinks::attach(&topology).unwrap();
    let mut generator = Generator::new();
    generator.destinations("ipv4", &Destinations::V4(vec![DESTINATION4])).unwrap();
    generator.destinations("ipv6", &Destinations::V6(vec![DESTINATION6])).unwrap();
    generator.destinations("encap", &Destinations::V4(vec![ENCAP])).unwrap();
    let frame = |kind: Kind| kind.frame(topology.gk.mac, topology.k0.mac);

    let inner = frame(Kind::Ipv4).towards4(DESTINATION4)[ETHERNET..].to_vec();
    let got = through_the_kernel(&topology, &sinks, &generator, "ipv4", Kind::Ipv4);
    assert_eq!(got, routed(&topology, 3, [8, 0], &decremented(inner)));

    let mut packet = frame(Kind::Ipv6).towards6(DESTINATION6)[ETHERNET..].to_vec();
    packet[7] -= 1;
    let got = through_the_kernel(&topology, &sinks, &generator, "ipv6", Kind::Ipv6);
    assert_eq!(got, routed(&topology, 5, [0x86, 0xdd], &packet));

    // A next hop of the SID's, or the table's.
    for (sid, gateway) in [(DECAP_SID, 0), (DECAP_FULL_SID, 3)] {
        let inner = frame(Kind::Srv6(sid)).towards4(DESTINATION4)[ETHERNET + ENCAPSULATION..].to_vec();
        let got = through_the_kernel(&topology, &sinks, &generator, "ipv4", Kind::Srv6(sid));
        assert_eq!(got, routed(&topology, gateway, [8, 0], &decremented(inner)));
    }

    let kind = Kind::Srv6Ipv6(DECAP_DT6_SID);
    let mut packet = frame(kind).towards6(DESTINATION6)[ETHERNET + ENCAPSULATION..].to_vec();
    packet[7] -= 1;
    let got = through_the_kernel(&topology, &sinks, &generator, "ipv6", kind);
    assert_eq!(got, routed(&topology, 5, [0x86, 0xdd], &packet));

    let mut packet = frame(Kind::Transit).towards4(DESTINATION4)[ETHERNET..].to_vec();
    packet[7] -= 1; // hop limit
    packet[24..40].copy_from_slice(&ENCAP_SEGMENT.octets());
    packet[43] = 0; // segments left
    let got = through_the_kernel(&topology, &sinks, &generator, "ipv4", Kind::Transit);
    assert_eq!(got, routed(&topology, 0, [0x86, 0xdd], &packet)[..got.len()]);

    let inner = frame(Kind::Ipv4).towards4(ENCAP)[ETHERNET..].to_vec();
    let got = through_the_kernel(&topology, &sinks, &generator, "encap", Kind::Ipv4);
    assert_eq!(got[..ETHERNET], routed(&topology, 0, [0x86, 0xdd], &[])[..]);
    let outer = &got[ETHERNET..ETHERNET + ENCAPSULATION];
    assert_eq!(outer[8..24], TUNNEL_SOURCE.octets());
    assert_eq!(outer[24..40], ENCAP_SEGMENT.octets());
    assert_eq!(got[ETHERNET + ENCAPSULATION..], inner, "H.Encaps leaves the inner packet as it came");

    // Without an SRH, and with one of three segments.
    for (name, to, length) in [("red", ENCAP_RED, 40), ("three", ENCAP_3, 40 + 8 + 3 * 16)] {
        generator.destinations(name, &Destinations::V4(vec![to])).unwrap();
        let inner = frame(Kind::Ipv4).towards4(to)[ETHERNET..].to_vec();
        let got = through_the_kernel(&topology, &sinks, &generator, name, Kind::Ipv4);
        assert_eq!(got[..ETHERNET], routed(&topology, 0, [0x86, 0xdd], &[])[..]);
        assert_eq!(got[ETHERNET + 24..ETHERNET + 40], ENCAP_SEGMENT.octets());
        assert!(inner.starts_with(&got[ETHERNET + length..]), "{name}");
    }
}

/// Of both families, with and without a route; and frames that bpf_fib_lookup cannot forward are the kernel's.
#[test]
fn plane_fib_forwards_as_a_router_and_leaves_the_rest_to_the_kernel() {
    needs_root!();
    let interrupt = AtomicBool::new(false);
    let topology = Topology::create(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap();
    let routes = [("20.0.0.0/8", gateway4(3).to_string()), ("2a00::/12", gateway6(5).to_string())];
    for (prefix, gateway) in &routes {
        topology.node.ip_words(&["route", "add", prefix, "via", gateway, "dev", "n1"]).unwrap();
    }
    let sinks = Sinks::attach(&topology).unwrap();
    let fib = XdpFib::attach(&topology).unwrap();
    let mut generator = Generator::new();
    generator.destinations("ipv4", &Destinations::V4(vec![DESTINATION4])).unwrap();
    generator.destinations("ipv6", &Destinations::V6(vec![DESTINATION6])).unwrap();
    generator.destinations("encap", &Destinations::V4(vec![ENCAP])).unwrap();
    let by_fib = |name, kind| through(&topology.f0, &topology, &sinks, &generator, name, kind);
    let frame = |kind: Kind| kind.frame(topology.gf.mac, topology.f0.mac);

    let inner = frame(Kind::Ipv4).towards4(DESTINATION4)[ETHERNET..].to_vec();
    assert_eq!(by_fib("ipv4", Kind::Ipv4), routed(&topology, 3, [8, 0], &decremented(inner)));
    let mut packet = frame(Kind::Ipv6).towards6(DESTINATION6)[ETHERNET..].to_vec();
    packet[7] -= 1;
    assert_eq!(by_fib("ipv6", Kind::Ipv6), routed(&topology, 5, [0x86, 0xdd], &packet));
    assert_eq!(fib.passed().unwrap(), 0, "the kernel got none of them");

    // Where Linux encapsulates or decapsulates, the lookup has no answer. The kernel forwards, by the same ingress.
    let got = by_fib("encap", Kind::Ipv4);
    assert_eq!(got[ETHERNET + 24..ETHERNET + 40], ENCAP_SEGMENT.octets());
    assert_eq!(fib.passed().unwrap(), 1000);
    let inner = frame(Kind::Srv6(DECAP_SID)).towards4(DESTINATION4)[ETHERNET + ENCAPSULATION..].to_vec();
    assert_eq!(by_fib("ipv4", Kind::Srv6(DECAP_SID)), routed(&topology, 0, [8, 0], &decremented(inner)));
    assert_eq!(fib.passed().unwrap(), 2000);
    // Likewise without a route.
    topology.node.ip_words(&["route", "del", routes[0].0]).unwrap();
    let frame = frame(Kind::Ipv4);
    generator.run("ipv4", &topology.source, topology.gf.index, &frame, 10, false).unwrap();
    assert_eq!(fib.passed().unwrap(), 2010);
}

#[test]
fn a_small_run_loses_nothing_and_reports_every_path() {
    needs_root!();
    let interrupt = AtomicBool::new(false);
    let run = Run { quick: true, seed: 9, rounds: Some(1), command: "test".into(), ..Run::default() };
    let setup = Setup {
        options: Forward { run, frames: Some(50_000), ..Forward::default() },
        tables: Tables::internet(2000, 500, 9),
        product: None,
        filters: Vec::new(),
    };
    let outcome = forward::run(&setup, &Context { progress: &Quiet, interrupt: &interrupt }).unwrap();
    let rows: Vec<_> = outcome.rows.iter().map(|row| (row.path, row.plane)).collect();
    let refused = |rival: &str, path: &str| {
        let mut of = outcome.refused.iter().filter(|one| one.rival == rival && !one.reason.is_empty());
        of.any(|one| one.case.split(", ").any(|case| case == path))
    };
    let mut expected = vec![("redirect", Plane::Xdp)];
    let has_vrf = Topology::create(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap().has_vrf;
    let paths = [
        "ipv4-full",
        "decap-full",
        "ipv6",
        "decap-dt6",
        "ipv4",
        "decap",
        "encap",
        "end",
        "decap-dt4",
        "encap-vrf",
        "decap-vrf",
        "decap-vrf-dt4",
        "encap-red",
        "encap-3",
    ];
    for path in paths.into_iter().filter(|path| has_vrf || !NEED_VRF.contains(path)) {
        expected.extend([(path, Plane::Kernel), (path, Plane::KernelTcSink)]);
        // Few kernels have flowtables. Paths that bpf_fib_lookup can do have a row, all others a reason.
        if path == "ipv4" && !refused("flowtable", path) {
            expected.push((path, Plane::Flowtable));
        }
        match path {
            "ipv4-full" | "ipv6" | "ipv4" => expected.push((path, Plane::Fib)),
            _ => assert!(refused("fib", path), "{path}: {:?}", outcome.refused),
        }
    }
    assert_eq!(rows, expected);
    for row in &outcome.rows {
        assert_eq!(row.frames, 50_000);
        assert_eq!(row.delivered, row.frames, "{row:?}");
        assert_eq!(row.routes, 2500);
        assert!(row.ns > row.ns_generator && row.ns_generator > 1.0, "{row:?}");
        // Of one round medians are the round's own figures.
        let of = |path, plane| outcome.rows.iter().find(|row| (row.path, row.plane) == (path, plane));
        let near = |got: Option<f64>, rival: Option<&forward::Row>, digits: f64| match (got, rival) {
            (Some(got), Some(rival)) => (got - rival.ns / row.ns).abs() < digits,
            (None, None) => true,
            _ => false,
        };
        let path = if row.path == "redirect" { "ipv4-full" } else { row.path };
        assert!(near(row.floor_share, of("redirect", Plane::Xdp), 0.01), "{row:?}");
        assert!(near(row.ratio_fib, of(path, Plane::Fib), 0.02), "{row:?}");
        assert!(near(row.ratio, of(path, Plane::Kernel), 0.02), "{row:?}");
        assert!(
            row.floor_share > Some(0.0) && (row.path != "redirect" || row.floor_share == Some(1.0)),
            "{row:?}"
        );
        assert_eq!((row.rounds, row.lossy_turns), (1, 0), "{row:?}");
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    needs_root!();
    let interrupt = AtomicBool::new(true);
    let setup = Setup {
        options: Forward::default(),
        tables: Tables::internet(20, 5, 1),
        product: None,
        filters: Vec::new(),
    };
    let error = forward::run(&setup, &Context { progress: &Quiet, interrupt: &interrupt }).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[test]
fn namespaces_go_with_their_guard() {
    needs_root!();
    let interrupt = AtomicBool::new(false);
    let names = {
        let made = Topology::create(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap();
        [&made.source, &made.node, &made.sink].map(|namespace| namespace.name().to_owned())
    };
    for name in names {
        assert!(!std::path::Path::new("/run/netns").join(&name).exists(), "{name} is still there");
    }
    assert_eq!(topology::GATEWAYS, 16);
}
