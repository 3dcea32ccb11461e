//! Many lookups at once: in stages, so that the processor waits for many loads at a time. They take AVX2.

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod ipv4;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod ipv6;

use super::layout::REF_OFFSET;
use super::lookup::{Reader, TableReader};
use super::place::Place;
use super::words::ahead;
use crate::Address;

impl Reader<'_> {
    /// Longest matches of `addrs` in table `id`, in the same order; 0 = no prefix or no such table. See
    /// [`TableReader::lookup_batch`].
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    pub fn lookup_batch<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        match self.table::<A>(id) {
            Some(table) => table.lookup_batch(addrs, values),
            None => values.fill(0),
        }
    }

    /// [`Reader::lookup_batch`] by instructions that every processor has; for comparison.
    #[doc(hidden)]
    pub fn lookup_batch_portable<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        match self.table::<A>(id) {
            Some(table) => table.one_by_one(addrs, values),
            None => values.fill(0),
        }
    }
}

impl<A: Address> TableReader<'_, A> {
    /// Longest matches of `addrs`, in the same order; 0 = no prefix. Quicker than single lookups of IPv4 and IPv6 where the
    /// processor has AVX2, and as quick elsewhere.
    ///
    /// Each address sees one state of the table, but not all of them the same one.
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    pub fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        match self.exact.has_any() {
            true if self.has_batch() => self.by_hash(addrs, values),
            true => self.one_by_one(addrs, values),
            false => self.by_root(addrs, values),
        }
    }

    /// [`TableReader::lookup_batch`] among the prefixes that stand below the root.
    fn by_root(&self, addrs: &[A], values: &mut [u32]) {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        match A::FAMILY {
            // SAFETY: the processor has what they take.
            4 if self.has_batch() => return unsafe { ipv4::batch4(self, addrs, values) },
            // SAFETY: the same.
            6 if self.has_batch() => return unsafe { ipv6::batch6(self, addrs, values) },
            _ => (),
        }
        self.one_by_one(addrs, values);
    }

    /// Whether there is a quicker way than one by one, and the processor has what it takes.
    #[inline]
    fn has_batch(&self) -> bool {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        return A::FAMILY != 0 && has_features();
        #[cfg(not(all(target_arch = "x86_64", feature = "std", not(miri))))]
        false
    }

    /// In a table with a hash table: the loads of each stage are asked for before the first is waited for. Keys that it has get their values at
    /// the end.
    fn by_hash(&self, addrs: &[A], values: &mut [u32]) {
        const MANY: usize = 64;
        let (mut keys, mut seen) = ([None::<(usize, Place<'_>)>; MANY], [0; MANY]);
        for (addrs, values) in addrs.chunks(MANY).zip(values.chunks_mut(MANY)) {
            let mut count = 0;
            for (at, addr) in addrs.iter().enumerate() {
                if let Some(place) = self.place_of(*addr) {
                    keys[count] = Some((at, place));
                    count += 1;
                }
            }
            let keys = &keys[..count];
            for ((_, place), seen) in keys.iter().flatten().zip(&mut seen) {
                *seen = place.seen();
                ahead(self.reader.words, (*seen & REF_OFFSET) as usize * 2);
            }
            self.by_root(addrs, values);
            for ((at, place), seen) in keys.iter().flatten().zip(seen) {
                let value = place.find(self.reader.words, self.reader.end, seen);
                if value != 0 {
                    values[*at] = value;
                } else if place.seen() != seen {
                    values[*at] = self.lookup(addrs[*at]).unwrap_or(0);
                }
            }
            if self.has_changed() {
                self.lookups_again(addrs, values);
            }
        }
    }

    /// Looks up in the table as it is now, found once for all addresses.
    #[cold]
    #[inline(never)]
    pub(super) fn lookups_again(&self, addrs: &[A], values: &mut [u32]) {
        match self.reader.table_narrow(self.id, self.key_bits) {
            Some(table) => table.one_by_one(addrs, values),
            None => values.fill(0),
        }
    }

    fn one_by_one(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.lookup(*addr).unwrap_or(0);
        }
    }
}

/// Whether the processor has the instructions that batches take. Asks once.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[inline]
fn has_features() -> bool {
    static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    macro_rules! has {
        ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    *KNOWN.get_or_init(|| has!("avx2" "bmi1" "bmi2" "popcnt"))
}
