//! SID hooks, from the configuration to the dataplane: filters on the packet inside, samples in files, programs.

mod error;
pub mod maps;
pub mod rule;
mod sampler;

use crate::capture::ring::CAPTURE_ALL;
use crate::sid_hook::maps::{SidHook, SidHooks as Bound};
use rule::{SidHookRule, What};
use sampler::Sampler;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trieline_lpm::Grace;

pub use error::Error;

/// The status of a SID hook: its settings, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SidHookStatus {
    /// Its settings.
    #[serde(flatten)]
    pub rule: SidHookRule,
    /// Of a sample: frames written, packets left out for the rate, and for want of room.
    pub frames: Option<u64>,
    /// See `frames`.
    pub limited: Option<u64>,
    /// See `frames`.
    pub lost: Option<u64>,
    /// Why its program or its file could not be had at a restart, and what trielined does.
    pub problem: Option<String>,
}

/// A SID hook in force.
#[derive(Debug)]
struct ActiveHook {
    rule: SidHookRule,
    number: u32,
    sampler: Option<Arc<Sampler>>,
    /// Why the program or the file of the configuration is not in use. It is tried again.
    problem: Option<String>,
}

/// Numbers of SID hooks by name: that of its filters' list, its capture's slot, its program's place.
pub type Numbers = BTreeMap<String, u32>;

/// SID hooks that no packet meets yet, their programs loaded and their files begun.
#[derive(Debug)]
pub struct Prepared {
    active: Vec<ActiveHook>,
    wanted: BTreeMap<Ipv6Addr, SidHook>,
    /// The hooks bound before.
    before: BTreeMap<Ipv6Addr, SidHook>,
}

/// The SID hooks of this node.
#[derive(Debug)]
pub struct SidHooks {
    active: Vec<ActiveHook>,
    pins: PathBuf,
}

fn of_all(source: crate::xdp::error::Error) -> Error {
    Error::Dataplane { name: "all".into(), source }
}

impl SidHooks {
    /// None yet.
    pub fn new(pins: &Path) -> Self {
        Self { active: Vec::new(), pins: pins.into() }
    }

    /// The pins are elsewhere from now on.
    pub fn move_to(&mut self, pins: &Path) {
        self.pins = pins.into();
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        !self.active.is_empty()
    }

    /// Numbers SID hooks, so that none gets a number by which packets still reach another, also one that an earlier daemon bound. Lists
    /// of filters keep the number that their SID leads to, samples that go on keep theirs, programs get a new place.
    pub fn numbers(&self, rules: &[SidHookRule], bound: &Bound) -> Result<Numbers, Error> {
        let known = bound.get().map_err(of_all)?;
        let mut used: BTreeSet<u32> = known.values().map(number).collect();
        used.extend(self.active.iter().map(|active| active.number));
        let mut free = (CAPTURE_ALL + 1..Bound::MAX).filter(|number| !used.contains(number));
        let mut numbers = Numbers::new();
        for rule in rules {
            let (name, known) = (rule.name.clone(), known.get(&rule.sid));
            let number = match (&rule.what, known) {
                (What::Filter { .. }, Some(SidHook::Filter(list))) => Some(*list),
                (What::Filter { .. }, _) => free.next(),
                // In its old slot it would take this SID's packets from an earlier daemon's sample, which has ended.
                (What::Pcap(_), known) => self
                    .going_on(rule)
                    .map(|active| active.number)
                    .or_else(|| free.next())
                    .or(known.and_then(slot).filter(|_| self.active.is_empty())),
                // In its old place it would be in force at once, which is better than not at all.
                (What::Program { .. }, known) => free.next().or(known.and_then(place)),
            };
            let number = number.ok_or_else(|| Error::TooMany { name: name.clone(), max: Bound::MAX - 1 })?;
            numbers.insert(name, number);
        }
        Ok(numbers)
    }

    /// The SID hook that is configured just so already.
    fn going_on(&self, rule: &SidHookRule) -> Option<&ActiveHook> {
        self.active.iter().find(|active| active.rule == *rule && active.sampler.is_some())
    }

    /// Loads programs and begins files, where no packet comes by. Samples whose settings are the same go on; programs are read from their
    /// pins again. On an error nothing has changed.
    pub fn prepare(
        &self,
        rules: Vec<SidHookRule>,
        numbers: &Numbers,
        bound: &mut Bound,
    ) -> Result<Prepared, Error> {
        let before = bound.get().map_err(of_all)?;
        let mut prepared = Prepared { active: Vec::new(), wanted: BTreeMap::new(), before };
        for rule in rules {
            if let Err(error) = self.add(&mut prepared, &rule, numbers, bound) {
                self.discard(prepared, bound);
                return Err(error);
            }
        }
        Ok(prepared)
    }

    /// Likewise at a restart, where packets are forwarded already: a program or a file that cannot be had does not stop the others. The
    /// program that the SID has stays in force, also that of tables of another version or shape (`former`). Where it has none, its packets
    /// are dropped. A sample is not taken. [`SidHooks::retry`] tries again.
    pub fn prepare_again(
        &self,
        rules: Vec<SidHookRule>,
        numbers: &Numbers,
        bound: &mut Bound,
        former: Option<&Bound>,
    ) -> Result<Prepared, Error> {
        let before = bound.get().map_err(of_all)?;
        let old = former.and_then(|former| Some((former, former.get().ok()?)));
        let mut prepared = Prepared { active: Vec::new(), wanted: BTreeMap::new(), before };
        for rule in rules {
            let Err(error) = self.add(&mut prepared, &rule, numbers, bound) else { continue };
            let old = old.as_ref().map(|(former, all)| (*former, all.get(&rule.sid).and_then(place)));
            if let Err(error) = keep(&mut prepared, rule, numbers, bound, old, error) {
                self.discard(prepared, bound);
                return Err(error);
            }
        }
        Ok(prepared)
    }

    fn add(
        &self,
        prepared: &mut Prepared,
        rule: &SidHookRule,
        numbers: &Numbers,
        bound: &mut Bound,
    ) -> Result<(), Error> {
        let (name, number) = (&rule.name, numbers.get(&rule.name).copied().unwrap_or(0));
        let mut sampler = None;
        let sid_hook = match &rule.what {
            What::Filter { .. } => SidHook::Filter(number),
            What::Program { program: path } => {
                let fail = |source| Error::Dataplane { name: name.clone(), source };
                bound.set_program(number, path).map_err(fail)?;
                SidHook::Program(number)
            }
            What::Pcap(sample) => {
                sampler = Some(match self.going_on(rule).and_then(|active| active.sampler.clone()) {
                    Some(sampler) => sampler,
                    None => Arc::new(Sampler::start(name, &self.pins, number, sample)?),
                });
                SidHook::Pcap(number)
            }
        };
        prepared.wanted.insert(rule.sid, sid_hook);
        prepared.active.push(ActiveHook { rule: rule.clone(), number, sampler, problem: None });
        Ok(())
    }

    /// Tries again to get the programs and files that could not be had at the start.
    pub fn retry(&mut self, bound: &mut Bound) {
        for active in self.active.iter_mut().filter(|active| active.problem.is_some()) {
            let SidHookRule { name, what, .. } = &active.rule;
            match what {
                // From the next packet on, in the place that the SID leads to.
                What::Program { program: path } => {
                    if bound.set_program(active.number, path).is_err() {
                        continue;
                    }
                }
                What::Pcap(sample) => match Sampler::start(name, &self.pins, active.number, sample) {
                    Ok(sampler) => active.sampler = Some(Arc::new(sampler)),
                    Err(_) => continue,
                },
                What::Filter { .. } => {}
            }
            active.problem = None;
            tracing::info!(sid_hook = name, "the SID hook is as configured again");
        }
    }

    /// Binds what takes the place of filters, whose lists are about to be emptied: an empty list lets everything by. On an error,
    /// also a later one, [`SidHooks::discard`] binds the filters again.
    pub fn replace_filters(&self, prepared: &Prepared, bound: &mut Bound) -> Result<(), Error> {
        let is_filter = |sid_hook: &SidHook| matches!(sid_hook, SidHook::Filter(_));
        let mut next = prepared.before.clone();
        for (sid, sid_hook) in next.iter_mut().filter(|(_, sid_hook)| is_filter(sid_hook)) {
            *sid_hook = *prepared.wanted.get(sid).filter(|other| !is_filter(other)).unwrap_or(sid_hook);
        }
        bound.set(&next).map_err(of_all)
    }

    /// Gives up what was prepared: what was bound before stays, or is bound again.
    pub fn discard(&self, prepared: Prepared, bound: &mut Bound) {
        // The error that led here is the one to tell, also below.
        let _ = bound.set(&prepared.before);
        let used: BTreeSet<u32> = prepared.before.values().filter_map(place).collect();
        for place in prepared.wanted.values().filter_map(place).filter(|place| !used.contains(place)) {
            // No SID leads there.
            let _ = bound.clear_program(place);
        }
    }

    /// Puts in force what was prepared, SID by SID. Takes out what no packet meets any more, for which it waits a grace period (some
    /// 20 ms). It fails only for want of the kernel's memory; then what was in force is again, as far as that goes.
    pub fn commit(
        &mut self,
        prepared: Prepared,
        bound: &mut Bound,
        grace: &mut impl Grace,
    ) -> Result<(), Error> {
        if let Err(error) = bound.set(&prepared.wanted) {
            self.discard(prepared, bound);
            return Err(of_all(error));
        }
        let programs: BTreeSet<u32> = prepared.wanted.values().filter_map(place).collect();
        let mut gone =
            prepared.before.values().filter_map(place).filter(|place| !programs.contains(place)).peekable();
        if gone.peek().is_some() {
            let ticket = grace.begin();
            grace.wait(ticket);
        }
        for place in gone {
            // No SID leads there.
            bound.clear_program(place).unwrap_or_else(|error| tracing::error!(%error, "cannot remove an old SID hook's program; no SID leads to it"));
        }
        self.active = prepared.active;
        Ok(())
    }

    /// The hooks in force, as they are bound.
    pub fn bound(&self) -> BTreeMap<Ipv6Addr, SidHook> {
        let hook = |active: &ActiveHook| match &active.rule.what {
            What::Filter { .. } => SidHook::Filter(active.number),
            What::Pcap(_) => SidHook::Pcap(active.number),
            What::Program { .. } => SidHook::Program(active.number),
        };
        self.active.iter().map(|active| (active.rule.sid, hook(active))).collect()
    }

    /// Names and SIDs.
    pub fn sids(&self) -> impl Iterator<Item = (&str, Ipv6Addr)> {
        self.active.iter().map(|active| (active.rule.name.as_str(), active.rule.sid))
    }

    /// Why SID hooks are not as configured.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.active.iter().filter_map(|active| active.problem.as_deref())
    }

    /// The status of each hook.
    pub fn status(&self) -> Vec<SidHookStatus> {
        let status = |active: &ActiveHook| {
            let counts = active.sampler.as_ref().map(|sampler| sampler.counts());
            SidHookStatus {
                rule: active.rule.clone(),
                frames: counts.map(|(frames, _)| frames),
                limited: counts.map(|(_, counts)| counts.limited),
                lost: counts.map(|(_, counts)| counts.lost),
                problem: active.problem.clone(),
            }
        };
        self.active.iter().map(status).collect()
    }
}

/// Binds what a SID had where its SID hook cannot be had; `old`: what it has in tables of another version or shape.
fn keep(
    prepared: &mut Prepared,
    rule: SidHookRule,
    numbers: &Numbers,
    bound: &mut Bound,
    old: Option<(&Bound, Option<u32>)>,
    error: Error,
) -> Result<(), Error> {
    let fail = |source| Error::Dataplane { name: rule.name.clone(), source };
    let mut number = numbers.get(&rule.name).copied().unwrap_or(0);
    let (sid_hook, done) = match &rule.what {
        What::Filter { .. } => return Err(error),
        What::Pcap(_) => (SidHook::Pcap(number), "no packets are sampled"),
        What::Program { .. } => {
            let mut known = false;
            if let Some(place) = prepared.before.get(&rule.sid).and_then(place) {
                (number, known) = (place, bound.has_program(place).map_err(fail)?);
            } else {
                bound.clear_program(number).map_err(fail)?;
                if let Some((former, Some(place))) = old {
                    known = bound.take_program(number, former, place).map_err(fail)?;
                }
            }
            let done = if known {
                "the previous program stays attached"
            } else {
                "packets to the SID are dropped (sid_hook_missing)"
            };
            (SidHook::Program(number), done)
        }
    };
    tracing::error!("{error}; {done}, and trielined tries again every second");
    prepared.wanted.insert(rule.sid, sid_hook);
    prepared.active.push(ActiveHook {
        rule,
        number,
        sampler: None,
        problem: Some(format!("{error}; {done}")),
    });
    Ok(())
}

fn slot(sid_hook: &SidHook) -> Option<u32> {
    match sid_hook {
        SidHook::Pcap(slot) => Some(*slot),
        SidHook::Filter(_) | SidHook::Program(_) => None,
    }
}

fn number(sid_hook: &SidHook) -> u32 {
    match sid_hook {
        SidHook::Filter(number) | SidHook::Pcap(number) | SidHook::Program(number) => *number,
    }
}

fn place(sid_hook: &SidHook) -> Option<u32> {
    match sid_hook {
        SidHook::Program(place) => Some(*place),
        SidHook::Filter(_) | SidHook::Pcap(_) => None,
    }
}

/// The lists of filters that SID hooks ask, by their number.
pub fn lists(rules: &[SidHookRule], numbers: &Numbers) -> BTreeMap<u32, Vec<String>> {
    let list = |rule: &SidHookRule| match &rule.what {
        What::Filter { filters } => Some((*numbers.get(&rule.name)?, filters.clone())),
        What::Pcap(_) | What::Program { .. } => None,
    };
    rules.iter().filter_map(list).collect()
}
