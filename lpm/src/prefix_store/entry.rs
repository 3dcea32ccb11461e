//! How a prefix and its value lie in a bucket: one 64-bit word for IPv4, three for IPv6, the plain fields for any other key.

use crate::prefix::{Entry, Stored};
use crate::{Address, Key, Prefix};
use core::cmp::Ordering;

/// An IPv4 prefix and its value: 32 address bits with a 1 behind the prefix's last (33 bits), then 31 of the value; 0 = free.
#[derive(Clone, Copy, Debug)]
pub struct Packed(u64);

impl Packed {
    /// Address, then length, as one number; the highest of all if free.
    #[inline]
    fn rank(self) -> u64 {
        let marked = self.0 >> 31;
        let addr = marked & marked.wrapping_sub(1);
        (addr << 5).wrapping_add(32u64.wrapping_sub(marked.trailing_zeros().into()))
    }
}

impl Entry<u32> for Packed {
    type Key = u64;

    #[inline]
    fn free() -> Self {
        Self(0)
    }
    #[inline]
    fn is_free(&self) -> bool {
        self.0 == 0
    }
    #[inline]
    fn new(prefix: &Prefix<u32>, value: u32) -> Self {
        let marked = u64::from(prefix.addr()) << 1 | 1 << (32 - prefix.len());
        Self(marked << 31 | u64::from(value))
    }
    #[inline]
    fn addr(&self) -> u32 {
        let marked = self.0 >> 31;
        ((marked & marked.wrapping_sub(1)) >> 1) as u32
    }
    #[inline]
    fn len(&self) -> u16 {
        32 - (self.0 >> 31).trailing_zeros() as u16
    }
    #[inline]
    fn value(&self) -> u32 {
        self.0 as u32 & (u32::MAX >> 1)
    }
    #[inline]
    fn key(prefix: &Prefix<u32>) -> u64 {
        u64::from(prefix.addr()) << 6 | u64::from(prefix.len())
    }
    #[inline]
    fn covers(&self, addr: u32) -> bool {
        let marked = self.0 >> 31;
        (marked ^ u64::from(addr) << 1) >> marked.trailing_zeros() >> 1 == 0
    }
    #[inline]
    fn compare(&self, key: &u64) -> Ordering {
        self.rank().cmp(key)
    }
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl Stored for u32 {
    type Entry = Packed;

    #[inline]
    fn with_bits(self, at: u16, bits: u16, index: usize) -> Self {
        if bits == 0 { self } else { self | (index as u32) << (Self::WIDTH - at - bits) }
    }
}

/// An IPv6 prefix and its value in 24 bytes (the plain fields are aligned to 16 and take 32).
#[derive(Clone, Copy, Debug)]
pub struct Halves {
    high: u64,
    low: u64,
    value: u32,
    len: u16,
}

impl Entry<u128> for Halves {
    type Key = (u128, u16);

    #[inline]
    fn free() -> Self {
        Self { high: u64::MAX, low: u64::MAX, value: 0, len: u16::MAX }
    }
    #[inline]
    fn is_free(&self) -> bool {
        self.len == u16::MAX
    }
    #[inline]
    fn new(prefix: &Prefix<u128>, value: u32) -> Self {
        let addr = prefix.addr();
        Self { high: (addr >> 64) as u64, low: addr as u64, value, len: prefix.len() }
    }
    #[inline]
    fn addr(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
    #[inline]
    fn len(&self) -> u16 {
        self.len
    }
    #[inline]
    fn value(&self) -> u32 {
        self.value
    }
    #[inline]
    fn key(prefix: &Prefix<u128>) -> (u128, u16) {
        (prefix.addr(), prefix.len())
    }
    #[inline]
    fn covers(&self, addr: u128) -> bool {
        self.addr().common_bits(addr) >= self.len
    }
    #[inline]
    fn compare(&self, key: &(u128, u16)) -> Ordering {
        (self.addr(), self.len).cmp(key)
    }
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        (self.addr(), self.len).cmp(&(other.addr(), other.len))
    }
}

impl Stored for u128 {
    type Entry = Halves;

    #[inline]
    fn with_bits(self, at: u16, bits: u16, index: usize) -> Self {
        if bits == 0 { self } else { self | (index as u128) << (Self::WIDTH - at - bits) }
    }
}

/// Any other prefix and its value.
#[derive(Clone, Copy, Debug)]
pub struct Plain<A> {
    addr: A,
    len: u16,
    value: u32,
}

impl<A: Address> Entry<A> for Plain<A> {
    type Key = Prefix<A>;

    fn free() -> Self {
        Self { addr: A::ZERO.filled(0), len: u16::MAX, value: 0 }
    }
    #[inline]
    fn is_free(&self) -> bool {
        self.len == u16::MAX
    }
    fn new(prefix: &Prefix<A>, value: u32) -> Self {
        Self { addr: prefix.addr(), len: prefix.len(), value }
    }
    fn addr(&self) -> A {
        self.addr
    }
    fn len(&self) -> u16 {
        self.len
    }
    fn value(&self) -> u32 {
        self.value
    }
    fn key(prefix: &Prefix<A>) -> Prefix<A> {
        *prefix
    }
    #[inline]
    fn covers(&self, addr: A) -> bool {
        self.addr.common_bits(addr) >= self.len
    }
    #[inline]
    fn compare(&self, key: &Prefix<A>) -> Ordering {
        self.addr.cmp(&key.addr()).then(self.len.cmp(&key.len()))
    }
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.addr.cmp(&other.addr).then(self.len.cmp(&other.len))
    }
}

impl<const BITS: u16, const BYTES: usize> Stored for Key<BITS, BYTES> {
    type Entry = Plain<Self>;

    fn with_bits(self, at: u16, bits: u16, index: usize) -> Self {
        if bits == 0 {
            return self;
        }
        let mut bytes = *self.bytes();
        // At most 24 bits that begin inside a byte: they lie in four.
        let word = ((index as u64) << (64 - u32::from(bits))) >> (at % 8);
        for (to, from) in bytes.iter_mut().skip(usize::from(at / 8)).zip(word.to_be_bytes()) {
            *to |= from;
        }
        Self::new(bytes)
    }
}
