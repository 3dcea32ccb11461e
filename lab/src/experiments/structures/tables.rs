//! Tables and queries of this experiment alone: tenants, and addresses to look up in one of several tables.

use trieline_lpm::{Address, Prefix};

use super::bench::Queries;
use crate::tables::{
    Random,
    kinds::{Drawn, Entry, Values},
};

/// `count` tenants' tables of ten routes each: a default route and nine networks in private space.
pub fn tenants(count: usize, random: &mut Random) -> Vec<Vec<Entry<u32>>> {
    (0..count)
        .map(|_| {
            let mut routes: Vec<Prefix<u32>> = vec![Prefix::truncated(0, 0)];
            while routes.len() < 10 {
                let len = [16, 20, 22, 24, 24, 24, 26, 28, 32][random.below(9)];
                let (block, bits) = [(0x0a00_0000, 8), (0xac10_0000, 12), (0xc0a8_0000, 16)][random.below(3)];
                let any = random.bits() as u32;
                let route = Prefix::truncated(block | (any ^ any.masked(bits)), len);
                if !routes.contains(&route) {
                    routes.push(route);
                }
            }
            routes.sort_unstable();
            Values::Distinct.of(&routes, random)
        })
        .collect()
}

/// Queries: half the tables' worth of addresses inside random prefixes, or anywhere.
pub fn queries<A: Drawn>(
    sets: &[Vec<Entry<A>>],
    count: usize,
    inside: bool,
    random: &mut Random,
) -> Queries<A> {
    let mut queries = Queries { addresses: Vec::with_capacity(count), tables: Vec::new() };
    for _ in 0..count {
        let table = random.below(sets.len());
        if sets.len() > 1 {
            queries.tables.push(table as u32);
        }
        let entries = &sets[table];
        queries.addresses.push(if inside {
            A::inside(&entries[random.below(entries.len())].0, random)
        } else {
            A::anywhere(random)
        });
    }
    queries
}
