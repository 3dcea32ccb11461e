//! One writer, readers on every CPU: each answer is one that the key has had since, and no block is used again before its grace
//! period. TRIELINE_LOAD_SECONDS says for how long in each home (4).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::sample::Random;
use common::{homes, open_load, skip, store};
use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use trieline_bpf::{ImageMap, ReaderGrace};
use trieline_lpm::{Address, Grace, Image, ImageStats, Memory, NoReaders, Prefix, Table};

/// As in `programs/load.bpf.c`.
const KEYS: usize = 4096;
const UPDATES_PER_SECOND: u64 = 10_000;
/// In freed blocks: no answer that any key may have.
const POISON: u32 = 0x7bad_bad1;
/// Of the prefix around all that change: their answer while they are removed.
const COVER: u32 = 0x7000_0000;

/// Prefixes of one table that change, each with an address that has no other longest match.
struct Changing<A: Address> {
    id: u32,
    table: Table<A>,
    /// Prefix, address, its two values.
    all: Vec<(Prefix<A>, A, [u32; 2])>,
}

impl<A: Address> Changing<A> {
    /// `count` prefixes of some lengths below the cover, every other one absent at first. `few`: values from 255.
    fn new<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        id: u32,
        count: u32,
        few: bool,
        lens: &[u16],
    ) -> Self {
        let cover = Prefix::truncated(A::ZERO.filled(0), 6);
        let all: Vec<_> = (0..count)
            .map(|n| {
                // A counter behind the cover's six bits, upside down: neighbours lie in different nodes and in the same.
                let counter = usize::from((n as u16).reverse_bits());
                let addr = A::from_index(0x3f << 16 | counter, 22);
                let bits = lens[n as usize % lens.len()];
                let value = if few { [1 + n % 100, 101 + n % 100] } else { [2 * n + 2, 2 * n + 3] };
                (Prefix::truncated(addr, bits), addr, value)
            })
            .collect();
        let present = all.iter().step_by(2).map(|(prefix, _, value)| (*prefix, value[0]));
        let table = Table::create(image, id, present.chain([(cover, COVER)])).unwrap();
        Self { id, table, all }
    }

    /// Changes one: its other value, or away, or there again.
    fn change<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, random: &mut Random) {
        let (prefix, _, values) = self.all[random.below(self.all.len() as u64) as usize];
        match random.below(3) {
            0 => self.table.remove(image, &prefix).map(drop),
            one => self.table.insert(image, prefix, values[one as usize - 1]).map(drop),
        }
        .unwrap();
    }
}

/// `struct question`.
fn question(table: u32, addr: u128, values: [u32; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((addr >> 64) as u64).to_ne_bytes());
    bytes.extend((addr as u64).to_ne_bytes());
    for word in [table, values[0], values[1], COVER] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// `struct counts`.
#[derive(Debug)]
struct Counts {
    asked: u64,
    wrong: u64,
    found: [u64; 3],
    first_wrong: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            wrong: self.wrong + other.wrong,
            found: std::array::from_fn(|n| self.found[n] + other.found[n]),
            first_wrong: self.first_wrong.max(other.first_wrong),
        }
    }
}

fn counts(object: &Object) -> Counts {
    let map = object.maps().find(|map| map.name() == ".bss.counts").unwrap();
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let word = |n: usize| u64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap());
    Counts { asked: word(0), wrong: word(1), found: [word(2), word(3), word(4)], first_wrong: word(5) }
}

/// One CPU's reader: asks all questions again and again.
fn read(map: &ImageMap, cpu: usize, questions: &[u8], stop: &AtomicBool) -> Counts {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    let mut object = open_load(map.home());
    map.place(&mut object).unwrap();
    let object = object.load().unwrap();
    store(&object, ".bss.questions", questions);
    let program = object.progs_mut().next().unwrap();
    while !stop.load(Ordering::Relaxed) {
        let input = ProgramInput { data_in: Some(&[0; 64]), repeat: 50, ..Default::default() };
        assert_eq!(program.test_run(input).unwrap().return_value, 1);
    }
    counts(&object)
}

/// What the writer does.
struct Load {
    /// Prefixes of each of the three tables.
    prefixes: u32,
    duration: Duration,
    /// At [`UPDATES_PER_SECOND`], or as quickly as can be.
    is_paced: bool,
}

/// Runs it; the counts and how many changes there were.
fn run(map: &ImageMap, grace: impl Grace, load: &Load) -> (Counts, u64, ImageStats) {
    let mut image = Image::create(map.memory(), grace, 4).unwrap();
    let image = &mut image;
    image.poison(POISON);
    let mut distinct = Changing::<u32>::new(image, 0, load.prefixes, false, &[24, 22, 28, 32]);
    let mut few = Changing::<u32>::new(image, 1, load.prefixes, true, &[24, 22, 23, 26]);
    let mut wide = Changing::<u128>::new(image, 2, load.prefixes, false, &[48, 44, 64, 40]);
    let mut questions = Vec::new();
    let mut random = Random(7);
    for n in 0..KEYS {
        let at = random.below(load.prefixes.into()) as usize;
        questions.extend(match n % 3 {
            0 => question(distinct.id, distinct.all[at].1.into(), distinct.all[at].2),
            1 => question(few.id, few.all[at].1.into(), few.all[at].2),
            _ => question(wide.id, wide.all[at].1, wide.all[at].2),
        });
    }
    let stop = AtomicBool::new(false);
    let cpus = thread::available_parallelism().unwrap().get();
    let mut changes = 0;
    let counts = thread::scope(|scope| {
        let readers: Vec<_> = (0..cpus)
            .map(|cpu| {
                let (stop, questions) = (&stop, &questions);
                scope.spawn(move || read(map, cpu, questions, stop))
            })
            .collect();
        let began = Instant::now();
        while began.elapsed() < load.duration {
            let paced = began.elapsed().as_nanos() as u64 * UPDATES_PER_SECOND / 1_000_000_000;
            let due = if load.is_paced { paced } else { changes + 100 };
            while changes < due {
                match changes % 3 {
                    0 => distinct.change(image, &mut random),
                    1 => few.change(image, &mut random),
                    _ => wide.change(image, &mut random),
                }
                changes += 1;
                if !load.is_paced {
                    image.reclaim();
                }
            }
            image.reclaim();
            if load.is_paced {
                thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).reduce(Counts::and).unwrap()
    });
    (counts, changes, image.stats())
}

#[test]
fn readers_are_never_wrong_beside_a_writer() {
    if skip("load") {
        return;
    }
    let seconds = env::var("TRIELINE_LOAD_SECONDS").map_or(4, |text| text.parse().unwrap());
    for home in homes() {
        let map = ImageMap::create(home, 64 << 20).unwrap();
        let grace = ReaderGrace::new().unwrap();
        let load = Load { prefixes: 60_000, duration: Duration::from_secs(seconds), is_paced: true };
        let (counts, changes, stats) = run(&map, grace, &load);
        println!("{home}: {changes} changes in {seconds} s, {counts:x?}");
        assert!(changes >= seconds * UPDATES_PER_SECOND * 9 / 10, "{changes} changes only");
        assert_eq!(counts.wrong, 0, "{counts:x?}");
        // That there was something to see: all three states of keys, and memory used again.
        assert!(counts.found.iter().all(|found| *found > 1000), "{counts:x?}");
        assert_eq!(counts.asked, counts.found.iter().sum::<u64>());
        assert!(stats.peak < 16 << 20, "{stats:?}");
    }
}

/// The same without a grace period: what is freed is used again at once, and readers must be seen to find it. Else the test above
/// proves nothing.
#[test]
fn without_grace_periods_readers_are_wrong() {
    if skip("load without grace") {
        return;
    }
    let map = ImageMap::create(homes()[0], 64 << 20).unwrap();
    for attempt in 1..=30 {
        // Few prefixes, changed as quickly as can be: each change frees what readers are looking at.
        let load = Load { prefixes: 300, duration: Duration::from_secs(1), is_paced: false };
        let (counts, changes, _) = run(&map, NoReaders::default(), &load);
        println!("attempt {attempt}: {changes} changes, {counts:x?}");
        if counts.wrong > 0 {
            return;
        }
    }
    panic!("no reader was ever wrong: this cannot tell whether grace periods are kept");
}
