//! The state of the daemon's audits, and of answers of many lines.

use crate::api::route_query::Cursor;
use crate::audit::full::{Full, NAMED};
use crate::audit::sampler::{Sample, Sampler};
use crate::audit::{AuditStatus, Difference, Kind, Part};
use crate::kernel::family;
use crate::kernel::socket::{Error, Netlink};
use crate::rib::mirror::Changes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A second repair of differences that come back waits for so long at least, each further one twice as long as the one before.
pub(super) const REPAIR_AFTER: Duration = Duration::from_secs(10);

/// The state of the audit.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) status: AuditStatus,
    pub(super) socket: Netlink,
    pub(super) sampler: Sampler,
    /// Samples of this second that are still to be taken.
    pub(super) due: u32,
    pub(super) second: Instant,
    /// Addresses that differed: how often in a row, the last difference, and the time of the next look.
    pub(super) suspects: BTreeMap<Sample, (u8, Box<Difference>, Instant)>,
    /// Differences that were counted and logged, until they are found equal or are repaired.
    pub(super) open: Open,
    /// Differences of the mirror for which all routes were dumped, until their address is found equal.
    dumped: BTreeMap<Key, Difference>,
    /// A command's audit of everything goes on.
    pub(super) is_running: bool,
    /// No repair before.
    pub(super) repair_after: Option<Instant>,
    pub(super) pause: Duration,
}

impl Audit {
    pub(super) fn new(rate: u32) -> Result<Self, Error> {
        let (sampler, suspects, open, dumped) = Default::default();
        Ok(Self {
            status: AuditStatus { rate, ..AuditStatus::default() },
            socket: Netlink::route()?,
            sampler,
            due: 0,
            second: Instant::now(),
            suspects,
            open,
            dumped,
            is_running: false,
            repair_after: None,
            pause: REPAIR_AFTER,
        })
    }

    pub(super) fn set_rate(&mut self, rate: u32) {
        (self.status.rate, self.due) = (rate, self.due.min(rate));
    }

    pub(super) fn status(&self) -> AuditStatus {
        AuditStatus { suspects: self.suspects.len(), rounds: self.sampler.rounds, ..self.status.clone() }
    }

    /// Whether all routes were dumped for this very difference, and it stayed: the kernel's lookup says something else than its dump.
    pub(super) fn outlasts_dump(&self, difference: &Difference) -> bool {
        let is_same =
            |known: &Difference| (&known.kernel, &known.mirror) == (&difference.kernel, &difference.mirror);
        difference.part == Part::Mirror && self.dumped.get(&key(difference)).is_some_and(is_same)
    }

    /// Looks at these, which were just repaired, again.
    pub(super) fn look_again(&mut self, repaired: Vec<Difference>, at: Instant) {
        for difference in repaired {
            let Some(address) = difference.address.as_ref().and_then(|address| address.parse().ok()) else {
                continue;
            };
            let netlink = if matches!(address, IpAddr::V4(_)) { family::INET } else { family::INET6 };
            let sample = Sample { table: (netlink, difference.table), address };
            if difference.part == Part::Mirror && self.dumped.len() < NAMED as usize {
                self.dumped.insert(key(&difference), difference.clone());
            }
            self.suspects.insert(sample, (0, Box::new(difference), at));
        }
    }

    /// An address of a table is as it should be.
    pub(super) fn close(&mut self, table: u32, address: IpAddr) {
        self.open.close(table, address);
        if !self.dumped.is_empty() {
            let address = Some(address.to_string());
            self.dumped.retain(|_, known| known.table != table || known.address != address);
        }
    }

    /// All are repaired, but for those that no dump ends.
    pub(super) fn forget_repaired(&mut self) {
        let dumped = &self.dumped;
        self.open.0.retain(|known, _| known.0 == Part::Map || dumped.contains_key(known));
    }

    /// The time of the next look; `None`: with the next tick.
    pub(super) fn at(&self, now: Instant) -> Option<Instant> {
        if self.due > 0 {
            return Some(now);
        }
        self.suspects.values().map(|(.., at)| *at).min()
    }
}

/// Differences that are known, with the address that showed each: one that lasts is found by sample after sample, and is counted and logged once.
#[derive(Debug, Default)]
pub(super) struct Open(BTreeMap<Key, Option<String>>);

/// Part, kind, family, table and prefix of a difference.
type Key = (Part, Kind, String, u32, String);

impl Open {
    /// So many are remembered: as many as an audit names.
    const MOST: usize = NAMED as usize;

    /// Whether a difference is new. Without room to remember it, it is not.
    pub(super) fn enter(&mut self, difference: &Difference) -> bool {
        self.0.len() < Self::MOST && self.0.insert(key(difference), difference.address.clone()).is_none()
    }

    /// An audit of everything found just these.
    pub(super) fn retain_only(&mut self, differences: &[Difference]) {
        let found: BTreeSet<_> = differences.iter().map(key).collect();
        self.0.retain(|known, _| found.contains(known));
    }

    /// An address of a table is as it should be.
    pub(super) fn close(&mut self, table: u32, address: IpAddr) {
        if !self.0.is_empty() {
            let address = Some(address.to_string());
            self.0.retain(|(.., of, _), shown| *of != table || *shown != address);
        }
    }

    /// Of the maps beside tables and actions, just these differ.
    pub(super) fn retain_maps(&mut self, differences: &[Difference]) {
        let found: BTreeSet<_> = differences.iter().map(key).collect();
        self.0.retain(|known, _| known.0 != Part::Map || found.contains(known));
    }
}

fn key(difference: &Difference) -> Key {
    let (part, kind, family, table, prefix) = difference.place();
    (part, kind, family.into(), table, prefix.into())
}

/// An audit of everything, for a command.
#[derive(Debug)]
pub(super) struct FullAudit {
    pub(super) full: Full,
    /// When the command last heard how far it has come.
    pub(super) reported: Instant,
}

impl FullAudit {
    pub(super) fn new(repair: bool) -> Result<Self, Error> {
        Ok(Self { full: Full::new(repair)?, reported: Instant::now() })
    }

    /// Hears of changes before they are written.
    pub(super) fn note(&mut self, changes: &Changes) {
        self.full.note(changes);
    }
}

/// An answer of many lines, as far as it has come.
#[derive(Debug)]
pub(super) enum Work {
    /// All routes.
    Show(Cursor),
    /// An audit of everything.
    Audit(Box<FullAudit>),
}

impl Work {
    /// The time before which it has nothing to do.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        match self {
            Self::Show(_) => None,
            Self::Audit(audit) => audit.full.waits_until(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_lasts_is_new_once() {
        let difference = |n: u64| Difference {
            part: Part::Image,
            kind: Kind::Route,
            family: "inet".into(),
            table: 254,
            prefix: format!("10.0.{n}.0/24"),
            address: Some(format!("10.0.{n}.1")),
            kernel: None,
            mirror: None,
            image: None,
        };
        let mut open = Open::default();
        let other = Difference { address: None, ..difference(1) };
        assert!(open.enter(&difference(1)) && !open.enter(&difference(1)) && !open.enter(&other));
        assert!(open.enter(&difference(2)));
        open.retain_only(&[difference(2)]);
        assert!(open.enter(&difference(1)) && !open.enter(&difference(2)));
        open.close(254, [10, 0, 2, 9].into());
        assert!(!open.enter(&difference(2)));
        open.close(254, [10, 0, 2, 1].into());
        assert!(open.enter(&difference(2)));
        open.retain_only(&[]);
        assert!(open.enter(&difference(2)));
        // More than it remembers are not new again and again.
        for n in 0..2 * NAMED {
            open.enter(&difference(n));
        }
        assert!(!open.enter(&difference(2 * NAMED)) && !open.enter(&difference(0)));
    }
}
