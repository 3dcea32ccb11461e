//! Prefixes of keys whose width is known at run time only, as files and other people's maps have them.

use crate::{Key, Prefix, PrefixError};
use core::fmt;
use core::str::FromStr;
use std::boxed::Box;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// Bits of the widest key.
const WIDEST: usize = 2048;

/// A prefix of a key that is not an address: its bytes in network order, and how many of their bits count. Ordered as
/// [`Prefix`] is.
///
/// ```
/// use trieline_lpm::io::KeyPrefix;
/// let endpoint: KeyPrefix = "c00002010050/48".parse().unwrap(); // 192.0.2.1, port 80
/// assert!(KeyPrefix::truncated(&[192, 0, 2, 9, 0, 0], 24).covers(&endpoint));
/// assert_eq!(endpoint, "0xC00002010050".parse().unwrap());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPrefix {
    key: Box<[u8]>,
    len: u16,
}

impl KeyPrefix {
    /// The prefix of the first `len` bits of `key`; an error when `len` is too large or later bits are set.
    pub fn new(key: &[u8], len: u16) -> Result<Self, PrefixError> {
        let max = 8 * key.len() as u16;
        if len > max {
            return Err(PrefixError::Length { len: len.into(), max });
        }
        let (given, network) = (Self { key: key.into(), len }, Self::truncated(key, len));
        if network != given {
            return Err(PrefixError::HostBits { text: given.to_string(), network: network.to_string() });
        }
        Ok(network)
    }

    /// The prefix of length `len`, at most that of `key`, that contains `key`.
    pub fn truncated(key: &[u8], len: u16) -> Self {
        let len = len.min((8 * key.len().min(WIDEST / 8)) as u16);
        let mut key: Box<[u8]> = key.into();
        let whole = usize::from(len / 8);
        if let Some(byte) = key.get_mut(whole) {
            *byte &= !(0xff >> (len % 8));
            key[whole + 1..].fill(0);
        }
        Self { key, len }
    }

    /// A prefix of keys of `key_bits` bits, which stand in the first bits of a wider type.
    pub fn of<const BITS: u16, const BYTES: usize>(prefix: &Prefix<Key<BITS, BYTES>>, key_bits: u16) -> Self {
        let bytes = usize::from(key_bits).div_ceil(8).min(BYTES);
        Self::truncated(&prefix.addr().bytes()[..bytes], prefix.len())
    }

    /// The same in the first bits of a type that is as wide or wider.
    pub fn prefix<const BITS: u16, const BYTES: usize>(&self) -> Prefix<Key<BITS, BYTES>> {
        let mut key = [0; BYTES];
        let bytes = self.key.len().min(BYTES);
        key[..bytes].copy_from_slice(&self.key[..bytes]);
        Prefix::truncated(Key::new(key), self.len)
    }

    /// Reads a prefix of keys of `key_bits` bits; the error names the expected text.
    pub fn of_width(text: &str, key_bits: u16) -> Result<Self, String> {
        let digits = 2 * usize::from(key_bits).div_ceil(8);
        let expected = || {
            format!(
                "invalid key {text:?} of {key_bits} bits: expected {digits} hexadecimal digits, and /LENGTH"
            )
        };
        let mut prefix: Self = text.parse().map_err(|error: PrefixError| match error {
            PrefixError::Syntax { .. } => expected(),
            other => other.to_string(),
        })?;
        if !text.contains('/') {
            prefix.len = prefix.len.min(key_bits);
        }
        let is_it = 2 * prefix.key.len() == digits
            && prefix.len <= key_bits
            && Self::truncated(&prefix.key, prefix.len) == prefix;
        if is_it { Ok(prefix) } else { Err(expected()) }
    }

    /// Its bytes; those behind the length are 0.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Length in bits.
    #[allow(clippy::len_without_is_empty, reason = "a prefix length, not a container's")]
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Whether every key of `other`, which has as many bytes, lies inside; true for equal prefixes.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && Self::truncated(&other.key, self.len).key == self.key
    }
}

impl fmt::Display for KeyPrefix {
    /// Two hexadecimal digits a byte, as [`Key`] has them, and the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "/{}", self.len)
    }
}

impl FromStr for KeyPrefix {
    type Err = PrefixError;

    /// Reads hexadecimal digits, two a byte, perhaps behind `0x`, and `/LENGTH`; without that all bits count.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax { text: text.into(), example: "c00002010050/48".into() };
        let (digits, len) = text.split_once('/').map_or((text, None), |(digits, len)| (digits, Some(len)));
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let is_key = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_key || digits.is_empty() || digits.len() % 2 != 0 || digits.len() > WIDEST / 4 {
            return Err(syntax());
        }
        let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
        let key: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| syntax())?;
        let max = 8 * key.len() as u16;
        let is_number = |len: &str| !len.is_empty() && len.bytes().all(|digit| digit.is_ascii_digit());
        let len = match len {
            None => max.into(),
            Some(len) if is_number(len) => len.parse::<u32>().map_err(|_| syntax())?,
            Some(_) => return Err(syntax()),
        };
        Self::new(&key, u16::try_from(len).map_err(|_| PrefixError::Length { len, max })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        for text in ["00/0", "80/1", "c00002010050/48", "a000/3"] {
            assert_eq!(text.parse::<KeyPrefix>().unwrap().to_string(), text);
        }
        assert_eq!("0x0A00".parse::<KeyPrefix>().unwrap().to_string(), "0a00/16");
        for bad in ["", "/", "0x", "a/4", "a0/", "a0/9", "a0/+1", "a0/3/2", "81/1", "g0", "10.0.0.0/8", "::"]
        {
            assert!(bad.parse::<KeyPrefix>().is_err(), "{bad}");
        }
        assert_eq!(KeyPrefix::of_width("fff8", 13).unwrap().to_string(), "fff8/13");
        for bad in ["ffff", "fff8/14", "ff", "fff800"] {
            let error_text = KeyPrefix::of_width(bad, 13).unwrap_err();
            assert!(error_text.contains("13 bits: expected 4 hexadecimal digits"), "{error_text}");
        }
    }

    #[test]
    fn order_and_cover_are_those_of_prefixes() {
        let mut all = Vec::new();
        for key in [[0, 0], [0x80, 0], [0xa5, 0xf0], [0xff, 0xff], [0xa5, 0xf8]] {
            all.extend((0..=13).map(|len| KeyPrefix::truncated(&key, len)));
        }
        for one in &all {
            let typed = one.prefix::<64, 8>();
            assert_eq!(KeyPrefix::of(&typed, 13), *one);
            for two in &all {
                assert_eq!(one.covers(two), typed.covers(&two.prefix()));
                assert_eq!(one.cmp(two), typed.cmp(&two.prefix()));
            }
        }
    }
}
