//! The settings of a SID hook, in their one form: the configuration yields it, trielined follows it, the answers show it.

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use crate::capture::ring::SNAP_MAX;
use crate::filter::rule::{FilterRule, Invalid, Wrong, check_name, twice};

/// Bytes of a frame that a sample keeps if the configuration names no number.
const SNAP: u32 = 256;
/// The highest rate of a sample, packets a second.
const RATE_MAX: u32 = 1_000_000_000;

/// A SID hook's settings. Its keys are those of `[[sid_hook]]` and of `sid show -j`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SidHookRule {
    /// Its name: letters, digits, hyphens, dots and underscores.
    pub name: String,
    /// The SID: an address that the kernel has a route with `encap seg6local` for.
    pub sid: Ipv6Addr,
    /// The hook's function.
    #[serde(flatten)]
    pub what: What,
}

/// The function of a SID hook; each has keys of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum What {
    /// Asks filters for the packet inside.
    Filter {
        /// Their names, in order.
        filters: Vec<String>,
    },
    /// Samples packets as they come in.
    Pcap(Sample),
    /// Gives them to an XDP program.
    Program {
        /// Where it is pinned.
        program: PathBuf,
    },
}

/// The sampled packets, and the file for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// A pcap-ng file; one that is there is renamed to `FILE.old`.
    #[serde(rename = "pcap")]
    pub file: PathBuf,
    /// Bytes of a frame that are kept.
    pub snap: u32,
    /// Most packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

impl What {
    /// `filter`, `pcap` or `program`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Filter { .. } => "filter",
            Self::Pcap(_) => "pcap",
            Self::Program { .. } => "program",
        }
    }

    /// The file of a sample or of a program.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Filter { .. } => None,
            Self::Pcap(sample) => Some(&sample.file),
            Self::Program { program } => Some(program),
        }
    }

    /// The filters that it asks.
    pub fn filters(&self) -> &[String] {
        match self {
            Self::Filter { filters } => filters,
            Self::Pcap(_) | Self::Program { .. } => &[],
        }
    }
}

impl SidHookRule {
    /// The same hook, with a sample's file that is not absolute taken from `folder` on.
    pub fn in_folder(&self, folder: &Path) -> Self {
        let mut hook = self.clone();
        if let What::Pcap(sample) = &mut hook.what {
            sample.file = folder.join(&sample.file);
        }
        hook
    }

    fn check(&self, known: &[FilterRule]) -> Result<(), Wrong> {
        check_name(&self.name, None)?;
        let name = &self.name;
        match &self.what {
            What::Filter { filters } if filters.is_empty() => {
                Err((Some("filters"), format!("{name}: no filters; expected names of some")))
            }
            What::Filter { filters } => {
                let is_known = |named: &&String| known.iter().any(|filter| filter.name == **named);
                let Some(unknown) = filters.iter().find(|named| !is_known(named)) else { return Ok(()) };
                let names: Vec<&str> = known.iter().map(|filter| filter.name.as_str()).collect();
                let expected = match names[..] {
                    [] => "a [[filter]] of that name; there are none".to_owned(),
                    _ => format!("one of {}", names.join(", ")),
                };
                let what = format!("{name}: no filter is named {unknown:?}; expected {expected}");
                Err((Some("filters"), what))
            }
            What::Pcap(Sample { snap, rate, .. }) => {
                let values = [("snap", *snap, SNAP_MAX), ("rate", rate.unwrap_or(1), RATE_MAX)];
                match values.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
                    Some((key, value, most)) => {
                        Err((Some(key), format!("{name}: {key} {value}; expected 1 to {most}")))
                    }
                    None => Ok(()),
                }
            }
            What::Program { .. } => Ok(()),
        }
    }
}

/// Refuses configured SID hooks that cannot be: each by itself, two of one name, and two of one SID.
pub fn check(hooks: &[SidHookRule], filters: &[FilterRule]) -> Result<(), Invalid> {
    let (mut names, mut sids) = (BTreeSet::new(), BTreeMap::new());
    for (entry, hook) in hooks.iter().enumerate() {
        let (is_new, other) = (names.insert(&hook.name), sids.insert(hook.sid, &hook.name));
        let once = || match other {
            _ if !is_new => Err(twice(&hook.name)),
            Some(other) => {
                let what = format!("{}: {} has {other} already; expected one a SID", hook.name, hook.sid);
                Err((Some("sid"), what))
            }
            None => Ok(()),
        };
        let checked = hook.check(filters).and_then(|()| once());
        checked.map_err(|(key, what)| Invalid { entry, key, what })?;
    }
    Ok(())
}

/// The keys, from which [`What`] follows.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Name,
    Sid,
    Filters,
    Pcap,
    Snap,
    Rate,
    Program,
}

const KEYS: &[&str] = &["name", "sid", "filters", "pcap", "snap", "rate", "program"];

impl<'de> Deserialize<'de> for SidHookRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_struct("SidHookRule", KEYS, Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = SidHookRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a SID hook")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<SidHookRule, M::Error> {
        let (mut name, mut sid, mut filters, mut program) = (None, None, None, None);
        let (mut file, mut snap, mut rate) = (None, None, None);
        while let Some(key) = map.next_key()? {
            match key {
                Key::Name => name = Some(map.next_value::<String>()?),
                Key::Sid => sid = Some(map.next_value()?),
                Key::Filters => filters = Some(map.next_value()?),
                Key::Pcap => file = Some(map.next_value()?),
                Key::Snap => snap = Some(map.next_value()?),
                Key::Rate => rate = Some(map.next_value::<u32>()?),
                Key::Program => program = Some(map.next_value()?),
            }
        }
        let name = name.ok_or_else(|| M::Error::missing_field("name"))?;
        let sid = sid.ok_or_else(|| M::Error::missing_field("sid"))?;
        let what = match (filters, file, program) {
            (Some(filters), None, None) => What::Filter { filters },
            (None, Some(file), None) => What::Pcap(Sample { file, snap: snap.unwrap_or(SNAP), rate }),
            (None, None, Some(program)) => What::Program { program },
            _ => {
                let what = format!("{name}: expected one of filters, pcap and program");
                return Err(M::Error::custom(what));
            }
        };
        let of_samples = [("snap", snap.is_some()), ("rate", rate.is_some())];
        let stray = of_samples.into_iter().find(|(_, is_there)| *is_there && !matches!(what, What::Pcap(_)));
        if let Some((key, _)) = stray {
            let what = format!("{name}: {key} without pcap; expected it with a file to sample to");
            return Err(M::Error::custom(what));
        }
        Ok(SidHookRule { name, sid, what })
    }
}
