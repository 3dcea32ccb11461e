//! Routing tables in MRT format (RFC 6396), as RouteViews and RIPE RIS publish them: TABLE_DUMP_V2 read through `bgpkit-parser`, and
//! written.

use super::error::ImportError;
use super::format::Format;
use super::list::{MrtValue, PrefixList, ReadOptions};
use super::source::Source;
use crate::image::layout::VALUE_MAX;
use crate::{IpPrefix, Prefix};
use bgpkit_parser::models::{
    Attributes, EntryType, MrtMessage, Peer, RibAfiEntries, TableDumpV2Message, TableDumpV2Type,
};
use bgpkit_parser::parser::chunk_mrt_record;
use bgpkit_parser::{ParserError, ParserErrorWithBytes};
use std::collections::{BTreeMap, HashMap};
use std::format;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::string::{String, ToString};
use std::vec::Vec;

/// Reads `path` (`-` is standard input), packed by gzip or bzip2 or not: the unicast routes of a TABLE_DUMP_V2 file.
///
/// A collector's dump has for each prefix one entry a peer; the first, or that of `options.mrt_peer`, is taken. `names` holds the meaning
/// of the values: next hops (`192.0.2.1`) or origins (`AS64500`), numbered 1, 2, … as they appear. O(file); entries of all peers are
/// parsed. A router's own routes, without either, are `no-next-hop` and `no-origin`.
pub fn read(path: &Path, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    from(Source::open(path, options)?, options)
}

pub(super) fn from(source: Source, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let path = source.path().to_path_buf();
    let mut input = source.reader();
    let mut dump =
        Dump { options, peers: HashMap::new(), numbers: HashMap::new(), list: PrefixList::new(Format::Mrt) };
    let mut at = 0;
    for record in 1.. {
        let bad = |what: String| ImportError::Record { path: path.clone(), record, at, what };
        let raw = match chunk_mrt_record(&mut input) {
            Ok(raw) => raw,
            Err(ParserErrorWithBytes { error: ParserError::EofExpected, .. }) => break,
            Err(error) => return Err(bad(format!("{}; expected an MRT record", error.error))),
        };
        let length = raw.total_bytes_len() as u64;
        let kind = raw.common_header.entry_type;
        if kind != EntryType::TABLE_DUMP_V2 {
            return Err(bad(format!(
                "type {kind:?}; expected TABLE_DUMP_V2, a dump of a whole table (rib or bview)"
            )));
        }
        let message = raw.message_bytes.clone();
        match TableDumpV2Type::try_from(raw.common_header.entry_subtype) {
            Ok(
                TableDumpV2Type::PeerIndexTable
                | TableDumpV2Type::RibIpv4Unicast
                | TableDumpV2Type::RibIpv6Unicast
                | TableDumpV2Type::RibIpv4UnicastAddPath
                | TableDumpV2Type::RibIpv6UnicastAddPath,
            ) => match raw.parse().map_err(|error| bad(error.to_string()))?.message {
                MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(table)) => {
                    dump.set_peers(table.id_peer_map).map_err(bad)?;
                }
                MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(rib)) => {
                    // The parser gives up a record at its first bad entry, without an error.
                    let declared = entries(&message);
                    if declared != Some(rib.rib_entries.len()) {
                        let read = rib.rib_entries.len();
                        return Err(bad(format!(
                            "entry {} of {} is damaged",
                            read + 1,
                            declared.unwrap_or(0)
                        )));
                    }
                    dump.add(&rib).map_err(bad)?;
                }
                _ => return Err(bad("its content does not match its subtype".into())),
            },
            _ => dump.list.skipped += 1,
        }
        at += length;
    }
    Ok(dump.list)
}

/// The entry count of a RIB record (RFC 6396, section 4.3.2).
fn entries(message: &[u8]) -> Option<usize> {
    let bits = *message.get(4)?;
    let at = 5 + usize::from(bits).div_ceil(8);
    let count = message.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([count[0], count[1]])))
}

/// A dump as it is read.
struct Dump<'a> {
    options: &'a ReadOptions,
    peers: HashMap<u16, Peer>,
    numbers: HashMap<String, u32>,
    list: PrefixList,
}

impl Dump<'_> {
    fn set_peers(&mut self, peers: HashMap<u16, Peer>) -> Result<(), String> {
        if let Some(wanted) = self.options.mrt_peer
            && !peers.values().any(|peer| peer.peer_ip == wanted)
        {
            let mut known: Vec<_> = peers.iter().collect();
            known.sort_unstable_by_key(|(index, _)| **index);
            let known: Vec<String> =
                known.iter().take(50).map(|(_, peer)| peer.peer_ip.to_string()).collect();
            return Err(format!("the dump has no peer {wanted}; expected one of: {}", known.join(" ")));
        }
        self.peers = peers;
        Ok(())
    }

    fn add(&mut self, rib: &RibAfiEntries) -> Result<(), String> {
        let network = rib.prefix.prefix;
        // Bits behind the length are irrelevant (RFC 6396, section 4.3.2).
        let prefix = match network.addr() {
            IpAddr::V4(addr) => IpPrefix::V4(Prefix::truncated(addr.into(), network.prefix_len().into())),
            IpAddr::V6(addr) => IpPrefix::V6(Prefix::truncated(addr.into(), network.prefix_len().into())),
        };
        let is_wanted = |index: u16| match self.options.mrt_peer {
            None => true,
            Some(wanted) => self.peers.get(&index).is_some_and(|peer| peer.peer_ip == wanted),
        };
        let Some(entry) = rib.rib_entries.iter().find(|entry| is_wanted(entry.peer_index)) else {
            // Not one of this peer's.
            return Ok(());
        };
        let value = self.value(&entry.attributes).map_err(|what| format!("{prefix}: {what}"))?;
        self.list.prefixes.push(prefix, Some(value));
        Ok(())
    }

    fn value(&mut self, attributes: &Attributes) -> Result<u32, String> {
        let name = match self.options.mrt_value {
            MrtValue::NextHop => match next_hop(attributes) {
                Some(hop) => hop.to_string(),
                // Routers dump their own networks, too.
                None => "no-next-hop".into(),
            },
            MrtValue::Origin => match attributes.effective_as_path().and_then(|path| path.get_origin_opt()) {
                Some(origin) => format!("AS{origin}"),
                // A route of the peer's own AS.
                None => "no-origin".into(),
            },
            MrtValue::Med => {
                let med = attributes.multi_exit_discriminator();
                let med = med.ok_or("no multi-exit discriminator, which should be the value")?;
                if !(1..=VALUE_MAX).contains(&med) {
                    return Err(format!("invalid multi-exit discriminator {med}: expected 1 to {VALUE_MAX}"));
                }
                return Ok(med);
            }
        };
        let next = self.numbers.len() as u32 + 1;
        Ok(*self.numbers.entry(name.clone()).or_insert_with(|| {
            self.list.names.insert(next, name);
            next
        }))
    }
}

/// The next hop of NEXT_HOP or MP_REACH_NLRI.
fn next_hop(attributes: &Attributes) -> Option<IpAddr> {
    let of_family = || attributes.get_reachable_nlri()?.next_hop.map(|hop| hop.addr());
    attributes.next_hop().or_else(of_family)
}

/// Types and subtypes of RFC 6396, sections 4 and 4.3.
const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;
const RIB_IPV6_UNICAST: u16 = 4;

/// Writes prefixes as a TABLE_DUMP_V2 file of one peer (0.0.0.0, AS 0), originated at `time` (seconds since 1970).
///
/// The value is the multi-exit discriminator, so that reading with [`MrtValue::Med`] restores it exactly. The next hop is the address
/// in the value's name (`192.0.2.1`, `via 192.0.2.1 dev eth0`). Without one, it is the value written as an address (7: 0.0.0.7, ::7).
/// A name such as `AS64500` is the AS path. A prefix without a value gets none of them: its next hop is unspecified.
///
/// (The parser's encoder keeps all prefixes in memory and writes them in the order of a hash; so these few records are written here.)
pub fn write<'a>(
    to: &mut impl Write,
    prefixes: impl Iterator<Item = (IpPrefix, Option<u32>)> + 'a,
    names: &BTreeMap<u32, String>,
    time: u32,
) -> std::io::Result<()> {
    // Section 4.3.1: collector, view name, peers. Peer type 2: an IPv4 address, an AS number of four bytes.
    let mut body = Vec::new();
    body.extend([0; 4]);
    body.extend(0u16.to_be_bytes());
    body.extend(1u16.to_be_bytes());
    body.push(2);
    body.extend([0; 12]);
    record(to, time, PEER_INDEX_TABLE, &body)?;
    for (sequence, (prefix, value)) in prefixes.enumerate() {
        let name = value.and_then(|value| names.get(&value)).map(String::as_str);
        // Section 4.3.2.
        body.clear();
        body.extend((sequence as u32).to_be_bytes());
        let subtype = match prefix {
            IpPrefix::V4(prefix) => {
                body.push(prefix.len() as u8);
                body.extend(&prefix.addr().to_be_bytes()[..usize::from(prefix.len().div_ceil(8))]);
                RIB_IPV4_UNICAST
            }
            IpPrefix::V6(prefix) => {
                body.push(prefix.len() as u8);
                body.extend(&prefix.addr().to_be_bytes()[..usize::from(prefix.len().div_ceil(8))]);
                RIB_IPV6_UNICAST
            }
        };
        body.extend(1u16.to_be_bytes());
        // Section 4.3.4: peer index, time, attributes.
        body.extend(0u16.to_be_bytes());
        body.extend(time.to_be_bytes());
        let attributes = attributes(&prefix, value, name);
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        record(to, time, subtype, &body)?;
    }
    Ok(())
}

/// A record with the common header (section 2).
fn record(to: &mut impl Write, time: u32, subtype: u16, body: &[u8]) -> std::io::Result<()> {
    to.write_all(&time.to_be_bytes())?;
    to.write_all(&TABLE_DUMP_V2.to_be_bytes())?;
    to.write_all(&subtype.to_be_bytes())?;
    to.write_all(&(body.len() as u32).to_be_bytes())?;
    to.write_all(body)
}

/// Path attributes (RFC 4271, sections 4.3 and 5.1), each: flags, type, length, content.
fn attributes(prefix: &IpPrefix, value: Option<u32>, name: Option<&str>) -> Vec<u8> {
    // ORIGIN: incomplete.
    let mut bytes = Vec::from([0x40, 1, 1, 2]);
    // AS_PATH: empty, or a sequence of one AS.
    match name.and_then(|name| name.strip_prefix("AS")).and_then(|number| number.parse::<u32>().ok()) {
        Some(number) => {
            bytes.extend([0x40, 2, 6, 2, 1]);
            bytes.extend(number.to_be_bytes());
        }
        None => bytes.extend([0x40, 2, 0]),
    }
    let hop = name.and_then(address_of);
    match (prefix, hop) {
        (IpPrefix::V4(_), None) => next_hop4(&mut bytes, value.unwrap_or(0).to_be_bytes()),
        (IpPrefix::V4(_), Some(IpAddr::V4(hop))) => next_hop4(&mut bytes, hop.octets()),
        (IpPrefix::V6(_), None) => next_hop6(&mut bytes, u128::from(value.unwrap_or(0)).to_be_bytes()),
        // RFC 8950 for IPv4 prefixes.
        (_, Some(IpAddr::V6(hop))) => next_hop6(&mut bytes, hop.octets()),
        (IpPrefix::V6(_), Some(IpAddr::V4(hop))) => next_hop6(&mut bytes, hop.to_ipv6_mapped().octets()),
    }
    if let Some(value) = value {
        // MULTI_EXIT_DISC.
        bytes.extend([0x80, 4, 4]);
        bytes.extend(value.to_be_bytes());
    }
    bytes
}

/// NEXT_HOP.
fn next_hop4(bytes: &mut Vec<u8>, hop: [u8; 4]) {
    bytes.extend([0x40, 3, 4]);
    bytes.extend(hop);
}

/// MP_REACH_NLRI, in a RIB entry only the next hop's length and address (RFC 6396, section 4.3.4).
fn next_hop6(bytes: &mut Vec<u8>, hop: [u8; 16]) {
    bytes.extend([0x80, 14, 17, 16]);
    bytes.extend(hop);
}

/// The address in a next hop's name.
fn address_of(name: &str) -> Option<IpAddr> {
    let words = name.split_ascii_whitespace().filter(|word| !["via", "inet", "inet6"].contains(word));
    words.into_iter().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn rows(list: &PrefixList) -> Vec<(IpPrefix, Option<u32>)> {
        let v4 = list.prefixes.v4.iter().map(|(prefix, value)| (IpPrefix::V4(*prefix), *value));
        v4.chain(list.prefixes.v6.iter().map(|(prefix, value)| (IpPrefix::V6(*prefix), *value))).collect()
    }

    fn sample() -> Vec<(IpPrefix, Option<u32>)> {
        let prefixes =
            ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.128/25", "198.51.100.7/32", "::/0", "2001:db8::/33"];
        let values = [2_147_483_647, 7, 9, 9, 7, 11];
        prefixes.iter().zip(values).map(|(prefix, value)| (prefix.parse().unwrap(), Some(value))).collect()
    }

    fn written() -> Vec<u8> {
        let names = BTreeMap::from([
            (7, "via 192.0.2.1 dev eth0".into()),
            (9, "2001:db8::9".into()),
            (11, "AS64500".into()),
        ]);
        let mut bytes = Vec::new();
        write(&mut bytes, sample().into_iter(), &names, 1_600_000_000).unwrap();
        bytes
    }

    #[test]
    fn written_tables_are_read_back() {
        let options = |mrt_value| ReadOptions { mrt_value, ..ReadOptions::default() };
        let bytes = written();
        let list = read(file(&bytes).path(), &options(MrtValue::Med)).unwrap();
        assert_eq!((rows(&list), list.skipped), (sample(), 0));
        let list = read(file(&bytes).path(), &options(MrtValue::NextHop)).unwrap();
        let names: Vec<_> = rows(&list).iter().map(|row| list.names[&row.1.unwrap()].clone()).collect();
        assert_eq!(
            names,
            ["127.255.255.255", "192.0.2.1", "2001:db8::9", "2001:db8::9", "::ffff:192.0.2.1", "::b"]
        );
        let list = read(file(&bytes).path(), &options(MrtValue::Origin)).unwrap();
        assert_eq!(rows(&list).iter().map(|row| row.1.unwrap()).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 2]);
        assert_eq!(list.names.values().collect::<Vec<_>>(), ["no-origin", "AS64500"]);
        // As the archives pack them, and detected by its content.
        let mut zip = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        zip.write_all(&bytes).unwrap();
        let packed = file(&zip.finish().unwrap());
        assert_eq!(crate::io::read(packed.path(), &options(MrtValue::Med)).unwrap().prefixes.len(), 6);
    }

    /// Written out by hand after the RFC's figures: two peers, and a prefix that both have.
    fn two_peers() -> Vec<u8> {
        let mut bytes = Vec::from(
            b"\x5f\x6e\x6a\x6a\0\x0d\0\x01\0\0\0\x22\
              \xc0\0\x02\xfe\0\x02rv\0\x02\
              \x02\x0a\0\0\x01\xc0\0\x02\x01\0\0\xfb\xf4\
              \0\x0a\0\0\x02\xc0\0\x02\x02\xfb\xf5",
        );
        assert_eq!(bytes.len(), 12 + 0x22);
        let entry = |peer: u8, hop: u8, origin: u8| {
            let mut entry = Vec::from([0, peer, 0x5f, 0x6e, 0x6a, 0x6a, 0, 24]);
            entry.extend([0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf4, 0, 0, 0xfb, origin]);
            entry.extend([0x40, 3, 4, 192, 0, 2, hop]);
            entry
        };
        let mut body = Vec::from([0, 0, 0, 0, 22, 203, 0, 115, 0, 2]);
        body.extend(entry(0, 1, 0xf6));
        body.extend(entry(1, 2, 0xf7));
        bytes.extend([0x5f, 0x6e, 0x6a, 0x6a, 0, 13, 0, 2, 0, 0, 0, body.len() as u8]);
        bytes.extend(body);
        // A multicast RIB without entries is passed over.
        bytes.extend([0x5f, 0x6e, 0x6a, 0x6a, 0, 13, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 8, 10, 0, 0]);
        bytes
    }

    #[test]
    fn peers_are_distinguished() {
        let bytes = file(&two_peers());
        let mut options = ReadOptions::default();
        for (peer, value, name) in [
            (None, MrtValue::NextHop, "192.0.2.1"),
            (Some("192.0.2.2"), MrtValue::NextHop, "192.0.2.2"),
            (Some("192.0.2.2"), MrtValue::Origin, "AS64503"),
        ] {
            options.mrt_peer = peer.map(|peer| peer.parse().unwrap());
            options.mrt_value = value;
            let list = crate::io::read(bytes.path(), &options).unwrap();
            // Bits behind the length (203.0.115.0/22) are cleared.
            assert_eq!(rows(&list), [("203.0.112.0/22".parse().unwrap(), Some(1))]);
            assert_eq!((list.names[&1].as_str(), list.skipped), (name, 1));
        }
        options.mrt_peer = Some("192.0.2.3".parse().unwrap());
        let error = read(bytes.path(), &options).unwrap_err().to_string();
        assert!(error.contains("record 1 at byte 0: ") && error.contains("192.0.2.1 192.0.2.2"), "{error}");
        (options.mrt_peer, options.mrt_value) = (None, MrtValue::Med);
        let error = read(bytes.path(), &options).unwrap_err().to_string();
        assert!(
            error.contains("record 2 at byte") && error.contains("203.0.112.0/22: no multi-exit"),
            "{error}"
        );
    }

    /// As BIRD dumps a static route: no next hop, an empty AS path.
    #[test]
    fn a_route_without_next_hop() {
        let mut bytes = two_peers();
        let start = bytes.len();
        bytes.extend([0x5f, 0x6e, 0x6a, 0x6a, 0, 13, 0, 2, 0, 0, 0, 0]);
        bytes.extend([0, 0, 0, 2, 0, 0, 1, 0, 0, 0x5f, 0x6e, 0x6a, 0x6a, 0, 7, 0x40, 1, 1, 0, 0x40, 2, 0]);
        bytes[start + 11] = (bytes.len() - start - 12) as u8;
        let list = read(file(&bytes).path(), &ReadOptions::default()).unwrap();
        assert_eq!(list.prefixes.v4[1], ("0.0.0.0/0".parse().unwrap(), Some(2)));
        assert_eq!(list.names[&2], "no-next-hop");
        let options = ReadOptions { mrt_value: MrtValue::Origin, ..ReadOptions::default() };
        assert_eq!(read(file(&bytes).path(), &options).unwrap().names[&2], "no-origin");
    }

    #[test]
    fn damage_is_found() {
        let bytes = two_peers();
        let options = ReadOptions::default();
        let records = [0, 12 + usize::from(bytes[11]), bytes.len() - 20, bytes.len()];
        for length in 1..bytes.len() {
            let read = read(file(&bytes[..length]).path(), &options);
            assert_eq!(read.is_ok(), records.contains(&length), "{length}: {read:?}");
        }
        // The second entry's attribute length is beyond the record's end.
        let mut damaged = bytes.clone();
        let at = records[1] + 12 + 10 + 32 + 6;
        assert_eq!(damaged[at..at + 2], [0, 24]);
        damaged[at + 1] = 25;
        let error = read(file(&damaged).path(), &options).unwrap_err().to_string();
        assert!(error.contains("record 2") && error.contains("entry 2 of 2 is damaged"), "{error}");
        let mut updates = bytes;
        updates[5] = 16;
        let error = read(file(&updates).path(), &options).unwrap_err().to_string();
        assert!(error.contains("BGP4MP") && error.contains("expected TABLE_DUMP_V2"), "{error}");
    }
}
