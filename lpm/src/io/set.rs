//! The notations of published lists, read as a set: the prefixes count, and nothing that stands beside them.
//!
//! Lists have one prefix a line, or an address, a range `A-B` or a netmask, and behind it whatever their publisher adds (Spamhaus, FireHOL,
//! CSV). DShield has the range's ends and the length of its prefix in three columns; `ipset save` and `nft list` have words around their
//! elements. A line that could mean two sets is an error: a `/24` that is taken for one address protects nobody.

use super::list::Prefixes;
use crate::ops::Region;
use crate::{Address, IpPrefix, Prefix, PrefixError};
use std::format;
use std::net::{IpAddr, Ipv4Addr};
use std::string::String;
use std::vec::Vec;

/// What is expected of a line.
const EXPECTED: &str = "expected ADDRESS, ADDRESS/LENGTH, ADDRESS/NETMASK or FIRST-LAST, such as 192.0.2.0/24 or 192.0.2.1-192.0.2.9";
/// Words that begin a line of `nft list` which has no elements.
const NFT: [&str; 13] = [
    "table",
    "set",
    "type",
    "typeof",
    "flags",
    "size",
    "timeout",
    "gc-interval",
    "auto-merge",
    "policy",
    "comment",
    "counter",
    "}",
];

/// Whether a file begins as what `nft list` prints does.
pub(super) fn is_nft(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| (line.starts_with("table ") || line.starts_with("set ")) && line.ends_with('{'))
}

/// Adds the prefixes of a line to a set.
pub(super) struct Elements<'a> {
    pub to: &'a mut Prefixes<Option<u32>>,
    /// Host bits are cleared, and counted here, instead of being an error.
    pub truncate: bool,
    pub truncated: &'a mut u64,
}

impl Elements<'_> {
    /// A line of a list.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        match [words.next(), words.next(), words.next()] {
            // ipset save
            [Some("create"), Some(_), Some(kind)] => {
                return match kind {
                    "hash:net" | "hash:ip" | "bitmap:ip" => Ok(()),
                    _ => Err(format!("a set of type {kind}; expected hash:ip or hash:net")),
                };
            }
            [Some("add"), Some(_), Some(element)] => {
                return match words.any(|word| word == "nomatch") {
                    true => Err("an exception (nomatch); expected prefixes that belong to the set".into()),
                    false => self.element(element),
                };
            }
            _ => {}
        }
        let columns = line.split(|c: char| c.is_ascii_whitespace() || c == ',');
        let mut columns = columns.filter(|word| !word.is_empty());
        let first = columns.next().unwrap_or_default();
        let rest: Vec<&str> = columns.take(4).collect();
        match (first, &rest[..]) {
            // The header of DShield's lists.
            ("Start", ["End", ..]) => Ok(()),
            (_, ["-", last, ..]) => self.range(first, last),
            _ => {
                let first = first.trim_matches('"');
                let second = rest.first().map(|word| word.trim_matches('"'));
                self.columns(first, second, rest.get(1).copied())
            }
        }
    }

    /// A line's first column, where the next ones may be part of it.
    fn columns(&mut self, first: &str, second: Option<&str>, third: Option<&str>) -> Result<(), String> {
        let Some(second) = second else { return self.element(first) };
        if second.starts_with(['-', '/']) || first.ends_with('-') {
            return Err(format!("half of a prefix or range; {EXPECTED}"));
        }
        let Ok(address) = first.parse::<IpAddr>() else { return self.element(first) };
        let last = match (second.parse::<IpAddr>(), second.parse::<u16>()) {
            (Ok(last), _) => last,
            (_, Ok(length)) if is_network(address, length) => {
                return Err(format!("the length {length} stands apart from its address; {EXPECTED}"));
            }
            _ => return self.element(first),
        };
        if let (IpAddr::V4(_), Some(length)) = (address, netmask(last)) {
            return self.element(&format!("{first}/{length}"));
        }
        // DShield: first and last address, and the length of the prefix that they are the ends of.
        match third.map(|length| format!("{first}/{length}").parse::<IpPrefix>()) {
            Some(Ok(prefix)) if ends_with(prefix, last) => self.element(&format!("{prefix}")),
            _ => Err(format!("a second address; {EXPECTED}")),
        }
    }

    /// A prefix, an address, a range or an address with a netmask.
    pub fn element(&mut self, text: &str) -> Result<(), String> {
        let text = text.trim_matches('"');
        if let Some((first, last)) = text.split_once('-') {
            return self.range(first, last);
        }
        let masked = text.split_once('/').filter(|(_, mask)| mask.contains('.'));
        let prefix = match masked {
            None => self.prefix(text)?,
            Some((address, mask)) => {
                let length = mask.parse().ok().and_then(netmask);
                let length = length.ok_or_else(|| format!("{mask} is no netmask; {EXPECTED}"))?;
                self.prefix(&format!("{address}/{length}"))?
            }
        };
        self.push(prefix);
        Ok(())
    }

    fn prefix(&mut self, text: &str) -> Result<IpPrefix, String> {
        match text.parse() {
            Err(PrefixError::HostBits { network, .. }) if self.truncate => {
                *self.truncated += 1;
                network.parse().map_err(|error: PrefixError| format!("{error}"))
            }
            Err(PrefixError::Syntax { .. }) => Err(format!("not a prefix; {EXPECTED}")),
            parsed => parsed.map_err(|error| format!("{error}")),
        }
    }

    fn range(&mut self, first: &str, last: &str) -> Result<(), String> {
        let parsed = (first.trim_matches('"').parse(), last.trim_matches('"').parse());
        match parsed {
            (Ok(IpAddr::V4(first)), Ok(IpAddr::V4(last))) if first <= last => {
                self.region(u32::from(first), u32::from(last), IpPrefix::V4);
                Ok(())
            }
            (Ok(IpAddr::V6(first)), Ok(IpAddr::V6(last))) if first <= last => {
                self.region(u128::from(first), u128::from(last), IpPrefix::V6);
                Ok(())
            }
            (Ok(_), Ok(_)) => Err(format!("no range leads from {first} to {last}; {EXPECTED}")),
            _ => Err(format!("{first:?} and {last:?} are not the ends of a range; {EXPECTED}")),
        }
    }

    fn region<A: Address>(&mut self, first: A, last: A, of: impl Fn(Prefix<A>) -> IpPrefix) {
        for prefix in (Region { first, last, value: () }).prefixes() {
            self.push(of(prefix));
        }
    }

    /// Packets have no IPv4-mapped addresses: such a prefix means the IPv4 one.
    fn push(&mut self, prefix: IpPrefix) {
        const MAPPED: u128 = 0xffff << 32;
        let prefix = match prefix {
            IpPrefix::V6(six) if six.len() >= 96 && six.addr() & !0xffff_ffff == MAPPED => {
                IpPrefix::V4(Prefix::truncated(six.addr() as u32, six.len() - 96))
            }
            other => other,
        };
        self.to.push(prefix, None);
    }
}

/// The elements of what `nft list` prints.
#[derive(Default)]
pub(super) struct Nft {
    inside: bool,
}

impl Nft {
    /// A line, comments and all: an element's own comment may have any character.
    pub fn line(&mut self, line: &str, elements: &mut Elements) -> Result<(), String> {
        let mut text = line;
        if !self.inside {
            let Some((_, list)) = line.split_once("elements = {") else {
                let word = line.split_ascii_whitespace().next().unwrap_or_default();
                return match NFT.contains(&word) || word.starts_with('#') {
                    true => Ok(()),
                    false => {
                        Err(format!("{word:?} is no part of a set; expected what `nft list set` prints"))
                    }
                };
            };
            (text, self.inside) = (list, true);
        }
        let mut quoted = false;
        let mut ended = |c: char| {
            quoted ^= c == '"';
            !quoted && (c == ',' || c == '}')
        };
        while let Some(end) = text.find(&mut ended) {
            self.element(&text[..end], elements)?;
            self.inside = !text[end..].starts_with('}');
            text = &text[end + 1..];
            if !self.inside {
                return Ok(());
            }
        }
        self.element(text, elements)
    }

    fn element(&self, text: &str, elements: &mut Elements) -> Result<(), String> {
        match text.split_ascii_whitespace().next() {
            None => Ok(()),
            Some(element) => elements.element(element),
        }
    }
}

/// Whether an address with this length is a network: nothing is set behind the length, which is that of no host.
fn is_network(address: IpAddr, length: u16) -> bool {
    match address {
        IpAddr::V4(address) => length < 32 && u32::from(address).masked(length) == u32::from(address),
        IpAddr::V6(address) => length < 128 && u128::from(address).masked(length) == u128::from(address),
    }
}

/// The length that a netmask stands for.
fn netmask(mask: IpAddr) -> Option<u32> {
    let IpAddr::V4(mask) = mask else { return None };
    let bits = u32::from(mask);
    // 0.0.0.0 is an address as well, and no list means everything by it.
    let is_mask = bits.leading_ones() + bits.trailing_zeros() == 32 && mask != Ipv4Addr::UNSPECIFIED;
    is_mask.then(|| bits.leading_ones())
}

/// Whether this is the last address of a prefix.
fn ends_with(prefix: IpPrefix, last: IpAddr) -> bool {
    match (prefix, last) {
        (IpPrefix::V4(prefix), IpAddr::V4(last)) => prefix.addr().filled(prefix.len()) == u32::from(last),
        (IpPrefix::V6(prefix), IpAddr::V6(last)) => prefix.addr().filled(prefix.len()) == u128::from(last),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReadOptions, read};
    use std::io::Write;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn set(content: &[u8], skip_bad: bool) -> Result<Vec<String>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let options = ReadOptions { set: true, skip_bad, ..ReadOptions::default() };
        let list = read(file.path(), &options).map_err(|error| error.to_string())?;
        assert!(list.names.is_empty() && list.prefixes.v4.iter().all(|row| row.1.is_none()));
        let v4 = list.prefixes.v4.iter().map(|row| row.0.to_string());
        Ok(v4.chain(list.prefixes.v6.iter().map(|row| row.0.to_string())).collect())
    }

    #[test]
    fn lists_as_people_publish_them() {
        for (name, content, expected) in [
            (
                "Spamhaus",
                "; Spamhaus DROP List\n1.10.16.0/20 ; SBL256894\n2001:DB8::/32 ; SBL1\n",
                "1.10.16.0/20 2001:db8::/32",
            ),
            ("FireHOL", "#\n# firehol_level1\n#\n10.0.0.0/8\n192.0.2.1\n", "10.0.0.0/8 192.0.2.1/32"),
            (
                "DShield",
                "# comment\nStart\tEnd\tNetblock\tAttacks\n192.0.2.0\t192.0.2.255\t24\t3256\tNAME\tUS\ta@b\n",
                "192.0.2.0/24",
            ),
            (
                "values",
                "10.0.0.0/8 0\n11.0.0.0/8 us evil bot\n12.0.0.0/8 42\n",
                "10.0.0.0/8 11.0.0.0/8 12.0.0.0/8",
            ),
            (
                "ranges",
                "192.0.2.1-192.0.2.4\n192.0.2.8 - 192.0.2.9\n",
                "192.0.2.1/32 192.0.2.2/31 192.0.2.4/32 192.0.2.8/31",
            ),
            ("range of IPv6", "2001:db8::-2001:db8::3\n", "2001:db8::/126"),
            (
                "netmasks",
                "192.0.2.0/255.255.255.0\n198.51.100.0 255.255.255.128\n",
                "192.0.2.0/24 198.51.100.0/25",
            ),
            ("CSV", "\"192.0.2.0/24\",\"US\",7\n198.51.100.1,x\n", "192.0.2.0/24 198.51.100.1/32"),
            (
                "ipset save",
                "create bl hash:net family inet hashsize 1024 comment\nadd bl 192.0.2.0/24 comment \"x # y\"\nadd bl 198.51.100.7 timeout 3600\n",
                "192.0.2.0/24 198.51.100.7/32",
            ),
            (
                "nft list set",
                "table inet t {\n\tset bl {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 192.0.2.0/24, 198.51.100.7 comment \"a;b, # c\",\n\t\t\t     203.0.113.8-203.0.113.9 timeout 1h }\n\t}\n}\n",
                "192.0.2.0/24 198.51.100.7/32 203.0.113.8/31",
            ),
            ("mapped", "::ffff:192.0.2.1\n::ffff:198.51.100.0/120\n", "192.0.2.1/32 198.51.100.0/24"),
            ("no UTF-8 in a comment", "192.0.2.0/24 # R\u{e9}union\n", "192.0.2.0/24"),
            ("host with a number", "192.0.2.1 24\n", "192.0.2.1/32"),
        ] {
            // A comment in Latin-1.
            let bytes: Vec<u8> = content.chars().map(|c| c as u32 as u8).collect();
            assert_eq!(set(&bytes, false).map(|set| set.join(" ")), Ok(expected.into()), "{name}");
        }
    }

    #[cfg(feature = "json")]
    #[test]
    fn lists_as_json() {
        for (name, content, expected) in [
            (
                "Spamhaus",
                "{\"cidr\":\"192.0.2.0/24\",\"sblid\":\"SBL1\"}\n{\"cidr\":\"2001:db8::/32\"}\n{\"type\":\"metadata\",\"records\":2}\n",
                "192.0.2.0/24 2001:db8::/32",
            ),
            (
                "an array",
                "[\"192.0.2.1\", {\"dst\": \"10.0.0.0/8\", \"value\": 0}]",
                "192.0.2.1/32 10.0.0.0/8",
            ),
            (
                "nft -j",
                "{\"nftables\": [{\"metainfo\": {}}, {\"set\": {\"name\": \"bl\", \"elem\": [{\"prefix\": {\"addr\": \"192.0.2.0\", \"len\": 24}}, \"198.51.100.7\", {\"range\": [\"203.0.113.8\", \"203.0.113.9\"]}, {\"elem\": {\"val\": \"198.51.100.9\", \"timeout\": 60}}]}}]}",
                "192.0.2.0/24 198.51.100.7/32 203.0.113.8/31 198.51.100.9/32",
            ),
        ] {
            assert_eq!(
                set(content.as_bytes(), false).map(|set| set.join(" ")),
                Ok(expected.into()),
                "{name}"
            );
        }
    }

    #[test]
    fn what_could_mean_two_sets_is_refused() {
        for (content, what) in [
            ("192.0.2.0 /24\n", "half of a prefix"),
            ("198.51.100.0\t24\n", "stands apart"),
            ("2001:db8::/32 fd00::/8\n198.51.100.0 198.51.100.9\n", "a second address"),
            ("fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n", "a second address"),
            ("192.0.2.1,198.51.100.1\n", "a second address"),
            ("192.0.2.0 0.0.0.255\n", "a second address"),
            ("192.0.2.0/0.0.0.255\n", "no netmask"),
            ("192.0.2.9-192.0.2.1\n", "no range leads"),
            ("192.0.2.1-\n", "not the ends"),
            ("192.0.2.1 -\n", "half of a prefix"),
            ("add bl 10.0.0.0/8 nomatch\n", "nomatch"),
            ("create bl hash:ip,port family inet\n", "hash:ip,port"),
            ("<html>\n", "not a prefix"),
            ("! 192.0.2.0/24\n", "not a prefix"),
        ] {
            let error = set(content.as_bytes(), false).unwrap_err();
            assert!(error.contains(what) && error.contains("xpected"), "{content:?}: {error}");
        }
    }

    #[test]
    fn a_list_without_a_good_line_is_refused() {
        let error = set(b"<html>\n502 Bad Gateway\n", true).unwrap_err();
        assert!(error.contains("2 bad lines and no good one") && error.contains("<html>"), "{error}");
        assert_eq!(set(b"<html>\n192.0.2.0/24\n", true), Ok(["192.0.2.0/24".to_string()].into()));
        assert_eq!(set(b"# nothing yet\n", true), Ok(Vec::new()));
    }
}
