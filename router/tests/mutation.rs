//! Mutated frames cannot hurt: each ends as the model says, verdict and bytes; what is passed is unchanged. And nothing escapes: what a
//! port with tenants, filters and SID hooks passes to the kernel comes out nowhere that they forbid.
//!
//! `TRIELINE_MUTATION_FRAMES=10000000` runs as many in each test, `TRIELINE_MUTATION_SEED=1` others than usual.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use common::cases::adjacency;
use common::filters::*;
use common::model::Model;
use common::oracle::{Oracle, Rules};
use common::packet::*;
use common::random::*;
use common::rfc::*;
use common::srv6::*;
use common::*;
use trieline_lpm::Table;
use trieline_router::{
    Action, Adjacency, Endpoint, FilterAction, Flavours, Headend, Kind, PassReason, PortFlags, SidHook,
    Steps, Target, VERDICTS,
};
use trieline_testbed::needs_root;
use trieline_testbed::random::Random;

fn valid_frames() -> Vec<Vec<u8>> {
    let v4 = ipv4("192.0.2.9", "198.51.100.1", 64);
    let mut frames: Vec<_> = [
        v4.clone(),
        ipv6("2001:db8::9", "2001:db8:1::1", 64),
        ipv4("192.0.2.9", "10.1.2.3", 64),
        ipv6("2001:db8::9", "2001:db8:3::1", 64),
        outer("2001:db8::9", "fd00:a::1", 4, 64, &v4),
        outer("2001:db8::9", "fd00:a::2", 43, 64, &srh(4, 0, &["fd00:a::2"], &v4)),
        outer("2001:db8::9", "fd00:a::1", 43, 64, &srh(4, 1, &["fd00:a::2", "fd00:a::1"], &v4)),
    ]
    .into_iter()
    .map(|packet| Frame::new(packet).bytes())
    .collect();
    frames.push(Frame::new(v4).vlan(100).bytes());
    frames
}

fn routes() -> Vec<(String, Action)> {
    let hop = adjacency(LO);
    let tagged = Adjacency { vlan: Some(7), mtu: 60, ..hop.clone() };
    let template = outer("fd00:1::1", "fd00:2::1", 43, 63, &srh(4, 0, &["fd00:2::1"], &[]));
    let encaps =
        || Action::Encaps { adjacency: hop.clone(), outer: template.clone(), headend: Headend::default() };
    let routes = [
        ("0.0.0.0/0", Action::Forward(tagged)),
        ("198.51.100.0/24", Action::Forward(hop.clone())),
        ("192.0.2.8", Action::Pass(PassReason::Local)),
        ("10.1.0.0/16", encaps()),
        ("2001:db8:1::/48", Action::Forward(hop.clone())),
        ("2001:db8:3::/48", encaps()),
        ("fd00:a::1", Action::endpoint(Endpoint::EndDx4, Target::Adjacency(hop.clone()))),
        ("fd00:a::2", Action::endpoint(Endpoint::EndDx4, Target::Port)),
    ];
    let routes = routes.into_iter().map(|(prefix, action)| (prefix.to_owned(), action));
    routes.chain(srv6_routes(&hop, [0, 1])).chain(rfc_routes(&hop)).collect()
}

fn kind(name: &str) -> Kind {
    VERDICTS.iter().find(|verdict| verdict.name == name).unwrap().kind
}

#[test]
fn mutated_frames() {
    needs_root!();
    let routes = routes();
    let routes: Vec<_> = routes.iter().map(|(prefix, action)| (prefix.as_str(), action.clone())).collect();
    let mut model = Model::new(&routes, PORT_MAC, &[100]);
    // Half of the frames from what every router meets.
    let mut valid = valid_frames();
    let golden: Vec<_> = [srv6_cases(), rfc_headend_cases(), rfc_decap_cases()].concat();
    let golden: Vec<_> = golden.into_iter().map(|case| case.input).collect();
    valid = valid.iter().cycle().take(golden.len()).cloned().chain(golden.iter().cloned()).collect();
    let map_types = map_types();
    for &map_type in &map_types {
        let mut bench = Bench::new(map_type, &routes);
        let mut random = Random::new(seed());
        let mut expected = BTreeMap::<_, u64>::new();
        let rounds = volume(400_000) / map_types.len() as u64;
        for round in 0..rounds {
            // As Linux, then as the RFCs.
            if round % (rounds / 2) == 0 {
                model.ecn = round > 0;
                for vlan in [None, Some(100)] {
                    bench.dataplane.set_port(LO, vlan, port(PortFlags { ecn: model.ecn, ..ALL })).unwrap();
                }
            }
            let mut frame = valid[random.below(valid.len())].clone();
            if !random.one_in(3) {
                mutate(&mut frame, &mut random);
            }
            if random.one_in(2) && frame.len() < 1500 {
                frame = dress(frame, &mut random);
            }
            let (action, output) = test_run(bench.dataplane.program(), &frame);
            let (verdict, sent) = model.answer(&frame);
            *expected.entry(verdict).or_default() += 1;
            let context = || format!("{map_type}, frame {round}: {frame:02x?} became {action} {output:02x?}");
            match kind(verdict) {
                Kind::Forward => assert_eq!(action, XDP_REDIRECT, "{verdict}: {}", context()),
                Kind::Pass => assert_eq!(action, XDP_PASS, "{verdict}: {}", context()),
                Kind::Drop => assert_eq!(action, XDP_DROP, "{verdict}: {}", context()),
            }
            if action != XDP_DROP {
                assert_eq!(output, sent.unwrap_or_else(|| frame.clone()), "{verdict}: {}", context());
            }
        }
        let total = bench.dataplane.counters().unwrap().total;
        let counted = total.iter().filter(|v| v.packets > 0);
        let counted: BTreeMap<_, _> = counted.map(|v| (&*v.name, v.packets)).collect();
        assert_eq!(counted, expected, "{map_type}");
        // The mutations must not all end at the first check.
        let forwarded: u64 =
            expected.iter().filter(|(name, _)| kind(name) == Kind::Forward).map(|(_, count)| count).sum();
        assert!(forwarded > expected.values().sum::<u64>() / 10, "{expected:?}");
        println!("{map_type}: {} of {} verdicts, {expected:?}", expected.len(), VERDICTS.len());
    }
}

const BAD4: &str = "192.0.2.66";
const BAD6: &str = "2001:db8:bad::1";
/// That a filter of the ports drops, whatever the addresses.
const BAD_PORT: u16 = 7;
/// Addresses that packets are nested under: SIDs with and without hooks, own addresses, others.
const REACHED: [&str; 16] = [
    "fd00:b::1",
    "fd00:b::2",
    "fd00:b::6",
    "fd00:b::7",
    "fd00:b::8",
    "fd00:b::9",
    "fd00:b::a",
    "fd00:c:1:6::",
    "fd00:c:1:1:6::",
    "fd00:c:6::",
    "fd00:c:2:6::",
    "fd00:c:3:6::",
    "fd00:c:3:1:6::",
    "2001:db8:6::1",
    "2001:db8:6::2",
    "2001:db8:1::1",
];

/// SIDs of NEXT-C-SID: forwarded by XDP, left to the kernel, and in a table of the kernel's that the port's lookup id does not have.
const CSIDS: [&str; 3] = ["fd00:c:1::/48", "fd00:c:2::/48", "fd00:c:3::/48"];

/// Own addresses that are not the tenant's.
const MAINS: [&str; 2] = ["192.0.2.7", "2001:db8:6::2"];

fn guarded_routes() -> Vec<(&'static str, Action)> {
    let hop = adjacency(LO);
    vec![
        ("198.51.100.0/24", Action::Forward(hop.clone())),
        ("192.0.2.8", Action::Pass(PassReason::Local)),
        ("192.0.2.7", Action::Pass(PassReason::Local)),
        ("203.0.113.0/24", Action::Pass(PassReason::Unresolved)),
        ("2001:db8:1::/48", Action::Forward(hop.clone())),
        ("2001:db8:2::/48", Action::Pass(PassReason::Unresolved)),
        ("2001:db8:6::1", Action::Pass(PassReason::Local)),
        ("2001:db8:6::2", Action::Pass(PassReason::Local)),
        ("fd00:b::1", Action::endpoint(Endpoint::End, Target::Port)),
        (
            "fd00:b::2",
            Action::Endpoint { endpoint: Endpoint::End, flavours: Flavours::PSP, target: Target::Port },
        ),
        ("fd00:b::6", Action::endpoint(Endpoint::EndDt6, Target::Lookup(1))),
        ("fd00:b::7", Action::endpoint(Endpoint::EndDt6, Target::Lookup(1))),
        ("fd00:b::8", Action::Pass(PassReason::Unsupported)),
        ("fd00:b::9", Action::endpoint(Endpoint::EndDt46, Target::Lookups { ipv4: 0, ipv6: 1 })),
        ("fd00:b::a", Action::endpoint(Endpoint::EndT, Target::Lookup(1))),
        (
            "fd00:c:1::/48",
            Action::Endpoint {
                endpoint: Endpoint::End,
                flavours: Flavours::next_csid(4, 2),
                target: Target::Port,
            },
        ),
        ("fd00:c:2::/48", Action::Pass(PassReason::Unsupported)),
        ("fd00:c:6::", Action::endpoint(Endpoint::EndDt6, Target::Lookup(1))),
    ]
}

fn guarded_frame(random: &mut Random) -> Vec<u8> {
    let four = random.one_in(3);
    let packet = if four {
        let to =
            ["198.51.100.1", "192.0.2.8", "192.0.2.7", "203.0.113.1", "224.0.0.5", "239.1.1.1", "8.8.8.8"];
        let from = ["192.0.2.9", BAD4, "240.1.1.1", "192.0.2.9"];
        let mut packet = ipv4(random.pick(&from), random.pick(&to), 1 + 63 * u8::from(!random.one_in(8)));
        if random.one_in(6) {
            let protocol = random.pick(&[1, 4, 41, 47, 89, 103, 108, 115, 137]);
            packet = edit_ipv4(packet, |p| p[9] = protocol);
        }
        if random.one_in(6) {
            let fragment = random.pick(&[0x2000u16, 1, 0x2001]);
            packet = edit_ipv4(packet, |p| p[6..8].copy_from_slice(&fragment.to_be_bytes()));
        }
        if random.one_in(6) {
            packet[22..24].copy_from_slice(&BAD_PORT.to_be_bytes());
        }
        if random.one_in(10) {
            mislead(&mut packet, random);
            packet = edit_ipv4(packet, |_| {});
        }
        packet
    } else {
        let to = [
            "2001:db8:1::1",
            "2001:db8:2::1",
            "2001:db8:6::1",
            "2001:db8:6::2",
            "ff02::1",
            "ff0e::1",
            "fd09::1",
        ];
        let from = ["2001:db8::9", BAD6, "fe80::9", "2001:db8::9"];
        let mut packet = ipv6(random.pick(&from), random.pick(&to), 1 + 63 * u8::from(!random.one_in(8)));
        if random.one_in(6) {
            packet[42..44].copy_from_slice(&BAD_PORT.to_be_bytes());
        }
        if random.one_in(3) {
            let (next, body) = extensions(17, packet.split_off(40), random);
            packet[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
            packet[6] = next;
            packet.extend(body);
        }
        if random.one_in(8) {
            mislead(&mut packet, random);
        }
        packet
    };
    let packet = nest(packet, &REACHED, random);
    let mut frame = Frame::new(packet);
    if random.one_in(24) {
        frame = frame.ether_type(random.pick(&[0x0806, 0x8847, 0x8864, 0x88cc, 0x0026, 0x88e5, 0x86dd]));
    }
    let mut frame = frame.bytes();
    if random.one_in(3) {
        mutate(&mut frame, random);
    }
    if random.one_in(2) && frame.len() < 1500 { dress(frame, random) } else { frame }
}

/// Ports with tenants, filters, SID hooks and all of them at once: what is passed must not come out.
#[test]
fn nothing_escapes() {
    needs_root!();
    let number4 = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
    let number6 = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap());
    let routes = guarded_routes();
    let model = Model::new(&routes, PORT_MAC, &[100]);
    // The tenant's own tables: as the port's, without one of its own addresses.
    let tenants: Vec<_> = routes.iter().filter(|(prefix, _)| !MAINS.contains(prefix)).cloned().collect();
    let tenants = Model::new(&tenants, PORT_MAC, &[100]);
    let bound: BTreeMap<Ipv6Addr, SidHook> = [
        ("fd00:b::6", SidHook::Filter(3)),
        ("fd00:c:6::", SidHook::Filter(3)),
        ("fd00:b::9", SidHook::Program(1)),
    ]
    .map(|(sid, sid_hook)| (sid.parse().unwrap(), sid_hook))
    .into();
    let map_types = map_types();
    for &map_type in &map_types {
        let mut bench = Bench::new(map_type, &routes);
        write_set(&mut bench, 0, &[BAD4, "2001:db8:bad::/48"]);
        write_set(&mut bench, 2, &["0.0.0.0/0", "::/0"]);
        let ids: BTreeMap<_, _> = routes.iter().zip(1..).map(|((prefix, _), id)| (*prefix, id)).collect();
        let of = |prefix: &str| ids[prefix];
        let mut four = Vec::new();
        let mut six = Vec::new();
        for (prefix, _) in &routes {
            match prefix.parse().unwrap() {
                _ if MAINS.contains(prefix) => {}
                trieline_lpm::IpPrefix::V4(key) => four.push((key, of(prefix))),
                trieline_lpm::IpPrefix::V6(key) => six.push((key, of(prefix))),
            }
        }
        Table::<u32>::create(&mut bench.image, 4, four).unwrap();
        Table::<u128>::create(&mut bench.image, 5, six).unwrap();
        let drop = filter("bad", 0, FilterAction::Drop);
        let any = narrowed(filter("port", 2, FilterAction::Drop), None, &[BAD_PORT..=BAD_PORT]);
        bench.dataplane.filters().set(&[vec![drop.clone(), any], vec![], vec![], vec![drop]]).unwrap();
        let known = CSIDS.map(|text| (text.parse().unwrap(), Steps::Next { block: 4, node_function: 2 }));
        bench.dataplane.csids().set(&known.into()).unwrap();
        bench.dataplane.sid_hooks().set(&bound).unwrap();
        let mut random = Random::new(seed());
        let mut became = BTreeMap::<_, u64>::new();
        let rounds = volume(400_000) / map_types.len() as u64;
        let mut oracle = Oracle { model: &model, rules: Rules::default() };
        for round in 0..rounds {
            if round % (rounds / 8).max(1) == 0 {
                let mix = (round / (rounds / 8).max(1)) as u8 & 7;
                let flags =
                    PortFlags { tenant: mix & 1 > 0, filter: mix & 2 > 0, sid_hook: mix & 4 > 0, ..ALL };
                for vlan in [None, Some(100)] {
                    let tables = if flags.tenant { (4, 5) } else { (0, 1) };
                    let port = trieline_router::Port { table4: tables.0, table6: tables.1, ..port(flags) };
                    bench.dataplane.set_port(LO, vlan, port).unwrap();
                }
                oracle.rules = Rules {
                    tenant: flags.tenant,
                    filter: flags.filter,
                    sid_hook: flags.sid_hook,
                    bad4: vec![number4(BAD4)],
                    bad6: vec![number6(BAD6) >> 80],
                    bad_port: BAD_PORT,
                    csids: CSIDS.map(|text| text.parse().unwrap()).into(),
                    bound: bound
                        .iter()
                        .map(|(sid, sid_hook)| (u128::from(*sid), matches!(sid_hook, SidHook::Program(_))))
                        .collect(),
                    shared4: vec![number4("192.0.2.8")],
                    shared6: vec![number6("2001:db8:6::1")],
                };
            }
            let frame = guarded_frame(&mut random);
            let (action, output) = test_run(bench.dataplane.program(), &frame);
            *became.entry(action).or_default() += 1;
            let context = || {
                let Rules { tenant, filter, sid_hook, .. } = oracle.rules;
                format!(
                    "{map_type}, frame {round}, tenant {tenant}, filter {filter}, hook {sid_hook}:\n{frame:02x?}\nbecame {action} {output:02x?}"
                )
            };
            match action {
                XDP_PASS => {
                    assert_eq!(output, frame, "{}", context());
                    oracle.may_pass(&frame).unwrap_or_else(|why| panic!("{why}: {}", context()));
                }
                XDP_REDIRECT => {
                    let (_, sent) = if oracle.rules.tenant { &tenants } else { &model }.answer(&frame);
                    assert_eq!(Some(&output), sent.as_ref(), "{}", context());
                    oracle.may_forward(&frame).unwrap_or_else(|why| panic!("{why}: {}", context()));
                }
                _ => assert_eq!(action, XDP_DROP, "{}", context()),
            }
        }
        println!("{map_type}: {became:?}, {:?}", {
            let counters = bench.dataplane.counters().unwrap().total;
            counters.into_iter().filter(|v| v.packets > 0).map(|v| (v.name, v.packets)).collect::<Vec<_>>()
        });
        // Each of the three is met often enough to mean something.
        assert!(became.len() == 3 && became.values().all(|count| *count > rounds / 30), "{became:?}");
    }
}
