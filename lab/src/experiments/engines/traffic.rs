//! The addresses that every structure is asked for, the same for all, and the answers that they must give.

use std::hash::Hash;

use trieline_lpm::Prefix;

use crate::tables::{Random, destinations::random_host, generate::Wide, reference::Reference};

/// Answers compared one by one.
pub const SAMPLE: usize = 1 << 17;
/// Addresses that `zipf` draws from.
const POPULAR: usize = 1 << 20;

/// The kind of the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// Uniform; for IPv6 in 2000::/3.
    Rand,
    /// A random host in a uniformly drawn prefix.
    Prefix,
    /// 2^20 such hosts, the n-th drawn in proportion to 1/n.
    Zipf,
}

impl Traffic {
    /// All.
    pub const ALL: [Traffic; 3] = [Traffic::Rand, Traffic::Prefix, Traffic::Zipf];

    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Rand => "rand",
            Traffic::Prefix => "prefix",
            Traffic::Zipf => "zipf",
        }
    }
}

/// A stream of addresses.
pub struct Stream<A> {
    /// Which.
    pub traffic: Traffic,
    /// The addresses.
    pub addrs: Vec<A>,
    /// IPv6 addresses in network order, as DPDK takes them.
    pub wire: Vec<[u8; 16]>,
    /// The index of the longest prefix of each address plus 1; 0 = none.
    matches: Vec<u32>,
}

impl<A: Wide + Hash> Stream<A> {
    /// `count` addresses for a table of `prefixes` in order.
    pub fn new(traffic: Traffic, prefixes: &[Prefix<A>], count: usize, random: &mut Random) -> Stream<A> {
        let addrs: Vec<A> = match traffic {
            Traffic::Rand => (0..count).map(|_| uniform(random)).collect(),
            Traffic::Prefix => (0..count).map(|_| random_host(prefixes, random)).collect(),
            Traffic::Zipf => {
                let hosts: Vec<A> = (0..POPULAR).map(|_| random_host(prefixes, random)).collect();
                let ranks = zipf(POPULAR);
                (0..count).map(|_| hosts[rank(&ranks, random.unit())]).collect()
            }
        };
        let wire = match A::FAMILY {
            6 => addrs.iter().map(|addr| addr.widen().to_be_bytes()).collect(),
            _ => Vec::new(),
        };
        let matches = longest(prefixes, &addrs);
        Stream { traffic, addrs, wire, matches }
    }

    /// Checks the sweep against the reference, which has nothing in common with it, on the sample.
    pub fn agrees(&self, prefixes: &[Prefix<A>]) -> bool {
        let reference = Reference::new(prefixes.iter().copied().zip(1..));
        let sample = self.addrs.iter().zip(&self.matches).take(SAMPLE);
        sample.into_iter().all(|(addr, index)| reference.lookup(*addr) == *index)
    }

    /// The answers when the n-th prefix has the value `values[n]`.
    pub fn expected(&self, values: &[u32]) -> impl Iterator<Item = u32> {
        self.matches.iter().map(|at| at.checked_sub(1).map_or(0, |at| values[at as usize]))
    }
}

fn uniform<A: Wide>(random: &mut Random) -> A {
    let wide = random.wide();
    A::narrow(if A::FAMILY == 6 { wide >> 3 | 1 << 125 } else { wide })
}

/// For each address the index of the longest of `prefixes` (in order) plus 1; 0 = none. It takes both in order: one pass over them with the
/// prefixes that are open.
fn longest<A: Wide>(prefixes: &[Prefix<A>], addrs: &[A]) -> Vec<u32> {
    let mut order: Vec<(A, u32)> = addrs.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut matches = vec![0; addrs.len()];
    let mut open: Vec<usize> = Vec::new();
    let mut next = 0;
    for (addr, at) in order {
        while next < prefixes.len() && prefixes[next].addr() <= addr {
            while open.last().is_some_and(|last| !prefixes[*last].covers(&prefixes[next])) {
                open.pop();
            }
            open.push(next);
            next += 1;
        }
        while open.last().is_some_and(|last| !prefixes[*last].contains(addr)) {
            open.pop();
        }
        matches[at as usize] = open.last().map_or(0, |last| *last as u32 + 1);
    }
    matches
}

/// Running sum of 1/n.
fn zipf(count: usize) -> Vec<f64> {
    let mut sum = 0.0;
    (1..=count)
        .map(|n| {
            sum += 1.0 / n as f64;
            sum
        })
        .collect()
}

fn rank(sums: &[f64], unit: f64) -> usize {
    let at = unit * sums.last().copied().unwrap_or(0.0);
    sums.partition_point(|sum| *sum <= at).min(sums.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::generate::internet;

    #[test]
    fn the_sweep_agrees_with_the_reference() {
        let mut random = Random::new(5);
        let (v4, v6) = (internet::<u32>(3000, 5), internet::<u128>(1000, 5));
        for traffic in Traffic::ALL {
            assert!(Stream::new(traffic, &v4, 5000, &mut random).agrees(&v4));
            let stream = Stream::new(traffic, &v6, 5000, &mut random);
            assert!(stream.agrees(&v6) && stream.wire.len() == 5000);
        }
    }

    #[test]
    fn the_first_of_two_is_drawn_twice_as_often() {
        let sums = zipf(2);
        assert_eq!(
            (rank(&sums, 0.0), rank(&sums, 0.66), rank(&sums, 0.67), rank(&sums, 0.9999)),
            (0, 0, 1, 1)
        );
    }
}
