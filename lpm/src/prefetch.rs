//! Asks the processor for memory ahead of its use.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

/// Asks for the line that `at` is in, without waiting for it. It may point anywhere.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: loads nothing, wherever it points to.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
