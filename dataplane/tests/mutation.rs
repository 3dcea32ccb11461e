//! Mutated frames cannot hurt: each of 10^6 ends as the model says, verdict and bytes; what is passed is unchanged.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::cases::adjacency;
use common::model::Model;
use common::packet::*;
use common::rfc::*;
use common::srv6::*;
use common::*;
use trieline_dataplane::{Action, Adjacency, Headend, Kind, PassReason, PortFlags, VERDICTS};

const FRAMES: u32 = 1_000_000;

/// xorshift64*: the same frames every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}

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

/// One to four changes: a byte, a bit, an interesting value, a cut, a longer tail.
fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(frame.len());
        match random.below(6) {
            0 => frame[at] = random.next() as u8,
            1 => frame[at] ^= 1 << random.below(8),
            2 => frame[at] = [0, 1, 2, 4, 41, 43, 127, 128, 255][random.below(9)],
            // Lengths are where it hurts: mostly near the headers.
            3 => {
                let header = 48.min(frame.len() - 12);
                frame[12 + at % header] = random.next() as u8;
            }
            4 => frame.truncate(14.max(at)),
            _ => frame.resize(frame.len() + random.below(64), random.next() as u8),
        }
    }
    // The checksum is mostly right, or the rest would never be looked at.
    if frame.len() >= 34 && frame[12..14] == [8, 0] && random.below(8) != 0 {
        let packet = edit_ipv4(frame.split_off(14), |_| {});
        frame.extend(packet);
    }
}

#[test]
fn mutated_frames() {
    if skip("mutated frames") {
        return;
    }
    let hop = adjacency(LO);
    let tagged = Adjacency { vlan: Some(7), mtu: 60, ..hop.clone() };
    let template = outer("fd00:1::1", "fd00:2::1", 43, 63, &srh(4, 0, &["fd00:2::1"], &[]));
    let routes = [
        ("0.0.0.0/0", Action::Forward(tagged)),
        ("198.51.100.0/24", Action::Forward(hop.clone())),
        ("192.0.2.8", Action::Pass(PassReason::Local)),
        (
            "10.1.0.0/16",
            Action::Encaps { adjacency: hop.clone(), outer: template.clone(), headend: Headend::default() },
        ),
        ("2001:db8:1::/48", Action::Forward(hop.clone())),
        (
            "2001:db8:3::/48",
            Action::Encaps { adjacency: hop.clone(), outer: template, headend: Headend::default() },
        ),
        ("fd00:a::1", Action::EndDx4 { adjacency: Some(hop) }),
        ("fd00:a::2", Action::EndDx4 { adjacency: None }),
    ];
    let srv6 = [srv6_routes(&adjacency(LO), [0, 1]), rfc_routes(&adjacency(LO))].concat();
    let srv6 = srv6.iter().map(|(prefix, action)| (prefix.as_str(), action.clone()));
    let routes: Vec<_> = routes.into_iter().chain(srv6).collect();
    let mut model = Model::new(&routes, PORT_MAC, &[100]);
    // Half of the frames from what every router meets.
    let mut valid = valid_frames();
    let golden: Vec<_> = [srv6_cases(), rfc_headend_cases(), rfc_decap_cases()].concat();
    let golden: Vec<_> = golden.into_iter().map(|case| case.input).collect();
    valid = valid.iter().cycle().take(golden.len()).cloned().chain(golden.iter().cloned()).collect();
    let homes = homes();
    for &home in &homes {
        let mut bench = Bench::new(home, &routes);
        let mut random = Random(0x7472_6965_6c69_6e65);
        let mut expected = BTreeMap::<_, u64>::new();
        let rounds = FRAMES / homes.len() as u32;
        for round in 0..rounds {
            // As Linux, then as the RFCs.
            if round % (rounds / 2) == 0 {
                model.ecn = round > 0;
                for vlan in [None, Some(100)] {
                    bench.dataplane.set_port(LO, vlan, port(PortFlags { ecn: model.ecn, ..ALL })).unwrap();
                }
            }
            let mut frame = valid[random.below(valid.len())].clone();
            mutate(&mut frame, &mut random);
            let (action, output) = test_run(bench.dataplane.program(), &frame);
            let (verdict, sent) = model.answer(&frame);
            *expected.entry(verdict).or_default() += 1;
            let context = || format!("{home}, frame {round}: {frame:02x?} became {action} {output:02x?}");
            match kind(verdict) {
                Kind::Forward => assert_eq!(action, XDP_REDIRECT, "{verdict}: {}", context()),
                Kind::Pass => assert_eq!(action, XDP_PASS, "{verdict}: {}", context()),
                Kind::Drop => assert_eq!(action, XDP_DROP, "{verdict}: {}", context()),
            }
            if action != XDP_DROP {
                assert_eq!(output, sent.unwrap_or_else(|| frame.clone()), "{verdict}: {}", context());
            }
        }
        let counted = bench.dataplane.counters().unwrap().total.into_iter().filter(|v| v.packets > 0);
        let counted: BTreeMap<_, _> = counted.map(|v| (v.name, v.packets)).collect();
        assert_eq!(counted, expected, "{home}");
        // The mutations must not all end at the first check.
        let forwarded: u64 =
            expected.iter().filter(|(name, _)| kind(name) == Kind::Forward).map(|(_, count)| count).sum();
        assert!(forwarded > expected.values().sum::<u64>() / 10, "{expected:?}");
        println!("{home}: {} of {} verdicts, {expected:?}", expected.len(), VERDICTS.len());
    }
}

fn kind(name: &str) -> Kind {
    VERDICTS.iter().find(|verdict| verdict.name == name).unwrap().kind
}
