//! Prefix lists as JSON: `[{"dst": "192.0.2.0/24", "value": 7}, …]`, and what `ip -j route` prints.

use super::error::ImportError;
use super::format::Format;
use super::hops::Hops;
use super::iproute::OneTable;
use super::list::{PrefixList, Prefixes, ReadOptions};
use super::set::Elements;
use super::source::{Source, failed};
use crate::image::layout::VALUE_MAX;
use crate::{IpPrefix, Prefix};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::format;
use std::io::Write;
use std::path::Path;
use std::string::{String, ToString};
use std::vec::Vec;

/// An example of an element, for messages.
const EXAMPLE: &str = r#"{"dst": "192.0.2.0/24", "value": 7}"#;
const EXPECTED: &str = r#"expected {"dst": "192.0.2.0/24", "value": 7} or a prefix as a string"#;

/// Reads `path` (`-` is standard input), packed or not: an array of objects or of prefixes as strings, or one object a line. Unknown keys are
/// passed over.
///
/// | key | meaning |
/// |---|---|
/// | `dst` or `cidr` | the prefix, or an address |
/// | `value` | 1 to 2^31-1; may be missing |
/// | `name` | what the value stands for; may be missing |
///
/// Without a `value` anywhere, objects with `gateway`, `dev`, `via`, `nexthops`, `nhid`, `encap` or `type` are the routes of `ip -j route`.
/// Routes get values as in [`super::iproute::read`], and are of one table.
pub fn read(path: &Path) -> Result<PrefixList, ImportError> {
    from(Source::open(path, &ReadOptions::default())?, false)
}

/// Reads a list as [`read`] does. With `set`, only prefixes count, and they may have the notations of [`super::set`].
pub(super) fn from(source: Source, set: bool) -> Result<PrefixList, ImportError> {
    let path = source.path().to_path_buf();
    let first = source.head().trim_ascii_start();
    let is_array = first.starts_with(b"[");
    let is_nft = set && first.strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(NFT));
    let mut list = List { set, ..List::default() };
    let mut input = serde_json::Deserializer::from_reader(source.reader());
    let read = if is_array {
        input.deserialize_seq(&mut list).and_then(|()| input.end())
    } else if is_nft {
        list.line = 1;
        Nftables::deserialize(&mut input).and_then(|nft| nft.add_to(&mut list)).and_then(|()| input.end())
    } else {
        list.lines(input)
    };
    read.map_err(|error| match error.classify() {
        serde_json::error::Category::Io => failed(&path, error.into()),
        _ => {
            let error_text = error.to_string();
            // The place stands before the message already.
            let what = error_text.split(" at line ").next().unwrap_or(&error_text);
            let more = if what.contains("expected") { String::new() } else { format!("; {EXPECTED}") };
            ImportError::Json {
                path,
                // Of a value that was read whole the parser does not know the place.
                line: if error.line() > 0 { error.line() } else { list.line },
                column: error.column().max(1),
                what: super::source::shortened(&format!("{what}{more}"), 200, 100),
            }
        }
    })?;
    Ok(list.finish())
}

/// The first key of what `nft -j list` prints.
const NFT: &[u8] = b"\"nftables\"";

/// What `nft -j list set` prints.
#[derive(Deserialize)]
struct Nftables {
    nftables: Vec<NftObject>,
}

/// A set among other objects.
#[derive(Deserialize)]
struct NftObject {
    set: Option<NftSet>,
}

#[derive(Deserialize)]
struct NftSet {
    #[serde(default)]
    elem: Vec<serde_json::Value>,
}

impl Nftables {
    fn add_to(self, list: &mut List) -> Result<(), serde_json::Error> {
        let sets = self.nftables.into_iter().filter_map(|object| object.set);
        for element in sets.flat_map(|set| set.elem) {
            let text = element_of_nft(&element);
            let text = text.ok_or_else(|| {
                format!("the element {element}; expected an address, a prefix or a range of addresses")
            });
            text.and_then(|text| list.elements().element(&text)).map_err(serde_json::Error::custom)?;
        }
        Ok(())
    }
}

/// An element in the words of a list.
fn element_of_nft(element: &serde_json::Value) -> Option<String> {
    let text = |value: &serde_json::Value| value.as_str().map(String::from);
    if let Some(address) = text(element) {
        return Some(address);
    }
    let prefix = &element["prefix"];
    if let (Some(address), Some(length)) = (text(&prefix["addr"]), prefix["len"].as_u64()) {
        return Some(format!("{address}/{length}"));
    }
    if let (Some(first), Some(last)) = (text(&element["range"][0]), text(&element["range"][1])) {
        return Some(format!("{first}-{last}"));
    }
    // With a timeout or a comment; not nested again.
    Some(&element["elem"]["val"]).filter(|value| !value.is_null()).and_then(|value| {
        match value["elem"].is_null() {
            true => element_of_nft(value),
            false => None,
        }
    })
}

/// An element of the array: an object, or a prefix alone.
struct Element(Route);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"dst": "192.0.2.0/24", "value": 7} or a prefix as a string"#)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element(Route { dst: Some(text.into()), ..Route::default() }))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Element, M::Error> {
        Route::deserialize(MapAccessDeserializer::new(map)).map(Element)
    }
}

/// The keys of `ip -j route` that say where to, and those of a plain list.
#[derive(Deserialize, Default)]
struct Route {
    #[serde(alias = "cidr")]
    dst: Option<String>,
    value: Option<serde_json::Value>,
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    encap: Option<String>,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    nhid: Option<u32>,
    nexthops: Option<Vec<Hop>>,
    pref: Option<String>,
    mode: Option<String>,
    segs: Option<Vec<String>>,
    action: Option<String>,
    nh4: Option<String>,
    nh6: Option<String>,
    table: Option<serde_json::Value>,
    tos: Option<serde_json::Value>,
}

/// One way of a route.
#[derive(Deserialize, Default)]
struct Hop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    weight: Option<u32>,
}

/// A gateway of the other family.
#[derive(Deserialize)]
struct Via {
    family: String,
    host: String,
}

/// Adds a way in the words of `ip route`.
fn push_way(words: &mut String, gateway: Option<&String>, via: Option<&Via>, dev: Option<&String>) {
    if let Some(gateway) = gateway {
        *words += &format!(" via {gateway}");
    }
    if let Some(via) = via {
        *words += &format!(" via {} {}", via.family, via.host);
    }
    if let Some(dev) = dev {
        *words += &format!(" dev {dev}");
    }
}

impl Route {
    /// In the words of `ip route`; empty without a next hop.
    fn hop(&self) -> String {
        let mut words = String::new();
        if let Some(kind) = self.kind.as_ref().filter(|kind| *kind != "unicast") {
            words += kind;
        }
        if let Some(encap) = &self.encap {
            words += &format!(" encap {encap}");
            for (key, value) in
                [("action", &self.action), ("mode", &self.mode), ("nh4", &self.nh4), ("nh6", &self.nh6)]
            {
                if let Some(value) = value {
                    words += &format!(" {key} {value}");
                }
            }
            if let Some(segs) = &self.segs {
                words += &format!(" segs {} [ {} ]", segs.len(), segs.join(" "));
            }
        }
        if let Some(nhid) = self.nhid {
            words += &format!(" nhid {nhid}");
        }
        push_way(&mut words, self.gateway.as_ref(), self.via.as_ref(), self.dev.as_ref());
        for hop in self.nexthops.iter().flatten() {
            words += " nexthop";
            push_way(&mut words, hop.gateway.as_ref(), hop.via.as_ref(), hop.dev.as_ref());
            if let Some(weight) = hop.weight {
                words += &format!(" weight {weight}");
            }
        }
        words.trim_start().into()
    }

    /// Whether a default route is one of IPv6, if its keys say.
    fn is_default6(&self) -> Option<bool> {
        if let Some(via) = &self.via {
            return Some(via.family == "inet");
        }
        let mut hops = self.nexthops.iter().flatten();
        match self.gateway.as_ref().or(hops.find_map(|hop| hop.gateway.as_ref())) {
            Some(gateway) => Some(gateway.contains(':')),
            None if self.pref.is_some() => Some(true),
            None if self.nhid.is_some() => None,
            None => self.dev.is_some().then_some(false),
        }
    }
}

/// A list as it is read, element by element.
#[derive(Default)]
struct List {
    /// Only prefixes count.
    set: bool,
    prefixes: Prefixes<Option<u32>>,
    names: BTreeMap<u32, String>,
    hops: Hops,
    table: OneTable,
    values: usize,
    routes: usize,
    skipped: u64,
    truncated: u64,
    /// The last element was one of IPv6: a default route without keys that say its family belongs to the same.
    v6: bool,
    /// The line of the current element, where each has one of its own.
    line: usize,
}

impl List {
    fn elements(&mut self) -> Elements<'_> {
        Elements { to: &mut self.prefixes, truncate: false, truncated: &mut self.truncated }
    }

    /// Reads a list that has one object on each line.
    fn lines<'de>(
        &mut self,
        input: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    ) -> serde_json::Result<()> {
        for element in input.into_iter::<Element>() {
            self.line += 1;
            let Element(route) = element?;
            // Spamhaus ends its lists so.
            if route.dst.is_none() && route.kind.as_deref() == Some("metadata") {
                continue;
            }
            self.add(route).map_err(serde_json::Error::custom)?;
        }
        Ok(())
    }

    /// Adds an element; the error says what is wrong and what was expected.
    fn add(&mut self, route: Route) -> Result<(), String> {
        let Some(dst) = &route.dst else {
            return Err(format!(
                "an object without dst; expected an array such as [{EXAMPLE}], or one such object a line"
            ));
        };
        if self.set {
            return self.elements().element(dst);
        }
        if route.tos.as_ref().is_some_and(|tos| tos.as_str() != Some("0") && tos.as_u64() != Some(0)) {
            self.skipped += 1;
            return Ok(());
        }
        let prefix = if dst == "default" {
            self.v6 = route.is_default6().unwrap_or(self.v6);
            if self.v6 {
                IpPrefix::V6(Prefix::truncated(0, 0))
            } else {
                IpPrefix::V4(Prefix::truncated(0, 0))
            }
        } else {
            dst.parse().map_err(|error| format!("dst: {error}; {EXPECTED}"))?
        };
        self.v6 = matches!(prefix, IpPrefix::V6(_));
        let value = route.value.as_ref().filter(|value| !value.is_null());
        let value = value.map(|value| {
            let number = value.as_u64().and_then(|value| u32::try_from(value).ok());
            let number = number.filter(|value| (1..=VALUE_MAX).contains(value));
            number.ok_or_else(|| {
                format!("{dst}: invalid value {value}: expected a number from 1 to {VALUE_MAX}")
            })
        });
        let value = value.transpose()?;
        if let (Some(value), Some(name)) = (value, &route.name) {
            let first = self.names.entry(value).or_insert_with(|| name.clone());
            if first != name {
                return Err(format!(
                    "{dst}: the value {value} has the name {name:?}, and {first:?} before; expected one name"
                ));
            }
        }
        self.values += usize::from(value.is_some());
        if value.is_none() && self.values == 0 {
            let hop = route.hop();
            if !hop.is_empty() {
                self.routes += 1;
                let table = route
                    .table
                    .as_ref()
                    .map(|table| table.as_str().map_or_else(|| table.to_string(), String::from));
                self.table.is(table.as_deref().unwrap_or("main"))?;
            }
            self.hops.push(prefix, hop, route.nhid);
        }
        self.prefixes.push(prefix, value);
        Ok(())
    }

    /// All of it. A mere list of prefixes has neither values nor next hops; routes among values are prefixes without one.
    fn finish(self) -> PrefixList {
        let Self { prefixes, names, skipped, truncated, .. } = self;
        if self.values == 0 && self.routes > 0 {
            return PrefixList { skipped, ..self.hops.finish(Format::Json) };
        }
        PrefixList { prefixes, names, skipped, truncated, ..PrefixList::new(Format::Json) }
    }
}

impl<'de> Visitor<'de> for &mut List {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array such as [{EXAMPLE}]")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<(), S::Error> {
        while let Some(Element(route)) = elements.next_element()? {
            self.add(route).map_err(S::Error::custom)?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for PrefixList {
    /// As [`read`].
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut list = List::default();
        from.deserialize_seq(&mut list)?;
        Ok(list.finish())
    }
}

/// A prefix as it is written.
#[derive(Serialize)]
struct Row<'a> {
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// Writes prefixes as [`read`] reads them, one object a line.
pub fn write(
    to: &mut impl Write,
    prefixes: impl Iterator<Item = (impl fmt::Display, Option<u32>)>,
    names: &BTreeMap<u32, String>,
) -> std::io::Result<()> {
    let mut before = "[";
    for (prefix, value) in prefixes {
        to.write_all(before.as_bytes())?;
        let name = value.and_then(|value| names.get(&value)).map(String::as_str);
        serde_json::to_writer(&mut *to, &Row { dst: prefix.to_string(), value, name })?;
        before = ",\n";
    }
    to.write_all(if before == "[" { b"[]\n" } else { b"]\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<PrefixList, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read(file.path()).map_err(|error| {
            let error_text = error.to_string();
            let path = file.path().display().to_string();
            assert!(error_text.starts_with(&path), "{error_text}");
            error_text[path.len()..].to_string()
        })
    }

    fn rows(list: &PrefixList) -> Vec<(IpPrefix, Option<u32>)> {
        let v4 = list.prefixes.v4.iter().map(|(prefix, value)| (IpPrefix::V4(*prefix), *value));
        v4.chain(list.prefixes.v6.iter().map(|(prefix, value)| (IpPrefix::V6(*prefix), *value))).collect()
    }

    #[test]
    fn written_tables_are_read_back() {
        let list = parsed(
            r#"[{"dst": "10.0.0.0/8", "value": 7, "name": "the\n\"seven\""}, "192.0.2.1",
                {"dst": "2001:db8::/32", "value": 2147483647, "unknown": [1, {}]}]"#,
        )
        .unwrap();
        assert_eq!(
            rows(&list).iter().map(|row| row.1).collect::<Vec<_>>(),
            [Some(7), None, Some(2_147_483_647)]
        );
        let mut written = Vec::new();
        write(&mut written, rows(&list).into_iter(), &list.names).unwrap();
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.lines().nth(1), Some(r#"{"dst":"192.0.2.1/32"},"#));
        assert_eq!(parsed(&text).unwrap(), list);
        assert!(parsed("[]").unwrap().prefixes.is_empty());
    }

    /// Output of iproute2 6.1.
    #[test]
    fn routes_of_iproute2() {
        let list = parsed(
            r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","protocol":"dhcp","metric":100,"flags":[]},
                {"dst":"10.0.0.0/8","gateway":"192.0.2.1","dev":"eth0","flags":[]},
                {"dst":"10.0.0.0/8","gateway":"192.0.2.2","dev":"eth0","metric":20,"flags":[]},
                {"type":"blackhole","dst":"198.51.100.0/24","flags":[]},
                {"dst":"10.4.0.0/16","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","flags":[]},
                {"dst":"203.0.113.0/24","flags":[],"nexthops":[{"gateway":"192.0.2.1","dev":"eth0","weight":1,"flags":[]},{"gateway":"192.0.2.9","dev":"eth1","weight":1,"flags":[]}]},
                {"dst":"2001:db8::/32","dev":"eth1","protocol":"kernel","metric":256,"flags":[],"pref":"medium"},
                {"dst":"default","gateway":"fe80::1","dev":"eth1","metric":1024,"flags":[],"pref":"medium"}]"#,
        )
        .unwrap();
        let values: Vec<_> =
            rows(&list).into_iter().map(|(prefix, value)| (prefix.to_string(), value.unwrap())).collect();
        let expected = [
            ("0.0.0.0/0", 1),
            ("10.0.0.0/8", 1),
            ("198.51.100.0/24", 2),
            ("10.4.0.0/16", 3),
            ("203.0.113.0/24", 4),
            ("2001:db8::/32", 5),
            ("::/0", 6),
        ];
        assert_eq!(values, expected.map(|(prefix, value)| (prefix.to_string(), value)));
        let names: Vec<_> = list.names.values().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "via 192.0.2.1 dev eth0",
                "blackhole",
                "via inet6 fe80::1 dev eth0",
                "nexthop via 192.0.2.1 dev eth0 weight 1 nexthop via 192.0.2.9 dev eth1 weight 1",
                "dev eth1",
                "via fe80::1 dev eth1"
            ]
        );
        let ids = parsed(r#"[{"dst":"10.0.0.0/8","nhid":9,"gateway":"192.0.2.1","dev":"eth0","flags":[]}]"#)
            .unwrap();
        assert_eq!(
            (ids.prefixes.v4[0].1, ids.names[&9].as_str()),
            (Some(9), "nhid 9 via 192.0.2.1 dev eth0")
        );
    }

    #[test]
    fn errors_name_place_value_and_expectation() {
        for (text, place, error_text) in [
            ("{\"prefixes\": []}", ":1:", "an array such as"),
            ("7", ":1:", "an object such as"),
            (
                "[{\"dst\": \"10.0.0.0/8\", \"value\": 7},\n {\"dst\": \"10.0.0.0/33\"}]",
                ":2:",
                "prefix length 33 is over 32",
            ),
            ("[{\"value\": 7}]", ":1:", "without dst"),
            ("[\"10.0.0.1/8\"]", ":1:", "the network is 10.0.0.0/8"),
            (
                "[{\"dst\": \"10.0.0.0/8\", \"value\": 0}]",
                ":1:",
                "10.0.0.0/8: invalid value 0: expected a number from 1",
            ),
            ("[{\"dst\": \"10.0.0.0/8\", \"value\": 2147483648}]", ":1:", "invalid value 2147483648"),
            ("[{\"dst\": \"10.0.0.0/8\", \"value\": \"x\"}]", ":1:", "invalid value \"x\""),
            ("[{\"dst\": 7}]", ":1:", "integer `7`, expected a string"),
            ("[\"10.0.0.0/8\"", ":1:", "EOF"),
            ("[] x", ":1:", "trailing characters"),
            (
                "[{\"dst\": \"10.0.0.0/8\", \"value\": 1, \"name\": \"US\"}, {\"dst\": \"11.0.0.0/8\", \"value\": 1, \"name\": \"DE\"}]",
                ":1:",
                "the name \"DE\", and \"US\" before",
            ),
            (
                "[{\"dst\": \"10.0.0.0/8\", \"dev\": \"a\", \"table\": \"100\"}, {\"dst\": \"10.0.0.0/8\", \"dev\": \"b\"}]",
                ":1:",
                "a route of table main behind one of table 100",
            ),
            ("[7]", ":1:", "integer `7`, expected an object such as"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(
                error.starts_with(place) && error.contains(error_text) && error.contains("xpected"),
                "{text}: {error}"
            );
        }
    }
}
