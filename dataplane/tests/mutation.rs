//! Mutated frames cannot hurt: every one of 10^5 ends with one verdict, never aborts, and what is passed is unchanged.
#![allow(clippy::unwrap_used)]

mod common;

use common::packet::*;
use common::*;
use trieline_dataplane::{Action, Adjacency, Kind, VERDICTS};

const FRAMES: u32 = 100_000;

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
    let adjacency =
        Adjacency { ifindex: LO, mtu: 1500, destination: NEXT_HOP_MAC, source: OUT_MAC, vlan: None };
    let tagged = Adjacency { vlan: Some(7), ..adjacency.clone() };
    let template = outer("fd00:1::1", "fd00:2::1", 43, 63, &srh(4, 0, &["fd00:2::1"], &[]));
    let routes = [
        ("0.0.0.0/0", Action::Forward(tagged)),
        ("198.51.100.0/24", Action::Forward(adjacency.clone())),
        ("10.1.0.0/16", Action::Encaps { adjacency: adjacency.clone(), outer: template.clone() }),
        ("2001:db8:1::/48", Action::Forward(adjacency.clone())),
        ("2001:db8:3::/48", Action::Encaps { adjacency: adjacency.clone(), outer: template }),
        ("fd00:a::1", Action::EndDx4 { adjacency: Some(adjacency) }),
        ("fd00:a::2", Action::EndDx4 { adjacency: None }),
    ];
    let valid = valid_frames();
    for home in homes() {
        let mut bench = Bench::new(home, &routes);
        bench.dataplane.set_port(LO, Some(100), port(ALL)).unwrap();
        let mut random = Random(0x7472_6965_6c69_6e65);
        let mut actions = [0u64; 5];
        for round in 0..FRAMES {
            let mut frame = valid[random.below(valid.len())].clone();
            mutate(&mut frame, &mut random);
            let (action, output) = test_run(bench.dataplane.program(), &frame);
            let context = || format!("{home}, frame {round}: {frame:02x?} became {action} {output:02x?}");
            actions[action as usize] += 1;
            match action {
                XDP_PASS => assert_eq!(output, frame, "{}", context()),
                XDP_DROP => {}
                XDP_REDIRECT => {
                    assert_eq!(output[..12], [NEXT_HOP_MAC, OUT_MAC].concat(), "{}", context());
                    let at = if output[12..14] == [0x81, 0] { 18 } else { 14 };
                    let packet = &output[at..];
                    let len = match packet[0] >> 4 {
                        4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                        6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
                        version => panic!("IP version {version}: {}", context()),
                    };
                    assert!(len <= packet.len() && len <= 1500, "{}", context());
                }
                _ => panic!("{}", context()),
            }
        }
        // The mutations must not all end at the first check.
        assert!(actions[XDP_REDIRECT as usize] > u64::from(FRAMES / 10), "{actions:?}");
        let counters = bench.dataplane.counters().unwrap();
        assert_eq!(counters.total.iter().map(|v| v.packets).sum::<u64>(), u64::from(FRAMES));
        for (kind, action) in [(Kind::Forward, XDP_REDIRECT), (Kind::Pass, XDP_PASS), (Kind::Drop, XDP_DROP)]
        {
            let of_kind: u64 = counters.total.iter().filter(|v| v.kind == kind).map(|v| v.packets).sum();
            assert_eq!(of_kind, actions[action as usize], "{kind}");
        }
        let reached = counters.total.iter().filter(|v| v.packets > 0).count();
        println!("{home}: {FRAMES} frames, {reached} of {} verdicts, actions {actions:?}", VERDICTS.len());
    }
}
