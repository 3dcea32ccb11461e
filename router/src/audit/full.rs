//! The audit of everything, in steps so small that the daemon follows the kernel between them. It compares a fresh dump of all routes with
//! the mirror, then each prefix with the image, then each action with its records.

use super::answer::nhg_text;
use super::check::{Outcome, Parts};
use super::sampler::{Sampled, tables};
use super::suspects::{
    Key, Suspects, Way, comparable, completed, is_ending, mirrored, mirrored_tables, sorted,
};
use super::{Audited, Difference, Kind, Part, family_name, objects};
use crate::fib::expected::expected;
use crate::kernel::addr::is_special;
use crate::kernel::route::{self, NexthopGroup};
use crate::kernel::socket::{Error, Netlink, Ongoing};
use crate::kernel::{TABLE_MAIN, TableKey, family};
use crate::rib::mirror::{Changes, Mirror};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use trieline_lpm::Prefix;

/// The daemon has more to do: a step takes about as long.
const STEP: Duration = Duration::from_millis(3);
/// Between two looks at what differed.
const PAUSE: Duration = Duration::from_millis(100);
/// A difference that is the same at so many looks in a row stays.
const LOOKS: u8 = 3;
/// No more looks than these.
const MOST_LOOKS: u8 = 10;
/// Differences that the answer names.
pub const NAMED: u64 = 10_000;

/// Destinations for packets through the program.
const DESTINATIONS: usize = 64;

/// The way through everything.
#[derive(Debug)]
enum Step {
    /// Links, settings, rules, neighbours and next hop objects.
    Objects,
    /// The kernel's routes of a family, against the mirror.
    Routes(u8),
    /// Mirrored routes of a table that the dump did not have.
    Undumped(TableKey),
    /// A look at the routes that differed.
    Look(u8),
    /// The prefixes of a table, against the image.
    Prefixes(TableKey),
    /// The decisions of the mirror, against the table.
    Decided(TableKey),
    /// The first address of each slot of a table's root.
    Slots(TableKey),
    /// The actions.
    Actions,
}

/// An audit that goes on.
#[derive(Debug)]
pub struct Full {
    /// Whether trielined is to repair what it finds.
    pub repair: bool,
    begun: Instant,
    socket: Netlink,
    steps: VecDeque<Step>,
    dump: Option<Ongoing>,
    v4: Suspects<u32>,
    v6: Suspects<u128>,
    /// Objects that differed, and how often in a row.
    objects: Vec<(Difference, u8)>,
    looks: u8,
    /// Where a walk over a table or over the actions has come to.
    place: Option<(u128, u16)>,
    done: u64,
    wait: Option<Instant>,
    /// The result so far.
    pub audited: Audited,
    /// Differences that were found.
    pub differences: Vec<Difference>,
    /// Destinations that XDP forwards, all over the tables local and main.
    pub destinations: Vec<IpAddr>,
    /// One of so many is kept, and how many came.
    stride: (u64, u64),
}

/// How far a step has come.
enum Went {
    On,
    /// The step is done.
    Through,
    /// Again, after a pause.
    Later,
}

impl Full {
    /// Begins an audit.
    pub fn new(repair: bool) -> Result<Self, Error> {
        let steps = [
            Step::Objects,
            Step::Routes(family::INET),
            Step::Look(family::INET),
            Step::Routes(family::INET6),
            Step::Look(family::INET6),
            Step::Actions,
        ];
        let (v4, v6, objects, audited, differences) = Default::default();
        Ok(Self {
            repair,
            begun: Instant::now(),
            socket: Netlink::route()?,
            steps: steps.into(),
            dump: None,
            v4,
            v6,
            objects,
            looks: 0,
            place: None,
            done: 0,
            wait: None,
            audited,
            differences,
            destinations: Vec::new(),
            stride: (1, 0),
        })
    }

    /// The time of the next step; `None`: at once.
    pub fn waits_until(&self) -> Option<Instant> {
        self.wait
    }

    /// Hears of changes: a route that changed is in flight, whatever the looks before found.
    pub fn note(&mut self, changes: &Changes) {
        self.v4.note(&changes.v4);
        self.v6.note(&changes.v6);
    }

    /// Does nothing for a while.
    pub fn wait(&mut self, pause: Duration) {
        self.wait = Some(Instant::now() + pause);
    }

    /// The present step, how much of it is done, and of about how much.
    pub fn progress(&self, mirror: &Mirror) -> (String, u64, u64) {
        let of_family = |netlink: u8| {
            let routes4 = mirror.v4.tables().map(crate::rib::table::Table::routes).sum::<usize>();
            if netlink == family::INET { routes4 as u64 } else { (mirror.routes() - routes4) as u64 }
        };
        match self.steps.front() {
            Some(Step::Routes(netlink) | Step::Undumped((netlink, _))) => {
                (format!("{} routes of the kernel", family_name(*netlink)), self.done, of_family(*netlink))
            }
            Some(Step::Look(netlink)) => {
                let suspects = (self.v4.all.len() + self.v6.all.len()) as u64;
                (
                    format!("{} routes that differed, again", family_name(*netlink)),
                    self.looks.into(),
                    suspects,
                )
            }
            Some(
                Step::Prefixes((netlink, table))
                | Step::Decided((netlink, table))
                | Step::Slots((netlink, table)),
            ) => (
                format!("{} table {table} in the image", family_name(*netlink)),
                self.done,
                of_family(*netlink),
            ),
            Some(Step::Objects) => ("links, rules, neighbours, next hop objects".into(), 0, 0),
            Some(Step::Actions) => ("actions".into(), self.done, 0),
            None => ("done".into(), 0, 0),
        }
    }

    /// Does the next step; whether that was the last. `parts` belong to the state that all changes read so far have led to.
    pub fn advance(&mut self, parts: &Parts<'_>) -> Result<bool, Error> {
        if self.wait.is_some_and(|at| Instant::now() < at) {
            return Ok(false);
        }
        self.wait = None;
        let Some(step) = self.steps.front() else { return Ok(true) };
        let went = match *step {
            Step::Objects => self.look_at_objects(parts)?,
            Step::Routes(family::INET) => self.read_routes::<u32>(parts)?,
            Step::Routes(_) => self.read_routes::<u128>(parts)?,
            Step::Undumped((family::INET, table)) => self.undumped::<u32>(parts, table),
            Step::Undumped((_, table)) => self.undumped::<u128>(parts, table),
            Step::Look(family::INET) => self.look::<u32>(parts)?,
            Step::Look(_) => self.look::<u128>(parts)?,
            Step::Prefixes((family::INET, table)) => self.prefixes::<u32>(parts, table),
            Step::Prefixes((_, table)) => self.prefixes::<u128>(parts, table),
            Step::Decided((family::INET, table)) => self.decided::<u32>(parts, table),
            Step::Decided((_, table)) => self.decided::<u128>(parts, table),
            Step::Slots((family::INET, table)) => self.slots::<u32>(parts, table),
            Step::Slots((_, table)) => self.slots::<u128>(parts, table),
            Step::Actions => self.actions(parts),
        };
        match went {
            Went::On => {}
            Went::Later => self.wait = Some(Instant::now() + PAUSE),
            Went::Through => {
                let step = self.steps.pop_front();
                (self.place, self.done) = (None, 0);
                if let Some(Step::Routes(netlink)) = step {
                    let steps = mirrored_tables(parts.mirror, netlink).into_iter();
                    steps.for_each(|number| self.steps.push_front(Step::Undumped((netlink, number))));
                }
                if matches!(step, Some(Step::Look(family::INET6))) {
                    let all = tables(parts.publisher).into_iter();
                    let steps =
                        all.flat_map(|key| [Step::Prefixes(key), Step::Decided(key), Step::Slots(key)]);
                    steps.for_each(|step| self.steps.push_front(step));
                }
            }
        }
        self.audited.seconds = self.begun.elapsed().as_secs_f64();
        Ok(self.steps.is_empty())
    }

    fn found(&mut self, difference: Difference) {
        // One prefix is asked for several addresses.
        let alike = |known: &Difference| known.place() == difference.place();
        if self.differences.iter().rev().take(8).any(alike) {
            return;
        }
        self.audited.differences += 1;
        if self.audited.differences <= NAMED {
            self.differences.push(difference);
        }
    }

    fn look_at_objects(&mut self, parts: &Parts<'_>) -> Result<Went, Error> {
        let (found, count) = objects::compare(parts.mirror, &mut self.socket)?;
        self.audited.objects = count as u64;
        let known = std::mem::take(&mut self.objects);
        let seen =
            |one: &Difference| known.iter().find(|(other, _)| other == one).map_or(0, |(_, seen)| *seen);
        self.objects =
            found.into_iter().map(|one| (seen(&one) + 1, one)).map(|(seen, one)| (one, seen)).collect();
        self.looks += 1;
        let unsettled = self.objects.iter().any(|(_, seen)| *seen < LOOKS);
        if unsettled && self.looks < MOST_LOOKS {
            return Ok(Went::Later);
        }
        self.looks = 0;
        for (difference, seen) in std::mem::take(&mut self.objects) {
            if seen < LOOKS {
                self.audited.in_flight += 1;
            } else {
                self.found(difference);
            }
        }
        Ok(Went::Through)
    }

    /// Reads some parts of a dump of routes.
    fn read<A: Suspected>(
        &mut self,
        mut each: impl FnMut(&mut Suspects<A>, Key<A>, Way),
    ) -> Result<bool, Error> {
        if self.dump.is_none() {
            self.dump = Some(self.socket.begin(route::dump(A::NETLINK))?);
        }
        let begun = Instant::now();
        let mut count = 0;
        let Some(mut dump) = self.dump.take() else { return Ok(false) };
        // The socket and the suspects are apart.
        let mut suspects = std::mem::take(A::suspects(self));
        let more = loop {
            let more = self.socket.go_on(&mut dump, |message| {
                let Some(reported) = route::decode(message.payload) else { return };
                let Some(addr) = A::from_bytes(reported.destination) else { return };
                if reported.family == A::NETLINK {
                    count += 1;
                    let prefix = Prefix::truncated(addr, reported.prefix_len.into());
                    let ended = reported.ends_in.is_some_and(|left| left < 0);
                    let nhg = NexthopGroup { expires: ended, ..reported.nhg() };
                    each(&mut suspects, (reported.table, prefix), (reported.metric, nhg));
                }
            });
            match more {
                Ok(true) if begun.elapsed() < STEP => {}
                more => break more,
            }
        };
        *A::suspects(self) = suspects;
        self.done += count;
        let more = more?;
        if more {
            self.dump = Some(dump);
        }
        Ok(more)
    }

    fn read_routes<A: Suspected>(&mut self, parts: &Parts<'_>) -> Result<Went, Error> {
        let before = self.done;
        let more = self.read::<A>(|suspects, key, way| {
            suspects.dumped.push(key);
            let ours = mirrored::<A>(parts.mirror, key);
            let is_equal = ours.contains(&comparable(completed(way, &ours)));
            if !is_equal && !is_ending::<A>(parts.mirror, key) {
                suspects.all.entry(key).or_default();
            }
        })?;
        self.audited.routes += self.done - before;
        if more {
            return Ok(Went::On);
        }
        let dumped = &mut A::suspects(self).dumped;
        dumped.sort_unstable();
        dumped.dedup();
        Ok(Went::Through)
    }

    /// Mirrored prefixes of a table that the dump lacks. A prefix that lacks some of its routes differs in the next look.
    fn undumped<A: Suspected>(&mut self, parts: &Parts<'_>, number: u32) -> Went {
        let begun = Instant::now();
        let (bits, len) = self.place.unwrap_or((0, 0));
        let table = A::family(parts.mirror).table(number).into_iter();
        for (prefix, _) in table.flat_map(|table| table.from(Prefix::truncated(A::of_bits(bits), len))) {
            if begun.elapsed() >= STEP {
                self.place = Some((prefix.addr().bits(), prefix.len()));
                return Went::On;
            }
            self.done += 1;
            let suspects = A::suspects(self);
            if suspects.dumped.binary_search(&(number, prefix)).is_err() {
                suspects.all.entry((number, prefix)).or_default();
            }
        }
        self.looks = 0;
        Went::Through
    }

    /// Dumps once more, and compares only the routes that differed.
    fn look<A: Suspected>(&mut self, parts: &Parts<'_>) -> Result<Went, Error> {
        A::suspects(self).dumped = Vec::new();
        if A::suspects(self).all.is_empty() {
            return Ok(Went::Through);
        }
        let more = self.read::<A>(|suspects, key, way| {
            if suspects.all.contains_key(&key) {
                let way = completed(way, &mirrored::<A>(parts.mirror, key));
                suspects.reported.entry(key).or_default().push(comparable(way));
            }
        })?;
        if more {
            return Ok(Went::On);
        }
        self.looks += 1;
        let last = self.looks >= MOST_LOOKS;
        let suspects = A::suspects(self);
        let reported = std::mem::take(&mut suspects.reported);
        suspects.all.retain(|key, (seen, kernel, ours)| {
            let now_kernel = sorted(reported.get(key).cloned().unwrap_or_default());
            let now_ours = sorted(mirrored::<A>(parts.mirror, *key));
            if now_kernel == now_ours || is_ending::<A>(parts.mirror, *key) {
                return false;
            }
            *seen = if (&*kernel, &*ours) == (&now_kernel, &now_ours) { *seen + 1 } else { 1 };
            (*kernel, *ours) = (now_kernel, now_ours);
            true
        });
        let unsettled = suspects.all.values().any(|(seen, ..)| *seen < LOOKS);
        if unsettled && !last {
            return Ok(Went::Later);
        }
        for ((table, prefix), (seen, kernel, ours)) in std::mem::take(&mut suspects.all) {
            if seen < LOOKS {
                self.audited.in_flight += 1;
                continue;
            }
            let text = |ways: &[Way]| {
                let way =
                    |(_, nhg): &Way| nhg_text(nhg, parts.mirror) + if nhg.expires { " (ended)" } else { "" };
                let ways: Vec<_> = ways.iter().map(way).collect();
                Some(if ways.is_empty() { "no route".into() } else { ways.join("; ") })
            };
            self.found(Difference {
                part: Part::Mirror,
                kind: Kind::Route,
                family: family_name(A::NETLINK).into(),
                table,
                prefix: prefix.to_string(),
                address: None,
                kernel: text(&kernel),
                mirror: text(&ours),
                image: None,
            });
        }
        Ok(Went::Through)
    }

    /// Looks each prefix up in the image: its first and last address, and those just outside.
    fn prefixes<A: Suspected>(&mut self, parts: &Parts<'_>, number: u32) -> Went {
        let Some(table) =
            A::published(parts.publisher).get(number).and_then(|written| written.table.as_ref())
        else {
            self.audited.skipped.push(format!("{} table {number}: not written", family_name(A::NETLINK)));
            return Went::Through;
        };
        let begun = Instant::now();
        let (bits, len) = self.place.unwrap_or((0, 0));
        for (prefix, _) in table.iter_from(Prefix::truncated(A::of_bits(bits), len)) {
            if begun.elapsed() >= STEP {
                self.place = Some((prefix.addr().bits(), prefix.len()));
                return Went::On;
            }
            let (first, last) = (prefix.addr(), prefix.last());
            for address in [first, last, first.next_to(false), last.next_to(true)] {
                self.look_up(parts, number, address, address == first);
            }
            (self.audited.prefixes, self.done) = (self.audited.prefixes + 1, self.done + 1);
        }
        Went::Through
    }

    fn look_up<A: Suspected>(&mut self, parts: &Parts<'_>, number: u32, address: A, counts: bool) {
        self.audited.lookups += 1;
        match parts.compare(number, address, None) {
            Outcome::Differs(difference) => self.found(*difference),
            Outcome::Passed => self.audited.passed += u64::from(counts),
            Outcome::Equal if counts && number == TABLE_MAIN && !is_special(address.ip()) => {
                self.keep(address.ip());
            }
            Outcome::Equal | Outcome::Skipped => {}
        }
    }

    /// Keeps some destinations, as many from each part of the tables.
    fn keep(&mut self, destination: IpAddr) {
        let (stride, count) = &mut self.stride;
        if count.is_multiple_of(*stride) {
            self.destinations.push(destination);
        }
        *count += 1;
        if self.destinations.len() > DESTINATIONS {
            let mut number = 0;
            self.destinations.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            *stride *= 2;
        }
    }

    /// Looks whether the table has what the mirror decides for each of its prefixes.
    fn decided<A: Suspected>(&mut self, parts: &Parts<'_>, number: u32) -> Went {
        let published = A::published(parts.publisher).get(number);
        let Some(table) = published.and_then(|written| written.table.as_ref()) else { return Went::Through };
        let family = A::family(parts.mirror);
        let begun = Instant::now();
        // Local's prefixes come first, and are few.
        if self.place.is_none() && number == TABLE_MAIN {
            for (prefix, _) in family.local.iter() {
                self.decided_for(parts, number, table.get(&prefix), prefix);
            }
        }
        let (bits, len) = self.place.unwrap_or((0, 0));
        let routes = family.table(number).into_iter();
        for (prefix, _) in routes.flat_map(|routes| routes.from(Prefix::truncated(A::of_bits(bits), len))) {
            if begun.elapsed() >= STEP {
                self.place = Some((prefix.addr().bits(), prefix.len()));
                return Went::On;
            }
            self.decided_for(parts, number, table.get(&prefix), prefix);
            self.done += 1;
        }
        Went::Through
    }

    fn decided_for<A: Suspected>(
        &mut self,
        parts: &Parts<'_>,
        number: u32,
        id: Option<u32>,
        prefix: Prefix<A>,
    ) {
        let wanted = expected(parts.mirror, parts.publisher, number, prefix);
        if wanted.as_ref().map(|wanted| wanted.id) == id || parts.is_left(id) {
            return;
        }
        let text = |id: Option<u32>| Some(id.map_or("no route".into(), |id| format!("action {id}")));
        self.found(Difference {
            part: Part::Table,
            kind: Kind::Route,
            family: family_name(A::NETLINK).into(),
            table: number,
            prefix: prefix.to_string(),
            address: None,
            kernel: None,
            mirror: text(wanted.map(|wanted| wanted.id)),
            image: text(id),
        });
    }

    /// Looks the first address of each root slot up: also where no prefix begins or ends.
    fn slots<A: Suspected>(&mut self, parts: &Parts<'_>, number: u32) -> Went {
        let published = A::published(parts.publisher).get(number);
        let Some(table) = published.and_then(|written| written.table.as_ref()) else { return Went::Through };
        let begun = Instant::now();
        let bits = table.root_bits();
        let from = self.place.map_or(0, |(slot, _)| slot as usize);
        for slot in from..1 << bits {
            if begun.elapsed() >= STEP {
                self.place = Some((slot as u128, 0));
                return Went::On;
            }
            self.look_up(parts, number, A::from_index(slot, bits), false);
        }
        Went::Through
    }

    fn actions(&mut self, parts: &Parts<'_>) -> Went {
        let begun = Instant::now();
        let from = self.place.map_or(0, |(place, _)| place as usize);
        let mut damaged = Vec::new();
        for (place, (id, action)) in (from..).zip(parts.publisher.action_index.all().skip(from)) {
            if begun.elapsed() >= STEP {
                self.place = Some((place as u128, 0));
                damaged.into_iter().for_each(|difference| self.found(difference));
                return Went::On;
            }
            self.audited.actions += 1;
            self.done += 1;
            if !parts.actions.holds(id, &action) {
                let text = |action| Some(super::answer::action_text(action, parts.mirror));
                damaged.push(Difference {
                    part: Part::Action,
                    kind: Kind::Action,
                    family: "any".into(),
                    table: 0,
                    prefix: format!("action {id}"),
                    address: None,
                    kernel: None,
                    mirror: text(Some(&action)),
                    image: text(parts.actions.get(id).as_ref()),
                });
            }
        }
        damaged.into_iter().for_each(|difference| self.found(difference));
        Went::Through
    }
}

/// An address family with its suspects.
trait Suspected: Sampled {
    fn suspects(full: &mut Full) -> &mut Suspects<Self>;
}

impl Suspected for u32 {
    fn suspects(full: &mut Full) -> &mut Suspects<Self> {
        &mut full.v4
    }
}

impl Suspected for u128 {
    fn suspects(full: &mut Full) -> &mut Suspects<Self> {
        &mut full.v6
    }
}
