//! The choice of addresses: each prefix in turn, and between them addresses just outside of random prefixes, and random ones.

use crate::fib::expected::Routed;
use crate::fib::publish::Publisher;
use crate::kernel::{TABLE_MAIN, TableKey, family};
use crate::rib::mirror::Mirror;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use trieline_lpm::{Prefix, Table};

/// A leap to a random prefix passes over at most so many.
const LEAP: u64 = 256;

/// Addresses that can be made from numbers.
pub trait Sampled: Routed {
    /// The address of these bits.
    fn of_bits(bits: u128) -> Self;
    /// Its bits.
    fn bits(self) -> u128;
    /// The address after it, or before it; around the end of all addresses.
    fn next_to(self, after: bool) -> Self {
        Self::of_bits(if after { self.bits().wrapping_add(1) } else { self.bits().wrapping_sub(1) })
    }
}

impl Sampled for u32 {
    fn of_bits(bits: u128) -> Self {
        bits as u32
    }
    fn bits(self) -> u128 {
        self.into()
    }
}

impl Sampled for u128 {
    fn of_bits(bits: u128) -> Self {
        bits
    }
    fn bits(self) -> u128 {
        self
    }
}

/// An address to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// Family and number of the table.
    pub table: TableKey,
    /// The address.
    pub address: IpAddr,
}

/// Where a walk over a table has come to.
#[derive(Debug, Clone, Copy)]
struct Place {
    bits: u128,
    len: u16,
}

/// Chooses addresses.
#[derive(Debug)]
pub struct Sampler {
    random: u64,
    turn: u64,
    /// Tables of this round that are still to come, the next last.
    tables: Vec<TableKey>,
    /// The next prefix of the last of them.
    next: Option<Place>,
    /// Where the leaps have come to.
    leaps: BTreeMap<TableKey, Place>,
    /// Rounds over all prefixes.
    pub rounds: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        let random = RandomState::new().build_hasher().finish();
        let (turn, rounds, tables, next, leaps) = Default::default();
        Self { random, turn, tables, next, leaps, rounds }
    }
}

/// All tables of routes in the image.
pub fn tables(publisher: &Publisher) -> Vec<TableKey> {
    let others4 = publisher.v4.others.keys().map(|number| (family::INET, *number));
    let others6 = publisher.v6.others.keys().map(|number| (family::INET6, *number));
    let main = [(family::INET6, TABLE_MAIN), (family::INET, TABLE_MAIN)];
    others6.chain(others4).chain(main).collect()
}

/// The VRF device by which the kernel can be asked for a table: 0 for main, `None` where there is none.
pub fn device(mirror: &Mirror, (_, number): TableKey) -> Option<u32> {
    if number == TABLE_MAIN {
        return Some(0);
    }
    let mut links = mirror.kernel.links.values();
    let is_vrf = |link: &&crate::kernel::link::Link| link.vrf_table == Some(number) && link.is_up();
    links.find(is_vrf).map(|link| link.ifindex)
}

impl Sampler {
    fn random(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn random_bits(&mut self) -> u128 {
        u128::from(self.random()) << 64 | u128::from(self.random())
    }

    /// The next address: every second one is of the next prefix of the round.
    pub fn next(&mut self, publisher: &Publisher) -> Option<Sample> {
        self.turn += 1;
        if self.turn.is_multiple_of(2) {
            return self.in_turn(publisher);
        }
        let all = tables(publisher);
        let table = all[(self.random() % all.len() as u64) as usize];
        let is_outside = self.turn % 4 == 1;
        let address = if table.0 == family::INET {
            self.anywhere::<u32>(publisher, table, is_outside)
        } else {
            self.anywhere::<u128>(publisher, table, is_outside)
        };
        Some(Sample { table, address })
    }

    /// An address of the next prefix: its first, its last, or one in between, by the round.
    fn in_turn(&mut self, publisher: &Publisher) -> Option<Sample> {
        for _ in 0..2 {
            while let Some(table) = self.tables.last().copied() {
                let address = if table.0 == family::INET {
                    self.of_next::<u32>(publisher, table.1)
                } else {
                    self.of_next::<u128>(publisher, table.1)
                };
                if let Some(address) = address {
                    return Some(Sample { table, address });
                }
                self.tables.pop();
                self.next = None;
                self.rounds += u64::from(self.tables.is_empty());
            }
            self.tables = tables(publisher);
        }
        None
    }

    fn of_next<A: Sampled>(&mut self, publisher: &Publisher, number: u32) -> Option<IpAddr> {
        let table = table::<A>(publisher, number)?;
        let from = self.next.map_or(Place { bits: 0, len: 0 }, |next| next);
        let mut rest = table.iter_from(Prefix::truncated(A::of_bits(from.bits), from.len));
        let (prefix, _) = rest.next().filter(|_| self.next.is_none_or(|next| next.len != u16::MAX))?;
        self.next = Some(rest.next().map_or(Place { bits: 0, len: u16::MAX }, |(next, _)| place(next)));
        let address = match self.rounds % 3 {
            0 => prefix.addr(),
            1 => prefix.last(),
            _ => self.inside(prefix),
        };
        Some(address.ip())
    }

    fn inside<A: Sampled>(&mut self, prefix: Prefix<A>) -> A {
        let host = (prefix.last().bits() ^ prefix.addr().bits()) & self.random_bits();
        A::of_bits(prefix.addr().bits() | host)
    }

    /// An address just outside of a random prefix, or inside it, or any at all.
    fn anywhere<A: Sampled>(&mut self, publisher: &Publisher, key: TableKey, is_outside: bool) -> IpAddr {
        let any = A::of_bits(self.random_bits());
        if !is_outside && A::WIDTH == 32 {
            return any.ip();
        }
        let Some(table) = table::<A>(publisher, key.1) else { return any.ip() };
        let from = self.leaps.get(&key).copied().unwrap_or(Place { bits: 0, len: 0 });
        let leap = (self.random() % LEAP) as usize;
        let from = Prefix::truncated(A::of_bits(from.bits), from.len);
        let found = table.iter_from(from).nth(leap).or_else(|| table.iter().nth(leap % table.len().max(1)));
        let Some((prefix, _)) = found else { return any.ip() };
        self.leaps.insert(key, place(prefix));
        let address = match (is_outside, self.random() % 2) {
            // Of IPv6, random addresses would all lie far from any route.
            (false, _) => self.inside(prefix),
            (true, 0) => prefix.addr().next_to(false),
            (true, _) => prefix.last().next_to(true),
        };
        address.ip()
    }
}

fn place<A: Sampled>(prefix: Prefix<A>) -> Place {
    Place { bits: prefix.addr().bits(), len: prefix.len() }
}

fn table<A: Sampled>(publisher: &Publisher, number: u32) -> Option<&Table<A>> {
    A::published(publisher).get(number)?.table.as_ref()
}
