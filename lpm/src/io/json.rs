//! Prefix lists as JSON: `[{"dst": "192.0.2.0/24", "value": 7}, …]`, and what `ip -j route` prints.

use super::error::ImportError;
use super::format::Format;
use super::hops::Hops;
use super::list::PrefixList;
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
const EXPECTED: &str = r#"expected {"dst": "192.0.2.0/24", "value": 7} or a prefix as a string"#;

/// Reads `path` (`-` is standard input), packed or not: an array of objects or of prefixes as strings. Unknown keys are passed over.
///
/// | key | meaning |
/// |---|---|
/// | `dst` | the prefix, or an address |
/// | `value` | 1 to 2^31-1; may be missing |
/// | `name` | what the value stands for; may be missing |
///
/// Without a `value` anywhere, objects with `gateway`, `dev`, `via`, `nexthops`, `nhid`, `encap` or `type` are the routes of `ip -j route`.
/// They get values as in [`super::iproute::read`].
pub fn read(path: &Path) -> Result<PrefixList, ImportError> {
    from(Source::open(path)?)
}

pub(super) fn from(source: Source) -> Result<PrefixList, ImportError> {
    let path = source.path().to_path_buf();
    let mut input = serde_json::Deserializer::from_reader(source.reader());
    let read = input.deserialize_seq(List).and_then(|list| input.end().map(|()| list));
    read.map_err(|error| match error.classify() {
        serde_json::error::Category::Io => failed(&path, error.into()),
        _ => {
            let error_text = error.to_string();
            // The place stands before the message already.
            let what = error_text.split(" at line ").next().unwrap_or(&error_text);
            let more = if what.contains("expected") { String::new() } else { format!("; {EXPECTED}") };
            ImportError::Json {
                path,
                line: error.line(),
                column: error.column(),
                what: super::source::shortened(&format!("{what}{more}"), 200, 100),
            }
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

struct List;

impl<'de> Visitor<'de> for List {
    type Value = PrefixList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an array such as [{"dst": "192.0.2.0/24", "value": 7}]"#)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<PrefixList, S::Error> {
        let mut list = PrefixList::new(Format::Json);
        let mut hops = Hops::default();
        let (mut values, mut routes, mut v6) = (0usize, 0usize, false);
        while let Some(Element(route)) = elements.next_element()? {
            let Some(dst) = &route.dst else {
                return Err(S::Error::custom(format!("an object without dst; {EXPECTED}")));
            };
            let prefix = if dst == "default" {
                v6 = route.is_default6().unwrap_or(v6);
                if v6 { IpPrefix::V6(Prefix::truncated(0, 0)) } else { IpPrefix::V4(Prefix::truncated(0, 0)) }
            } else {
                dst.parse().map_err(|error| S::Error::custom(format!("dst: {error}; {EXPECTED}")))?
            };
            v6 = matches!(prefix, IpPrefix::V6(_));
            let value = match &route.value {
                None | Some(serde_json::Value::Null) => None,
                Some(value) => {
                    let number = value.as_u64().and_then(|value| u32::try_from(value).ok());
                    let number = number.filter(|value| (1..=VALUE_MAX).contains(value));
                    Some(number.ok_or_else(|| {
                        S::Error::custom(format!(
                            "{dst}: invalid value {value}: expected a number from 1 to {VALUE_MAX}"
                        ))
                    })?)
                }
            };
            if let (Some(value), Some(name)) = (value, &route.name) {
                list.names.insert(value, name.clone());
            }
            values += usize::from(value.is_some());
            if value.is_none() && values == 0 {
                let hop = route.hop();
                routes += usize::from(!hop.is_empty());
                hops.push(prefix, hop, route.nhid);
            }
            list.prefixes.push(prefix, value);
        }
        // A mere list of prefixes has neither; routes among values are prefixes without one.
        Ok(if values == 0 && routes > 0 { hops.finish(Format::Json) } else { list })
    }
}

impl<'de> Deserialize<'de> for PrefixList {
    /// As [`read`].
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(List)
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
            ("{\"dst\": 1}", ":1:", "an array such as"),
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
