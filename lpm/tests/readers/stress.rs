//! A writer that changes a table at random, and readers that know for each answer whether it was ever right.
//!
//! Two checks. Each value is a checksum of its prefix (but for [`Few`]). So an answer from a block that was reused gives itself away for
//! any address. A number of addresses is also *watched*. The writer notes before a change each answer that such an address will have, and
//! after the change that it has it. So a reader knows all answers that were right during its lookup.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use trieline_lpm::{Address, Error, Grace, Image, Memory, Prefix, Reader, Table};

/// Prefixes in the table, about.
pub const PREFIXES: usize = 50_000;
const WATCHED: usize = 1024;
/// Watched addresses at the front that many changes and many lookups concern.
const HOT: usize = 64;
/// Addresses in a batch; some stages of it take them all, others what is left.
const BATCH: usize = 20;
/// Answers that are kept for a watched address.
const RING: usize = 60;
/// Words for a watched address: itself, changes begun, changes done, one to spare, the ring.
const STRIDE: usize = 4 + RING;
/// Words in front: lookups, wrong answers, whether to stop, pinned readers that say so, skipped checks.
const FRONT: usize = 64;
/// Size of the notes.
pub const BYTES: usize = 4 * (FRONT + WATCHED * STRIDE);

/// Small random numbers, good enough to spread (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The table's content. The plan is always in IPv4 prefixes.
pub trait Kind: Send + Sync + 'static {
    type Key: Address;
    /// For a process of this kind.
    const NAME: &'static str;

    /// The nodes that its table must have for the test to be about them.
    const NODES: &'static [&'static str];

    /// Where the plan's address is in the table.
    fn key(addr: u32) -> Self::Key;

    /// Where the plan's prefix is.
    fn prefix(prefix: Prefix<u32>) -> Prefix<Self::Key>;

    /// The value of `prefix` in its `version`.
    fn value(prefix: Prefix<u32>, version: u32) -> u32 {
        checksum(prefix, version)
    }

    /// Whether `found` (0 = none) can be the value of a prefix that contains `addr`.
    fn belongs(addr: u32, found: u32) -> bool {
        let len = (found & 63) as u16;
        found == 0
            || (1..=33).contains(&len) && checksum(Prefix::truncated(addr, len - 1), found >> 6 & 31) == found
    }
}

/// IPv4 prefixes, nearly each with a value of its own.
pub struct Distinct;

impl Kind for Distinct {
    type Key = u32;
    const NAME: &'static str = "distinct";
    const NODES: &'static [&'static str] = &["node6", "ranges"];

    fn key(addr: u32) -> u32 {
        addr
    }

    fn prefix(prefix: Prefix<u32>) -> Prefix<u32> {
        prefix
    }
}

/// IPv4 prefixes with few values, as codes of a palette. A value does not show its prefix; the watched addresses do.
pub struct Few;

impl Kind for Few {
    type Key = u32;
    const NAME: &'static str = "few";
    const NODES: &'static [&'static str] = &["leaf6", "ranges"];

    fn key(addr: u32) -> u32 {
        addr
    }

    fn prefix(prefix: Prefix<u32>) -> Prefix<u32> {
        prefix
    }

    fn value(prefix: Prefix<u32>, version: u32) -> u32 {
        checksum(prefix, version) % FEW + 1
    }

    fn belongs(_: u32, found: u32) -> bool {
        found <= FEW
    }
}

/// Values of [`Few`].
const FEW: u32 = 150;

/// IPv6 prefixes of 20 to 52 bits, and the default route.
pub struct Ipv6;

impl Kind for Ipv6 {
    type Key = u128;
    const NAME: &'static str = "ipv6";
    const NODES: &'static [&'static str] = &["node8", "skip"];

    fn key(addr: u32) -> u128 {
        0x2_0010 << 108 | u128::from(addr) << 76 | 0x5555
    }

    fn prefix(prefix: Prefix<u32>) -> Prefix<u128> {
        let len = if prefix.len() == 0 { 0 } else { 20 + prefix.len() };
        Prefix::truncated(Self::key(prefix.addr()), len)
    }
}

/// IPv6 prefixes with few values, as [`Few`].
pub struct Few6;

impl Kind for Few6 {
    type Key = u128;
    const NAME: &'static str = "few6";
    const NODES: &'static [&'static str] = &["node8", "leaf8", "skip"];

    fn key(addr: u32) -> u128 {
        Ipv6::key(addr)
    }

    fn prefix(prefix: Prefix<u32>) -> Prefix<u128> {
        Ipv6::prefix(prefix)
    }

    fn value(prefix: Prefix<u32>, version: u32) -> u32 {
        Few::value(prefix, version)
    }

    fn belongs(addr: u32, found: u32) -> bool {
        Few::belongs(addr, found)
    }
}

/// IPv6 prefixes of 96 to 128 bits: the longest stand in a hash table, and what covers them below the root.
pub struct Hashed;

impl Kind for Hashed {
    type Key = u128;
    const NAME: &'static str = "hashed";
    const NODES: &'static [&'static str] = &["bucket", "node8"];

    fn key(addr: u32) -> u128 {
        0x2001_0db8 << 96 | u128::from(addr)
    }

    fn prefix(prefix: Prefix<u32>) -> Prefix<u128> {
        let len = if prefix.len() == 0 { 0 } else { 96 + prefix.len() };
        Prefix::truncated(Self::key(prefix.addr()), len)
    }
}

/// Of a prefix and its version: length, version, 20 bits of a hash of both and the address.
fn checksum(prefix: Prefix<u32>, version: u32) -> u32 {
    let (len, version) = (u32::from(prefix.len()) + 1, version % 32);
    let key = u64::from(prefix.addr()) << 16 | u64::from(len << 8 | version);
    len | version << 6 | (Random(key).next() as u32 >> 12) << 11
}

/// Notes between writer and readers, in memory that all of them map.
#[derive(Clone, Copy)]
pub struct Notes<'a>(pub &'a [AtomicU32]);

impl Notes<'_> {
    pub fn lookups(&self) -> &AtomicU32 {
        &self.0[0]
    }
    pub fn wrong(&self) -> &AtomicU32 {
        &self.0[1]
    }
    pub fn stop(&self) -> &AtomicU32 {
        &self.0[2]
    }
    #[cfg(feature = "shm")]
    pub fn pinned(&self) -> &AtomicU32 {
        &self.0[3]
    }
    pub fn skipped(&self) -> &AtomicU32 {
        &self.0[4]
    }
    pub fn updates(&self) -> &AtomicU32 {
        &self.0[5]
    }

    fn of(&self, watched: usize) -> &[AtomicU32] {
        &self.0[FRONT + watched * STRIDE..][..STRIDE]
    }

    /// The writer is about to give a watched address this answer.
    fn begin(&self, watched: usize, answer: u32) {
        let of = self.of(watched);
        let begun = of[1].load(Ordering::Relaxed).wrapping_add(1);
        of[4 + begun as usize % RING].store(answer, Ordering::Release);
        of[1].store(begun, Ordering::Release);
    }

    /// It has that answer now.
    fn end(&self, watched: usize) {
        let of = self.of(watched);
        of[2].store(of[1].load(Ordering::Relaxed), Ordering::Release);
    }

    /// Looks a watched address up; whether the answer was right at some moment of the lookup, None when too much happened meanwhile.
    fn check(&self, watched: usize, lookup: impl FnOnce(u32) -> u32) -> Option<bool> {
        let of = self.of(watched);
        let first = of[2].load(Ordering::Acquire);
        let found = lookup(of[0].load(Ordering::Relaxed));
        let last = of[1].load(Ordering::Acquire);
        let answers = last.wrapping_sub(first);
        let right = (0..=answers.min(RING as u32)).any(|change| {
            of[4 + first.wrapping_add(change) as usize % RING].load(Ordering::Acquire) == found
        });
        let now = of[1].load(Ordering::Acquire);
        (now.wrapping_sub(first) < RING as u32 - 1).then_some(right)
    }
}

/// The value for an address of the plan; 0 = none.
fn find<K: Kind>(reader: Reader<'_>, addr: u32) -> u32 {
    reader.lookup(0, K::key(addr)).unwrap_or(0)
}

/// Looks up at random until `notes` ends it; `each` pins a reader and hands it on for as many lookups as its caller wants.
pub fn read<K: Kind>(notes: Notes<'_>, seed: u64, mut each: impl FnMut(&mut dyn FnMut(Reader<'_>))) {
    let mut random = Random(seed);
    while notes.stop().load(Ordering::Relaxed) == 0 {
        let mut wrong = 0;
        let mut skipped = 0;
        let count = 1 + random.below(200);
        each(&mut |reader| {
            for _ in 0..count {
                if random.below(4) == 0 {
                    let addr = random.next() as u32;
                    wrong += u32::from(!K::belongs(addr, find::<K>(reader, addr)));
                    continue;
                }
                let among = if random.below(2) == 0 { HOT } else { WATCHED };
                let watched = random.below(among);
                // Alone, or among others in a batch.
                let place = random.below(2 * BATCH);
                let mut sums = true;
                let right = notes.check(watched, |addr| {
                    let found = if place < BATCH {
                        let mut addrs = [(); BATCH].map(|()| K::key(random.next() as u32));
                        let mut values = [0; BATCH];
                        addrs[place] = K::key(addr);
                        reader.lookup_batch(0, &addrs, &mut values);
                        values[place]
                    } else {
                        find::<K>(reader, addr)
                    };
                    sums = K::belongs(addr, found);
                    found
                });
                skipped += u32::from(right.is_none());
                wrong += u32::from(right == Some(false) || !sums);
            }
        });
        notes.lookups().fetch_add(count as u32, Ordering::Relaxed);
        notes.skipped().fetch_add(skipped, Ordering::Relaxed);
        notes.wrong().fetch_add(wrong, Ordering::Relaxed);
    }
}

/// The writer's plan and its knowledge of what is in the table.
pub struct Churn<'a, K> {
    kind: PhantomData<K>,
    notes: Notes<'a>,
    random: Random,
    pool: Vec<Prefix<u32>>,
    /// Prefixes that contain a hot address.
    hot: Vec<Prefix<u32>>,
    present: HashMap<Prefix<u32>, u32>,
    /// Watched addresses in order, with their numbers.
    watched: Vec<(u32, usize)>,
    version: u32,
}

impl<'a, K: Kind> Churn<'a, K> {
    /// The same pool for every `pool` seed; other changes for another `seed`.
    pub fn new(notes: Notes<'a>, pool: u64, seed: u64) -> Self {
        let mut random = Random(pool);
        let mut pool: Vec<_> = (0..PREFIXES * 5 / 4)
            .map(|_| Prefix::truncated(random.next() as u32, 8 + (random.next() % 25) as u16))
            .collect();
        let watched: Vec<u32> = (0..WATCHED)
            .map(|_| {
                let prefix = pool[random.below(pool.len())];
                prefix.addr() | (random.next() as u32 & !u32::MAX.masked(prefix.len()))
            })
            .collect();
        let hot: Vec<_> = watched[..HOT]
            .iter()
            .flat_map(|addr| [9, 17, 20, 24, 27, 32].map(|len| Prefix::truncated(*addr, len)))
            .collect();
        pool.extend(&hot);
        for (index, addr) in watched.iter().enumerate() {
            notes.of(index)[0].store(*addr, Ordering::Relaxed);
        }
        let mut watched: Vec<_> = watched.into_iter().zip(0..).collect();
        watched.sort_unstable();
        Self {
            kind: PhantomData,
            notes,
            random: Random(seed),
            pool,
            hot,
            present: HashMap::new(),
            watched,
            version: seed as u32,
        }
    }

    fn answer(&self, addr: u32) -> u32 {
        (0..=32).rev().find_map(|len| self.present.get(&Prefix::truncated(addr, len)).copied()).unwrap_or(0)
    }

    /// Notes what `present` gives every watched address in `prefix`, makes the change, and notes that it is made.
    fn change<R>(&self, prefix: Prefix<u32>, change: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let last = prefix.addr() | !u32::MAX.masked(prefix.len());
        let from = self.watched.partition_point(|(addr, _)| *addr < prefix.addr());
        let until = self.watched.partition_point(|(addr, _)| *addr <= last);
        let inside = &self.watched[from..until];
        for (addr, index) in inside {
            self.notes.begin(*index, self.answer(*addr));
        }
        let done = change()?;
        for (_, index) in inside {
            self.notes.end(*index);
        }
        self.notes.updates().fetch_add(1, Ordering::Relaxed);
        Ok(done)
    }

    /// Fills the table, or takes the place of what an earlier writer left in it.
    pub fn create<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>) -> Result<Table<K::Key>, Error> {
        self.renew();
        self.change(Prefix::truncated(0, 0), || {
            Table::create(image, 0, self.present.iter().map(|(prefix, value)| (K::prefix(*prefix), *value)))
        })
    }

    /// Another set of prefixes, with other values.
    fn renew(&mut self) {
        self.version += 1;
        let keep = |_: &&Prefix<u32>, random: &mut Random| random.below(5) != 0;
        let random = &mut self.random;
        self.present = self
            .pool
            .iter()
            .filter(|prefix| keep(prefix, random))
            .map(|prefix| (*prefix, K::value(*prefix, self.version)))
            .collect();
    }

    /// One random change.
    pub fn step<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        table: &mut Table<K::Key>,
    ) -> Result<(), Error> {
        let prefix = match self.random.below(20_000) {
            0 => {
                self.renew();
                return self.change(Prefix::truncated(0, 0), || {
                    table.replace(
                        image,
                        self.present.iter().map(|(prefix, value)| (K::prefix(*prefix), *value)),
                    )
                });
            }
            1..20 => Prefix::truncated(0, 0),
            20..10_000 => self.hot[self.random.below(self.hot.len())],
            _ => self.pool[self.random.below(self.pool.len())],
        };
        self.version += 1;
        if self.random.below(5) < 2 && self.present.remove(&prefix).is_some() {
            return self.change(prefix, || table.remove(image, &K::prefix(prefix))).map(drop);
        }
        let value = K::value(prefix, self.version);
        self.present.insert(prefix, value);
        self.change(prefix, || table.insert(image, K::prefix(prefix), value)).map(drop)
    }

    /// Whether the table answers for every watched address what it should.
    pub fn is_right(&self, reader: Reader<'_>) -> bool {
        self.watched.iter().all(|(addr, _)| find::<K>(reader, *addr) == self.answer(*addr))
    }
}
