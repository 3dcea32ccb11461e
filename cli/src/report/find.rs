//! Addresses in a text. An address ends only where the next character cannot belong to it: a letter, `_` or a second dot next to it hides
//! none.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest text of an IPv6 address.
const V6_MOST: usize = 45;
/// Groups of two digits that are a MAC address.
const MAC: usize = 6;
/// More groups than an IPv6 address has are a longer hardware address, such as InfiniBand's of 20 bytes.
const V6_GROUPS: usize = 8;

/// An address, as it stands in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// A MAC address, with or without leading zeros.
    Mac([u8; 6]),
    /// A MAC address without separators, as in the name `enx525400123456`.
    Bare([u8; 6]),
    /// A longer hardware address.
    Long(Vec<u8>),
}

/// The address that begins at byte `at` of a text, and its end.
pub fn find(text: &str, at: usize) -> Option<(Found, usize)> {
    let bytes = text.as_bytes();
    let first = bytes[at];
    if !first.is_ascii_hexdigit() && first != b':' {
        return None;
    }
    let (found, len) =
        v6(text, at).or_else(|| hardware(bytes, at)).or_else(|| v4(bytes, at)).or_else(|| bare(text, at))?;
    Some((found, at + len))
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

/// The byte before another one, and the one before that; 0 before the text.
fn before(bytes: &[u8], at: usize) -> (u8, u8) {
    let back = |by| at.checked_sub(by).map_or(0, |at| bytes[at]);
    (back(1), back(2))
}

/// Whether groups of digits with colons may begin here: behind a word's colon they may, also behind `src:`, which ends with a digit.
fn may_begin(bytes: &[u8], at: usize) -> bool {
    let (last, other) = before(bytes, at);
    if last != b':' {
        return !last.is_ascii_hexdigit();
    }
    let digits = bytes[..at - 1].iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    other != b':' && (digits == 0 || before(bytes, at - 1 - digits).0.is_ascii_alphabetic())
}

fn v6(text: &str, at: usize) -> Option<(Found, usize)> {
    let bytes = text.as_bytes();
    if !may_begin(bytes, at) {
        return None;
    }
    let is_part = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let run = bytes[at..].iter().take(V6_MOST).take_while(is_part).count();
    let (last, other) = before(bytes, at);
    (2..=run).rev().find_map(|len| {
        let part = &text[at..at + len];
        let (next, second) = (byte(bytes, at + len), byte(bytes, at + len + 1));
        let goes_on = next.is_ascii_hexdigit()
            || next == b':' && (part.ends_with(':') || second.is_ascii_hexdigit() || second == b':');
        let address: Ipv6Addr = if goes_on { return None } else { part.parse().ok()? };
        // `std::vec` is none.
        let is_word = last.is_ascii_alphabetic() && other != b'\\' || next.is_ascii_alphabetic();
        let groups = part.split(':').filter(|group| !group.is_empty()).count();
        (!is_word || groups > 2).then_some((Found::V6(address), len))
    })
}

/// Groups of one or two hexadecimal digits.
fn hardware(bytes: &[u8], at: usize) -> Option<(Found, usize)> {
    if !may_begin(bytes, at) {
        return None;
    }
    let (mut octets, mut end, mut separator, mut is_padded) = (Vec::new(), at, None, true);
    loop {
        let digits = bytes[end..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if !(1..=2).contains(&digits) {
            return None;
        }
        is_padded &= digits == 2;
        octets.push(u8::from_str_radix(std::str::from_utf8(&bytes[end..end + digits]).ok()?, 16).ok()?);
        end += digits;
        let (next, second) = (byte(bytes, end), byte(bytes, end + 1));
        let is_separator = *separator.get_or_insert(next) == next && matches!(next, b':' | b'-');
        if !is_separator || !second.is_ascii_hexdigit() {
            break;
        }
        end += 1;
    }
    let is_dashed = separator == Some(b'-');
    let len = end - at;
    match octets.len() {
        MAC if is_padded || !is_dashed => Some((Found::Mac(octets.try_into().ok()?), len)),
        count if count > V6_GROUPS && is_padded => Some((Found::Long(octets), len)),
        _ => None,
    }
}

fn v4(bytes: &[u8], at: usize) -> Option<(Found, usize)> {
    if before(bytes, at).0.is_ascii_digit() {
        return None;
    }
    let (mut octets, mut end) = ([0; 4], at);
    for (number, octet) in octets.iter_mut().enumerate() {
        if number > 0 {
            if byte(bytes, end) != b'.' {
                return None;
            }
            end += 1;
        }
        let digits = bytes[end..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        *octet = std::str::from_utf8(&bytes[end..end + digits]).ok()?.parse().ok()?;
        end += digits;
    }
    Some((Found::V4(octets.into()), end - at))
}

/// Twelve digits that are no count, or those of a MACsec SCI: the last four are its port.
fn bare(text: &str, at: usize) -> Option<(Found, usize)> {
    let bytes = text.as_bytes();
    let last = before(bytes, at).0;
    if last.is_ascii_hexdigit() {
        return None;
    }
    let run = bytes[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let is_sci = run == 16 && text[..at].ends_with("sci ");
    let digits = text.get(at..at + 12)?;
    let is_mac =
        run == 12 && (last.is_ascii_alphabetic() || digits.bytes().any(|byte| byte.is_ascii_alphabetic()));
    if !is_sci && !is_mac {
        return None;
    }
    let [.., a, b, c, d, e, f] = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
    Some((Found::Bare([a, b, c, d, e, f]), 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All addresses of a text.
    fn all(text: &str) -> Vec<Found> {
        let (mut at, mut found) = (0, Vec::new());
        while at < text.len() {
            at = match find(text, at) {
                Some((address, end)) => {
                    found.push(address);
                    end
                }
                None => at + 1,
            };
        }
        found
    }

    #[test]
    fn any_border_shows_an_address() {
        let v4 = Found::V4(Ipv4Addr::new(10, 1, 0, 2));
        for text in [
            "10.1.0.2",
            "block_10.1.0.2",
            "x10.1.0.2y",
            "\\n10.1.0.2\\n",
            "10.1.0.2.53",
            "10.1.0.2..",
            "..10.1.0.2",
        ] {
            assert_eq!(all(text), std::slice::from_ref(&v4), "{text}");
        }
        assert_eq!(all("10.1.0.2..10.1.0.2-10.1.0.2"), vec![v4; 3]);
        let v6 = Found::V6("fd00:1::2".parse().unwrap());
        for text in [
            "fd00:1::2",
            "_fd00:1::2_",
            "\\nfd00:1::2",
            "xfd00:1::2",
            "dst:fd00:1::2:",
            "[fd00:1::2]:53",
            "fd00:1::2.",
        ] {
            assert_eq!(all(text), std::slice::from_ref(&v6), "{text}");
        }
        let mac = [2, 0x42, 0xac, 0x11, 0, 2];
        for text in [
            "02:42:ac:11:00:02",
            "8000.2:42:ac:11:0:2",
            "_02-42-ac-11-00-02",
            "x2:42:ac:11:0:2:",
            "src:2:42:ac:11:0:2",
        ] {
            assert_eq!(all(text), [Found::Mac(mac)], "{text}");
        }
        for text in ["enx0242ac110002", "0242ac110002", "sci 0242ac1100020001"] {
            assert_eq!(all(text), [Found::Bare(mac)], "{text}");
        }
        let infiniband = (0..20).map(|n| format!("{n:02x}")).collect::<Vec<_>>().join(":");
        assert_eq!(all(&infiniband), [Found::Long((0..20).collect())]);
    }

    #[test]
    fn what_only_looks_like_an_address_is_none() {
        for text in [
            "2026-11-25T13:31:35.123456Z",
            "bus-info: 0000:00:03.0",
            "dead:beef.cafe eth0.7 a::: b. 1.2.3 256.1.2.3 1234.1.2.3",
            "std::vec trieline_router::daemon Foo::add",
            "rx_bytes: 525400123456 tag 3b185187f1855c4c",
        ] {
            assert_eq!(all(text), [], "{text}");
        }
    }
}
