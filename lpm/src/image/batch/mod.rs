//! Many lookups at once: in stages, so that the processor waits for many loads at a time. IPv4 takes AVX2, other keys AVX-512.

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512;

use super::layout::REF_OFFSET;
use super::lookup::{Place, Reader, TableReader};
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
    /// Longest matches of `addrs`, in the same order; 0 = no prefix. Quicker than single lookups where the processor has AVX2 (IPv4) or
    /// AVX-512 (other keys), and as quick elsewhere.
    ///
    /// Each address sees one state of the table, but not all of them the same one.
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    pub fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        if self.exact.has_any() {
            return self.by_hash(addrs, values);
        }
        self.by_root(addrs, values);
    }

    /// [`TableReader::lookup_batch`] among the prefixes that stand below the root.
    fn by_root(&self, addrs: &[A], values: &mut [u32]) {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        match (A::FAMILY, Features::of_processor()) {
            // SAFETY: the processor has what they take.
            (4, Features::Avx2 | Features::Avx512) => return unsafe { avx2::batch4(self, addrs, values) },
            // SAFETY: the same.
            (6 | 0, Features::Avx512) => return unsafe { avx512::batch8(self, addrs, values) },
            _ => (),
        }
        self.one_by_one(addrs, values);
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
                let value = self.exact.find(&self.reader, seen, place.name);
                if value != 0 {
                    values[*at] = value;
                } else if place.seen() != seen {
                    values[*at] = self.lookup(addrs[*at]).unwrap_or(0);
                }
            }
        }
    }

    fn one_by_one(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.lookup(*addr).unwrap_or(0);
        }
    }
}

/// Instructions that batches may use.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Features {
    None,
    /// Those of [`avx2`].
    Avx2,
    /// Those of [`avx512`] as well.
    Avx512,
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
impl Features {
    /// Asks the processor once.
    #[inline]
    fn of_processor() -> Self {
        static KNOWN: std::sync::OnceLock<Features> = std::sync::OnceLock::new();
        *KNOWN.get_or_init(|| {
            macro_rules! has {
                ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
            }
            if !has!("avx2" "bmi1" "bmi2" "popcnt") {
                Self::None
            } else if has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vpopcntdq") {
                Self::Avx512
            } else {
                Self::Avx2
            }
        })
    }
}
