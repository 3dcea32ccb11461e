//! The lookup inside the XDP program gives the oracle's answer, in both map types, before and after updates.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;

use common::packet::*;
use common::*;
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, Image, Prefix, Table};
use trieline_router::{Action, Adjacency, Dataplane, ImageMapType};
use trieline_testbed::needs_root;
use trieline_testbed::random::Random;

const PREFIXES: usize = 3000;
const ADDRESSES: usize = 6000;
const ACTIONS: u32 = 200;

/// The action's number, by the MAC address that its packets leave with.
fn numbered(dataplane: &mut Dataplane) -> HashMap<[u8; 6], u32> {
    (0..ACTIONS)
        .map(|_| {
            let id = dataplane.actions().alloc().unwrap();
            let [a, b, c, d] = id.to_be_bytes();
            let destination = [2, 0, a, b, c, d];
            let adjacency = Adjacency { ifindex: LO, mtu: 1500, destination, source: OUT_MAC, vlan: None };
            dataplane.actions().set(id, &Action::Forward(adjacency)).unwrap();
            (destination, id)
        })
        .collect()
}

/// A prefix set with nesting, and addresses inside and around it. `make` turns 128 random bits into an address that the program
/// looks up (no multicast, no loopback).
struct Universe<A: Address> {
    prefixes: Vec<(Prefix<A>, u32)>,
    addresses: Vec<A>,
}

fn universe<A: Address>(
    seed: u64,
    ids: &[u32],
    make: impl Fn(u128) -> A,
    mix: impl Fn(A, A, u16) -> A,
) -> Universe<A> {
    let width = size_of::<A>() as u16 * 8;
    let mut random = Random::new(seed);
    let mut wide = || random.wide();
    let mut prefixes: Vec<(Prefix<A>, u32)> = Vec::new();
    for i in 0..PREFIXES {
        let bits = wide();
        let len = (bits as u16 % (width + 1)).max(if i % 50 == 0 { 0 } else { 8 });
        // Half of them below an earlier one.
        let addr = match prefixes.get(bits as usize >> 8 & 0xfff) {
            Some((outer, _)) => mix(outer.addr(), make(wide()), outer.len()),
            None => make(wide()),
        };
        let value = ids[(bits >> 32) as usize % ids.len()];
        prefixes.push((Prefix::truncated(addr, len), value));
    }
    let addresses = (0..ADDRESSES)
        .map(|i| {
            let (prefix, _) = prefixes[wide() as usize % prefixes.len()];
            if i % 4 == 0 { make(wide()) } else { mix(prefix.addr(), make(wide()), prefix.len()) }
        })
        .collect();
    Universe { prefixes, addresses }
}

/// The first `len` bits of `a`, the rest of `b`.
fn mix4(a: u32, b: u32, len: u16) -> u32 {
    let low = u32::MAX.checked_shr(len.into()).unwrap_or(0);
    a & !low | b & low
}

fn mix6(a: u128, b: u128, len: u16) -> u128 {
    let low = u128::MAX.checked_shr(len.into()).unwrap_or(0);
    a & !low | b & low
}

fn compare<A: Address>(
    bench: &(Dataplane, ImageMapType),
    by_mac: &HashMap<[u8; 6], u32>,
    oracle: &Oracle<A>,
    addresses: &[A],
    frame: impl Fn(A) -> Vec<u8>,
) {
    let mut hits = 0;
    for &address in addresses {
        let (action, output) = test_run(bench.0.program(), &frame(address));
        let got = (action == XDP_REDIRECT).then(|| by_mac[&output[..6]]);
        let expected = oracle.lookup(address).map(|(_, value)| value);
        assert_eq!(got, expected, "{}: {address:x?}", bench.1);
        hits += usize::from(got.is_some());
    }
    assert!(hits > addresses.len() / 2, "only {hits} hits");
}

#[test]
fn program_agrees_with_the_oracle() {
    needs_root!();
    for map_type in map_types() {
        let fs = BpfFs::mount();
        let mut dataplane = Dataplane::open(&options(&fs, map_type)).unwrap();
        let mut image = Image::create(dataplane.memory(), dataplane.grace(), dataplane.tables()).unwrap();
        let by_mac = numbered(&mut dataplane);
        let ids: Vec<u32> = by_mac.values().copied().collect();
        dataplane.set_port(LO, None, port(ALL)).unwrap();
        dataplane.set_device(LO).unwrap();
        let bench = (dataplane, map_type);

        let four = universe::<u32>(
            11,
            &ids,
            |bits| {
                let address = bits as u32;
                // 1 … 126 and 128 … 223 are what the program looks up.
                let net = 1 + (address >> 24) % 222;
                (if net == 127 { 1 } else { net }) << 24 | address & 0xff_ffff
            },
            mix4,
        );
        let mut oracle = Oracle::new();
        let mut table = Table::<u32>::create(&mut image, 0, []).unwrap();
        for (prefix, value) in &four.prefixes {
            oracle.insert(*prefix, *value);
            table.insert(&mut image, *prefix, *value).unwrap();
        }
        let frame4 = |address: u32| {
            let d = std::net::Ipv4Addr::from(address).to_string();
            Frame::new(ipv4("192.0.2.9", &d, 64)).bytes()
        };
        let usable = |a: &&u32| !matches!(**a >> 24, 0 | 127 | 224..);
        let addresses: Vec<u32> = four.addresses.iter().filter(usable).copied().collect();
        compare(&bench, &by_mac, &oracle, &addresses, frame4);
        for (prefix, _) in four.prefixes.iter().step_by(2) {
            oracle.remove(prefix);
            table.remove(&mut image, prefix).unwrap();
        }
        for (prefix, _) in four.prefixes.iter().skip(1).step_by(6) {
            oracle.insert(*prefix, ids[0]);
            table.insert(&mut image, *prefix, ids[0]).unwrap();
        }
        compare(&bench, &by_mac, &oracle, &addresses, frame4);

        let six = universe::<u128>(13, &ids, |bits| 0x2000 << 112 | bits >> 3, mix6);
        let mut oracle = Oracle::new();
        for (prefix, value) in &six.prefixes {
            oracle.insert(*prefix, *value);
        }
        let mut table = Table::<u128>::create(&mut image, 1, six.prefixes.iter().copied()).unwrap();
        let frame6 = |address: u128| {
            let d = std::net::Ipv6Addr::from(address).to_string();
            Frame::new(ipv6("2001:db8::9", &d, 64)).bytes()
        };
        let usable = |a: &&u128| !matches!(**a >> 120, 0xfe | 0xff) && **a >> 64 != 0;
        let addresses: Vec<u128> = six.addresses.iter().filter(usable).copied().collect();
        compare(&bench, &by_mac, &oracle, &addresses, frame6);
        for (prefix, _) in six.prefixes.iter().step_by(2) {
            oracle.remove(prefix);
            table.remove(&mut image, prefix).unwrap();
        }
        compare(&bench, &by_mac, &oracle, &addresses, frame6);
    }
}
