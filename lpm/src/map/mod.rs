//! An ordered map from prefixes to values of any type, for Rust programs that do not care where the image lives.

mod ip;
mod iter;
mod slab;
mod traits;

pub use ip::{IpIntoIter, IpIter, IpMap};
pub use iter::{IntoIter, Iter};

use crate::ops::{self, Change};
use crate::{Address, Error, HeapMemory, Image, NoReaders, Prefix, Table};
use alloc::vec::Vec;
use slab::Slab;

/// Prefixes of IPv4 addresses and their values.
pub type Ipv4Map<V> = Map<u32, V>;
/// Prefixes of IPv6 addresses and their values.
pub type Ipv6Map<V> = Map<u128, V>;

/// An ordered map from prefixes to values that also finds the longest prefix of an address. For both IP families at once there is
/// [`IpMap`].
///
/// Addresses are integers ([`Address`]), but functions also take types that convert into them: an [`Ipv4Addr`](core::net::Ipv4Addr) in an
/// [`Ipv4Map`], an [`Ipv6Addr`](core::net::Ipv6Addr) in an [`Ipv6Map`].
///
/// [`lookup`](Self::lookup) walks an image (see [`Image`]) that the map owns and makes twice as large when it is full. The ordered prefixes
/// beside it answer everything else. Below, n is the number of prefixes. An empty map takes 64 KiB.
///
/// ```
/// use std::net::Ipv4Addr;
/// use trieline_lpm::Ipv4Map;
///
/// let mut routes = Ipv4Map::new();
/// routes.insert("10.0.0.0/8".parse()?, "office");
/// routes.insert("10.1.0.0/16".parse()?, "lab");
/// assert_eq!(routes.lookup(Ipv4Addr::new(10, 1, 2, 3)), Some(&"lab"));
/// assert_eq!(routes.lookup(Ipv4Addr::new(10, 2, 2, 3)), Some(&"office"));
/// assert_eq!(routes.lookup(Ipv4Addr::new(192, 0, 2, 1)), None);
/// # Ok::<(), trieline_lpm::PrefixError>(())
/// ```
///
/// # Panics
///
/// A change panics when the map would pass the 4 GiB that an image can have (tens of millions of prefixes at least).
pub struct Map<K: Address, V> {
    image: Image<HeapMemory, NoReaders>,
    table: Table<K>,
    values: Slab<V>,
}

/// The map's table in its image's directory.
const ID: u32 = 0;
/// Size of the smallest image, bytes.
const LEAST: usize = 64 << 10;
/// Size of the largest image, bytes.
const MOST: u64 = 1 << 32;

/// Builds `prefixes` in an image of `bytes`, or of twice that for as long as it is too small.
fn build<K: Address, I: IntoIterator<Item = (Prefix<K>, u32)>>(
    mut bytes: usize,
    prefixes: impl Fn() -> I,
) -> (Image<HeapMemory, NoReaders>, Table<K>) {
    loop {
        let built = Image::create(HeapMemory::new(bytes), NoReaders::default(), ID + 1)
            .and_then(|mut image| Ok((Table::create(&mut image, ID, prefixes())?, image)));
        match built {
            Ok((table, image)) => return (image, table),
            Err(error) => bytes = doubled(bytes, error),
        }
    }
}

/// The size after `bytes`, which was too small.
fn doubled(bytes: usize, error: Error) -> usize {
    match (error, bytes.checked_mul(2)) {
        (Error::Full { .. } | Error::Size { .. }, Some(twice)) if twice as u64 <= MOST => twice,
        (error, _) => panic!("the map is full: {error}"),
    }
}

impl<K: Address, V> Map<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty map with memory for about `prefixes` prefixes.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv6Map::<u8>::with_capacity(200_000);
    /// assert!(map.is_empty());
    /// ```
    pub fn with_capacity(prefixes: usize) -> Self {
        let each = if K::WIDTH <= 32 { 16 } else { 32 };
        let bytes = prefixes.saturating_mul(each).clamp(LEAST, (MOST / 2) as usize).next_power_of_two();
        let (image, table) = build(bytes, core::iter::empty);
        Self { image, table, values: Slab::with_capacity(prefixes) }
    }

    /// A map of `entries` in any order; of equal prefixes the last counts. O(n log n), O(n) if sorted.
    fn bulk(mut entries: Vec<(Prefix<K>, V)>) -> Self {
        if !entries.is_sorted_by(|(one, _), (two, _)| one < two) {
            entries.sort_by_key(|(prefix, _)| *prefix);
            entries.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                if is_same {
                    core::mem::swap(next, kept);
                }
                is_same
            });
        }
        let mut values = Slab::with_capacity(entries.len());
        let numbers: Vec<_> =
            entries.into_iter().map(|(prefix, value)| (prefix, values.add(value))).collect();
        let bytes = (numbers.len().saturating_mul(8)).clamp(LEAST, (MOST / 2) as usize).next_power_of_two();
        let (image, table) = build(bytes, || numbers.iter().copied());
        Self { image, table, values }
    }

    /// Runs a change of the table, in an image of twice the size for as long as this one is full.
    fn change<T>(
        &mut self,
        mut change: impl FnMut(&mut Table<K>, &mut Image<HeapMemory, NoReaders>) -> Result<T, Error>,
    ) -> T {
        loop {
            match change(&mut self.table, &mut self.image) {
                Ok(changed) if !self.table.is_withdrawn() => return changed,
                Ok(changed) => {
                    // A removal, for which the image was too small.
                    let size = self.image.stats().size;
                    self.grow(Error::Full { needed: size, size, waiting: 0 });
                    return changed;
                }
                Err(error) => self.grow(error),
            }
        }
    }

    fn grow(&mut self, error: Error) {
        let bytes = doubled(self.image.stats().size as usize, error);
        (self.image, self.table) = build(bytes, || self.table.iter());
    }

    /// Adds a value for `prefix`; returns the value that was there. O(log n + what changes in the image), O(n) when the image must
    /// grow. A changed value costs O(log n) always.
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::new();
    /// assert_eq!(map.insert("192.0.2.0/24".parse()?, 1), None);
    /// assert_eq!(map.insert("192.0.2.0/24".parse()?, 2), Some(1));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn insert(&mut self, prefix: Prefix<K>, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&prefix) {
            return Some(core::mem::replace(old, value));
        }
        self.add(prefix, value);
        None
    }

    /// Adds a prefix that is not there; returns its value's number.
    fn add(&mut self, prefix: Prefix<K>, value: V) -> u32 {
        let number = self.values.add(value);
        self.change(|table, image| table.insert(image, prefix, number));
        number
    }

    /// Removes a prefix; returns its value. O(log n + what changes in the image).
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::from([("192.0.2.0/24".parse()?, 1)]);
    /// assert_eq!(map.remove(&"192.0.2.0/25".parse()?), None);
    /// assert_eq!(map.remove(&"192.0.2.0/24".parse()?), Some(1));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn remove(&mut self, prefix: &Prefix<K>) -> Option<V> {
        let number = self.change(|table, image| table.remove(image, prefix))?;
        self.values.take(number)
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: &Prefix<K>) -> Option<&V> {
        self.values.get(self.table.get(prefix)?)
    }

    /// The value of exactly this prefix, to change. O(log n).
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::from([("192.0.2.0/24".parse()?, 1)]);
    /// if let Some(value) = map.get_mut(&"192.0.2.0/24".parse()?) {
    ///     *value += 1;
    /// }
    /// assert_eq!(map.get(&"192.0.2.0/24".parse()?), Some(&2));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn get_mut(&mut self, prefix: &Prefix<K>) -> Option<&mut V> {
        self.values.get_mut(self.table.get(prefix)?)
    }

    /// The value of exactly this prefix, made by `make` and added where there is none. Complexity as [`Map::insert`].
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::new();
    /// for _ in 0..3 {
    ///     *map.get_or_insert_with("192.0.2.0/24".parse()?, || 0) += 1;
    /// }
    /// assert_eq!(map.get(&"192.0.2.0/24".parse()?), Some(&3));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn get_or_insert_with(&mut self, prefix: Prefix<K>, make: impl FnOnce() -> V) -> &mut V {
        let number = match self.table.get(&prefix) {
            Some(number) => number,
            None => self.add(prefix, make()),
        };
        match self.values.get_mut(number) {
            Some(value) => value,
            None => unreachable!("every number in the table has a value"),
        }
    }

    /// Whether exactly this prefix is there. O(log n).
    pub fn contains_prefix(&self, prefix: &Prefix<K>) -> bool {
        self.table.get(prefix).is_some()
    }

    /// The value of the longest prefix that contains `addr`. O(`WIDTH`) at most, a few memory accesses mostly.
    #[inline]
    pub fn lookup(&self, addr: impl Into<K>) -> Option<&V> {
        self.values.get(self.image.reader().lookup(ID, addr.into())?)
    }

    /// [`Map::lookup`] of every address of `addrs`, into the same place of `values`.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// let mut values = [None; 3];
    /// map.lookup_batch(&[0x0a00_0001, 0x0a01_0001, 0x0b00_0001], &mut values);
    /// assert_eq!(values, [Some(&'a'), Some(&'b'), None]);
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the slices are of different lengths.
    pub fn lookup_batch<'a>(&'a self, addrs: &[K], values: &mut [Option<&'a V>]) {
        assert_eq!(addrs.len(), values.len(), "addresses and values");
        let reader = self.image.reader();
        let mut numbers = [0; 64];
        for (addrs, values) in addrs.chunks(numbers.len()).zip(values.chunks_mut(numbers.len())) {
            let numbers = &mut numbers[..addrs.len()];
            reader.lookup_batch(ID, addrs, numbers);
            for (number, value) in numbers.iter().zip(values) {
                *value = if *number == 0 { None } else { self.values.get(*number) };
            }
        }
    }

    /// The longest prefix that contains `addr`, and its value. O(k log n), k being the number of prefix lengths tried.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// let (prefix, value) = map.lookup_prefix(Ipv4Addr::new(10, 1, 2, 3)).unwrap();
    /// assert_eq!((prefix.to_string().as_str(), value), ("10.1.0.0/16", &'b'));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn lookup_prefix(&self, addr: impl Into<K>) -> Option<(Prefix<K>, &V)> {
        self.valued(self.table.lookup(addr.into())?)
    }

    fn valued(&self, (prefix, number): (Prefix<K>, u32)) -> Option<(Prefix<K>, &V)> {
        Some((prefix, self.values.get(number)?))
    }

    /// All prefixes that contain `addr`, shortest first: the last is that of [`Map::lookup_prefix`].
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// assert!(map.matches(Ipv4Addr::new(10, 1, 2, 3)).map(|(_, value)| *value).eq(['a', 'b']));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn matches(&self, addr: impl Into<K>) -> impl Iterator<Item = (Prefix<K>, &V)> {
        self.table.matches(addr.into()).filter_map(|entry| self.valued(entry))
    }

    /// The prefixes that cover `prefix`, itself included, shortest first.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// assert!(map.covering(&"10.0.0.0/15".parse()?).map(|(_, value)| *value).eq(['a']));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn covering(&self, prefix: &Prefix<K>) -> impl Iterator<Item = (Prefix<K>, &V)> {
        self.table.covering(prefix).filter_map(|entry| self.valued(entry))
    }

    /// The prefixes that `prefix` covers, itself included, in order. O(log n) to start.
    ///
    /// ```
    /// let map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 'a'), ("10.1.0.0/16".parse()?, 'b')]);
    /// assert!(map.covered(&"10.0.0.0/9".parse()?).map(|(_, value)| *value).eq(['b']));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn covered(&self, prefix: &Prefix<K>) -> impl DoubleEndedIterator<Item = (Prefix<K>, &V)> {
        self.table.covered(prefix).filter_map(|entry| self.valued(entry))
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Size of the image, bytes; the ordered prefixes and the values come on top.
    pub fn image_bytes(&self) -> usize {
        self.image.stats().size as usize
    }

    /// Removes everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Keeps the prefixes for which `keep` is true; called in order. O(n), and a [`Map::remove`] for each of the others.
    ///
    /// ```
    /// let mut map = trieline_lpm::Ipv4Map::from([("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)]);
    /// map.retain(|prefix, _| prefix.len() > 8);
    /// assert!(map.values().eq([&2]));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&Prefix<K>, &mut V) -> bool) {
        let values = &mut self.values;
        let is_out = |(prefix, number): &(Prefix<K>, u32)| {
            values.get_mut(*number).is_some_and(|value| !keep(prefix, value))
        };
        let out: Vec<_> = self.table.iter().filter(is_out).collect();
        for (prefix, _) in out {
            self.remove(&prefix);
        }
    }

    /// The prefixes of both maps; where both have one, with this map's value. O(n + m). For other ways to join, see [`ops`].
    ///
    /// ```
    /// use trieline_lpm::Ipv4Map;
    /// let ours = Ipv4Map::from([("10.0.0.0/8".parse()?, 1)]);
    /// let theirs = Ipv4Map::from([("10.0.0.0/8".parse()?, 2), ("10.1.0.0/16".parse()?, 2)]);
    /// assert!(ours.union(&theirs).values().eq([&1, &2]));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn union(&self, other: &Self) -> Self
    where
        V: Clone,
    {
        Self::bulk(ops::union(self, other).map(|(prefix, value)| (prefix, value.clone())).collect())
    }

    /// The prefixes that `other` does not have. O(n + m).
    pub fn difference<W>(&self, other: &Map<K, W>) -> Self
    where
        V: Clone,
    {
        Self::bulk(ops::difference(self, other).map(|(prefix, value)| (prefix, value.clone())).collect())
    }

    /// The changes that make this map `new`, in order. O(n + m).
    ///
    /// ```
    /// use trieline_lpm::{Ipv4Map, ops::Change};
    /// let old = Ipv4Map::from([("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 1)]);
    /// let new = Ipv4Map::from([("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)]);
    /// assert!(old.diff(&new).eq([("10.1.0.0/16".parse()?, Change::Changed { from: &1, to: &2 })]));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn diff<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = (Prefix<K>, Change<&'a V>)>
    where
        V: PartialEq,
    {
        ops::diff(self, new)
    }

    /// The smallest map with the same answer for every address: [`ops::aggregate`].
    ///
    /// ```
    /// use trieline_lpm::Ipv4Map;
    /// let map = Ipv4Map::from([("10.0.0.0/9".parse()?, 'a'), ("10.128.0.0/9".parse()?, 'a')]);
    /// assert_eq!(map.aggregate(), Ipv4Map::from([("10.0.0.0/8".parse()?, 'a')]));
    /// # Ok::<(), trieline_lpm::PrefixError>(())
    /// ```
    pub fn aggregate(&self) -> Self
    where
        V: Ord + Clone,
    {
        Self::bulk(ops::aggregate(self).into_iter().map(|(prefix, value)| (prefix, value.clone())).collect())
    }
}
