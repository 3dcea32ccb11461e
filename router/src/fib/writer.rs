//! Tables in the image, brought to what the routes decide: prefix by prefix, or as a whole where much differs.

use crate::dataplane::actions::Actions;
use crate::fib::action_index::ActionIndex;
use crate::fib::lookup_ids::LookupIds;
use crate::fib::meaning::{Meaning, meaning};
use crate::fib::published::{Counts, Published, Written};
use crate::fib::reserve::Reserve;
use crate::fib::resolve::Resolver;
use crate::kernel::TABLE_MAIN;
use crate::rib::family::{Decision, Family, NexthopState};
use crate::rib::mirror::FamilyChanges;
use crate::rib::table::Ip;
use crate::xdp::local_addrs::LocalAddrBits;
use crate::xdp::rules::VALUE_THROW;
use crate::xdp::table_ids::NodeImage;
use std::net::IpAddr;
use std::time::Instant;
use trieline_lpm::{Prefix, Table};

/// Prefixes that are written at once: more gain little, and memory is taken back between batches.
const BATCH: usize = 1024;

/// The wanted content of a table.
struct Source<'a, A: Ip> {
    family: &'a Family<A>,
    nexthops: NexthopState<'a>,
    /// The kernel's number of it; main for local and main together.
    number: u32,
}

/// Prefixes of a table whose decision may differ.
struct Changed<A: Ip> {
    prefixes: Vec<Prefix<A>>,
    /// Any may.
    all: bool,
}

/// The parts that writing a table needs.
pub(super) struct Writer<'a> {
    pub(super) image: &'a mut NodeImage,
    pub(super) reserve: &'a mut Reserve,
    pub(super) action_index: &'a mut ActionIndex,
    pub(super) actions: &'a mut Actions,
    pub(super) resolver: &'a Resolver<'a>,
    pub(super) counts: &'a mut Counts,
    /// Own addresses, and perhaps some that were.
    pub(super) own: &'a mut LocalAddrBits,
}

impl Writer<'_> {
    /// Writes what changed in a family.
    pub(super) fn family<A: Ip>(
        &mut self,
        published: &mut Published<A>,
        family: &Family<A>,
        nexthops: NexthopState<'_>,
        mut changes: FamilyChanges<A>,
        lookup_ids: &LookupIds,
    ) {
        let all = changes.all;
        let main = Source { family, nexthops, number: TABLE_MAIN };
        let changed = Changed { prefixes: changes.prefixes, all };
        self.table(&mut published.main, &main, changed, "local and main");
        // Of most changes, most tables know nothing.
        let concerned = |number: &u32| all || changes.others.contains_key(number);
        let known = &published.others;
        let concerned: Vec<_> = lookup_ids
            .tables()
            .filter(|((of, number), _)| {
                *of == A::NETLINK && (concerned(number) || !known.contains_key(number))
            })
            .collect();
        for ((_, number), id) in concerned {
            let other = Source { family, nexthops, number };
            let prefixes = changes.others.remove(&number).unwrap_or_default();
            let written = published.others.entry(number).or_insert_with(|| Written::new(id));
            self.table(written, &other, Changed { prefixes, all }, &number.to_string());
        }
    }

    /// Writes what changed in a table.
    fn table<A: Ip>(
        &mut self,
        written: &mut Written<A>,
        source: &Source<'_, A>,
        mut changed: Changed<A>,
        name: &str,
    ) {
        if written.blocked.is_some() && !changed.all {
            return; // written as a whole when the next attempt is due
        }
        let done = match &mut written.table {
            Some(table)
                if !changed.all && !written.is_damaged && changed.prefixes.len() < table.len() / 8 + 1024 =>
            {
                changed.prefixes.sort_unstable();
                changed.prefixes.dedup();
                let wanted = changed.prefixes.iter().map(|prefix| {
                    let decision = source.family.decide(source.number, *prefix, source.nexthops);
                    (*prefix, decision.map(|decision| self.number(source, *prefix, decision)))
                });
                let wanted: Vec<_> = wanted.collect();
                self.some(table, &wanted)
            }
            table => {
                let wanted = self.wanted(source);
                match table.as_mut().filter(|_| written.is_damaged) {
                    Some(table) => {
                        self.counts.tables += 1;
                        table.rebuild(self.image, wanted)
                    }
                    None => self.all(table, written.id, wanted),
                }
            }
        };
        let done = match done {
            Err(trieline_lpm::Error::Full { .. }) => {
                // The table is old by now, in part. The image has no space for it, perhaps an earlier daemon's, and the new one side by
                // side.
                written.table = None;
                let wanted = self.wanted(source);
                let compiled = self.reserve.replace(self.image, written.id, wanted);
                compiled.map(|table| written.table = Some(table))
            }
            done => done,
        };
        // A table that is made from nothing has no word of the one before, and what follows an error is made from nothing.
        written.is_damaged &= done.is_err() && written.table.is_some();
        match done {
            Ok(()) => {
                if written.blocked.take().is_some() {
                    tracing::info!(
                        family = A::FAMILY,
                        table = name,
                        "the routes fit the image again; XDP forwards their packets"
                    );
                }
            }
            Err(error) => {
                self.counts.full += 1;
                if written.blocked.is_none() {
                    tracing::error!(%error, family = A::FAMILY, table = name, "routes do not fit the image; the kernel forwards their packets");
                }
                written.blocked = Some((error.to_string(), Instant::now()));
            }
        }
    }

    /// All that a table is to say, in order.
    fn wanted<A: Ip>(&mut self, source: &Source<'_, A>) -> Vec<(Prefix<A>, u32)> {
        let mut wanted = Vec::with_capacity(source.family.size(source.number) + 64);
        source.family.decide_all(source.number, source.nexthops, |prefix, decision| {
            wanted.push((prefix, self.number(source, prefix, decision)))
        });
        wanted.sort_by_key(|(prefix, _)| *prefix); // sorted runs, joined in O(n)
        wanted
    }

    /// The number of what was decided for a prefix.
    fn number<A: Ip>(&mut self, source: &Source<'_, A>, prefix: Prefix<A>, decision: Decision<A>) -> u32 {
        let resolver = self.resolver;
        let apart = (A::NETLINK, source.number);
        if let IpAddr::V4(addr) = prefix.addr().ip()
            && !addr.is_loopback()
            && match decision {
                Decision::NexthopGroup(nhg) => source.nexthops.is_own(nhg),
                Decision::Kernel => source.family.has_own(source.number, &prefix, source.nexthops),
                _ => false,
            }
        {
            self.own.add(Prefix::truncated(addr.into(), prefix.len()));
        }
        let has_default = self.action_index.has_default(apart);
        match meaning(has_default, (source.family, source.nexthops), source.number, prefix, decision) {
            Meaning::Default(nhg) => {
                let own = self.action_index.default_route(self.actions, resolver, apart, nhg);
                own.unwrap_or_else(|| self.action_index.nhg(self.actions, resolver, nhg))
            }
            Meaning::NexthopGroup(nhg) => self.action_index.nhg(self.actions, resolver, nhg),
            Meaning::Host(host) => self.action_index.host(self.actions, resolver, host),
            Meaning::Kernel => self.action_index.kernel(),
            Meaning::Throw => VALUE_THROW,
        }
    }

    /// Writes some prefixes, each once; `None` removes.
    fn some<A: Ip>(
        &mut self,
        table: &mut Table<A>,
        wanted: &[(Prefix<A>, Option<u32>)],
    ) -> Result<(), trieline_lpm::Error> {
        // First routes that come or change, then the default route, then routes that go: no address meets the default route of another state.
        // In one change, they would have the whole table built again.
        let (defaults, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(prefix, _)| prefix.len() == 0);
        let (some, gone): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, value)| value.is_some());
        for batch in some.chunks(BATCH).chain(defaults.chunks(1)).chain(gone.chunks(BATCH)) {
            self.counts.prefixes += table.apply(self.image, batch.iter().copied())? as u64;
        }
        Ok(())
    }

    /// Makes the table say `wanted`, in order, and nothing else: prefix by prefix when few differ, else as a whole.
    fn all<A: Ip>(
        &mut self,
        table: &mut Option<Table<A>>,
        id: u32,
        wanted: Vec<(Prefix<A>, u32)>,
    ) -> Result<(), trieline_lpm::Error> {
        if let Some(known) = table {
            let different = differences(known.iter(), wanted.iter().copied());
            if different.len() <= known.len() / 8 + 1024 {
                return self.some(known, &different);
            }
        }
        self.counts.tables += 1;
        match table {
            Some(known) => known.replace(self.image, wanted),
            None => Table::create(self.image, id, wanted).map(|new| *table = Some(new.refuse_when_full())),
        }
    }
}

/// The changes from `known` to `wanted`, prefix by prefix; both are in order.
fn differences<A: Ip>(
    known: impl Iterator<Item = (Prefix<A>, u32)>,
    wanted: impl Iterator<Item = (Prefix<A>, u32)>,
) -> Vec<(Prefix<A>, Option<u32>)> {
    let mut different = Vec::new();
    let mut known = known.peekable();
    for (prefix, value) in wanted {
        while let Some((gone, _)) = known.next_if(|(gone, _)| *gone < prefix) {
            different.push((gone, None));
        }
        match known.next_if(|(same, _)| *same == prefix) {
            Some((_, before)) if before == value => {}
            _ => different.push((prefix, Some(value))),
        }
    }
    different.extend(known.map(|(gone, _)| (gone, None)));
    different
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_lead_from_one_to_the_other() {
        let list = |text: &str| -> Vec<(Prefix<u32>, u32)> {
            let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
            pairs.map(|(prefix, value)| (prefix.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let known = list("0.0.0.0/0=1 10.0.0.0/8=2 10.0.0.0/9=3 11.0.0.0/8=4");
        let wanted = list("10.0.0.0/8=2 10.0.0.0/9=5 10.1.0.0/16=6 12.0.0.0/8=7");
        let mut map: std::collections::BTreeMap<_, _> = known.iter().copied().collect();
        let different = differences(known.into_iter(), wanted.iter().copied());
        assert_eq!(different.len(), 5);
        for (prefix, value) in different {
            match value {
                Some(value) => map.insert(prefix, value),
                None => map.remove(&prefix),
            };
        }
        assert_eq!(map.into_iter().collect::<Vec<_>>(), wanted);
    }
}
