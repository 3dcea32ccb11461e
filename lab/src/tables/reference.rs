//! The answers that lookups are compared with: one hash set a prefix length, tried from the longest on. Nothing in common with
//! the structures under test, and quick enough for a million addresses.

use std::collections::HashMap;

use trieline_lpm::{Address, Prefix};

/// Longest match by trying every length.
pub struct Reference<A> {
    lengths: Vec<(u16, HashMap<A, u32>)>,
}

impl<A: Address> Reference<A> {
    /// Of distinct prefixes with their values.
    pub fn new(prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>) -> Reference<A> {
        let mut lengths: HashMap<u16, HashMap<A, u32>> = HashMap::new();
        for (prefix, value) in prefixes {
            lengths.entry(prefix.len()).or_default().insert(prefix.addr(), value);
        }
        let mut lengths: Vec<_> = lengths.into_iter().collect();
        lengths.sort_by_key(|(len, _)| std::cmp::Reverse(*len));
        Reference { lengths }
    }

    /// The value of the longest prefix that contains `address`; 0 = none.
    pub fn lookup(&self, address: A) -> u32 {
        self.lengths.iter().find_map(|(len, of)| of.get(&address.masked(*len)).copied()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Random, destinations::random_host, generate::internet};
    use trieline_lpm::oracle::Oracle;

    #[test]
    fn agrees_with_the_list_searched_from_end_to_end() {
        let prefixes = internet::<u32>(3000, 3);
        let mut oracle = Oracle::new();
        for (i, prefix) in prefixes.iter().enumerate() {
            oracle.insert(*prefix, i as u32 + 1);
        }
        let reference = Reference::new(prefixes.iter().enumerate().map(|(i, p)| (*p, i as u32 + 1)));
        let mut random = Random::new(4);
        for i in 0..3000 {
            let address = if i % 4 == 0 { random.bits() as u32 } else { random_host(&prefixes, &mut random) };
            assert_eq!(reference.lookup(address), oracle.lookup(address).map_or(0, |(_, value)| value));
        }
    }
}
