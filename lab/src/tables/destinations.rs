//! Addresses to send to: random hosts inside random prefixes of a table.

use trieline_lpm::Prefix;

use super::{Random, generate::Wide};

/// A random host inside a random prefix.
pub fn random_host<A: Wide>(prefixes: &[Prefix<A>], random: &mut Random) -> A {
    let prefix = prefixes[random.below(prefixes.len())];
    let wide = prefix.addr().widen();
    let free = if prefix.len() == 0 { u128::MAX } else { !(u128::MAX << (128 - u32::from(prefix.len()))) };
    A::narrow(wide | (random.wide() & free))
}

/// `count` of them; `usable` says which may be sent to. None when hardly any may.
pub fn random_hosts<A: Wide>(
    prefixes: &[Prefix<A>],
    count: usize,
    random: &mut Random,
    usable: impl Fn(A) -> bool,
) -> Option<Vec<A>> {
    let mut hosts = Vec::with_capacity(count);
    let mut refused = 0;
    if prefixes.is_empty() {
        return None;
    }
    while hosts.len() < count {
        let host = random_host(prefixes, random);
        if usable(host) {
            hosts.push(host);
        } else {
            refused += 1;
            if refused > 1000 + 100 * hosts.len() {
                return None;
            }
        }
    }
    Some(hosts)
}

/// Whether the topology forwards to it: unicast, and not one of the networks that the topology itself uses.
pub fn forwardable4(address: u32) -> bool {
    let within = |prefix: u32, len: u32| address >> (32 - len) == prefix >> (32 - len);
    let first = address >> 24;
    first != 0
        && first != 127
        && first < 224
        && !within(0xc000_0200, 24) // 192.0.2.0/24
        && !within(0xc633_6400, 24) // 198.51.100.0/24
        && !within(0xcb00_7100, 24) // 203.0.113.0/24
        && !within(0xc612_0000, 15) // 198.18.0.0/15
}

/// Likewise for IPv6: global unicast outside the documentation prefix.
pub fn forwardable6(address: u128) -> bool {
    address >> 125 == 1 && address >> 96 != 0x2001_0db8
}
