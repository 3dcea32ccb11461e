//! The settings of a filter, in their one form: the configuration yields it, the maps take it, the answers show it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Not, RangeInclusive};
use std::path::{Path, PathBuf};

use crate::xdp::layout::{tl_filter_action, tl_limits};

/// Protocols that have a name in the configuration, by their number (IANA protocol numbers).
const PROTOCOLS: [(&str, u8); 12] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];
/// Those whose headers begin with ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// A filter's settings: packets from or to the addresses of a set, and the action on them.
///
/// Its keys are those of `[[filter]]` and of `filter show -j`; a setting that has its default is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterRule {
    /// Its name: 1 to [`FilterRule::NAME_MAX`] letters, digits, hyphens, dots and underscores.
    pub name: String,
    /// The prefix list that its set is read from. The maps do not keep it: `None` in what is read back from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The address that is looked up.
    #[serde(rename = "match")]
    pub address: FilterMatch,
    /// Only packets of this protocol, IPv6 extension headers left aside.
    #[serde(default, with = "protocol", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Only packets to one of these destination ports; none: to any. At most [`FilterRule::RANGES_MAX`].
    #[serde(default, with = "ports", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<RangeInclusive<u16>>,
    /// Only packets from one of these source ports; none: from any. As many as of `ports`.
    #[serde(default, with = "ports", skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// The treatment of matching packets.
    pub action: FilterAction,
    /// Packets that belong to the link are matched, too: neighbour discovery, DHCP, OSPF, and others between link-local addresses.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub link: bool,
    /// Lines of the file that are wrong are passed over and counted, instead of changing nothing.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub skip_bad: bool,
    /// Host bits of its prefixes are cleared; else such a prefix is wrong.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub truncate: bool,
}

/// The address of a packet that a filter looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterMatch {
    /// Its source.
    Source,
    /// Its destination.
    Destination,
}

/// The treatment of a packet that a filter matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum FilterAction {
    /// It is counted, and the next filter is asked.
    Count = tl_filter_action::TL_FILTER_COUNT.0,
    /// It is routed; no further filter is asked.
    Allow = tl_filter_action::TL_FILTER_ALLOW.0,
    /// The kernel gets it.
    Pass = tl_filter_action::TL_FILTER_PASS.0,
    /// It is dropped.
    Drop = tl_filter_action::TL_FILTER_DROP.0,
}

impl FilterAction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Count, Self::Allow, Self::Pass, Self::Drop];
}

impl fmt::Display for FilterMatch {
    /// As the configuration has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for FilterAction {
    /// As the configuration has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Invalid {
    /// The place of its entry in the list, from 0.
    pub entry: usize,
    /// The key, if one value is wrong.
    pub key: Option<&'static str>,
    /// The value, and what was expected.
    pub what: String,
}

/// The error in one entry: the key, if one value is wrong, and the text.
pub(crate) type Wrong = (Option<&'static str>, String);

impl FilterRule {
    /// Bytes of the longest name.
    pub const NAME_MAX: usize = tl_limits::TL_FILTER_NAME.0 as usize - 1;
    /// Ranges of destination ports in one filter, and as many of source ports.
    pub const RANGES_MAX: usize = tl_limits::TL_FILTER_PORTS.0 as usize;

    /// A rule for all packets from or to the addresses of a set that no file has.
    pub fn new(name: impl Into<String>, address: FilterMatch, action: FilterAction) -> Self {
        Self {
            name: name.into(),
            file: None,
            address,
            protocol: None,
            ports: Vec::new(),
            source_ports: Vec::new(),
            action,
            link: false,
            skip_bad: false,
            truncate: false,
        }
    }

    /// The same rule, with a file that is not absolute taken from `folder` on.
    pub fn in_folder(&self, folder: &Path) -> Self {
        Self { file: self.file.as_ref().map(|file| folder.join(file)), ..self.clone() }
    }

    /// Refuses what the maps cannot hold.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        check_name(&self.name, Some(Self::NAME_MAX))?;
        let (name, most) = (&self.name, Self::RANGES_MAX);
        for (key, ranges) in [("ports", &self.ports), ("source_ports", &self.source_ports)] {
            let ranges = ranges.len();
            if ranges > most {
                return Err((Some(key), format!("{name}: {ranges} ports or ranges; expected 1 to {most}")));
            }
        }
        let has_ports = !self.ports.is_empty() || !self.source_ports.is_empty();
        match self.protocol {
            Some(protocol) if has_ports && !WITH_PORTS.contains(&protocol) => {
                let what = format!(
                    "{name}: protocol {protocol} has no ports; expected tcp, udp, dccp, sctp or udplite"
                );
                Err((Some("protocol"), what))
            }
            _ => Ok(()),
        }
    }

    /// Whether it asks for more than addresses.
    pub(crate) fn asks_upper(&self) -> bool {
        self.protocol.is_some() || !self.ports.is_empty() || !self.source_ports.is_empty()
    }

    fn check_file(&self) -> Result<(), Wrong> {
        let file = self.file.as_ref().ok_or((None, format!("{}: missing key `file`", self.name)))?;
        if file.as_os_str().is_empty() || file.as_os_str() == "-" {
            let what = format!("{}: invalid {:?} for file: expected a path", self.name, file.display());
            return Err((Some("file"), what));
        }
        Ok(())
    }
}

/// Refuses configured filters that cannot be: each by itself, and two of one name.
pub fn check(rules: &[FilterRule]) -> Result<(), Invalid> {
    let mut names = BTreeSet::new();
    for (entry, rule) in rules.iter().enumerate() {
        let is_new = names.insert(&rule.name);
        let once = || if is_new { Ok(()) } else { Err(twice(&rule.name)) };
        let checked = rule.check().and_then(|()| rule.check_file()).and_then(|()| once());
        checked.map_err(|(key, what)| Invalid { entry, key, what })?;
    }
    Ok(())
}

/// Refuses names that are not words, or have more than `max` bytes.
pub(crate) fn check_name(name: &str, max: Option<usize>) -> Result<(), Wrong> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || max.is_some_and(|max| name.len() > max) || !name.chars().all(is_word) {
        let length = max.map(|max| format!("1 to {max} ")).unwrap_or_default();
        let expected = format!("expected {length}letters, digits, hyphens, dots and underscores");
        return Err((Some("name"), format!("invalid {name:?} for name: {expected}")));
    }
    Ok(())
}

pub(crate) fn twice(name: &str) -> Wrong {
    (Some("name"), format!("two are named {name:?}; expected each once"))
}

/// A protocol: read as a name or a number, written as a number.
mod protocol {
    use super::{PROTOCOLS, fmt};
    use serde::de::{Deserializer, Error, Expected, Visitor};
    use serde::ser::Serializer;

    struct Protocol;

    fn invalid<E: Error>(value: impl fmt::Debug) -> E {
        E::custom(format!("invalid {value:?} for protocol: expected {}", &Protocol as &dyn Expected))
    }

    impl Visitor<'_> for Protocol {
        type Value = Option<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let names = PROTOCOLS.map(|(name, _)| name).join(", ");
            write!(f, "a number from 0 to 255, or one of {names}")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
            u8::try_from(number).map(Some).map_err(|_| invalid(number))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            u8::try_from(number).map(Some).map_err(|_| invalid(number))
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
            let known = PROTOCOLS.iter().find(|(known, _)| *known == name);
            known.map(|(_, number)| Some(*number)).ok_or_else(|| invalid(name))
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
        from.deserialize_any(Protocol)
    }

    pub(super) fn serialize<S: Serializer>(protocol: &Option<u8>, to: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(protocol, to)
    }
}

/// Ports and ranges of them: read as numbers and as text, written as text (`22`, `8000-8080`).
mod ports {
    use super::{FilterRule, RangeInclusive, fmt, range_text};
    use serde::de::{Deserialize, Deserializer, Error, Expected, Visitor};
    use serde::ser::Serializer;

    struct Range(RangeInclusive<u16>);
    struct Ports;

    fn invalid<E: Error>(value: impl fmt::Debug) -> E {
        E::custom(format!("invalid {value:?}: expected {}", &Ports as &dyn Expected))
    }

    impl Visitor<'_> for Ports {
        type Value = Range;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a port such as 80, or a range such as \"8000-8080\"")
        }

        fn visit_i64<E: Error>(self, port: i64) -> Result<Range, E> {
            u16::try_from(port).map(|port| Range(port..=port)).map_err(|_| invalid(port))
        }

        fn visit_u64<E: Error>(self, port: u64) -> Result<Range, E> {
            u16::try_from(port).map(|port| Range(port..=port)).map_err(|_| invalid(port))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Range, E> {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let ends = first.trim().parse().ok().zip(last.trim().parse().ok());
            let range = ends.map(|(first, last)| first..=last).filter(|range| !range.is_empty());
            range.map(Range).ok_or_else(|| invalid(text))
        }
    }

    impl<'de> Deserialize<'de> for Range {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(Ports)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<RangeInclusive<u16>>, D::Error> {
        let ranges = Vec::<Range>::deserialize(from)?;
        // An empty list would match all ports, as no list does.
        if ranges.is_empty() || ranges.len() > FilterRule::RANGES_MAX {
            let (has, most) = (ranges.len(), FilterRule::RANGES_MAX);
            return Err(D::Error::custom(format!("{has} ports or ranges; expected 1 to {most}")));
        }
        Ok(ranges.into_iter().map(|Range(range)| range).collect())
    }

    pub(super) fn serialize<S: Serializer>(ports: &[RangeInclusive<u16>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ports.iter().map(range_text))
    }
}

/// A range of ports as the configuration has it.
pub fn range_text(range: &RangeInclusive<u16>) -> String {
    match (range.start(), range.end()) {
        (one, other) if one == other => one.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}
