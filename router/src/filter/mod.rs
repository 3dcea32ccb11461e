//! Filters: sets of prefixes from files, in the order they are asked, changed as a whole under traffic.
//!
//! Files are read on a thread of its own; the daemon goes on. The daemon builds the new sets aside, in tables with numbers that no packet A
//! file that is bad changes nothing.

mod copies;
mod error;
pub mod maps;
mod reader;
pub mod rule;

use crate::filter::maps::{Filter, FilterCount, Filters as Lists};
use crate::xdp::table_ids::{FILTER_TABLES, NodeImage};
use reader::{Read, Reader, Wanted};
use rule::FilterRule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};
use trieline_lpm::Table;

pub use error::Error;
pub use reader::{Bound, Set, read};

/// How many finished jobs are remembered.
const JOBS: usize = 64;

/// A filter as `filter show` reports it: its settings, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterStatus {
    /// Its settings; without a daemon those that the maps keep, which are all but those of its file.
    #[serde(flatten)]
    pub rule: FilterRule,
    /// Packets that it matched.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// IPv4 prefixes of the set.
    pub prefixes4: Option<usize>,
    /// IPv6 prefixes.
    pub prefixes6: Option<usize>,
    /// Lines of its file that were passed over because they are wrong (`skip_bad`).
    pub bad_lines: Option<u64>,
    /// When the set was read, seconds since 1970.
    pub loaded: Option<u64>,
    /// Only SID hooks ask it, for the packet inside; ports do not.
    #[serde(default)]
    pub inside: bool,
    /// Why its file is not in force since the daemon's start. The set is the one of before, or that of the file's last good copy.
    pub problem: Option<String>,
}

impl FilterStatus {
    /// The status of a filter with the counts of the dataplane.
    pub fn of(rule: FilterRule, count: FilterCount) -> Self {
        Self {
            rule,
            packets: count.packets,
            bytes: count.bytes,
            prefixes4: None,
            prefixes6: None,
            bad_lines: None,
            loaded: None,
            inside: false,
            problem: None,
        }
    }
}

/// How far a job has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// It is over.
    pub done: bool,
    /// Why nothing has changed.
    pub failed: Option<String>,
    /// Keys of the configuration that only a restart follows.
    #[serde(default)]
    pub waits: Vec<String>,
}

/// A filter in force.
#[derive(Debug, Clone)]
struct ActiveFilter {
    filter: Filter,
    /// Not known of a set that an earlier daemon read.
    prefixes: Option<(usize, usize)>,
    loaded: Option<u64>,
    /// Why the set is not that of the file as it is.
    problem: Option<String>,
    bad: u64,
}

/// Filters and sets out of force after a change, until [`Filters::keep`] frees them.
#[derive(Debug)]
pub struct Former {
    active: Vec<ActiveFilter>,
    bound: Bound,
    /// Tables that only these filters look up.
    tables: Vec<u32>,
    /// Those made in their stead.
    built: Vec<u32>,
}

/// Filters that are to replace all, their files read.
#[derive(Debug)]
pub struct Replacement {
    /// The job's number.
    pub job: u64,
    rules: Vec<FilterRule>,
    sets: Result<Vec<Option<Set>>, Error>,
    bound: Bound,
}

impl Replacement {
    /// Why a file could not be read.
    pub fn failure(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.sets, Ok(Vec::new())) {
            Ok(sets) => {
                self.sets = Ok(sets);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The filters of this node.
#[derive(Debug)]
pub struct Filters {
    active: Vec<ActiveFilter>,
    /// Lists beside that of the ports, by number: names of the filters that SID hooks ask. Ports do not ask those.
    bound: Bound,
    reader: Reader,
    jobs: u64,
    finished: VecDeque<(u64, JobStatus)>,
}

impl Filters {
    /// Reads the files and puts the filters in force. Those that an earlier daemon left are in force until then, and keep their
    /// counters. A filter whose file cannot be read, or whose set finds no room, keeps its set. Where it has none, as in new maps,
    /// it gets that of the file's last good copy. Without a copy this fails, as a filter must never be silently absent.
    pub fn start(
        rules: Vec<FilterRule>,
        bound: Bound,
        image: &mut NodeImage,
        lists: &mut Lists,
    ) -> Result<Self, Error> {
        let mut filters = Self {
            active: Vec::new(),
            bound: Bound::new(),
            reader: Reader::start()?,
            jobs: 0,
            finished: VecDeque::new(),
        };
        let before = all(lists);
        let used = tables(&before);
        // Built by a daemon that did not come to use them.
        for id in FILTER_TABLES.filter(|id| !used.contains(id)) {
            image.remove_table(id).map_err(|source| Error::Image { name: String::new(), source })?;
        }
        let mut sets = Vec::new();
        for rule in &rules {
            let known = before.iter().find(|filter| filter.rule.name == rule.name);
            let mut problem = None;
            match (read(rule), known) {
                (Ok(set), _) => {
                    copies::keep(rule);
                    sets.push(Some(set));
                }
                (Err(error), Some(_)) => {
                    tracing::error!("{error}; the filter keeps the set that is in force");
                    problem = Some(error.to_string());
                    sets.push(None);
                }
                (Err(error), None) => {
                    let Some(Ok(set)) = copies::of(rule).map(|copy| read(&copy)) else { return Err(error) };
                    tracing::error!("{error}; the filter gets the last good copy of its file");
                    sets.push(Some(Set { problem: Some(error.to_string()), ..set }));
                }
            }
            if let Some(filter) = known {
                let filter = Filter { rule: rule.clone(), ..filter.clone() };
                let (prefixes, loaded, bad) = (None, None, 0);
                filters.active.push(ActiveFilter { filter, prefixes, loaded, problem, bad });
            }
        }
        let former = filters.apply(rules, sets, bound, image, lists, IfFull::Keep)?;
        filters.keep(former, image);
        Ok(filters)
    }

    /// Reads the files and puts the filters in maps that nothing uses. A file that cannot be read is an error, and no copies are kept.
    pub(crate) fn rehearse(
        rules: Vec<FilterRule>,
        bound: Bound,
        image: &mut NodeImage,
        lists: &mut Lists,
    ) -> Result<Self, Error> {
        let mut filters = Self {
            active: Vec::new(),
            bound: Bound::new(),
            reader: Reader::start()?,
            jobs: 0,
            finished: VecDeque::new(),
        };
        let sets = rules.iter().map(|rule| read(rule).map(Some)).collect::<Result<_, _>>()?;
        let former = filters.apply(rules, sets, bound, image, lists, IfFull::Fail)?;
        filters.keep(former, image);
        Ok(filters)
    }

    /// The lists in force, by number: that of the ports, then those of SID hooks.
    pub fn lists(&self) -> Vec<Vec<Filter>> {
        arranged(&self.active, &self.bound)
    }

    /// Whether ports are to ask any.
    pub fn any(&self) -> bool {
        self.active.iter().any(|active| !is_bound(&self.bound, &active.filter.rule.name))
    }

    /// Readable when [`Filters::finish`] has something to do.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.reader.wake()
    }

    /// Begins to read the file of one filter again, or of all; returns the job's number.
    pub fn reload(&mut self, name: Option<&str>) -> Result<u64, Error> {
        let known = || self.active.iter().map(|active| active.filter.rule.name.as_str());
        if let Some(name) = name.filter(|name| !known().any(|known| known == *name)) {
            let known = known().collect::<Vec<_>>().join(" ");
            return Err(Error::NoFilter { name: name.into(), known });
        }
        Ok(self.begin(Wanted::Again(name.map(str::to_owned)), |active| active.clone()))
    }

    /// Begins to read the files of filters that are to replace all; returns the job's number. [`Filters::finish`] tells of it,
    /// [`Filters::put`] does it, [`Filters::end`] ends it.
    pub fn replace(&mut self, rules: Vec<FilterRule>, bound: Bound) -> u64 {
        self.begin(Wanted::These(bound), |_| rules)
    }

    fn begin(&mut self, wanted: Wanted, rules: impl FnOnce(Vec<FilterRule>) -> Vec<FilterRule>) -> u64 {
        self.jobs += 1;
        let active = self.active.iter().map(|active| active.filter.rule.clone()).collect();
        self.reader.send_request(self.jobs, wanted, rules(active));
        self.jobs
    }

    /// The state of a job; a job that is not remembered is done.
    pub fn job(&self, job: u64) -> JobStatus {
        match self.finished.iter().find(|(number, _)| *number == job) {
            Some((_, status)) => status.clone(),
            None => JobStatus {
                done: job.saturating_add(JOBS as u64) <= self.jobs,
                failed: None,
                waits: Vec::new(),
            },
        }
    }

    /// Puts reloaded files in force; returns the replacements of all filters.
    pub fn finish(&mut self, image: &mut NodeImage, lists: &mut Lists) -> Vec<Replacement> {
        let mut replacements = Vec::new();
        while let Some(Read { job, wanted, rules, sets }) = self.reader.next() {
            if let Wanted::These(bound) = wanted {
                replacements.push(Replacement { job, rules, sets, bound });
                continue;
            }
            // Filters that were configured since the job began keep their sets; filters that are gone stay gone.
            let done = sets.and_then(|sets| {
                let mut read: Vec<_> = rules.iter().map(|rule| &rule.name).zip(sets).collect();
                let now: Vec<FilterRule> =
                    self.active.iter().map(|active| active.filter.rule.clone()).collect();
                let sets =
                    now.iter().map(|rule| read.iter_mut().find(|(name, _)| **name == rule.name)?.1.take());
                let sets = sets.collect();
                let former = self.apply(now, sets, self.bound.clone(), image, lists, IfFull::Fail)?;
                self.keep(former, image);
                Ok::<(), Error>(())
            });
            match &done {
                Ok(()) => tracing::info!(filters = self.active.len(), "filters reloaded"),
                Err(error) => tracing::error!(%error, "filters not reloaded; the old ones stay in force"),
            }
            self.end(job, done.err().map(|error| error.to_string()), Vec::new());
        }
        replacements
    }

    /// Makes these the filters; what they replace is to be kept no longer ([`Filters::keep`]) or put in force again
    /// ([`Filters::restore`]). On an error nothing has changed.
    pub fn put(
        &mut self,
        replacement: Replacement,
        image: &mut NodeImage,
        lists: &mut Lists,
    ) -> Result<Former, Error> {
        let Replacement { rules, sets, bound, .. } = replacement;
        self.apply(rules, sets?, bound, image, lists, IfFull::Fail)
    }

    /// The new filters stay: removes the sets of those before, which no packet looks up any more.
    pub fn keep(&mut self, former: Former, image: &mut NodeImage) {
        remove(image, &former.tables);
    }

    /// Puts the filters before in force again. On an error the new ones stay.
    pub fn restore(&mut self, former: Former, image: &mut NodeImage, lists: &mut Lists) -> Result<(), Error> {
        let Former { active, bound, built, .. } = former;
        lists.set(&arranged(&active, &bound))?;
        (self.active, self.bound) = (active, bound);
        remove(image, &built);
        Ok(())
    }

    /// A job is over, or has failed; these keys wait for a restart.
    pub fn end(&mut self, job: u64, failed: Option<String>, waits: Vec<String>) {
        self.finished.push_back((job, JobStatus { done: true, failed, waits }));
        if self.finished.len() > JOBS {
            self.finished.pop_front();
        }
    }

    /// Makes `rules` the filters; those without a new set keep the one they have, by `if_full` also those whose set finds no room.
    fn apply(
        &mut self,
        rules: Vec<FilterRule>,
        sets: Vec<Option<Set>>,
        bound: Bound,
        image: &mut NodeImage,
        lists: &mut Lists,
        if_full: IfFull,
    ) -> Result<Former, Error> {
        let before = all(lists);
        let mut used = tables(&before);
        let mut built = Vec::new();
        let mut counters: BTreeSet<u8> = before.iter().map(|filter| filter.counter).collect();
        let mut active = Vec::new();
        let undo = |image: &mut NodeImage, built: &[u32]| {
            for id in built {
                // The error that led here is the one to tell.
                let _ = image.remove_table(*id);
            }
        };
        for (rule, set) in rules.into_iter().zip(sets) {
            let known = before.iter().find(|filter| filter.rule.name == rule.name);
            // There are twice as many counters as filters.
            let free = || (0..Lists::COUNTERS as u8).find(|counter| !counters.contains(counter)).unwrap_or(0);
            let counter = known.map_or_else(free, |filter| filter.counter);
            if counters.insert(counter) {
                lists.reset(counter).inspect_err(|_| undo(image, &built))?;
            }
            let kept = self.active.iter().find(|active| active.filter.rule.name == rule.name);
            let bad = set.as_ref().map(|set| set.bad).or(kept.map(|kept| kept.bad)).unwrap_or(0);
            let keep = |kept: &ActiveFilter, problem| {
                ((kept.filter.table4, kept.filter.table6), kept.prefixes, kept.loaded, problem)
            };
            let made = match (set, kept) {
                (Some(set), _) => {
                    let (problem, others) = (set.problem.clone(), built.len());
                    let ours = build(&rule.name, set, image, &mut used, &mut built);
                    match (ours, kept) {
                        (Ok((ids, prefixes)), _) => Ok((ids, Some(prefixes), Some(now()), problem)),
                        (Err(error), Some(kept)) if if_full == IfFull::Keep => {
                            tracing::error!("{error}; the filter keeps the set that is in force");
                            undo(image, &built.split_off(others));
                            Ok(keep(kept, Some(error.to_string())))
                        }
                        (Err(error), _) => Err(error),
                    }
                }
                (None, Some(kept)) => Ok(keep(kept, kept.problem.clone())),
                (None, None) => Err(Error::NoFilter { name: rule.name.clone(), known: String::new() }),
            };
            let (ids, prefixes, loaded, problem) = made.inspect_err(|_| undo(image, &built))?;
            let filter = Filter { rule, table4: ids.0, table6: ids.1, counter };
            active.push(ActiveFilter { filter, prefixes, loaded, problem, bad });
        }
        let kept = tables(active.iter().map(|active| &active.filter));
        lists.set(&arranged(&active, &bound)).inspect_err(|_| undo(image, &built))?;
        let active = std::mem::replace(&mut self.active, active);
        let bound = std::mem::replace(&mut self.bound, bound);
        Ok(Former { active, bound, tables: tables(&before).difference(&kept).copied().collect(), built })
    }

    /// The status of each filter.
    pub fn status(&self, lists: &Lists) -> Vec<FilterStatus> {
        let status = |active: &ActiveFilter| FilterStatus {
            prefixes4: active.prefixes.map(|(v4, _)| v4),
            prefixes6: active.prefixes.map(|(_, v6)| v6),
            loaded: active.loaded,
            problem: active.problem.clone(),
            bad_lines: Some(active.bad),
            inside: is_bound(&self.bound, &active.filter.rule.name),
            ..FilterStatus::of(active.filter.rule.clone(), lists.count(&active.filter).unwrap_or_default())
        };
        self.active.iter().map(status).collect()
    }
}

/// When a set finds no room beside the one in force.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfFull {
    /// Nothing changes.
    Fail,
    /// The one in force stays, and the filter has a problem.
    Keep,
}

/// Removes the tables of sets that no packet looks up.
fn remove(image: &mut NodeImage, tables: &[u32]) {
    for id in tables {
        image.remove_table(*id).unwrap_or_else(
            |error| tracing::error!(%error, "cannot remove a filter's old set; its space stays in use"),
        );
    }
}

type Built = ((Option<u32>, Option<u32>), (usize, usize));

/// Writes a set's tables where no packet looks.
fn build(
    name: &str,
    set: Set,
    image: &mut NodeImage,
    used: &mut BTreeSet<u32>,
    built: &mut Vec<u32>,
) -> Result<Built, Error> {
    let mut number = || {
        let id = FILTER_TABLES.into_iter().find(|id| !used.contains(id));
        let id = id.ok_or_else(|| Error::Tables { name: name.into() })?;
        used.insert(id);
        built.push(id);
        Ok::<u32, Error>(id)
    };
    let fail = |source| Error::Image { name: name.into(), source };
    let prefixes = (set.v4.len(), set.v6.len());
    let (mut table4, mut table6) = (None, None);
    if !set.v4.is_empty() {
        let id = number()?;
        Table::create(image, id, set.v4).map_err(fail)?;
        table4 = Some(id);
    }
    if !set.v6.is_empty() {
        let id = number()?;
        Table::create(image, id, set.v6).map_err(fail)?;
        table6 = Some(id);
    }
    Ok(((table4, table6), prefixes))
}

/// Whether SID hooks ask a filter.
fn is_bound(bound: &Bound, name: &str) -> bool {
    bound.values().flatten().any(|known| known == name)
}

/// The lists: that of the ports, then those of SID hooks.
fn arranged(active: &[ActiveFilter], bound: &Bound) -> Vec<Vec<Filter>> {
    let last = bound.keys().next_back().copied().unwrap_or(0);
    let mut lists = vec![Vec::new(); last as usize + 1];
    let ports = active.iter().filter(|active| !is_bound(bound, &active.filter.rule.name));
    lists[0] = ports.map(|active| active.filter.clone()).collect();
    for (number, names) in bound {
        let named = |name: &String| active.iter().find(|active| active.filter.rule.name == *name);
        lists[*number as usize] =
            names.iter().filter_map(named).map(|active| active.filter.clone()).collect();
    }
    lists
}

/// The filters of all lists.
fn all(lists: &Lists) -> Vec<Filter> {
    (0..Lists::LISTS).flat_map(|list| lists.list(list)).collect()
}

/// Tables that filters look up.
fn tables<'a>(filters: impl IntoIterator<Item = &'a Filter>) -> BTreeSet<u32> {
    filters.into_iter().flat_map(|filter| [filter.table4, filter.table6]).flatten().collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
