//! The state of the daemon's audits, and of answers of many lines.

use crate::api::route_query::Cursor;
use crate::audit::full::Full;
use crate::audit::sampler::{Sample, Sampler};
use crate::audit::{AuditStatus, Difference, Part};
use crate::kernel::socket::{Error, Netlink};
use crate::rib::mirror::Changes;
use std::collections::{BTreeMap, HashSet};
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
    /// Named in the log already.
    pub(super) named: HashSet<(Part, u32, String)>,
    /// No repair before.
    pub(super) repair_after: Option<Instant>,
    pub(super) pause: Duration,
}

impl Audit {
    pub(super) fn new(rate: u32) -> Result<Self, Error> {
        let (sampler, suspects, named) = Default::default();
        Ok(Self {
            status: AuditStatus { rate, ..AuditStatus::default() },
            socket: Netlink::route()?,
            sampler,
            due: 0,
            second: Instant::now(),
            suspects,
            named,
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

    /// The time of the next look; `None`: with the next tick.
    pub(super) fn at(&self, now: Instant) -> Option<Instant> {
        if self.due > 0 {
            return Some(now);
        }
        self.suspects.values().map(|(.., at)| *at).min()
    }
}

/// An audit of everything, for a command.
#[derive(Debug)]
pub(super) struct FullAudit {
    pub(super) full: Full,
    pub(super) told: Instant,
}

impl FullAudit {
    pub(super) fn new(repair: bool) -> Result<Self, Error> {
        Ok(Self { full: Full::new(repair)?, told: Instant::now() })
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
