//! Filters: which sets of prefixes the XDP program asks before it routes a packet, in which order, and what they counted.
//!
//! The sets are tables in the image. The lists that name them lie in one of two halves of a map. A new state is written into the half
//! that no list leads to, then each list's word is replaced.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use trieline_bpf::{Mapping, ReaderGrace};
use trieline_lpm::Grace;

use crate::filter::rule::{FilterAction, FilterMatch, FilterRule};
use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_filter, tl_filter_count, tl_filter_list, tl_limits};
use crate::xdp::sys;

/// Filters in all lists together.
const FILTERS: u32 = tl_limits::TL_FILTERS.0;
const LISTS: u32 = tl_limits::TL_FILTER_LISTS.0;
const ANY_PROTOCOL: u16 = tl_limits::TL_ANY_PROTOCOL.0 as u16;
/// In place of a table's id: no table has it.
const NO_TABLE: u32 = u32::MAX;
const WORDS: usize = size_of::<tl_filter>() / 8;

/// A filter in the maps: its settings, and where its set and its counter are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its settings; without the file where they are read from the maps.
    pub rule: FilterRule,
    /// The table of the set's IPv4 prefixes.
    pub table4: Option<u32>,
    /// Of its IPv6 prefixes.
    pub table6: Option<u32>,
    /// The number of its counter, less than [`Filters::COUNTERS`]. Filters that share a number count together.
    pub counter: u8,
}

impl Filter {
    /// As the XDP program reads it.
    fn encode(&self) -> Result<tl_filter> {
        let rule = &self.rule;
        rule.check().map_err(|(_, what)| Error::argument(format!("filter: {what}")))?;
        let mut record = tl_filter {
            table4: self.table4.unwrap_or(NO_TABLE),
            table6: self.table6.unwrap_or(NO_TABLE),
            action: rule.action as u8,
            source: (rule.address == FilterMatch::Source).into(),
            ranges: [rule.ports.len() as u8, rule.source_ports.len() as u8],
            counter: self.counter,
            protocol: rule.protocol.map_or(ANY_PROTOCOL, u16::from),
            link: rule.link.into(),
            ..Default::default()
        };
        for (to, ranges) in record.ports.iter_mut().zip([&rule.ports, &rule.source_ports]) {
            for (to, range) in to.iter_mut().zip(ranges) {
                (to.first, to.last) = (*range.start(), *range.end());
            }
        }
        for (to, from) in record.name.iter_mut().zip(rule.name.as_bytes()) {
            *to = *from;
        }
        Ok(record)
    }

    /// `None`: not a record that [`Filter::encode`] makes.
    fn decode(record: &tl_filter) -> Option<Self> {
        let action =
            FilterAction::ALL.into_iter().find(|action| *action as u32 == u32::from(record.action))?;
        let address = if record.source != 0 { FilterMatch::Source } else { FilterMatch::Destination };
        let name = record.name.split(|byte| *byte == 0).next().unwrap_or_default();
        let table = |id| (id != NO_TABLE).then_some(id);
        let ranges = |which: usize| -> Vec<_> {
            let ranges = record.ports[which].iter().take(record.ranges[which].into());
            ranges.map(|range| range.first..=range.last).collect()
        };
        Some(Self {
            rule: FilterRule {
                protocol: u8::try_from(record.protocol).ok(),
                ports: ranges(0),
                source_ports: ranges(1),
                link: record.link != 0,
                ..FilterRule::new(String::from_utf8_lossy(name), address, action)
            },
            table4: table(record.table4),
            table6: table(record.table6),
            counter: record.counter,
        })
    }
}

/// Counts of a filter's matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of their whole frames.
    pub bytes: u64,
}

/// The three maps.
#[derive(Debug)]
pub(crate) struct FilterMaps {
    filters: Mapping,
    lists: Mapping,
    counters: OwnedFd,
}

impl FilterMaps {
    pub(crate) fn new(filters: &OwnedFd, lists: &OwnedFd, counters: OwnedFd) -> Result<Self> {
        let fail = |e| Error::kernel("cannot map the filters", e);
        let bytes = 2 * u64::from(FILTERS) * size_of::<tl_filter>() as u64;
        Ok(Self {
            filters: Mapping::of_array(filters.as_fd(), bytes).map_err(fail)?,
            lists: Mapping::of_array(lists.as_fd(), 8 * u64::from(LISTS)).map_err(fail)?,
            counters,
        })
    }

    /// First filter and number of a list.
    fn span(&self, list: u32) -> (u32, u32) {
        let words = self.lists.words64(LISTS as usize);
        let word = words.get(list as usize).map_or(0, |word| word.load(Ordering::Acquire));
        ((word & 0xffff) as u32, (word >> 16 & 0xff) as u32)
    }

    pub(crate) fn list(&self, list: u32) -> Vec<Filter> {
        let (first, count) = self.span(list);
        (first..first + count).filter_map(|at| Filter::decode(&self.read(at)?)).collect()
    }

    fn read(&self, at: u32) -> Option<tl_filter> {
        let all = self.filters.words64(2 * FILTERS as usize * WORDS);
        let mut bytes = [0u8; size_of::<tl_filter>()];
        for (to, from) in bytes.chunks_exact_mut(8).zip(all.chunks_exact(WORDS).nth(at as usize)?) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
        Some(unsafe { std::mem::transmute::<[u8; size_of::<tl_filter>()], tl_filter>(bytes) })
    }

    /// The word of a list that is these filters, from `at` on.
    fn word(at: u32, list: &[Filter]) -> u64 {
        let asks = list.iter().any(|filter| filter.rule.asks_upper());
        let upper = if asks { tl_filter_list::TL_LIST_UPPER.0 } else { 0 };
        u64::from(at | (list.len() as u32) << 16 | upper)
    }

    /// Lists that are not these, written from `at` on.
    fn damage(&self, mut at: u32, lists: &[Vec<Filter>]) -> Result<Vec<Damage>> {
        let text = |filters: &[Filter]| {
            let filter = |filter: &Filter| {
                let Filter { rule, table4, table6, counter } = filter;
                let (name, action, address) = (&rule.name, rule.action, rule.address);
                format!("{name}: {action:?} {address:?}, tables {table4:?} {table6:?}, counter {counter}")
            };
            Some(filters.iter().map(filter).collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
        };
        let mut damaged = Vec::new();
        for (number, word) in self.lists.words64(LISTS as usize).iter().enumerate() {
            let list = lists.get(number).map_or(&[][..], Vec::as_slice);
            let mut is_equal = word.load(Ordering::Acquire) == Self::word(at, list);
            for (filter, place) in list.iter().zip(at..) {
                // SAFETY: a struct of integers without padding (80 bytes of fields, asserted in intf.h).
                let bytes = |record| unsafe {
                    std::mem::transmute::<tl_filter, [u8; size_of::<tl_filter>()]>(record)
                };
                is_equal &= self.read(place).map(bytes) == Some(bytes(filter.encode()?));
            }
            if !is_equal {
                let (written, found) = (text(list), text(&self.list(number as u32)));
                let found =
                    if found == written { Some("other protocols, ports or names".into()) } else { found };
                damaged.push(Damage::new(format!("filter list {number}"), written, found));
            }
            at += list.len() as u32;
        }
        Ok(damaged)
    }

    fn write(&self, at: u32, record: tl_filter) {
        // SAFETY: a struct of integers without padding (80 bytes of fields, asserted in intf.h).
        let bytes: [u8; size_of::<tl_filter>()] = unsafe { std::mem::transmute(record) };
        let all = self.filters.words64(2 * FILTERS as usize * WORDS);
        for (to, from) in all.iter().skip(at as usize * WORDS).zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// One counter, summed over the CPUs.
    pub(crate) fn count(&self, counter: u8) -> Result<FilterCount> {
        let mut values = self.zero()?;
        sys::map_lookup(self.counters.as_fd(), &u32::from(counter).to_ne_bytes(), &mut values)
            .map_err(fail)?;
        let mut sum = FilterCount::default();
        for cpu in values.chunks_exact(size_of::<tl_filter_count>()) {
            let mut words = cpu.chunks_exact(8).map(|bytes| {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                u64::from_ne_bytes(word)
            });
            sum.packets += words.next().unwrap_or(0);
            sum.bytes += words.next().unwrap_or(0);
        }
        Ok(sum)
    }

    fn zero(&self) -> Result<Vec<u8>> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(|e| fail(io::Error::other(e)))?;
        Ok(vec![0; cpus * size_of::<tl_filter_count>()])
    }
}

fn fail(error: io::Error) -> Error {
    Error::kernel("cannot read the counters of filters", error)
}

/// The filters of this dataplane, written by their one owner.
#[derive(Debug)]
pub struct Filters {
    maps: FilterMaps,
    grace: ReaderGrace,
    /// Packets may be under way that meet filters of before.
    met: bool,
    /// The place of the first filter that this owner has written, once it has.
    first: Option<u32>,
}

impl Filters {
    /// Counters there are.
    pub const COUNTERS: u32 = 2 * FILTERS;
    /// Filters of all lists together.
    pub const MAX: usize = FILTERS as usize;
    /// Lists there are.
    pub const LISTS: u32 = LISTS;
    /// The list that ports ask.
    pub const PORTS: u32 = tl_filter_list::TL_LIST_PORTS.0;

    /// `inherited`: a predecessor may have taken filters out just before it ended.
    pub(crate) fn new(maps: FilterMaps, grace: ReaderGrace, inherited: bool) -> Self {
        Self { maps, grace, met: inherited, first: None }
    }

    /// The filters of a list, in order; also those that an earlier owner set.
    pub fn list(&self, list: u32) -> Vec<Filter> {
        self.maps.list(list)
    }

    /// Makes the lists be these, each for all packets at once; further lists become empty. List 0 is that of the ports that have
    /// [`crate::PortFlags::filter`].
    ///
    /// When this returns, no packet meets a filter of before: if there were any, it waits for a grace period (some 20 ms). Then tables and
    /// counters that only those had may be used otherwise. On an error nothing has changed.
    pub fn set(&mut self, lists: &[Vec<Filter>]) -> Result<()> {
        let total: usize = lists.iter().map(Vec::len).sum();
        if total > Self::MAX || lists.len() > LISTS as usize {
            return Err(Error::argument(format!(
                "{total} filters in {} lists; at most {FILTERS} in {LISTS}",
                lists.len()
            )));
        }
        let records = lists.iter().flatten().map(Filter::encode).collect::<Result<Vec<_>>>()?;
        // The half that no list leads to.
        let used = (0..LISTS).map(|list| self.maps.span(list)).find(|(_, count)| *count > 0);
        self.met |= used.is_some();
        let first = self.first.or(used.map(|(first, _)| first));
        let mut at = if first.is_some_and(|first| first < FILTERS) { FILTERS } else { 0 };
        self.first = Some(at);
        for (record, to) in records.into_iter().zip(at..) {
            self.maps.write(to, record);
        }
        let words = self.maps.lists.words64(LISTS as usize);
        for (nth, word) in words.iter().enumerate() {
            let list = lists.get(nth).map_or(&[][..], Vec::as_slice);
            word.store(FilterMaps::word(at, list), Ordering::Release);
            at += list.len() as u32;
        }
        if std::mem::take(&mut self.met) {
            let ticket = self.grace.begin();
            self.grace.wait(ticket);
        }
        Ok(())
    }

    /// Lists that are not these, which were set.
    pub(crate) fn damage(&self, lists: &[Vec<Filter>]) -> Result<Vec<Damage>> {
        self.first.map_or_else(|| Ok(Vec::new()), |first| self.maps.damage(first, lists))
    }

    /// Counts of a filter's matches.
    pub fn count(&self, filter: &Filter) -> Result<FilterCount> {
        self.maps.count(filter.counter)
    }

    /// Lets a counter begin at 0 that no filter in a list has.
    pub fn reset(&mut self, counter: u8) -> Result<()> {
        let zero = self.maps.zero()?;
        sys::map_update(self.maps.counters.as_fd(), &u32::from(counter).to_ne_bytes(), &zero).map_err(fail)
    }
}
