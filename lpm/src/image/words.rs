//! How an image's words are read: checked where an offset comes from anywhere, unchecked inside a node whose beginning was checked.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use super::layout::{DIR_ENTRY, DIRECTORY, GUARD, NODE8_BEFORE, UNIT};
use crate::prefetch::prefetch;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

// Readers of files load (acquire) from pages that they may not write to, also 64 bits. The language promises that for relaxed loads of 32 bits
// only. On these processors such a load is a load, perhaps with a fence, and stores nothing.
#[cfg(all(
    any(feature = "shm", feature = "snapshot"),
    not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64"
    ))
))]
compile_error!("acquire loads from read-only memory are known to work on other processors only");

#[cfg(target_endian = "big")]
compile_error!("an image is little-endian and read in place");

/// Loads the 32-bit word at byte offset `at`; 0 outside the image, as an arena page that was never filled.
#[inline(always)]
pub(super) fn load(words: &[AtomicU32], at: u32) -> u32 {
    words.get(at as usize / 4).map_or(0, |word| word.load(Ordering::Acquire))
}

/// Loads the 64 bits at byte offset `at`.
#[inline(always)]
pub(super) fn load64(words: &[AtomicU32], at: u32) -> u64 {
    u64::from(load(words, at)) | u64::from(load(words, at.wrapping_add(4))) << 32
}

/// The directory's entry of table `id`: where its root is and, in the high half, a count of changes of that and of its fallback. The count is
/// odd while a fallback changes. None outside the image. Whatever loads or stores an entry takes both halves at once.
#[inline(always)]
pub(super) fn entry(words: &[AtomicU32], id: u32) -> Option<&AtomicU64> {
    const WORDS: usize = DIR_ENTRY as usize / 4;
    let at = (DIRECTORY as usize / 4).wrapping_add((id as usize).wrapping_mul(WORDS));
    let entry: &[AtomicU32; WORDS] = words.get(at..)?.first_chunk()?;
    let entry: *const AtomicU64 = entry.as_ptr().cast();
    // A reader of memory that begins elsewhere is refused.
    debug_assert!(entry.is_aligned());
    // SAFETY: both words lie in the image, which begins at a multiple of eight bytes, as the directory does in it.
    Some(unsafe { &*entry })
}

/// Begins a change of the fallback of table `id`, or ends it. There is one writer.
pub(super) fn count_change(words: &[AtomicU32], id: u32) {
    let Some(entry) = entry(words, id) else { return };
    let before = entry.load(Ordering::Relaxed);
    entry.swap(before.wrapping_add(1 << 32), Ordering::AcqRel);
}

/// Lets the [`entry`] of table `id` lead to `word`; returns where it led. The count is even then, whatever it was.
pub(super) fn swing(words: &[AtomicU32], id: u32, word: u32) -> u32 {
    let Some(entry) = entry(words, id) else { return 0 };
    let changes = (entry.load(Ordering::Relaxed) >> 32).wrapping_add(2) & !1;
    entry.swap(changes << 32 | u64::from(word), Ordering::AcqRel) as u32
}

/// Whether the fallback changes right now, in the table of `entry`.
#[inline(always)]
pub(super) fn is_changing(entry: u64) -> bool {
    entry >> 32 & 1 != 0
}

/// The word that says where the root of table `id` is: the low half of its [`entry`]; 0 = no such table.
#[inline]
pub(super) fn directory(words: &[AtomicU32], id: u32) -> u32 {
    entry(words, id).map_or(0, |entry| entry.load(Ordering::Acquire) as u32)
}

/// The first unit of the guard, at which and behind which no node begins.
pub(super) fn end(words: &[AtomicU32]) -> u32 {
    const UNIT_WORDS: usize = UNIT as usize / 4;
    (words.len().saturating_sub(GUARD as usize / 4) / UNIT_WORDS) as u32
}

/// Loads the 32-bit word at index `at`.
///
/// # Safety
///
/// `at` is less than the number of words: it lies in a node that begins before [`end`].
#[inline(always)]
pub(super) unsafe fn near(words: &[AtomicU32], at: usize) -> u32 {
    debug_assert!(at < words.len());
    // SAFETY: the caller's promise.
    unsafe { words.get_unchecked(at) }.load(Ordering::Acquire)
}

/// Asks for the line of the word at index `at`, wherever that is, without waiting for it.
#[inline(always)]
pub(crate) fn ahead(words: &[AtomicU32], at: usize) {
    prefetch(words.as_ptr().wrapping_add(at));
}

/// Loads the 64 bits at word index `at`, an even number.
///
/// # Safety
///
/// As [`near`], for both words. An image begins at a multiple of eight bytes ([`crate::Memory`]).
///
/// Two accesses of different sizes must not race. None does: only words that never change while a reader can find them (starts of
/// runs, buckets) are loaded so. The word that leads to them was stored (release) after them.
#[inline(always)]
pub(super) unsafe fn near64(words: &[AtomicU32], at: usize) -> u64 {
    debug_assert!(words.get(at..).is_some_and(|rest| rest.len() > 1) && at.is_multiple_of(2));
    // SAFETY: inside by the caller's promise, aligned because the image is and `at` is even.
    unsafe { &*words.as_ptr().add(at).cast::<AtomicU64>() }.load(Ordering::Acquire)
}

/// Loads the byte of run `run`, counted from 1, of a leaf6 or leaf8 at word index `node`; their bytes begin behind `REFS`.
///
/// # Safety
///
/// As [`near`], for the word that the byte lies in.
#[inline(always)]
pub(super) unsafe fn near_code<const REFS: u32>(words: &[AtomicU32], node: usize, run: usize) -> usize {
    let at = node.wrapping_mul(4).wrapping_add(run);
    debug_assert!(at.wrapping_add((REFS as usize).wrapping_sub(1)) / 4 < words.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // A writer may store the whole word meanwhile, and atomic accesses of different sizes must not race. To this processor, a load of one
    // byte is the load of its word. So it is what a load of the word and a shift may compile to, which the compiler does not see.
    // SAFETY: the caller's promise.
    unsafe {
        let code: usize;
        core::arch::asm!(
            "movzx {code:e}, byte ptr [{words} + {at} + {codes}]",
            code = lateout(reg) code,
            words = in(reg) words.as_ptr(),
            at = in(reg) at,
            codes = const REFS - 1,
            options(readonly, nostack, preserves_flags),
        );
        core::hint::assert_unchecked(code <= 0xff);
        code
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let at = at.wrapping_add((REFS as usize).wrapping_sub(1));
        // Of the shift the last five bits count: eight times the byte's place in the word.
        // SAFETY: the caller's promise.
        unsafe { near(words, at / 4) }.wrapping_shr((at as u32) << 3) as usize & 0xff
    }
}

/// For the run that the node8 or leaf8 at the first of `node` has for `slot`: bits to count, and a number to add. The first run is 1.
///
/// # Safety
///
/// As [`near`], for all words of the node. `slot` is less than 256.
#[inline(always)]
pub(super) unsafe fn run8(node: &[AtomicU32], slot: u64) -> (u64, usize) {
    let word = (slot >> 6) as usize;
    // SAFETY: the caller's promise.
    let (starts, before) =
        unsafe { (near64(node, word.wrapping_mul(2)), near_code::<{ NODE8_BEFORE + 1 }>(node, 0, word)) };
    // A shift takes six bits.
    (starts.wrapping_shl(!slot as u32), before)
}

/// Number of set bits, by the instruction if `popcnt` is set: the processor has it.
#[inline(always)]
pub(super) fn count_ones(bits: u64, popcnt: bool) -> u32 {
    // SAFETY: the processor has the instruction.
    if popcnt { unsafe { popcount(bits) as u32 } } else { bits.count_ones() }
}

/// Number of set bits, without asking.
///
/// # Safety
///
/// Requires [`has_popcnt`]: the processor has the instruction.
#[inline(always)]
pub(super) unsafe fn popcount(bits: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(target_feature = "popcnt"), not(miri)))]
    {
        // Inline assembly, because a function with a target feature of its own could not be inlined into a caller without.
        let count: u64;
        // SAFETY: the processor has the instruction, which reads and writes registers only.
        unsafe {
            core::arch::asm!("popcnt {}, {}", out(reg) count, in(reg) bits, options(pure, nomem, nostack));
        }
        count as usize
    }
    #[cfg(not(all(target_arch = "x86_64", not(target_feature = "popcnt"), not(miri))))]
    {
        bits.count_ones() as usize
    }
}

/// The positions of the set bits below the N-th.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[inline(always)]
pub(super) fn ones<const N: usize>(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (at < N).then_some(at)
    })
}

/// Whether [`popcount`] may be used. Asks the processor once.
pub(super) fn has_popcnt() -> bool {
    const UNKNOWN: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let has = core::arch::x86_64::__cpuid(1).ecx & 1 << 23 != 0;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let has = true;
    KNOWN.store(has.into(), Ordering::Relaxed);
    has
}
