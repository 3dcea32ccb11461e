//! The ways through a map in order.

use super::{Map, slab::Slab};
use crate::{Address, Prefix};
use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// The prefixes of a [`Map`] with their values, in order. Of [`Map::iter`].
pub struct Iter<'a, K: Address, V>(Box<dyn DoubleEndedIterator<Item = (Prefix<K>, &'a V)> + 'a>);

impl<'a, K: Address, V> Iterator for Iter<'a, K, V> {
    type Item = (Prefix<K>, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<K: Address, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl<K: Address, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// The prefixes of a [`Map`] and their values, taken out of it, in order. Of [`Map::into_iter`].
#[derive(Debug)]
pub struct IntoIter<K: Address, V> {
    prefixes: vec::IntoIter<(Prefix<K>, u32)>,
    values: Slab<V>,
}

impl<K: Address, V> Iterator for IntoIter<K, V> {
    type Item = (Prefix<K>, V);

    fn next(&mut self) -> Option<Self::Item> {
        let (prefix, number) = self.prefixes.next()?;
        Some((prefix, self.values.take(number)?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.prefixes.size_hint()
    }
}

impl<K: Address, V> DoubleEndedIterator for IntoIter<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (prefix, number) = self.prefixes.next_back()?;
        Some((prefix, self.values.take(number)?))
    }
}

impl<K: Address, V> ExactSizeIterator for IntoIter<K, V> {}

impl<K: Address, V> IntoIterator for Map<K, V> {
    type Item = (Prefix<K>, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        let prefixes: vec::Vec<_> = self.table.iter().collect();
        IntoIter { prefixes: prefixes.into_iter(), values: self.values }
    }
}

impl<'a, K: Address, V> IntoIterator for &'a Map<K, V> {
    type Item = (Prefix<K>, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K: Address, V> Map<K, V> {
    /// All prefixes with their values, in order: by address, shorter first. The iterator is one allocation.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.1.0.0/16".parse()?, 'b'), ("10.0.0.0/8".parse()?, 'a')]);
    /// let texts: Vec<_> = map.iter().map(|(prefix, value)| format!("{prefix} {value}")).collect();
    /// assert_eq!(texts, ["10.0.0.0/8 a", "10.1.0.0/16 b"]);
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(Box::new(self.table.iter().filter_map(|entry| self.valued(entry))))
    }

    /// All prefixes from `from` on with their values, in order. O(log n) to start.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// assert!(map.iter_from("10.0.0.0/9".parse()?).map(|(_, value)| *value).eq(['b']));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn iter_from(&self, from: Prefix<K>) -> impl DoubleEndedIterator<Item = (Prefix<K>, &V)> {
        self.table.iter_from(from).filter_map(|entry| self.valued(entry))
    }

    /// All prefixes up to and with `until` with their values, in order; `.rev()` walks down from it. O(log n) to start.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// assert!(map.iter_until("10.2.0.0/16".parse()?).rev().map(|(_, value)| *value).eq(['b', 'a']));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn iter_until(&self, until: Prefix<K>) -> impl DoubleEndedIterator<Item = (Prefix<K>, &V)> {
        self.table.iter_until(until).filter_map(|entry| self.valued(entry))
    }

    /// All prefixes with their values to change, in order. O(n) memory; where the order does not matter, [`Map::values_mut`] needs
    /// none.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (Prefix<K>, &mut V)> {
        let mut values = self.values.borrow_each();
        self.table
            .iter()
            .filter_map(move |(prefix, number)| Some((prefix, values.get_mut(number as usize - 1)?.take()?)))
    }

    /// All prefixes in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = Prefix<K>> + '_ {
        self.table.iter().map(|(prefix, _)| prefix)
    }

    /// All values in the order of their prefixes.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.table.iter().filter_map(|(_, number)| self.values.get(number))
    }

    /// All values to change, in no particular order.
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)]);
    /// map.values_mut().for_each(|value| *value *= 10);
    /// assert!(map.values().eq([&10, &20]));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut()
    }
}
