//! The audit: whether the kernel's routes, the mirror, the image and the actions say the same. It compares samples of addresses all the
//! time, and everything on demand.

pub mod answer;
pub mod check;
pub mod full;
pub mod maps;
pub mod objects;
pub mod packets;
pub mod sampler;
mod suspects;

use serde::{Deserialize, Serialize};

/// The first part on the way from the kernel to a packet that does not say what the part before it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The mirror has another route or object (neighbour, link, rule, setting, next hop object) than the kernel.
    Mirror,
    /// The table as it was written has something else than the mirror decides.
    Table,
    /// The image has other words than were written.
    Image,
    /// An action or its header is not what was written.
    Action,
    /// A map beside tables and actions (ports, own addresses, exits, rules, filters, SID hooks) is not what was written.
    Map,
    /// The XDP program sends a packet where the kernel would not.
    Packet,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mirror => "mirror",
            Self::Table => "table",
            Self::Image => "image",
            Self::Action => "action",
            Self::Map => "map",
            Self::Packet => "packet",
        })
    }
}

/// The kind of thing that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A route, from the kernel's to the image's.
    Route,
    /// A link.
    Link,
    /// A device's forwarding settings.
    Settings,
    /// A policy rule.
    Rule,
    /// A neighbour.
    Neighbour,
    /// A next hop object.
    Nexthop,
    /// An action that no address led to.
    Action,
    /// An entry of a map beside tables and actions.
    Entry,
    /// A packet through the program.
    Packet,
}

impl Kind {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Link => "link",
            Self::Settings => "settings",
            Self::Rule => "rule",
            Self::Neighbour => "neighbour",
            Self::Nexthop => "nexthop",
            Self::Action => "action",
            Self::Entry => "entry",
            Self::Packet => "packet",
        }
    }
}

/// A difference that stayed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Difference {
    /// The part that is wrong.
    pub part: Part,
    /// The kind of thing that differs.
    pub kind: Kind,
    /// `inet` or `inet6`.
    pub family: String,
    /// The kernel's number of the table; 254 is local and main together.
    pub table: u32,
    /// The prefix, or the object's name.
    pub prefix: String,
    /// An address for which the answers differ.
    pub address: Option<String>,
    /// The kernel's answer; none where it was not asked.
    pub kernel: Option<String>,
    /// The mirror's.
    pub mirror: Option<String>,
    /// The image's answer and its action, which packets meet.
    pub image: Option<String>,
}

impl Difference {
    /// Where it is: a difference in another address of the same prefix has the same place.
    pub fn place(&self) -> (Part, Kind, &str, u32, &str) {
        (self.part, self.kind, &self.family, self.table, &self.prefix)
    }

    /// An answer in words.
    pub fn said(answer: &Option<String>) -> &str {
        answer.as_deref().unwrap_or("not asked")
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = Self::said;
        if self.part == Part::Map {
            let (written, found) = (said(&self.mirror), said(&self.image));
            return write!(f, "{}: wrong map; written: {written}; found: {found}", self.prefix);
        }
        write!(f, "{} ({}, table {}", self.prefix, self.family, self.table)?;
        if let Some(address) = &self.address {
            write!(f, ", address {address}")?;
        }
        write!(
            f,
            "): wrong {}; kernel: {}; mirror: {}; image: {}",
            self.part,
            said(&self.kernel),
            said(&self.mirror),
            said(&self.image)
        )
    }
}

/// Counts of the audit, for `node status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditStatus {
    /// Addresses that are compared each second; 0: none.
    pub rate: u32,
    /// Addresses compared so far.
    pub samples: u64,
    /// Of them, those whose packets are the kernel's, so that nothing can differ.
    pub passed: u64,
    /// Of them, those that could not be compared: routes were just changing, or rules chose another table.
    pub skipped: u64,
    /// Times that all prefixes were sampled.
    pub rounds: u64,
    /// Addresses that differed at the last look, and are looked at again.
    pub suspects: usize,
    /// Differences that stayed, of samples and of audits that repair; one that lasts counts once.
    pub differences: u64,
    /// Times that trielined wrote tables and actions once more for that.
    pub repairs: u64,
    /// Audits of everything.
    pub full: u64,
    /// The last difference.
    pub last: Option<Difference>,
}

/// The result of an audit of everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audited {
    /// Routes that the kernel reported, of all tables.
    pub routes: u64,
    /// Prefixes of the image that were compared.
    pub prefixes: u64,
    /// Addresses that were looked up in the image.
    pub lookups: u64,
    /// Actions that were compared.
    pub actions: u64,
    /// Ports, exits, filters and SID hooks that were compared.
    pub entries: u64,
    /// Links, forwarding settings, rules, neighbours and next hop objects that were compared.
    pub objects: u64,
    /// Prefixes whose packets are the kernel's, so that nothing can differ.
    pub passed: u64,
    /// Prefixes that changed each time they were looked at.
    pub in_flight: u64,
    /// Families or tables that were not compared, and why.
    pub skipped: Vec<String>,
    /// Differences that stayed.
    pub differences: u64,
    /// trielined has written tables and actions once more.
    pub repaired: bool,
    /// The time that it took, seconds.
    pub seconds: f64,
}

/// A line of the daemon's answer to [`crate::api::control::Request::Audit`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditLine {
    /// How far it has come.
    Progress {
        /// The step.
        step: String,
        /// Things done.
        done: u64,
        /// Of about so many.
        of: u64,
    },
    /// A difference that stayed.
    Difference(Difference),
    /// Some destinations that XDP forwards, all over the tables, for packets through the program.
    Destinations(Vec<std::net::IpAddr>),
    /// The end.
    Done(Audited),
}

/// The name of a family in answers.
pub fn family_name(netlink: u8) -> &'static str {
    if netlink == crate::kernel::family::INET { "inet" } else { "inet6" }
}
