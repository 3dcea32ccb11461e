//! Filters and the sets that they name.

use std::ops::RangeInclusive;

use trieline_lpm::{IpPrefix, Table};
use trieline_router::{Filter, FilterAction, FilterMatch, FilterRule};

use super::Bench;

/// Ids of the tests' tables: a set's IPv4 and IPv6 prefixes each.
const SETS: u32 = 2;

/// A filter of what comes from the addresses of set number `set`, with that counter.
pub fn filter(name: &str, set: u32, action: FilterAction) -> Filter {
    Filter {
        rule: FilterRule::new(name, FilterMatch::Source, action),
        table4: Some(SETS + 2 * set),
        table6: Some(SETS + 2 * set + 1),
        counter: set as u8,
    }
}

/// The same filter for a protocol and ports.
pub fn narrowed(filter: Filter, protocol: Option<u8>, ports: &[RangeInclusive<u16>]) -> Filter {
    Filter { rule: FilterRule { protocol, ports: ports.to_vec(), ..filter.rule }, ..filter }
}

/// Writes the tables of set number `set`.
pub fn write_set(bench: &mut Bench, set: u32, prefixes: &[&str]) {
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match prefix.parse().unwrap() {
            IpPrefix::V4(prefix) => four.push((prefix, 1)),
            IpPrefix::V6(prefix) => six.push((prefix, 1)),
        }
    }
    Table::<u32>::create(&mut bench.image, SETS + 2 * set, four).unwrap();
    Table::<u128>::create(&mut bench.image, SETS + 2 * set + 1, six).unwrap();
}
