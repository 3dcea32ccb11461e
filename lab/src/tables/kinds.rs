//! Kinds of key and of table beside the Internet's: what experiments draw from, and the rules that are read from files.

use std::{collections::HashSet, fs::File, io::Read, path::Path};

use flate2::read::MultiGzDecoder;
use trieline_lpm::{Address, Key, Prefix};

use super::{Random, destinations::random_host, generate};
use crate::{Result, error::During};

/// A prefix and its value.
pub type Entry<A> = (Prefix<A>, u32);
/// Names of the files with real rules in a data directory.
pub const THREATS: &str = "threat-hosts.txt.gz";
/// Country codes by prefix.
pub const COUNTRIES: &str = "country-prefixes.txt.gz";

/// IPv4 address and port.
pub type Endpoint4 = Key<48, 6>;

/// A key that can be drawn at random.
pub trait Drawn: Address {
    /// Inside a prefix.
    fn inside(prefix: &Prefix<Self>, random: &mut Random) -> Self;
}

impl Drawn for u32 {
    fn inside(prefix: &Prefix<u32>, random: &mut Random) -> u32 {
        let any = random.bits() as u32;
        prefix.addr() | (any ^ any.masked(prefix.len()))
    }
}

impl Drawn for u128 {
    fn inside(prefix: &Prefix<u128>, random: &mut Random) -> u128 {
        let any = random.wide();
        prefix.addr() | (any ^ any.masked(prefix.len()))
    }
}

impl<const BITS: u16, const BYTES: usize> Drawn for Key<BITS, BYTES> {
    fn inside(prefix: &Prefix<Self>, random: &mut Random) -> Self {
        let any: Self = Key::new(std::array::from_fn(|_| random.bits() as u8));
        let (any, network) = (any, any.masked(prefix.len()));
        let addr = prefix.addr();
        Key::new(std::array::from_fn(|n| addr.bytes()[n] | (any.bytes()[n] ^ network.bytes()[n])))
    }
}

/// The value of each prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Another one for each.
    Distinct,
    /// Uniformly one of 64: a router with as many next hops, and the worst case for merging.
    NextHops,
}

impl Values {
    /// Of sorted prefixes.
    pub fn of<A: Address>(self, prefixes: &[Prefix<A>], random: &mut Random) -> Vec<Entry<A>> {
        (1..)
            .zip(prefixes)
            .map(|(n, prefix)| match self {
                Values::Distinct => (*prefix, n),
                Values::NextHops => (*prefix, 1 + random.below(64) as u32),
            })
            .collect()
    }
}

/// The kernel selftest's dense hosts in the order of their numbers, as its bench fills the trie; the n-th has the value n + 1.
pub fn numbered(count: usize) -> Vec<Entry<u32>> {
    (0..count as u32).map(|n| (Prefix::host(n.swap_bytes()), n + 1)).collect()
}

/// `count` random hosts.
pub fn random_hosts(count: usize, random: &mut Random) -> Vec<Prefix<u32>> {
    let mut hosts: Vec<u32> = Vec::new();
    while hosts.len() < count {
        hosts.extend((hosts.len()..count).map(|_| random.bits() as u32));
        hosts.sort_unstable();
        hosts.dedup();
    }
    hosts.into_iter().map(Prefix::host).collect()
}

/// `count` endpoints on a fifth as many servers, most on well-known ports. With them come networks that they lie in, and rules for whole
/// servers and for ranges of ports. Distinct and sorted.
pub fn endpoints4(count: usize, random: &mut Random) -> Vec<Prefix<Endpoint4>> {
    const WIDTH: u16 = 32;
    const PORTS: [u16; 12] = [22, 25, 53, 80, 123, 443, 853, 993, 3306, 5432, 8080, 8443];
    let key = |address: u32, port: u16| {
        let ([a, b, c, d], [high, low]) = (address.to_be_bytes(), port.to_be_bytes());
        Key::new([a, b, c, d, high, low])
    };
    let networks = generate::internet::<u32>(count / 50, random.bits());
    let servers: Vec<u32> = (0..count / 5).map(|_| random_host(&networks, random)).collect();
    let mut all: HashSet<Prefix<Endpoint4>> =
        networks.iter().map(|network| Prefix::truncated(key(network.addr(), 0), network.len())).collect();
    let rules = count / 20;
    for n in 0..rules {
        let server = key(servers[random.below(servers.len())], random.bits() as u16);
        let len = if n % 2 == 0 { WIDTH } else { WIDTH + 1 + random.below(10) as u16 };
        all.insert(Prefix::truncated(server, len));
    }
    let until = all.len() + count;
    while all.len() < until {
        let server = servers[random.below(servers.len())];
        let port = if random.below(4) > 0 { PORTS[random.below(PORTS.len())] } else { random.bits() as u16 };
        all.insert(Prefix::host(key(server, port)));
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable();
    all
}

/// Rules of both families.
type Rules = (Vec<Entry<u32>>, Vec<Entry<u128>>);

/// The lines of a compressed file of two columns: prefix or address, and a word that stands for the value. Both families; equal
/// words are equal values, numbered in the order of their first appearance.
pub fn rules(path: &Path) -> Result<Rules> {
    let mut text = String::new();
    let file = File::open(path).during(|| format!("cannot open {}", path.display()))?;
    MultiGzDecoder::new(file)
        .read_to_string(&mut text)
        .during(|| format!("cannot read {}", path.display()))?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut words: Vec<&str> = Vec::new();
    for line in text.lines() {
        let mut columns = line.split_whitespace();
        let (Some(prefix), Some(word)) = (columns.next(), columns.next()) else { continue };
        let value = words.iter().position(|known| *known == word).unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        });
        let value = value as u32 + 1;
        if let Ok(prefix) = prefix.parse::<Prefix<u32>>() {
            v4.push((prefix, value));
        } else if let Ok(prefix) = prefix.parse::<Prefix<u128>>() {
            v6.push((prefix, value));
        }
    }
    v4.sort_unstable();
    v4.dedup_by_key(|entry| entry.0);
    v6.sort_unstable();
    v6.dedup_by_key(|entry| entry.0);
    Ok((v4, v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_distinct_sorted_and_of_all_kinds() {
        let all = endpoints4(2000, &mut Random::new(1));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.len() >= 2000);
        let hosts = all.iter().filter(|prefix| prefix.len() == Endpoint4::WIDTH).count();
        assert!((2000..2150).contains(&hosts), "{hosts}");
        assert!(all.iter().any(|prefix| prefix.len() <= 24) && all.iter().any(|prefix| prefix.len() == 32));
    }
}
