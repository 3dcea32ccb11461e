//! Filters and the sets that they name.

use trieline_dataplane::{Filter, FilterAction};
use trieline_lpm::{IpPrefix, Table};

use super::Bench;

/// Ids of the tests' tables: a set's IPv4 and IPv6 prefixes each.
const SETS: u32 = 2;

/// A filter of what comes from the addresses of set number `set`, with that counter.
pub fn filter(name: &str, set: u32, action: FilterAction) -> Filter {
    Filter {
        name: name.into(),
        source: true,
        action,
        protocol: None,
        ports: Vec::new(),
        table4: Some(SETS + 2 * set),
        table6: Some(SETS + 2 * set + 1),
        counter: set as u8,
    }
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
