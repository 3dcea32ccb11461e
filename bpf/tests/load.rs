//! One writer, readers on every CPU. Each answer is the one before or after a change that is under way, and no block is used
//! again before its grace period. TRIELINE_LOAD_SECONDS sets the seconds in each map type (4), TRIELINE_LOAD_RATE the changes a second
//! (10,000).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::env;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::sample::Random;
use common::{map_types, open_load, store, tables};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, OpenObject, ProgramInput, libbpf_sys};
use rustix::mm::{self, ProtFlags};
use trieline_bpf::{ImageMap, ImageMapType, ReaderGrace};
use trieline_lpm::{Address, Grace, Image, ImageStats, Key, Memory, NoReaders, Prefix, Table};
use trieline_testbed::needs_root;

/// As in `programs/load.bpf.c`; so are the tables' ids.
const KEYS: usize = 4096;
const STATES: usize = 1 << 18;
const ONE: u32 = 0;
const TWO: u32 = 1;
const SIX: u32 = 2;
const WHOLE: u32 = 3;
const LONG: u32 = 4;
/// In freed blocks: no answer that any key may have.
const POISON: u32 = 0x7bad_bad1;
/// Of the prefix around all that change: their answer while they are removed.
const COVER: u32 = 0x7f_0000;

/// The states that the readers may find, shared with the programs.
struct States {
    map: MapHandle,
    words: *mut AtomicU64,
    next: usize,
}

impl States {
    fn new() -> Self {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some("states"), 4, 8, STATES as u32, &options).unwrap();
        let (bytes, access) = (8 * STATES, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let words = unsafe {
            mm::mmap(std::ptr::null_mut(), bytes, access, mm::MapFlags::SHARED, map.as_fd(), 0).unwrap()
        };
        Self { map, words: words.cast(), next: 0 }
    }

    /// The next one, of this answer.
    fn add(&mut self, value: u32) -> usize {
        self.next += 1;
        self.set(self.next - 1, value, value);
        self.next - 1
    }

    fn set(&self, state: usize, before: u32, after: u32) {
        assert!(state < STATES && before < 1 << 24 && after < 1 << 24);
        // SAFETY: within the mapping, which lives until the process ends.
        let word = unsafe { &*self.words.add(state) };
        let version = (word.load(Ordering::Relaxed) >> 48) + 1;
        word.store(version << 48 | u64::from(before) << 24 | u64::from(after), Ordering::SeqCst);
    }

    /// Makes a change by which the answer of each of `states` becomes what stands there.
    fn change<const N: usize>(&self, states: [(usize, u32); N], change: impl FnOnce()) {
        for (state, after) in states {
            self.set(state, self.answer(state), after);
        }
        change();
        states.into_iter().for_each(|(state, after)| self.set(state, after, after));
    }

    fn answer(&self, state: usize) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.words.add(state)).load(Ordering::Relaxed) as u32 & 0xff_ffff }
    }
}

/// A prefix that changes.
struct One<A: Address> {
    prefix: Prefix<A>,
    /// An address that has no other longest match but the cover.
    addr: A,
    values: [u32; 2],
    state: usize,
}

/// Prefixes of one table that change one by one.
struct Changing<A: Address> {
    id: u32,
    table: Table<A>,
    all: Vec<One<A>>,
}

impl<A: Address> Changing<A> {
    /// `count` prefixes of some lengths below the cover, every other one absent at first. `few`: values from 255.
    fn new<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        states: &mut States,
        (id, few): (u32, bool),
        count: u32,
        lens: &[u16],
    ) -> Self {
        let cover = Prefix::truncated(A::ZERO.filled(0), 6);
        let all: Vec<_> = (0..count)
            .map(|n| {
                // A counter behind the cover's six bits, upside down: neighbours lie in different nodes and in the same.
                let counter = usize::from((n as u16).reverse_bits());
                let addr = A::from_index(0x3f << 16 | counter, 22);
                let prefix = Prefix::truncated(addr, lens[n as usize % lens.len()]);
                let values = if few { [1 + n % 100, 101 + n % 100] } else { [2 * n + 2, 2 * n + 3] };
                let state = states.add(if n % 2 == 0 { values[0] } else { COVER });
                One { prefix, addr, values, state }
            })
            .collect();
        let present = all.iter().step_by(2).map(|one| (one.prefix, one.values[0]));
        let table = Table::create(image, id, present.chain([(cover, COVER)])).unwrap();
        Self { id, table, all }
    }

    /// Changes one: its other value, or away, or there again.
    fn change<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, states: &States, random: &mut Random) {
        let one = &self.all[random.below(self.all.len() as u64) as usize];
        let value = [None, Some(one.values[0]), Some(one.values[1])][random.below(3) as usize];
        states.change([(one.state, value.unwrap_or(COVER))], || {
            let done = match value {
                None => self.table.remove(image, &one.prefix),
                Some(value) => self.table.insert(image, one.prefix, value),
            };
            done.unwrap();
        });
    }

    fn question(&self, random: &mut Random) -> Vec<u8> {
        let one = &self.all[random.below(self.all.len() as u64) as usize];
        let (hi, lo) = match A::WIDTH {
            32 => (0, one.addr.word_at(0) >> 32),
            _ => (one.addr.word_at(0), one.addr.word_at(64)),
        };
        question(self.id, hi, lo, one.state)
    }
}

/// A table that is replaced as a whole, and whose default route changes.
struct Whole {
    table: Table<u32>,
    /// Of its prefixes, which have one value, and of its default route.
    states: [usize; 2],
    next: u32,
}

impl Whole {
    /// Enough for chunks of its own.
    const PREFIXES: u32 = 5000;

    fn prefix(n: u32) -> Prefix<u32> {
        Prefix::truncated(n.reverse_bits(), 12 + n as u16 % 9)
    }

    fn all(value: u32, default: u32) -> impl Iterator<Item = (Prefix<u32>, u32)> {
        // Not in the upper half, where the default route decides.
        let prefixes = (0..Self::PREFIXES).map(move |n| (Self::prefix(2 * n), value));
        prefixes.chain((default > 0).then_some((Prefix::truncated(0, 0), default)))
    }

    fn new<M: Memory, G: Grace>(image: &mut Image<M, G>, states: &mut States) -> Self {
        let table = Table::create(image, WHOLE, Self::all(1, 2)).unwrap();
        Self { table, states: [states.add(1), states.add(2)], next: 3 }
    }

    fn change<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, states: &States, random: &mut Random) {
        let (value, default) = (self.next, self.next + 1);
        self.next = (self.next + 2) % 10_000 + 1;
        let [prefixes, fallback] = self.states;
        let any = Prefix::truncated(0, 0);
        match random.below(4) {
            0 => states.change([(fallback, 0)], || {
                self.table.remove(image, &any).unwrap();
            }),
            1 | 2 => states.change([(fallback, default)], || {
                self.table.insert(image, any, default).unwrap();
            }),
            _ => states.change([(prefixes, value), (fallback, default)], || {
                self.table.replace(image, Self::all(value, default)).unwrap();
            }),
        }
    }

    fn question(&self, random: &mut Random) -> Vec<u8> {
        let n = random.below(u64::from(2 * Self::PREFIXES)) as u32;
        match n % 2 {
            0 => question(WHOLE, 0, Self::prefix(n).last().into(), self.states[0]),
            _ => question(WHOLE, 0, n.reverse_bits().into(), self.states[1]),
        }
    }
}

/// `struct question`.
fn question(table: u32, hi: u64, lo: u64, state: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    [hi, lo].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    [table, state as u32].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

/// `struct counts`.
#[derive(Debug)]
struct Counts {
    asked: u64,
    wrong: u64,
    strict: u64,
    moving: u64,
    unsure: u64,
    nothing: u64,
    first_wrong: u64,
    allowed: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            wrong: self.wrong + other.wrong,
            strict: self.strict + other.strict,
            moving: self.moving + other.moving,
            unsure: self.unsure + other.unsure,
            nothing: self.nothing + other.nothing,
            first_wrong: self.first_wrong.max(other.first_wrong),
            allowed: self.allowed.max(other.allowed),
        }
    }
}

fn counts(object: &Object) -> Counts {
    let map = object.maps().find(|map| map.name() == ".bss.counts").unwrap();
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let [asked, wrong, strict, moving, unsure, nothing, first_wrong, allowed] =
        std::array::from_fn(|_| words.next().unwrap());
    Counts { asked, wrong, strict, moving, unsure, nothing, first_wrong, allowed }
}

/// The readers' program with these questions, not yet loaded.
fn prepare(map_type: ImageMapType, states: &States) -> OpenObject {
    let mut object = open_load(map_type);
    let mut own = object.maps_mut().find(|map| map.name() == "states").unwrap();
    own.reuse_fd(states.map.as_fd()).unwrap();
    object
}

/// One CPU's reader: asks all questions again and again.
fn read(object: &Object, cpu: usize, questions: &[u8], stop: &AtomicBool) -> Counts {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    store(object, ".bss.questions", questions);
    let program = object.progs_mut().next().unwrap();
    while !stop.load(Ordering::Relaxed) {
        let input = ProgramInput { data_in: Some(&[0; 64]), repeat: 50, ..Default::default() };
        assert_eq!(program.test_run(input).unwrap().return_value, 1);
    }
    counts(object)
}

/// One for each CPU.
fn each_cpu(load: impl FnMut() -> Object) -> Vec<Object> {
    std::iter::repeat_with(load).take(thread::available_parallelism().unwrap().get()).collect()
}

/// Readers on every CPU while `write` runs: what they counted, and what it returned.
fn beside<T>(programs: Vec<Object>, questions: &[u8], write: impl FnOnce() -> T) -> (Counts, T) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let start = |(cpu, object)| scope.spawn(move || read(&object, cpu, questions, stop));
        let readers: Vec<_> = programs.into_iter().enumerate().map(start).collect();
        let written = write();
        stop.store(true, Ordering::Relaxed);
        (readers.into_iter().map(|reader| reader.join().unwrap()).reduce(Counts::and).unwrap(), written)
    })
}

/// The tasks of the writer.
struct Load {
    /// Prefixes of each of the four tables that change one by one.
    prefixes: u32,
    duration: Duration,
    /// Changes a second; None: as quickly as can be.
    rate: Option<u64>,
}

/// Runs it; the counts and how many changes there were.
fn run(map: &ImageMap, grace: impl Grace, load: &Load) -> (Counts, u64, ImageStats) {
    let mut image = Image::create(map.memory(), grace, 5).unwrap();
    let (image, mut states) = (&mut image, States::new());
    image.poison(POISON);
    let count = load.prefixes;
    let mut distinct = Changing::<u32>::new(image, &mut states, (ONE, false), count, &[24, 22, 28, 32]);
    let mut few = Changing::<u32>::new(image, &mut states, (TWO, true), count, &[24, 22, 23, 26]);
    let mut wide = Changing::<u128>::new(image, &mut states, (SIX, false), count, &[128, 44, 64, 40]);
    let mut long =
        Changing::<Key<160, 20>>::new(image, &mut states, (LONG, false), count, &[160, 22, 96, 33]);
    let mut whole = Whole::new(image, &mut states);
    let mut random = Random(7);
    let questions: Vec<u8> = (0..KEYS)
        .flat_map(|n| match n % 5 {
            0 => distinct.question(&mut random),
            1 => few.question(&mut random),
            2 => wide.question(&mut random),
            3 => long.question(&mut random),
            _ => whole.question(&mut random),
        })
        .collect();
    let programs = each_cpu(|| {
        let mut object = prepare(map.map_type(), &states);
        map.place(&mut object).unwrap();
        object.load().unwrap()
    });
    let (counts, changes) = beside(programs, &questions, || {
        let mut changes = 0;
        let began = Instant::now();
        while began.elapsed() < load.duration {
            let due = match load.rate {
                Some(rate) => began.elapsed().as_micros() as u64 * rate / 1_000_000,
                None => changes + 100,
            };
            while changes < due {
                match changes % 32 {
                    31 => whole.change(image, &states, &mut random),
                    n => match n % 4 {
                        0 => distinct.change(image, &states, &mut random),
                        1 => few.change(image, &states, &mut random),
                        2 => wide.change(image, &states, &mut random),
                        _ => long.change(image, &states, &mut random),
                    },
                }
                changes += 1;
                image.reclaim();
            }
            image.reclaim();
            if load.rate.is_some() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        changes
    });
    image.synchronize();
    (counts, changes, image.stats())
}

#[test]
fn readers_are_never_wrong_beside_a_writer() {
    needs_root!();
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, rate): (u64, u64) =
        (number("TRIELINE_LOAD_SECONDS", 4), number("TRIELINE_LOAD_RATE", 10_000));
    for map_type in map_types() {
        let map = ImageMap::create(map_type, 64 << 20).unwrap();
        let grace = ReaderGrace::new().unwrap();
        let load = Load { prefixes: 60_000, duration: Duration::from_secs(seconds), rate: Some(rate) };
        let (counts, changes, stats) = run(&map, grace, &load);
        println!("{map_type}: {changes} changes in {seconds} s, {counts:x?}");
        assert!(changes >= seconds * rate * 9 / 10, "{changes} changes only");
        assert_eq!(counts.wrong, 0, "{counts:x?}");
        assert_eq!(counts.asked, counts.strict + counts.moving + counts.unsure);
        // That there was something to see: changes under way, a default route that is not there, and memory used again.
        assert!(counts.moving > 50 && counts.nothing > 100 * seconds, "{counts:x?}");
        assert!(counts.unsure < counts.asked / 100, "{counts:x?}");
        // Memory that grace periods held back came free. How much that was at its most is up to the scheduler, but not all of the map: no
        // change failed.
        assert!(stats.used < 16 << 20 && stats.limbo == 0, "{stats:?}");
    }
}

/// Few prefixes, changed as quickly as can be: each change frees what readers are looking at. Without a grace period what is freed is used
/// again at once, and readers must be seen to find it, else nothing here proves anything. With grace periods they never do.
#[test]
fn without_grace_periods_readers_are_wrong() {
    needs_root!();
    let load = Load { prefixes: 300, duration: Duration::from_secs(1), rate: None };
    for map_type in map_types() {
        let map = ImageMap::create(map_type, 64 << 20).unwrap();
        let (counts, changes, _) = run(&map, ReaderGrace::new().unwrap(), &load);
        println!("{map_type}, with grace periods: {changes} changes, {counts:x?}");
        assert_eq!(counts.wrong, 0, "{counts:x?}");
        let is_wrong = (1..=30).any(|attempt| {
            let (counts, changes, _) = run(&map, NoReaders::default(), &load);
            println!("{map_type}, attempt {attempt}: {changes} changes, {counts:x?}");
            counts.wrong > 0
        });
        assert!(is_wrong, "no reader was ever wrong: this cannot tell whether grace periods are kept");
    }
}

/// A table comes and goes, and its pages with it, while readers ask it and one that stays.
#[test]
fn pages_go_back_beside_readers() {
    needs_root!();
    for map_type in map_types() {
        let (mut tables, mut states) = (tables(map_type, 64 << 20), States::new());
        tables.image().poison(POISON);
        let hosts = |count: u32| (0..count).map(|n| (Prefix::host(n.wrapping_mul(2_654_435_761)), 1 + n));
        let stays = states.add(1);
        let _stays = Table::create(tables.image(), ONE, hosts(20_000)).unwrap();
        let goes = states.add(0);
        // The first host, 0.0.0.0, has the value 1 in both.
        let questions: Vec<u8> =
            (0..KEYS).flat_map(|n| question(n as u32 % 2, 0, 0, [stays, goes][n % 2])).collect();
        // Whether a reader meets a change is up to the scheduler: a busy machine gets more turns.
        let mut met = false;
        for turn in 1..=20 {
            let programs = each_cpu(|| tables.load(prepare(map_type, &states)).unwrap());
            let (counts, given) = beside(programs, &questions, || {
                let mut given = 0;
                for _ in 0..10 {
                    states.change([(goes, 1)], || {
                        Table::create(tables.image(), TWO, hosts(100_000)).unwrap();
                    });
                    thread::sleep(Duration::from_millis(20));
                    states.change([(goes, 0)], || tables.remove(TWO).unwrap());
                    given += tables.give_back().unwrap();
                }
                given
            });
            println!("{map_type}, turn {turn}: {given} bytes given back, {counts:x?}");
            assert_eq!(counts.wrong, 0, "{counts:x?}");
            assert_eq!(given > 10 << 20, map_type == ImageMapType::Arena, "{given}");
            met = counts.moving > 0 && counts.nothing > 0;
            if met {
                break;
            }
        }
        assert!(met, "no reader met a change");
    }
}
