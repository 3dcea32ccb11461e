//! Keys that are no IP addresses: any fixed number of bits, such as address and port (48, 144) or VLAN and address.

use crate::Address;
use alloc::string::String;
use core::fmt;

/// A key of `BITS` bits, 1 ... 2048, in network order: bit 0 is the highest of the first byte. `BYTES` is `BITS` / 8, rounded up;
/// bits behind the last are 0.
///
/// ```
/// use trieline_lpm::{Key, Prefix};
/// type Endpoint = Key<48, 6>; // IPv4 address and port
/// let web = Endpoint::new([192, 0, 2, 1, 0, 80]);
/// assert!(Prefix::truncated(web, 24).contains(Endpoint::new([192, 0, 2, 9, 1, 187])));
/// assert_eq!(Prefix::host(web).to_string(), "c00002010050/48");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<const BITS: u16, const BYTES: usize>([u8; BYTES]);

impl<const BITS: u16, const BYTES: usize> Key<BITS, BYTES> {
    const IS_SOUND: () = assert!(BITS >= 1 && BITS <= 2048 && BYTES == BITS.div_ceil(8) as usize);

    /// The key in `bytes`; bits behind the last are cleared.
    pub fn new(bytes: [u8; BYTES]) -> Self {
        const { Self::IS_SOUND };
        Self(bytes).masked(BITS)
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// Does something with the narrowest of six [`Key`] types that keys of `bits` bits (1 ... 2048) fit into, for widths that are known at
/// run time only; `None` for any other number. Together with [`Table::create_narrow`](crate::Table::create_narrow) every width is at
/// hand, and the code of six.
///
/// ```
/// use trieline_lpm::with_key;
/// assert_eq!(with_key!(48, K => size_of::<K>()), Some(8));
/// assert_eq!(with_key!(2048, K => size_of::<K>()), Some(256));
/// assert_eq!(with_key!(2049, K => size_of::<K>()), None);
/// ```
#[macro_export]
macro_rules! with_key {
    ($bits:expr, $key:ident => $do:expr) => {
        $crate::with_key!($bits, $key => $do, 1..=64 => 64 8, 65..=128 => 128 16, 129..=256 => 256 32,
            257..=512 => 512 64, 513..=1024 => 1024 128, 1025..=2048 => 2048 256)
    };
    ($bits:expr, $key:ident => $do:expr, $($widths:pat_param => $most:literal $bytes:literal),*) => {
        match $bits {
            $($widths => Some({
                type $key = $crate::Key<$most, $bytes>;
                $do
            }),)*
            _ => None,
        }
    };
}

impl<const BITS: u16, const BYTES: usize> fmt::Debug for Key<BITS, BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format(f)
    }
}

impl<const BITS: u16, const BYTES: usize> Address for Key<BITS, BYTES> {
    const WIDTH: u16 = BITS;
    const FAMILY: u8 = 0;
    const ZERO: Self = {
        let () = Self::IS_SOUND;
        Self([0; BYTES])
    };

    #[inline]
    fn bits_at(self, at: u16, bits: u16) -> usize {
        if bits == 0 { 0 } else { (self.word_at(at) >> (64 - u32::from(bits))) as usize }
    }

    #[inline]
    fn word_at(self, at: u16) -> u64 {
        let first = usize::from(at / 8);
        let mut bytes = [0; 16];
        if let Some(rest) = self.0.get(first..) {
            let count = rest.len().min(9);
            bytes[..count].copy_from_slice(&rest[..count]);
        }
        ((u128::from_be_bytes(bytes) << (at % 8)) >> 64) as u64
    }

    fn masked(mut self, len: u16) -> Self {
        let whole = usize::from(len / 8);
        if let Some(byte) = self.0.get_mut(whole) {
            *byte &= !(0xff >> (len % 8));
            self.0[whole + 1..].fill(0);
        }
        self
    }

    fn filled(mut self, len: u16) -> Self {
        let whole = usize::from(len / 8);
        if let Some(byte) = self.0.get_mut(whole) {
            *byte |= 0xff >> (len % 8);
            self.0[whole + 1..].fill(0xff);
        }
        self.masked(BITS)
    }

    fn common_bits(self, other: Self) -> u16 {
        let differ = self.0.iter().zip(&other.0).position(|(one, two)| one != two);
        differ.map_or(BITS, |at| 8 * at as u16 + (self.0[at] ^ other.0[at]).leading_zeros() as u16)
    }

    fn from_index(index: usize, bits: u16) -> Self {
        let mut key = Self::ZERO;
        if bits > 0 {
            let bytes = ((index as u64) << (64 - u32::from(bits))).to_be_bytes();
            let count = BYTES.min(bytes.len());
            key.0[..count].copy_from_slice(&bytes[..count]);
        }
        key.masked(BITS)
    }

    /// Two hexadecimal digits a byte.
    fn format(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }

    fn parse(text: &str) -> Option<Self> {
        if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = Self::ZERO;
        for (at, byte) in key.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        (key.masked(BITS) == key).then_some(key)
    }

    fn example() -> String {
        let zeros: String = core::iter::repeat_n('0', 2 * BYTES).collect();
        alloc::format!("{zeros}/{BITS}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix;
    use alloc::string::ToString;

    #[test]
    fn bits_of_a_key() {
        type Odd = Key<13, 2>;
        let key = Odd::new([0xff, 0xff]);
        assert_eq!(key.bytes(), &[0xff, 0xf8]);
        assert_eq!(
            (key.bits_at(0, 8), key.bits_at(8, 8), key.bits_at(13, 8), key.bits_at(16, 8)),
            (255, 0xf8, 0, 0)
        );
        assert_eq!((key.masked(3).bytes(), Odd::ZERO.filled(3).bytes()), (&[0xe0, 0], &[0x1f, 0xf8]));
        assert_eq!((key.common_bits(key), key.common_bits(key.masked(9))), (13, 9));
        assert_eq!(Odd::from_index(5, 3).bytes(), &[0xa0, 0]);
        assert_eq!("a000/3".parse::<Prefix<Odd>>().unwrap().to_string(), "a000/3");
        for bad in ["a000/14", "a001/13", "a0/3", "a0000/3", "g000/3"] {
            assert!(bad.parse::<Prefix<Odd>>().is_err(), "{bad}");
        }
        let wide = Key::<2048, 256>::new(core::array::from_fn(|at| at as u8));
        assert_eq!(wide.word_at(2040), 0xff << 56);
        assert_eq!(wide.word_at(12), 0x1020_3040_5060_7080);
        assert_eq!((wide.word_at(2048), wide.common_bits(wide)), (0, 2048));
    }
}
