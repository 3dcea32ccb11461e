//! Addresses and prefixes as integers in host order, the key of every table.

use alloc::string::{String, ToString};
use core::cmp::Ordering;
use core::fmt;
use core::hash::Hash;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// `TL_VALUE_MAX`: the largest value of a prefix.
pub const VALUE_MAX: u32 = 0x7fff_ffff;

/// The key that a table is searched for: `u32` for IPv4 and `u128` for IPv6, integers in host order (192.0.2.1 is `0xc0000201`). For any
/// other width it is [`Key`](crate::Key).
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static + Stored {
    /// Width in bits, 1 ... 2048.
    const WIDTH: u16;
    /// `4`, `6` or, for a [`Key`](crate::Key), `0`; as in the table header's `key_family`.
    const FAMILY: u8;
    /// The address of all zero bits.
    const ZERO: Self;
    /// The `bits` bits that begin `at` bits from the left, as a number. Bits past the end are 0. `bits` ≤ 32.
    fn bits_at(self, at: u16, bits: u16) -> usize;
    /// The 64 bits that begin `at` bits from the left, those past the end 0.
    fn word_at(self, at: u16) -> u64;
    /// Clears every bit from `len` on.
    fn masked(self, len: u16) -> Self;
    /// Sets every bit from `len` on.
    fn filled(self, len: u16) -> Self;
    /// Number of leading bits that both share.
    fn common_bits(self, other: Self) -> u16;
    /// The address whose first `bits` bits are `index` and the rest 0. `bits` ≤ 24.
    fn from_index(index: usize, bits: u16) -> Self;
    /// Text form (dotted quad, RFC 5952).
    fn format(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    /// Parses the text form.
    fn parse(text: &str) -> Option<Self>;
    /// An example of a prefix, for messages.
    fn example() -> String;
}

/// The operations that the prefix store needs of an address beyond [`Address`]; implemented by the crate's own addresses only.
pub trait Stored: Sized {
    /// A prefix of such addresses, and its value.
    type Entry: Entry<Self>;

    /// The address with the `bits` bits from `at` on, zero until now, set to `index`. `bits` ≤ 24.
    fn with_bits(self, at: u16, bits: u16, index: usize) -> Self;
}

/// A prefix and its value (1 ... 2^31-1), or a free place, which is ordered behind all prefixes.
pub trait Entry<A>: Copy + fmt::Debug + Send + Sync + 'static {
    /// The key that entries are compared with.
    type Key: Ord;

    /// A free place.
    fn free() -> Self;
    fn is_free(&self) -> bool;
    fn new(prefix: &Prefix<A>, value: u32) -> Self;
    fn addr(&self) -> A;
    fn len(&self) -> u16;
    fn value(&self) -> u32;
    fn key(prefix: &Prefix<A>) -> Self::Key;
    /// Whether `addr` lies in its prefix.
    fn covers(&self, addr: A) -> bool;
    fn compare(&self, key: &Self::Key) -> Ordering;
    fn order(&self, other: &Self) -> Ordering;
}

macro_rules! address {
    ($int:ty, $family:literal, $std:ty, $example:literal) => {
        impl Address for $int {
            const WIDTH: u16 = <$int>::BITS as u16;
            const FAMILY: u8 = $family;
            const ZERO: Self = 0;
            #[inline]
            fn bits_at(self, at: u16, bits: u16) -> usize {
                if u32::from(at) >= <$int>::BITS || bits == 0 {
                    return 0;
                }
                ((self << at) >> (<$int>::BITS - u32::from(bits))) as usize
            }
            #[inline]
            fn word_at(self, at: u16) -> u64 {
                let left = (self as u128) << (128 - <$int>::BITS);
                (left.checked_shl(at.into()).unwrap_or(0) >> 64) as u64
            }
            #[inline]
            fn masked(self, len: u16) -> Self {
                if len == 0 { 0 } else { self & (<$int>::MAX << (Self::WIDTH - len)) }
            }
            #[inline]
            fn filled(self, len: u16) -> Self {
                if len >= Self::WIDTH { self } else { self | (<$int>::MAX >> len) }
            }
            #[inline]
            fn common_bits(self, other: Self) -> u16 {
                (self ^ other).leading_zeros() as u16
            }
            #[inline]
            fn from_index(index: usize, bits: u16) -> Self {
                if bits == 0 { 0 } else { (index as $int) << (Self::WIDTH - bits) }
            }
            fn format(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&<$std>::from(self), f)
            }
            fn parse(text: &str) -> Option<Self> {
                text.parse::<$std>().ok().map(Self::from)
            }
            fn example() -> String {
                $example.into()
            }
        }
    };
}
address!(u32, 4, Ipv4Addr, "192.0.2.0/24");
address!(u128, 6, Ipv6Addr, "2001:db8::/32");

/// The error of making a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The length exceeds the address's width.
    #[error("prefix length {len} is over {max}")]
    Length {
        /// The length given.
        len: u32,
        /// The address's width.
        max: u16,
    },
    /// Bits behind the prefix length are set.
    #[error("{text}: host bits are set; the network is {network}")]
    HostBits {
        /// The prefix as given.
        text: String,
        /// The prefix that was probably meant.
        network: String,
    },
    /// Not of the form `address` or `address/length`.
    #[error("invalid prefix {text:?}: expected ADDRESS or ADDRESS/LENGTH, such as {example}")]
    Syntax {
        /// The text given.
        text: String,
        /// A prefix of that family.
        example: String,
    },
}

/// An address prefix; ordered by address, then by length, so that a prefix comes before all that it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u16,
}

impl<A: Address> Prefix<A> {
    /// The prefix of the first `len` bits of `addr`; an error when `len` is too large or later bits are set.
    pub fn new(addr: A, len: u16) -> Result<Self, PrefixError> {
        if len > A::WIDTH {
            return Err(PrefixError::Length { len: len.into(), max: A::WIDTH });
        }
        let prefix = Self { addr, len };
        let network = Self::truncated(addr, len);
        if network != prefix {
            return Err(PrefixError::HostBits { text: prefix.to_string(), network: network.to_string() });
        }
        Ok(prefix)
    }

    /// The prefix of length `len` (at most the address's width) that contains `addr`.
    pub fn truncated(addr: A, len: u16) -> Self {
        let len = len.min(A::WIDTH);
        Self { addr: addr.masked(len), len }
    }

    /// The prefix that contains only `addr`.
    pub fn host(addr: A) -> Self {
        Self { addr, len: A::WIDTH }
    }

    /// First address.
    pub fn addr(&self) -> A {
        self.addr
    }

    /// Last address.
    pub fn last(&self) -> A {
        self.addr.filled(self.len)
    }

    /// Length in bits.
    #[allow(clippy::len_without_is_empty, reason = "a prefix length, not a container's")]
    pub fn len(&self) -> u16 {
        self.len
    }

    /// `value` with the length of this prefix in its low bits, for readers that want to know both (`tl_match4` of the C header,
    /// [`Prefix::split_length`]). It is 6 bits for IPv4, 8 for IPv6, up to 12. None if `value` is 0 or does not fit above them.
    pub fn with_length(&self, value: u32) -> Option<u32> {
        let bits = length_bits(A::WIDTH);
        (1..=VALUE_MAX >> bits).contains(&value).then(|| value << bits | u32::from(self.len()))
    }

    /// The parts that [`Prefix::with_length`] has put together: the value and the length.
    pub fn split_length(value: u32) -> (u32, u16) {
        let bits = length_bits(A::WIDTH);
        (value >> bits, (value & ((1 << bits) - 1)) as u16)
    }

    /// Whether `addr` lies inside.
    pub fn contains(&self, addr: A) -> bool {
        addr.masked(self.len) == self.addr
    }

    /// Whether every address of `other` lies inside; true for equal prefixes.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.format(f)?;
        write!(f, "/{}", self.len)
    }
}

/// `TL_LENGTH_BITS`: bits that hold 0 ... `width`.
fn length_bits(width: u16) -> u32 {
    width.ilog2() + 1
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    /// Reads `address/length`, or `address` for a host.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax { text: text.to_string(), example: A::example() };
        let (addr, len) = match text.split_once('/') {
            None => (text, A::WIDTH.into()),
            Some((addr, len)) if len.bytes().all(|b| b.is_ascii_digit()) => {
                (addr, len.parse::<u32>().map_err(|_| syntax())?)
            }
            Some(_) => return Err(syntax()),
        };
        let addr = A::parse(addr).ok_or_else(syntax)?;
        let len = u16::try_from(len)
            .ok()
            .filter(|len| *len <= A::WIDTH)
            .ok_or(PrefixError::Length { len, max: A::WIDTH })?;
        Self::new(addr, len)
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Debug for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        for text in ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.1/32", "::/0", "2001:db8::/32", "::1/128"] {
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<IpPrefix>().unwrap().to_string(), "192.0.2.1/32");
        for bad in
            ["", "/", "192.0.2.0/", "192.0.2/24", "192.0.2.0/+24", "192.0.2.0/24/8", "2001:db8::/x", "a"]
        {
            assert!(matches!(bad.parse::<IpPrefix>(), Err(PrefixError::Syntax { .. })), "{bad}");
        }
        assert!(matches!("10.0.0.0/33".parse::<IpPrefix>(), Err(PrefixError::Length { len: 33, max: 32 })));
        assert!(matches!("::/256".parse::<IpPrefix>(), Err(PrefixError::Length { len: 256, max: 128 })));
        assert_eq!(
            "192.0.2.1/24".parse::<IpPrefix>().unwrap_err().to_string(),
            "192.0.2.1/24: host bits are set; the network is 192.0.2.0/24"
        );
    }

    #[test]
    fn bits() {
        let a = 0xc000_0201u32;
        assert_eq!(a.bits_at(0, 8), 0xc0);
        assert_eq!(a.bits_at(30, 6), 0b010000, "bits past the end are 0");
        assert_eq!(a.bits_at(32, 6), 0);
        assert_eq!(a.bits_at(0, 0), 0);
        assert_eq!(u128::MAX.bits_at(120, 8), 255);
        assert_eq!((a.masked(0), a.masked(32), a.filled(0), a.filled(32)), (0, a, u32::MAX, a));
        assert_eq!(u32::from_index(3, 2), 0xc000_0000);
        assert_eq!(a.common_bits(a), 32);
    }

    #[test]
    fn covering_comes_first() {
        let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        assert!(p("10.0.0.0/8") < p("10.0.0.0/9") && p("10.0.0.0/9") < p("10.0.0.1/32"));
        assert!(p("10.0.0.0/8").covers(&p("10.255.0.0/16")) && !p("10.0.0.0/9").covers(&p("10.255.0.0/16")));
    }
}
