//! The traits that one expects of a collection.

use super::{Map, build};
use crate::{Address, Prefix};
use core::fmt;

impl<K: Address, V> Default for Map<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Address, V: Clone> Clone for Map<K, V> {
    /// Builds the image again, without gaps. O(n).
    fn clone(&self) -> Self {
        let (image, table) = build(self.image_bytes(), || self.table.iter());
        Self { image, table, values: self.values.clone() }
    }
}

impl<K: Address, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Address, V: PartialEq> PartialEq for Map<K, V> {
    /// Whether both have the same prefixes with equal values.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Address, V: Eq> Eq for Map<K, V> {}

impl<K: Address, V> FromIterator<(Prefix<K>, V)> for Map<K, V> {
    /// Any order; of equal prefixes the last counts. O(n log n), O(n) if sorted.
    fn from_iter<I: IntoIterator<Item = (Prefix<K>, V)>>(entries: I) -> Self {
        Self::bulk(entries.into_iter().collect())
    }
}

impl<K: Address, V, const N: usize> From<[(Prefix<K>, V); N]> for Map<K, V> {
    fn from(entries: [(Prefix<K>, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Address, V> Extend<(Prefix<K>, V)> for Map<K, V> {
    /// An empty map is built at once, as by `collect`; otherwise each is an insert.
    fn extend<I: IntoIterator<Item = (Prefix<K>, V)>>(&mut self, entries: I) {
        if self.is_empty() {
            *self = entries.into_iter().collect();
            return;
        }
        for (prefix, value) in entries {
            self.insert(prefix, value);
        }
    }
}
