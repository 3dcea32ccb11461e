//! A reader that looks in the middle of every change. After each single store that readers can see, every way to look up gives for
//! every address the answer from before or after the change. And removals, which no lack of memory may refuse.
//!
//! One thread and no luck: the image calls the reader (`Image::on_publish`).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::sample::{Exact, Random, Sample};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trieline_lpm::image::layout::{DIR_ENTRY, DIRECTORY};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Error, Grace, HeapMemory, Image, Key, Memory, Prefix, Reader, Table, TableReader};

const ID: u32 = 1;
/// Addresses looked up after each store.
const PROBES: usize = 64;

/// Memory that is never freed, so that a reader of it may be kept anywhere.
#[derive(Clone, Copy)]
struct Kept(&'static HeapMemory);

// SAFETY: the memory referred to, which stays.
unsafe impl Memory for Kept {
    fn words(&self) -> &[AtomicU32] {
        self.0.words()
    }
}

/// A grace period that passes when the writer waits for it or the test says so, unless a reader never ends.
#[derive(Clone, Default)]
struct Spied {
    begun: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    is_stuck: Arc<AtomicBool>,
}

impl Spied {
    /// All readers end.
    fn pass(&self) {
        if !self.is_stuck.load(Ordering::Relaxed) {
            self.passed.store(self.begun.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Grace for Spied {
    fn begin(&mut self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }
    fn passed(&mut self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
    fn wait(&mut self, _: u64) {
        self.pass();
    }
}

/// The answers that the reader expects, and those that it has seen.
struct Watch<A: Sample> {
    reader: Reader<'static>,
    grace: Spied,
    /// Kept for as long as no grace period passes, as a lookup under way may.
    held: Option<(u64, TableReader<'static, A>)>,
    addrs: Vec<A>,
    before: Vec<u32>,
    after: Vec<u32>,
    looks: u64,
    /// The table was withdrawn meanwhile.
    withdrawn: bool,
    wrong: Vec<String>,
}

impl<A: Sample> Watch<A> {
    fn hold(&mut self) {
        let passed = self.grace.passed.load(Ordering::Relaxed);
        if self.held.as_ref().is_none_or(|(since, _)| *since != passed) {
            self.held = self.reader.table(ID).map(|table| (passed, table));
        }
    }

    fn look(&mut self) {
        self.looks += 1;
        if self.reader.table_word(ID) == 0 {
            self.withdrawn = true;
            self.held = None;
            assert!(self.addrs.iter().all(|addr| self.reader.lookup(ID, *addr).is_none()));
            return;
        }
        self.hold();
        let Some((_, held)) = self.held else { return };
        let (mut batch, mut portable) = (vec![0; self.addrs.len()], vec![0; self.addrs.len()]);
        self.reader.lookup_batch(ID, &self.addrs, &mut batch);
        self.reader.lookup_batch_portable(ID, &self.addrs, &mut portable);
        for (at, addr) in self.addrs.iter().enumerate() {
            let (single, kept) = (self.reader.lookup(ID, *addr), held.lookup(*addr));
            let all = [single.unwrap_or(0), kept.unwrap_or(0), batch[at], portable[at]];
            let valid = [self.before[at], self.after[at]];
            if !all.iter().all(|value| valid.contains(value)) {
                let (store, prefix) = (self.looks, Prefix::host(*addr));
                self.wrong.push(format!("look {store}: {prefix} has {all:?}, states {valid:?}"));
            }
        }
    }
}

/// A table that is changed under its reader's eyes, and what it should hold.
struct Live<A: Sample> {
    image: Image<Kept, Spied>,
    table: Table<A>,
    model: BTreeMap<Prefix<A>, u32>,
    watch: Arc<Mutex<Watch<A>>>,
    random: Random,
}

impl<A: Sample> Live<A> {
    /// None: the table does not fit.
    fn new(bytes: usize, model: BTreeMap<Prefix<A>, u32>) -> Option<Self> {
        let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(bytes)));
        let grace = Spied::default();
        let mut image = Image::create(Kept(memory), grace.clone(), 3).unwrap();
        let table = Table::create(&mut image, ID, model.clone()).ok()?;
        let reader = Reader::new(memory.words()).unwrap();
        let watch = Watch {
            reader,
            grace,
            held: None,
            addrs: vec![],
            before: vec![],
            after: vec![],
            looks: 0,
            withdrawn: false,
            wrong: vec![],
        };
        let watch = Arc::new(Mutex::new(watch));
        let spy = Arc::clone(&watch);
        image.on_publish(move || spy.lock().unwrap().look());
        Some(Self { image, table, model, watch, random: Random(9) })
    }

    /// Addresses in and around the changed prefixes and what lies inside them.
    fn probes(&mut self, changes: &[(Prefix<A>, Option<u32>)]) -> Vec<A> {
        let mut addrs = Vec::new();
        let each = (PROBES / 4 / changes.len()).max(1);
        let step = changes.len().div_ceil(PROBES / 4);
        for (prefix, _) in changes.iter().step_by(step) {
            let inner = self.model.range(*prefix..).take(40).map(|(prefix, _)| *prefix);
            let inner: Vec<_> = inner.filter(|inner| prefix.covers(inner)).collect();
            for n in 0..each {
                let outside = prefix.addr().join(prefix.len().saturating_sub(1), A::random(&mut self.random));
                let inside = prefix.addr().join(prefix.len(), A::random(&mut self.random));
                addrs.extend([prefix.addr(), prefix.last(), outside, inside]);
                if let Some(inner) = inner.get(n * inner.len() / each) {
                    addrs.extend([inner.addr(), inner.last()]);
                }
            }
        }
        addrs.extend((0..8).map(|_| A::random(&mut self.random)));
        addrs.truncate(2 * PROBES);
        addrs
    }

    fn answers(&self, addrs: &[A]) -> Vec<u32> {
        let exact = Exact::new(self.model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        addrs.iter().map(|addr| exact.lookup(*addr)).collect()
    }

    /// Applies these changes (of distinct prefixes) while the reader looks; returns whether the table was changed.
    fn change(&mut self, changes: &[(Prefix<A>, Option<u32>)]) -> Result<(), Error> {
        let addrs = self.probes(changes);
        let (old, before) = (self.model.clone(), self.answers(&addrs));
        for (prefix, value) in changes {
            match value {
                Some(value) => self.model.insert(*prefix, *value),
                None => self.model.remove(prefix),
            };
        }
        let after = self.answers(&addrs);
        let was_withdrawn = self.table.is_withdrawn();
        {
            let mut watch = self.watch.lock().unwrap();
            (watch.addrs, watch.before, watch.after) = (addrs, before, after);
            watch.withdrawn = was_withdrawn;
            watch.held = None;
            watch.hold();
        }
        let done = match changes {
            [(prefix, Some(value))] => self.table.insert(&mut self.image, *prefix, *value).map(drop),
            [(prefix, None)] => self.table.remove(&mut self.image, prefix).map(drop),
            _ => self.table.apply(&mut self.image, changes.iter().copied()).map(drop),
        };
        let is_removal = changes.iter().all(|(_, value)| value.is_none());
        if let Err(error) = &done {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert!(!is_removal, "a removal is refused: {error}");
            self.model = old;
        }
        let mut watch = self.watch.lock().unwrap();
        if done.is_err() {
            watch.after = watch.before.clone();
        }
        watch.look();
        if done.is_ok() && !self.table.is_withdrawn() {
            watch.before = watch.after.clone();
            watch.held = None;
            watch.look();
        }
        assert!(
            watch.wrong.is_empty(),
            "{changes:?} {done:?}: {:#?}",
            &watch.wrong[..watch.wrong.len().min(9)]
        );
        assert!(is_removal || was_withdrawn || !watch.withdrawn, "only removals may withdraw a table");
        assert!(self.table.iter().eq(self.model.iter().map(|(prefix, value)| (*prefix, *value))));
        done
    }

    /// Readers end, and what waited for them is free.
    fn rest(&mut self) {
        self.watch.lock().unwrap().held = None;
        self.watch.lock().unwrap().grace.pass();
        self.image.reclaim();
    }

    fn sound(&self) {
        verify(self.image.memory().words()).unwrap();
    }

    fn any(&mut self) -> Option<Prefix<A>> {
        let at = self.random.below(self.model.len().max(1) as u64) as usize;
        self.model.keys().nth(at).copied()
    }
}

/// Prefixes that share their first `shared` bits, and values below `values`.
#[derive(Clone, Copy)]
struct Shape {
    shared: u16,
    lens: (u16, u16),
    count: usize,
    values: u64,
}

impl Shape {
    fn prefix<A: Sample>(&self, random: &mut Random) -> Prefix<A> {
        let addr = A::ZERO.join(1, A::random(&mut Random(7))).join(self.shared, A::random(random));
        let len = self.lens.0 + random.below(u64::from(self.lens.1 - self.lens.0) + 1) as u16;
        Prefix::truncated(addr, len)
    }

    fn value(&self, random: &mut Random) -> u32 {
        random.below(self.values) as u32 + 1
    }

    fn model<A: Sample>(&self) -> BTreeMap<Prefix<A>, u32> {
        let random = &mut Random(3);
        let mut model = BTreeMap::from([(Prefix::truncated(A::ZERO, 0), 1)]);
        while model.len() < self.count {
            model.insert(self.prefix(random), self.value(random));
        }
        model
    }

    /// Changes of every kind; `bytes`: of the image. Returns how many were refused, and how often the reader looked.
    fn run<A: Sample>(&self, bytes: usize, rounds: u32) -> Option<(u32, u64)> {
        let mut live = Live::<A>::new(bytes, self.model())?;
        let mut refused = 0;
        for round in 0..rounds {
            let short = live.random.below(24) as u16;
            let mut changes = BTreeMap::new();
            let many = if round % 8 == 7 { self.count / 4 } else { 20 };
            for _ in 0..if round % 4 < 2 { 1 } else { many } {
                let random = &mut live.random;
                let prefix = match random.below(8) {
                    0 => Prefix::truncated(self.prefix::<A>(random).addr(), short.min(A::WIDTH)),
                    1..4 => self.prefix(random),
                    _ => match live.any() {
                        Some(prefix) => prefix,
                        None => continue,
                    },
                };
                let value = (live.random.below(3) > 0).then(|| self.value(&mut live.random));
                changes.insert(prefix, value);
            }
            // The default route alone, and with others: set, changed, removed.
            if live.random.below(3) == 0 {
                let value = (live.random.below(3) > 0).then(|| self.value(&mut live.random));
                changes.insert(Prefix::truncated(A::ZERO, 0), value);
            }
            if live.random.below(4) == 0 {
                changes.values_mut().for_each(|value| *value = None);
            }
            let changes: Vec<_> = changes.into_iter().collect();
            if !changes.is_empty() {
                refused += u32::from(live.change(&changes).is_err());
            }
            if round % 3 == 0 {
                live.rest();
            }
            if round % 16 == 0 {
                live.sound();
            }
        }
        live.sound();
        let looks = live.watch.lock().unwrap().looks;
        Some((refused, looks))
    }

    /// The same with more and more memory, from the least that the table fits into.
    fn all<A: Sample>(&self, name: &str) {
        let ample = self.run::<A>(64 << 20, 32).unwrap();
        assert_eq!(ample.0, 0, "{name}: nothing is refused where there is room");
        let mut chunks = 2;
        let least = loop {
            if let Some(ran) = self.run::<A>(chunks << 16, 24) {
                break ran;
            }
            chunks += 1;
        };
        let mut refused = least.0;
        let mut looks = ample.1 + least.1;
        for more in [1, 3] {
            let ran = self.run::<A>((chunks + more) << 16, 24).unwrap();
            refused += ran.0;
            looks += ran.1;
        }
        println!("{name}: from {chunks} chunks on, {refused} changes refused, {looks} looks");
        assert!(refused > 0, "{name}: the memory is never short");
    }
}

#[test]
fn ipv4_with_a_palette() {
    Shape { shared: 6, lens: (12, 28), count: 5000, values: 40 }.all::<u32>("palette");
}

#[test]
fn ipv4_with_more_values_than_codes() {
    Shape { shared: 5, lens: (14, 32), count: 4500, values: 300 }.all::<u32>("a palette that is full");
}

#[test]
fn ipv4_of_distinct_values() {
    Shape { shared: 10, lens: (16, 32), count: 3500, values: 1 << 30 }.all::<u32>("distinct");
}

#[test]
fn ipv6() {
    Shape { shared: 30, lens: (20, 64), count: 2000, values: 9 }.all::<u128>("few values");
    Shape { shared: 90, lens: (48, 128), count: 1500, values: 1 << 30 }.all::<u128>("distinct, deep");
}

#[test]
fn other_keys() {
    Shape { shared: 120, lens: (100, 160), count: 1500, values: 50 }.all::<Key<160, 20>>("160 bits");
    Shape { shared: 3, lens: (1, 13), count: 900, values: 4 }.run::<Key<13, 2>>(64 << 20, 48).unwrap();
}

/// The default route changes, others come and go at once, and a second root does not fit. That is refused as a whole, or seen as a whole.
#[test]
fn the_default_route_and_others_where_memory_is_short() {
    let model: BTreeMap<_, _> = (0..30_000u32)
        .map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761) & !0xff, 24), 100 + n))
        .chain([(Prefix::truncated(0, 0), 1)])
        .collect();
    let claimed = Live::new(64 << 20, model.clone()).unwrap().image.stats().claimed as usize;
    let (mut refused, mut done) = (0, 0);
    for free in (0..6usize).chain([40]) {
        let Some(mut live) = Live::new(claimed + (free << 16), model.clone()) else { continue };
        let gone: Vec<_> = live.model.keys().skip(1).step_by(15).take(1800).copied().collect();
        let mixed = gone.iter().map(|prefix| (*prefix, None));
        let added = Prefix::truncated(1, 32);
        let mixed: Vec<_> = mixed.chain([(Prefix::truncated(0, 0), Some(9)), (added, Some(8))]).collect();
        match live.change(&mixed) {
            Ok(()) => done += 1,
            Err(_) => refused += 1,
        }
        live.rest();
        // Removals only: never refused, and still one state after the other.
        let mut all: Vec<_> = gone.iter().map(|prefix| (*prefix, None)).collect();
        all.insert(0, (Prefix::truncated(0, 0), None));
        live.change(&all).unwrap();
        live.sound();
    }
    println!("{refused} refused, {done} done");
    assert!(refused > 0 && done > 0, "the memory is always short, or never");
}

/// Fills the image until nothing fits, then removes everything; `fill` says with which prefix next.
fn exhaust<A: Sample>(
    name: &str,
    chunks: usize,
    start: BTreeMap<Prefix<A>, u32>,
    beside: bool,
    is_stuck: bool,
    mut fill: impl FnMut(&mut Random) -> (Prefix<A>, u32),
) {
    let mut live = Live::<A>::new(chunks << 16, start).unwrap();
    let mut random = Random(17);
    if beside {
        // Another table takes all that is left.
        for bits in (0..17).rev() {
            let hosts =
                (0..1u32 << bits).map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761), 32), n + 1));
            if Table::create(&mut live.image, 0, hosts).is_ok() {
                break;
            }
        }
    }
    live.watch.lock().unwrap().grace.is_stuck.store(is_stuck, Ordering::Relaxed);
    let mut refused = 0;
    for _ in 0..200_000 {
        let (prefix, value) = fill(&mut random);
        // Quick where nothing is at stake: the reader looks at what is refused, and at some others.
        if refused > 20 || live.model.len() > 120_000 {
            break;
        }
        if refused > 4 || !live.model.len().is_multiple_of(512) {
            let addrs = std::mem::take(&mut live.watch.lock().unwrap().addrs);
            drop(addrs);
            match live.table.insert(&mut live.image, prefix, value) {
                Ok(_) => drop(live.model.insert(prefix, value)),
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        } else if live.change(&[(prefix, Some(value))]).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 0, "{name}: the memory is not used up by {} prefixes", live.model.len());
    let (mut removals, mut withdrawn) = (0, 0);
    let step = live.model.len() / 40 + 1;
    // Some one by one under the reader's eyes, short ones (which concern most) first; then the rest in batches.
    let mut prefixes: Vec<_> = live.model.keys().copied().collect();
    prefixes.sort_by_key(|prefix| (prefix.len() / 9, prefix.addr()));
    let (first, rest): (Vec<_>, Vec<_>) =
        prefixes.iter().enumerate().partition(|(at, _)| *at < 25 || at % step == 0);
    for (_, prefix) in first {
        live.change(&[(*prefix, None)]).unwrap();
        removals += 1;
        withdrawn += u32::from(live.watch.lock().unwrap().withdrawn);
        if removals % 50 == 0 && !live.table.is_withdrawn() {
            live.sound();
        }
    }
    for some in rest.chunks(rest.len() / 8 + 1) {
        let some: Vec<_> = some.iter().map(|(_, prefix)| (**prefix, None)).collect();
        live.change(&some).unwrap();
        removals += some.len();
        withdrawn += u32::from(live.watch.lock().unwrap().withdrawn);
    }
    assert!(live.table.is_empty());
    // With nothing in it, it fits; unless a reader never ends.
    live.watch.lock().unwrap().grace.is_stuck.store(false, Ordering::Relaxed);
    live.rest();
    live.change(&[(Prefix::truncated(A::ZERO, 1), Some(5))]).unwrap();
    assert!(!live.table.is_withdrawn());
    live.sound();
    println!("{name}: {removals} removed where {refused} were refused; while withdrawn: {withdrawn}");
}

#[test]
fn every_removal_succeeds_in_a_full_image() {
    let any = Shape { shared: 4, lens: (8, 32), count: 0, values: 1 << 30 };
    let few = Shape { values: 30, ..any };
    let deep = Shape { shared: 60, lens: (20, 128), count: 0, values: 1 << 30 };
    let wide = Shape { shared: 120, lens: (60, 160), count: 0, values: 9 };
    let all = |value| BTreeMap::from([(Prefix::truncated(0, 0), value), (Prefix::truncated(0, 1), value)]);
    for chunks in [2, 3] {
        exhaust::<u32>("distinct", chunks, BTreeMap::new(), false, false, |r| (any.prefix(r), any.value(r)));
        exhaust::<u32>("few values", chunks, all(7), false, false, |r| (few.prefix(r), few.value(r)));
        exhaust::<u128>("IPv6", chunks, BTreeMap::new(), false, false, |r| (deep.prefix(r), deep.value(r)));
        exhaust::<Key<160, 20>>("160 bits", chunks, BTreeMap::new(), false, false, |r| {
            (wide.prefix(r), wide.value(r))
        });
    }
    // With a reserve.
    exhaust::<u32>("distinct", 16, BTreeMap::new(), true, false, |r| (any.prefix(r), any.value(r)));
    exhaust::<u128>("IPv6", 16, BTreeMap::new(), true, false, |r| (deep.prefix(r), deep.value(r)));
    // All that lies inside has the value of the prefix that goes, and so no bytes of its own until then.
    let merged: BTreeMap<_, _> = (0..4000u32)
        .map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761) >> 1, 26), 7))
        .chain(all(7))
        .collect();
    exhaust::<u32>("merged", 5, merged.clone(), false, false, |r| (any.prefix(r), any.value(r)));
    // Another table has the memory; a reader never ends, so that nothing is freed.
    exhaust::<u32>("merged, beside another", 20, merged.clone(), true, false, |r| {
        (any.prefix(r), any.value(r))
    });
    exhaust::<u32>("a reader that stays", 16, merged, false, true, |r| (any.prefix(r), any.value(r)));
    exhaust::<u128>("IPv6, a reader that stays", 8, BTreeMap::new(), true, true, |r| {
        (deep.prefix(r), deep.value(r))
    });
}

/// A caller who would rather keep the old answer than have none is refused, and nothing has changed.
#[test]
fn a_removal_is_refused_where_the_caller_asks_for_it() {
    let merged: BTreeMap<_, _> = (0..4000u32)
        .map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761) >> 1, 26), 7))
        .chain([(Prefix::truncated(0, 1), 7)])
        .collect();
    let mut image = Image::create(HeapMemory::new(2 << 16), Spied::default(), 2).unwrap();
    let mut table = Table::create(&mut image, ID, merged).unwrap().refuse_when_full();
    assert!(matches!(table.remove(&mut image, &Prefix::truncated(0, 1)), Err(Error::Full { .. })));
    assert_eq!((table.len(), image.reader().lookup4(ID, 5)), (4001, Some(7)));
}

/// The default route changes, and changes back. After each store look a lookup in C that has found nothing and stood still since, and lookups that
/// begin now. So does each reader that was ever made.
#[test]
fn a_default_route_changes_under_lookups() {
    const ADDR: u32 = 0x0a01_0203;
    const OTHER: u32 = 0xffff_ffff;
    let all = Prefix::truncated(0, 0);
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(4 << 16)));
    let mut image = Image::create(Kept(memory), Spied::default(), 3).unwrap();
    let networks = (0..9).map(|n| (Prefix::truncated(n << 24, 24), 50 + n));
    let mut table = Table::create(&mut image, ID, networks.chain([(all, 1)])).unwrap();
    let words = memory.words();
    let half = |at: u32| words[((DIRECTORY + DIR_ENTRY * ID) / 4 + at) as usize].load(Ordering::Relaxed);
    // It has this entry, and its walk has ended at 0. Then the address gets a prefix, which stays.
    let stood = u64::from(half(0)) | u64::from(half(1)) << 32;
    table.insert(&mut image, Prefix::truncated(ADDR, 16), 40).unwrap();
    let reader = Reader::new(words).unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let states = Arc::new(Mutex::new([1, 1]));
    let looks = Arc::new(AtomicU32::new(0));
    let look = {
        let (kept, states, looks) = (Arc::clone(&kept), Arc::clone(&states), Arc::clone(&looks));
        move || {
            looks.fetch_add(1, Ordering::Relaxed);
            let header = common::Header::get();
            let found = header.finish4(memory, ID, stood, 0, ADDR);
            assert!([1, 40].contains(&found), "in C: {found}");
            assert_eq!(header.lookup4(memory, ID, ADDR), Some(40));
            let mut kept = kept.lock().unwrap();
            kept.push(reader.table::<u32>(ID).unwrap());
            let states = states.lock().unwrap();
            for found in kept.iter().map(|table| table.lookup(OTHER)).chain([reader.lookup4(ID, OTHER)]) {
                assert!(states.contains(&found.unwrap_or(0)), "{found:?} in {states:?}");
            }
            assert!(kept.iter().all(|table| table.lookup(ADDR) == Some(40)));
        }
    };
    image.on_publish(look.clone());
    for value in [7, 1, 0, 1, 8, 0, 9] {
        states.lock().unwrap()[1] = value;
        match value {
            0 => table.remove(&mut image, &all).unwrap(),
            _ => table.insert(&mut image, all, value).unwrap(),
        };
        *states.lock().unwrap() = [value; 2];
        look();
    }
    assert!(looks.load(Ordering::Relaxed) >= 7 * 3);
}

/// A writer is killed between the stores of a changed default route. All readers have the new one, also those that were made in the middle.
#[test]
fn a_writer_that_is_killed_while_a_default_route_changes() {
    const ADDR: u32 = 0xffff_ffff;
    let all = Prefix::<u32>::truncated(0, 0);
    let memory: &'static HeapMemory = Box::leak(Box::new(HeapMemory::new(4 << 16)));
    let mut image = Image::create(Kept(memory), Spied::default(), 3).unwrap();
    let mut table = Table::create(&mut image, ID, [(all, 1)]).unwrap();
    let reader = Reader::new(memory.words()).unwrap();
    let kept = Arc::new(Mutex::new(vec![reader.table::<u32>(ID).unwrap()]));
    let stores = AtomicU32::new(0);
    let among = Arc::clone(&kept);
    image.on_publish(move || {
        among.lock().unwrap().push(reader.table(ID).unwrap());
        assert!(stores.fetch_add(1, Ordering::Relaxed) == 0, "killed behind the second store");
    });
    let change = std::panic::AssertUnwindSafe(|| table.insert(&mut image, all, 7));
    assert!(std::panic::catch_unwind(change).is_err());
    let now = |kept: &[TableReader<'static, u32>]| {
        let found = kept.iter().map(|table| table.lookup(ADDR)).chain([reader.lookup4(ID, ADDR)]);
        assert!(found.chain([common::Header::get().lookup4(memory, ID, ADDR)]).all(|value| value == Some(7)));
    };
    assert_eq!(kept.lock().unwrap().len(), 3);
    now(&kept.lock().unwrap());
    let count = || memory.words()[((DIRECTORY + DIR_ENTRY * ID) / 4 + 1) as usize].load(Ordering::Relaxed);
    assert_eq!(count() % 2, 1);
    Image::open(Kept(memory), Spied::default()).unwrap();
    assert_eq!(count() % 2, 0, "the next writer ends the change");
    now(&kept.lock().unwrap());
}
