//! The daemon's audit: samples all the time, everything on demand, and the repair of what differs.

use super::ports::Ports;
use super::tick::AGAIN;
use super::work::{FullAudit, REPAIR_AFTER};
use super::{BATCH, DETACHED, Daemon, TICK};
use crate::api::control::{Client, End, Refusal};
use crate::audit::answer::{Answer, ask};
use crate::audit::check::{Outcome, Parts};
use crate::audit::sampler::{Sample, Sampled, device};
use crate::audit::{AuditLine, Difference, Part, family_name, maps};
use crate::dataplane::damage::Written;
use crate::filter::Filters;
use crate::kernel::addr::is_special;
use crate::kernel::family;
use crate::kernel::socket::Error;
use crate::sid_hook::SidHooks;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An address that differed is looked at again after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// A difference that is the same at so many looks in a row stays.
const LOOKS: u8 = 3;
/// Addresses that differed at a time; more wait for the next second.
const SUSPECTS: usize = 1000;
/// The longest wait.
const REPAIR_AFTER_MOST: Duration = Duration::from_secs(600);
/// Differences that the log names at a time.
const LOGGED: usize = 16;
/// The ends of a line about a difference: trielined's next step.
const REPAIRS: &str = "trielined writes it once more";
const REPAIRS_LATER: &str = "trielined repaired differences just before, and repairs again later";

/// The maps beside tables and actions, as they were written.
fn written<'a>(
    ports: &'a Ports,
    sid_hooks: &SidHooks,
    filters: &Filters,
    name: &'a dyn Fn(u32) -> String,
) -> Written<'a> {
    Written {
        ports: ports.all(),
        exits: ports.egress(),
        jumbo_exits: ports.frags(),
        hooks: sid_hooks.bound(),
        lists: filters.lists(),
        name,
    }
}

impl Daemon {
    /// Whether the image should be as the kernel's routes now: nothing waits to be dumped or written.
    fn is_settled(&self) -> bool {
        let (v4, v6) = self.tables();
        !self.detached && v4 && v6 && !self.mirror.changes.any() && self.mirror.resync.at().is_none()
    }

    /// Takes the samples that are due. It leaves the rest for the next turn of the loop after a while.
    pub(super) fn audit_samples(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.audit.second) >= TICK {
            (self.audit.second, self.audit.due) = (now, self.audit.status.rate);
            self.audit_maps();
        }
        let looks = self.audit.suspects.iter().filter(|(_, (.., at))| *at <= now);
        let looks: Vec<Sample> = looks.map(|(sample, _)| *sample).collect();
        if (self.audit.due == 0 && looks.is_empty()) || !self.is_settled() {
            if !looks.is_empty() || self.audit.due > 0 {
                // Something is in flight: all of it later.
                self.audit.due = 0;
                self.audit.suspects.values_mut().for_each(|(.., at)| *at = now + PAUSE);
            }
            return;
        }
        let mut stayed = Vec::new();
        for sample in looks {
            if now.elapsed() >= BATCH {
                break; // The rest is due at once, in the next turn of the loop.
            }
            stayed.extend(self.audit_sample(sample));
        }
        while self.audit.due > 0 && now.elapsed() < BATCH && self.audit.suspects.len() < SUSPECTS {
            self.audit.due -= 1;
            let Some(sample) = self.audit.sampler.next(&self.publisher) else { break };
            self.audit.status.samples += 1;
            stayed.extend(self.audit_sample(sample));
        }
        if self.audit.suspects.len() >= SUSPECTS {
            self.audit.due = 0;
        }
        let (outlasting, stayed): (Vec<_>, Vec<_>) =
            stayed.into_iter().partition(|difference| self.audit.outlasts_dump(difference));
        self.report(&outlasting, "a dump of all routes did not end it, so trielined asks for no other");
        if !stayed.is_empty() {
            let repairs = self.may_repair();
            self.report(&stayed, if repairs { REPAIRS } else { REPAIRS_LATER });
            if repairs {
                self.repair(&stayed);
                self.audit.look_again(stayed, now + PAUSE);
            }
        }
    }

    /// Compares the maps beside tables and actions, and writes them once more where they differ.
    fn audit_maps(&mut self) {
        if self.detached || self.audit.status.rate == 0 || self.mirror.changes.any() {
            return;
        }
        let (differences, _) = self.map_differences();
        self.audit.open.retain_maps(&differences);
        if !differences.is_empty() {
            self.report(&differences, REPAIRS);
            self.repair(&differences);
        }
    }

    /// Entries of the maps beside tables and actions that are not as trielined wrote them, and how many entries there are.
    fn map_differences(&mut self) -> (Vec<Difference>, usize) {
        let (ports, name) = (&self.ports, |ifindex| self.mirror.kernel.name(ifindex));
        let written = written(ports, &self.sid_hooks, &self.filters, &name);
        let damaged = self.dataplane.damage(&written);
        let damaged =
            self.standing.note("compare ports, exits, rules, filters and SID hooks", AGAIN, damaged);
        let local = self.publisher.local_damage(&self.mirror);
        let all = damaged.into_iter().flatten().chain(local);
        (all.map(maps::difference).collect(), written.len())
    }

    fn repair_maps(&mut self) {
        let (ports, name) = (&self.ports, |ifindex| self.mirror.kernel.name(ifindex));
        let repaired = self.dataplane.repair(&written(ports, &self.sid_hooks, &self.filters, &name));
        self.standing.note("write ports, exits, rules, filters and SID hooks once more", AGAIN, repaired);
        self.publisher.repair_local(&self.mirror);
    }

    /// Compares one address; a difference that stayed.
    fn audit_sample(&mut self, sample: Sample) -> Option<Difference> {
        let outcome = match sample.address {
            IpAddr::V4(addr) => self.compare(sample, u32::from(addr)),
            IpAddr::V6(addr) => self.compare(sample, u128::from(addr)),
        };
        let difference = match outcome {
            Outcome::Differs(difference) => difference,
            settled => {
                let is_new = self.audit.suspects.remove(&sample).is_none();
                self.audit.status.passed += u64::from(is_new && settled == Outcome::Passed);
                self.audit.status.skipped += u64::from(is_new && settled == Outcome::Skipped);
                if settled != Outcome::Skipped {
                    self.audit.close(sample.table.1, sample.address);
                }
                return None;
            }
        };
        let known = self.audit.suspects.get(&sample);
        let seen = known.filter(|(_, known, _)| *known == difference).map_or(0, |(seen, ..)| *seen) + 1;
        // Words that the daemon wrote itself, and finds otherwise, are not in flight.
        if seen >= LOOKS || matches!(difference.part, Part::Image | Part::Action) {
            self.audit.suspects.remove(&sample);
            return Some(*difference);
        }
        self.audit.suspects.insert(sample, (seen, difference, Instant::now() + PAUSE));
        None
    }

    fn compare<A: Sampled>(&mut self, sample: Sample, addr: A) -> Outcome {
        let device = device(&self.mirror, sample.table).filter(|_| !is_special(sample.address));
        let (number, first) = (sample.table.1, self.ask(addr, device));
        let Ok(first) = first else { return Outcome::Skipped };
        match self.audit_parts().compare(number, addr, first.as_ref()) {
            Outcome::Differs(difference) if difference.part == Part::Mirror => {}
            outcome => return outcome,
        }
        // The change may be queued, or another one have come since: the mirror is brought up to date between two equal answers.
        let is_read = self.read_changes(BATCH).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot read the kernel's changes for the audit; the loop tries again");
            false
        });
        self.publish();
        match self.ask(addr, device) {
            Ok(again) if is_read && again == first && self.is_settled() => {
                self.audit_parts().compare(number, addr, again.as_ref())
            }
            _ => Outcome::Skipped,
        }
    }

    /// The kernel's answer, where it can be asked.
    fn ask<A: Sampled>(&mut self, addr: A, device: Option<u32>) -> Result<Option<Answer<A>>, Error> {
        let answer = device.map(|device| ask(&mut self.audit.socket, addr, device)).transpose();
        answer.inspect_err(
            |error| tracing::debug!(%error, "the audit got no answer from the kernel; it goes on"),
        )
    }

    fn audit_parts(&self) -> Parts<'_> {
        Parts {
            mirror: &self.mirror,
            publisher: &self.publisher,
            actions: self.dataplane.actions_ref(),
            reader: self.publisher.reader(),
        }
    }

    /// Does a step of an audit of everything, and answers the command; whether that was all.
    pub(super) fn audit_on(&mut self, audit: &mut FullAudit, client: &mut Client) -> std::io::Result<bool> {
        let blocked = [self.publisher.v4.blocked(), self.publisher.v6.blocked()].into_iter().flatten().next();
        let refused = match blocked {
            _ if self.detached => Some(DETACHED.to_owned()),
            Some((why, _)) => Some(format!("cannot compare tables that are not written: {why}")),
            None => None,
        };
        if let Some(error) = refused {
            client.answer(&Refusal { error })?;
            return Ok(true);
        }
        let is_settled = self.is_settled();
        if is_settled {
            match audit.full.advance(&self.audit_parts()) {
                Ok(true) => {
                    self.end_audit(audit, client)?;
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => {
                    client.answer(&Refusal { error: error.to_string() })?;
                    return Ok(true);
                }
            }
        } else {
            audit.full.wait(PAUSE);
        }
        // Also while it waits: the command gives up when it hears nothing.
        if audit.reported.elapsed() >= TICK / 4 {
            audit.reported = Instant::now();
            let (step, done, of) = match is_settled {
                true => audit.full.progress(&self.mirror),
                false => ("waiting for routes that change".into(), 0, 0),
            };
            client.answer(&AuditLine::Progress { step, done, of })?;
        }
        Ok(false)
    }

    /// Answers the command with what an audit of everything found, and repairs it if that was asked for.
    fn end_audit(&mut self, audit: &mut FullAudit, client: &mut Client) -> std::io::Result<()> {
        self.audit.status.full += 1;
        let (in_maps, entries) = self.map_differences();
        audit.full.audited.entries = entries as u64;
        audit.full.audited.differences += in_maps.len() as u64;
        let mut differences = std::mem::take(&mut audit.full.differences);
        differences.extend(in_maps);
        self.audit.open.retain_only(&differences);
        for difference in &differences {
            client.answer(&AuditLine::Difference(difference.clone()))?;
        }
        // An audit that repairs nothing counts and logs nothing: a client that may only read cannot raise an alert.
        if audit.full.repair && !differences.is_empty() {
            self.report(&differences, REPAIRS);
            self.audit.status.differences += audit.full.audited.differences - differences.len() as u64;
            self.repair(&differences);
            audit.full.audited.repaired = true;
        }
        client.answer(&AuditLine::Destinations(std::mem::take(&mut audit.full.destinations)))?;
        client.answer(&AuditLine::Done(audit.full.audited.clone()))?;
        Ok(client.answer(&End { end: true })?)
    }

    /// Counts and logs differences that are new.
    fn report(&mut self, differences: &[Difference], then: &str) {
        let audit = &mut self.audit;
        let mut new = 0;
        for difference in differences.iter().filter(|difference| audit.open.enter(difference)) {
            audit.status.last = Some(difference.clone());
            new += 1;
            if new <= LOGGED {
                let Difference { part, kind, family, table, prefix, address, kernel, mirror, image } =
                    difference;
                tracing::error!(
                    %part,
                    kind = kind.name(),
                    family = %family,
                    table,
                    prefix = %prefix,
                    address = address.as_deref(),
                    kernel = Difference::said(kernel),
                    mirror = Difference::said(mirror),
                    image = Difference::said(image),
                    "audit: wrong {part}: {prefix}; {then}"
                );
            }
        }
        audit.status.differences += new as u64;
        if new > LOGGED {
            let more = new - LOGGED;
            tracing::error!(more, "audit: more differences; `trieline node audit` names them");
        }
    }

    /// Whether a repair by samples is due: differences that come back are repaired more and more seldom.
    fn may_repair(&mut self) -> bool {
        let (now, audit) = (Instant::now(), &mut self.audit);
        match audit.repair_after {
            Some(at) if now < at => return false,
            Some(at) if now < at + audit.pause => audit.pause = (2 * audit.pause).min(REPAIR_AFTER_MOST),
            _ => audit.pause = REPAIR_AFTER,
        }
        audit.repair_after = Some(now + audit.pause);
        true
    }

    /// Repairs each part by its own means. It dumps again what the mirror lacks, compares tables or builds them once more, and writes
    /// actions once more.
    fn repair(&mut self, differences: &[Difference]) {
        self.audit.status.repairs += 1;
        self.audit.suspects.clear();
        self.audit.forget_repaired();
        let (mut is_mirror, mut is_map) = (false, false);
        for difference in differences {
            let is_v4 = difference.family == family_name(family::INET);
            let changes = &mut self.mirror.changes;
            match difference.part {
                Part::Mirror => is_mirror = true,
                Part::Map => is_map = true,
                Part::Table | Part::Image => {
                    if difference.part == Part::Image && is_v4 {
                        self.publisher.v4.set_damaged(difference.table);
                    } else if difference.part == Part::Image {
                        self.publisher.v6.set_damaged(difference.table);
                    }
                    *(if is_v4 { &mut changes.v4.all } else { &mut changes.v6.all }) = true;
                }
                // Below, where the maps do not have it; otherwise it is not as the mirror decides.
                Part::Action => changes.kernel = true,
                Part::Packet => {}
            }
        }
        if is_map {
            self.repair_maps();
        }
        let actions = self.publisher.action_index.repair(self.dataplane.parts().1);
        if is_mirror {
            // A route may be right, and its next hop object wrong.
            if let Err(error) = self.mirror.dump_kernel_state(&mut self.requests) {
                tracing::warn!(%error, "cannot dump links, settings, rules and neighbours; trielined tries again");
            }
            self.mirror.resync.lose_routes();
            self.schedule();
        }
        self.publish();
        let then = if is_mirror { "resyncing with a full dump" } else { "nothing has to be dumped again" };
        tracing::info!(actions, "audit: wrote damaged actions and tables once more; {then}");
    }
}
