//! Many lookups at once: with AVX-512 in stages, so that the processor waits for many loads at a time.

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512;

use super::lookup::{Reader, TableReader};
use crate::Address;

impl Reader<'_> {
    /// Longest matches of `addrs` in table `id`, in the same order; 0 = no prefix or no such table. Quicker than single lookups where
    /// the processor has AVX-512, and as quick elsewhere.
    ///
    /// Each address sees one state of the table, but not all of them the same one.
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    pub fn lookup_batch<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        let Some(table) = self.table::<A>(id) else { return values.fill(0) };
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        if avx512::is_there() {
            // SAFETY: the processor has what they take.
            return unsafe {
                if A::FAMILY == 4 {
                    avx512::batch4(&table, addrs, values);
                } else {
                    avx512::batch8(&table, addrs, values);
                }
            };
        }
        table.one_by_one(addrs, values);
    }

    /// [`Reader::lookup_batch`] by instructions that every processor has; for comparison.
    #[doc(hidden)]
    pub fn lookup_batch_portable<A: Address>(&self, id: u32, addrs: &[A], values: &mut [u32]) {
        assert_eq!(addrs.len(), values.len(), "an answer for each address");
        let Some(table) = self.table::<A>(id) else { return values.fill(0) };
        table.one_by_one(addrs, values);
    }
}

impl<A: Address> TableReader<'_, A> {
    fn one_by_one(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.lookup(*addr).unwrap_or(0);
        }
    }
}
