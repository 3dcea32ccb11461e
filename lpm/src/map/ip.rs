//! One map for both IP families.

use super::{IntoIter, Ipv4Map, Ipv6Map, Iter};
use crate::{IpPrefix, Prefix};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An ordered map from IPv4 and IPv6 prefixes to values that also finds the longest prefix of an address. It is an [`Ipv4Map`] and an
/// [`Ipv6Map`], with the complexities of [`Map`](super::Map). IPv4 comes first. An address such as `::ffff:192.0.2.1` is IPv6 and
/// matches IPv6 prefixes only.
///
/// ```
/// use trieline_lpm::IpMap;
///
/// let mut rules = IpMap::new();
/// rules.insert("192.0.2.0/24".parse()?, "deny");
/// rules.insert("2001:db8::/32".parse()?, "allow");
/// assert_eq!(rules.lookup("192.0.2.7".parse()?), Some(&"deny"));
/// assert_eq!(rules.lookup("2001:db8::7".parse()?), Some(&"allow"));
///
/// let mut lines = Vec::new();
/// for (prefix, rule) in &rules {
///     lines.push(format!("{prefix} {rule}"));
/// }
/// assert_eq!(lines, ["192.0.2.0/24 deny", "2001:db8::/32 allow"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct IpMap<V> {
    /// The IPv4 prefixes.
    pub v4: Ipv4Map<V>,
    /// The IPv6 prefixes.
    pub v6: Ipv6Map<V>,
}

impl<V> IpMap<V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { v4: Ipv4Map::new(), v6: Ipv6Map::new() }
    }

    /// Adds a value for `prefix`; returns the value that was there.
    pub fn insert(&mut self, prefix: IpPrefix, value: V) -> Option<V> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.insert(prefix, value),
            IpPrefix::V6(prefix) => self.v6.insert(prefix, value),
        }
    }

    /// Removes a prefix; returns its value.
    pub fn remove(&mut self, prefix: &IpPrefix) -> Option<V> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.remove(prefix),
            IpPrefix::V6(prefix) => self.v6.remove(prefix),
        }
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: &IpPrefix) -> Option<&V> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.get(prefix),
            IpPrefix::V6(prefix) => self.v6.get(prefix),
        }
    }

    /// The value of exactly this prefix, to change.
    pub fn get_mut(&mut self, prefix: &IpPrefix) -> Option<&mut V> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.get_mut(prefix),
            IpPrefix::V6(prefix) => self.v6.get_mut(prefix),
        }
    }

    /// The value of exactly this prefix, made by `make` and added where there is none.
    pub fn get_or_insert_with(&mut self, prefix: IpPrefix, make: impl FnOnce() -> V) -> &mut V {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.get_or_insert_with(prefix, make),
            IpPrefix::V6(prefix) => self.v6.get_or_insert_with(prefix, make),
        }
    }

    /// Whether exactly this prefix is there.
    pub fn contains_prefix(&self, prefix: &IpPrefix) -> bool {
        self.get(prefix).is_some()
    }

    /// The value of the longest prefix that contains `addr`.
    #[inline]
    pub fn lookup(&self, addr: IpAddr) -> Option<&V> {
        match addr {
            IpAddr::V4(addr) => self.v4.lookup(addr),
            IpAddr::V6(addr) => self.v6.lookup(addr),
        }
    }

    /// The longest prefix that contains `addr`, and its value.
    ///
    /// ```
    /// let rules = trieline_lpm::IpMap::from_iter([("192.0.2.0/24".parse()?, "deny")]);
    /// assert_eq!(rules.lookup_prefix("192.0.2.7".parse()?), Some(("192.0.2.0/24".parse()?, &"deny")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lookup_prefix(&self, addr: IpAddr) -> Option<(IpPrefix, &V)> {
        match addr {
            IpAddr::V4(addr) => self.v4.lookup_prefix(addr).map(|(prefix, value)| (prefix.into(), value)),
            IpAddr::V6(addr) => self.v6.lookup_prefix(addr).map(|(prefix, value)| (prefix.into(), value)),
        }
    }

    /// All prefixes with their values, in order, IPv4 first. The iterator is two allocations.
    pub fn iter(&self) -> IpIter<'_, V> {
        IpIter { v4: self.v4.iter(), v6: self.v6.iter() }
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

/// The prefixes of an [`IpMap`] with their values, in order. Of [`IpMap::iter`].
#[derive(Debug)]
pub struct IpIter<'a, V> {
    v4: Iter<'a, u32, V>,
    v6: Iter<'a, u128, V>,
}

impl<'a, V> Iterator for IpIter<'a, V> {
    type Item = (IpPrefix, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let v4 = self.v4.next().map(|(prefix, value)| (prefix.into(), value));
        v4.or_else(|| self.v6.next().map(|(prefix, value)| (prefix.into(), value)))
    }
}

impl<V> DoubleEndedIterator for IpIter<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let v6 = self.v6.next_back().map(|(prefix, value)| (prefix.into(), value));
        v6.or_else(|| self.v4.next_back().map(|(prefix, value)| (prefix.into(), value)))
    }
}

impl<'a, V> IntoIterator for &'a IpMap<V> {
    type Item = (IpPrefix, &'a V);
    type IntoIter = IpIter<'a, V>;

    fn into_iter(self) -> IpIter<'a, V> {
        self.iter()
    }
}

/// The prefixes of an [`IpMap`] and their values, taken out of it, in order. Of [`IpMap::into_iter`].
#[derive(Debug)]
pub struct IpIntoIter<V> {
    v4: IntoIter<u32, V>,
    v6: IntoIter<u128, V>,
}

impl<V> Iterator for IpIntoIter<V> {
    type Item = (IpPrefix, V);

    fn next(&mut self) -> Option<Self::Item> {
        let v4 = self.v4.next().map(|(prefix, value)| (prefix.into(), value));
        v4.or_else(|| self.v6.next().map(|(prefix, value)| (prefix.into(), value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.v4.len() + self.v6.len();
        (len, Some(len))
    }
}

impl<V> DoubleEndedIterator for IpIntoIter<V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let v6 = self.v6.next_back().map(|(prefix, value)| (prefix.into(), value));
        v6.or_else(|| self.v4.next_back().map(|(prefix, value)| (prefix.into(), value)))
    }
}

impl<V> ExactSizeIterator for IpIntoIter<V> {}

impl<V> IntoIterator for IpMap<V> {
    type Item = (IpPrefix, V);
    type IntoIter = IpIntoIter<V>;

    fn into_iter(self) -> IpIntoIter<V> {
        IpIntoIter { v4: self.v4.into_iter(), v6: self.v6.into_iter() }
    }
}

impl<V> Default for IpMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: fmt::Debug> fmt::Debug for IpMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V> Extend<(IpPrefix, V)> for IpMap<V> {
    fn extend<I: IntoIterator<Item = (IpPrefix, V)>>(&mut self, entries: I) {
        let (mut v4, mut v6) = (alloc::vec::Vec::new(), alloc::vec::Vec::new());
        for (prefix, value) in entries {
            match prefix {
                IpPrefix::V4(prefix) => v4.push((prefix, value)),
                IpPrefix::V6(prefix) => v6.push((prefix, value)),
            }
        }
        self.v4.extend(v4);
        self.v6.extend(v6);
    }
}

impl<V> FromIterator<(IpPrefix, V)> for IpMap<V> {
    /// Any order; of equal prefixes the last counts.
    fn from_iter<I: IntoIterator<Item = (IpPrefix, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<V, const N: usize> From<[(IpPrefix, V); N]> for IpMap<V> {
    fn from(entries: [(IpPrefix, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl From<Prefix<u32>> for IpPrefix {
    fn from(prefix: Prefix<u32>) -> Self {
        Self::V4(prefix)
    }
}

impl From<Prefix<u128>> for IpPrefix {
    fn from(prefix: Prefix<u128>) -> Self {
        Self::V6(prefix)
    }
}

impl From<Ipv4Addr> for Prefix<u32> {
    /// The prefix that contains only this address.
    fn from(addr: Ipv4Addr) -> Self {
        Self::host(addr.into())
    }
}

impl From<Ipv6Addr> for Prefix<u128> {
    /// The prefix that contains only this address.
    fn from(addr: Ipv6Addr) -> Self {
        Self::host(addr.into())
    }
}

impl From<IpAddr> for IpPrefix {
    /// The prefix that contains only this address.
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::V4(addr.into()),
            IpAddr::V6(addr) => Self::V6(addr.into()),
        }
    }
}
