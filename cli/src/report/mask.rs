//! Masks of addresses and names: the same address always has the same mask in a report, and addresses of one prefix keep a common prefix. The key is
//! random and is not kept.

use super::find::{Found, find};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};
use trieline_router::kernel::link::mac_text;

/// First octets that unicast addresses have.
fn is_usual(octet: u8) -> bool {
    (1..224).contains(&octet) && octet != 127 && octet != 169
}

/// Lines with numbers that only look like addresses.
const KEPT: [&str; 3] = ["firmware-version:", "version:", "expansion-rom-version:"];

/// A line that begins with this has a name that its owner gave.
const NAMED: &str = "alias ";
/// The mask of the host's name.
const HOST: &str = "masked-host";

/// A way of masking, with its own key.
#[derive(Debug)]
pub struct Mask {
    key: RandomState,
    /// The first octets of IPv4 addresses, shuffled.
    octets: [u8; 256],
    /// The host's name, whole and without its domain.
    names: Vec<String>,
}

impl Mask {
    /// A mask with a random key, which also covers this name of the host.
    pub fn new(host: &str) -> Self {
        let key = RandomState::new();
        let mut octets: [u8; 256] = core::array::from_fn(|octet| octet as u8);
        let mut usual: Vec<u8> = (0..=255).filter(|octet| is_usual(*octet)).collect();
        usual.sort_by_cached_key(|octet| key.hash_one(("octet", octet)));
        for (octet, masked) in (0..=255).filter(|octet: &u8| is_usual(*octet)).zip(usual) {
            octets[usize::from(octet)] = masked;
        }
        let short = host.split('.').next().unwrap_or_default();
        let names = [host, short].into_iter().filter(|name| !name.is_empty() && *name != "localhost");
        Self { key, octets, names: names.map(str::to_owned).collect() }
    }

    /// A text with all its addresses, names that links were given, and the host's name masked.
    pub fn text(&self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
            let inner = content.trim_start();
            if KEPT.iter().any(|key| line.starts_with(key)) {
                masked += content;
            } else if let Some(name) = inner.strip_prefix(NAMED) {
                let indent = &content[..content.len() - inner.len()];
                masked += &format!("{indent}{NAMED}masked-{:04x}", self.key.hash_one(("name", name)) as u16);
            } else {
                self.line(content, &mut masked);
            }
            masked += end;
        }
        masked
    }

    fn line(&self, line: &str, masked: &mut String) {
        let mut at = 0;
        while let Some(first) = line[at..].chars().next() {
            if let Some(name) = self.name(line, at) {
                *masked += HOST;
                at += name;
            } else if let Some((found, end)) = find(line, at) {
                *masked += &self.masked(&found, &line[end..]);
                at = end;
            } else {
                masked.push(first);
                at += first.len_utf8();
            }
        }
    }

    /// The length of the host's name, if it stands here as a word.
    fn name(&self, line: &str, at: usize) -> Option<usize> {
        let is_word = |c: char| c.is_alphanumeric();
        let name = self.names.iter().find(|name| line[at..].starts_with(name.as_str()))?;
        let is_apart = !line[..at].ends_with(is_word) && !line[at + name.len()..].starts_with(is_word);
        is_apart.then_some(name.len())
    }

    /// The mask of an address. `behind` is the text after it, which may be the length of a prefix.
    fn masked(&self, found: &Found, behind: &str) -> String {
        let digits = behind
            .strip_prefix('/')
            .map(|behind| behind.chars().take_while(char::is_ascii_digit).collect::<String>());
        let len: Option<u32> = digits.and_then(|digits| digits.parse().ok());
        match found {
            Found::Mac(mac) => mac_text(&self.mac(*mac)),
            Found::Bare(mac) => self.mac(*mac).map(|byte| format!("{byte:02x}")).concat(),
            Found::Long(bytes) => {
                let hashed = (0..bytes.len()).map(|at| self.key.hash_one(("long", bytes, at)) as u8);
                mac_text(&hashed.collect::<Vec<_>>())
            }
            Found::V4(address) => {
                let (bits, masked) = (u32::from(*address), u32::from(self.v4(*address)));
                let host =
                    len.filter(|len| *len <= 32).map_or(0, |len| u32::MAX.checked_shr(len).unwrap_or(0));
                // Of a prefix, the bits behind its length stay 0.
                Ipv4Addr::from(if bits & host == 0 { masked & !host } else { masked }).to_string()
            }
            Found::V6(address) => {
                let (bits, masked) = (u128::from(*address), u128::from(self.v6(*address)));
                let host =
                    len.filter(|len| *len <= 128).map_or(0, |len| u128::MAX.checked_shr(len).unwrap_or(0));
                Ipv6Addr::from(if bits & host == 0 { masked & !host } else { masked }).to_string()
            }
        }
    }

    fn v4(&self, address: Ipv4Addr) -> Ipv4Addr {
        let bits = u32::from(address);
        if !is_usual(address.octets()[0]) {
            return address;
        }
        let first = u32::from(self.octets[usize::from(address.octets()[0])]) << 24;
        let flipped = (8..32).map(|at| self.flip(u128::from(bits) << 96, at) as u32 * (1 << (31 - at)));
        Ipv4Addr::from(first | ((bits & 0x00ff_ffff) ^ flipped.sum::<u32>()))
    }

    /// The first sixteen bits stay: they tell global addresses from local ones.
    fn v6(&self, address: Ipv6Addr) -> Ipv6Addr {
        let bits = u128::from(address);
        if let Some(address) = address.to_ipv4_mapped() {
            return self.v4(address).to_ipv6_mapped();
        }
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return address;
        }
        if address.is_unicast_link_local() {
            return mac_of(bits).map_or(address, |mac| with_mac(bits, self.mac(mac)));
        }
        let flipped = (16..128).map(|at| u128::from(self.flip(bits, at)) << (127 - at));
        Ipv6Addr::from(bits ^ flipped.sum::<u128>())
    }

    /// Whether the bit at `at` is flipped: it depends on all bits before it.
    fn flip(&self, bits: u128, at: u32) -> bool {
        self.key.hash_one((at, bits >> (128 - at))) & 1 == 1
    }

    /// Groups' addresses and that of no bits stay; all others become local ones.
    fn mac(&self, mac: [u8; 6]) -> [u8; 6] {
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return mac;
        }
        let hash = self.key.hash_one(("mac", mac)).to_ne_bytes();
        [2, hash[0], hash[1], hash[2], hash[3], hash[4]]
    }
}

/// The MAC address that an interface id was made of (modified EUI-64).
fn mac_of(bits: u128) -> Option<[u8; 6]> {
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = bits.to_be_bytes() else { return None };
    Some([a ^ 2, b, c, d, e, f])
}

fn with_mac(bits: u128, [a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let mut bytes = bits.to_be_bytes();
    bytes[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_prefix_keep_it() {
        let mask = Mask::new("edge7.example");
        let words = |text: &str| mask.text(text).split(' ').map(str::to_owned).collect::<Vec<_>>();
        let [host, other, prefix, wide] =
            words("10.1.0.2 10.1.0.77 10.1.0.0/24 10.0.0.0/8").try_into().unwrap();
        assert!(host != "10.1.0.2" && host != other);
        let network = |text: &str| text.rsplit_once('.').unwrap().0.to_owned();
        assert_eq!(network(&host), network(&other));
        assert_eq!(prefix, format!("{}.0/24", network(&host)));
        assert_eq!(wide, format!("{}.0.0.0/8", host.split('.').next().unwrap()));
        let [host, prefix] = words("2001:db8:1::2 2001:db8:1::/48").try_into().unwrap();
        let (host, prefix): (Ipv6Addr, _) = (host.parse().unwrap(), prefix.strip_suffix("/48").unwrap());
        assert_eq!(host.segments()[..3], prefix.parse::<Ipv6Addr>().unwrap().segments()[..3]);
        assert_eq!(mask.text("10.1.0.2"), mask.text("10.1.0.2"));
        assert_ne!(
            Mask::new("edge7.example").text("10.1.0.2 10.9.8.7"),
            mask.text("10.1.0.2 10.9.8.7"),
            "each has its key"
        );
    }

    #[test]
    fn different_addresses_have_different_masks() {
        let mask = Mask::new("edge7.example");
        let masked: std::collections::BTreeSet<Ipv4Addr> =
            (0..20_000u32).map(|n| mask.v4(Ipv4Addr::from(0x0a00_0000 + n * 7919))).collect();
        assert_eq!(masked.len(), 20_000);
        assert!(masked.iter().all(|address| is_usual(address.octets()[0])));
    }

    #[test]
    fn addresses_are_found_in_any_text() {
        let mask = Mask::new("edge7.example");
        let of = |text: &str| mask.text(text);
        let (v4, v6, mac) = (of("192.0.2.1"), of("2001:db8::1"), of("52:54:00:12:34:56"));
        for (text, wanted) in [
            ("{\"dst\":\"192.0.2.1\"}", format!("{{\"dst\":\"{v4}\"}}")),
            ("to 192.0.2.1.", format!("to {v4}.")),
            ("192.0.2.1:53 [2001:db8::1]:53,", format!("{v4}:53 [{v6}]:53,")),
            ("via 2001:db8::1: refused", format!("via {v6}: refused")),
            ("lladdr 52:54:00:12:34:56 dev", format!("lladdr {mac} dev")),
            ("192.0.2.1-192.0.2.1", format!("{v4}-{v4}")),
            ("    alias 192.0.2.1\n    altname x", {
                let alias = of("  alias 192.0.2.1");
                assert!(alias.starts_with("  alias masked-") && alias.len() == 19, "{alias}");
                format!("  {alias}\n    altname x")
            }),
            ("edge7.example edge7 (edge7-eth0)", "masked-host masked-host (masked-host-eth0)".into()),
        ] {
            assert_eq!(of(text), wanted);
        }
        // Times, bus addresses, versions, names, and addresses that all nodes have.
        for text in [
            "2026-11-25T13:31:35.123456Z",
            "bus-info: 0000:00:03.0",
            "firmware-version: 1.2.3.4",
            "dead:beef.cafe eth0.7 edge77 ledge7 :: ::1 127.0.0.1 fe80::1 ff02::1 224.0.0.5 0.0.0.0/0 255.255.255.255",
            "ff:ff:ff:ff:ff:ff 00:00:00:00:00:00 01:80:c2:00:00:00",
            "a::: b. 1.2.3",
        ] {
            assert_eq!(of(text), text);
        }
    }

    #[test]
    fn a_link_local_address_does_not_tell_the_mac() {
        let mask = Mask::new("edge7.example");
        let mac = mask.mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let text = mask.text("fe80::5054:ff:fe12:3456/64");
        let masked: Ipv6Addr = text.strip_suffix("/64").unwrap().parse().unwrap();
        assert_eq!(mac_of(masked.into()), Some(mac));
        assert!(masked.is_unicast_link_local() && mac != [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    }
}
