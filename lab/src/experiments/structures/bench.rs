//! Builds every structure from one case's prefixes, compares their answers, counts what lookups touch and times them in
//! interleaved rounds.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use trieline_lpm::Address;

use super::{
    Candidate,
    bitmap::{Bitmap, Hashed},
    dir24::Dir24,
    flat::Flat,
    intervals::Intervals,
    poptrie::Poptrie,
    space::{Frozen, PAGE, Refused, Space, Touch},
    spread::Entry,
    treebitmap::TreeBitmap,
    trieline::Trieline,
};

/// Addresses to look up, each in one of the tables.
pub struct Queries<A> {
    /// The addresses to look up.
    pub addresses: Vec<A>,
    /// In which table; empty where there is but one.
    pub tables: Vec<u32>,
}

impl<A: Address> Queries<A> {
    /// Table and address of the `n`-th.
    fn at(&self, n: usize) -> (u32, A) {
        (self.tables.get(n).copied().unwrap_or(0), self.addresses[n])
    }
}

/// How lookups follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None waits for another: the CPU overlaps them.
    Independent,
    /// Each waits for the answer before.
    Dependent,
}

/// A structure that looks up.
pub trait Lookup<'a, A: Address>: 'a {
    /// The state that lookups need at hand.
    type View;
    /// Makes it.
    fn view(&'a self) -> Self::View;
    /// Longest match of `address` in a table; 0 = none.
    fn get(view: &Self::View, table: u32, address: A) -> u32;
    /// The same by a walk that tells what it loads.
    fn traced<T: Touch>(&'a self, table: u32, address: A, touch: &mut T) -> u32;
}

/// The result of building one.
pub struct Built<E> {
    /// The structure.
    pub engine: E,
    /// Its memory.
    pub bytes: u64,
    /// Time to build it from sorted prefixes.
    pub build_ms: f64,
}

/// The tables of a case as one kind of candidate, in one memory.
pub struct Flats<C> {
    memory: Frozen,
    tables: Vec<C>,
}

impl<'a, A: Address, C: Candidate<A> + 'a> Lookup<'a, A> for Flats<C> {
    type View = (&'a [u8], &'a [C]);

    fn view(&'a self) -> Self::View {
        (self.memory.bytes(), &self.tables)
    }

    #[inline(always)]
    fn get((memory, tables): &Self::View, table: u32, address: A) -> u32 {
        tables.get(table as usize).map_or(0, |of| of.lookup(memory, address, &mut ()))
    }

    fn traced<T: Touch>(&'a self, table: u32, address: A, touch: &mut T) -> u32 {
        self.tables[table as usize].lookup(self.memory.bytes(), address, touch)
    }
}

fn flats<A: Address, C: Candidate<A>>(
    sets: &[Vec<Entry<A>>],
    limit: u64,
) -> Result<Built<Flats<C>>, Refused> {
    let began = Instant::now();
    let mut space = Space::new(limit);
    let tables = sets.iter().map(|entries| C::build(&mut space, entries)).collect::<Result<Vec<C>, _>>()?;
    let memory = space.freeze();
    let build_ms = began.elapsed().as_secs_f64() * 1e3;
    let bytes = memory.used + (size_of::<C>() * sets.len()) as u64;
    Ok(Built { engine: Flats { memory, tables }, bytes, build_ms })
}

/// The memory that lookups touch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touched {
    /// Distinct cache lines a lookup: mean.
    pub lines: f64,
    /// At the most.
    pub lines_max: usize,
    /// Distinct pages a lookup: mean.
    pub pages: f64,
    /// At the most.
    pub pages_max: usize,
    /// Nodes below the root at the most.
    pub steps_max: usize,
}

/// The memory that one lookup touches.
#[derive(Default)]
pub struct Recorder {
    lines: Vec<u32>,
    pages: Vec<u32>,
    steps: usize,
}

impl Recorder {
    /// A node of so many bytes is read.
    pub fn node(&mut self, at: u32, bytes: u32) {
        self.step();
        self.load(at, bytes);
    }

    /// Distinct lines so far.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Nodes so far.
    pub fn steps(&self) -> usize {
        self.steps
    }
}

impl Touched {
    /// Counts one of `count` lookups in, and makes the recorder ready for the next.
    pub fn add(&mut self, recorder: &mut Recorder, count: usize) {
        self.lines += recorder.lines.len() as f64 / count as f64;
        self.pages += recorder.pages.len() as f64 / count as f64;
        self.lines_max = self.lines_max.max(recorder.lines.len());
        self.pages_max = self.pages_max.max(recorder.pages.len());
        self.steps_max = self.steps_max.max(recorder.steps);
        recorder.lines.clear();
        recorder.pages.clear();
        recorder.steps = 0;
    }
}

/// The memory that lookups of `addresses` in a trieline image of one table touch; an error unless their answers are `expected`.
pub fn touched_by_trieline<A: Address>(
    entries: &[Entry<A>],
    addresses: &[A],
    expected: &[u32],
) -> crate::Result<Touched> {
    let built = Trieline::build(&[entries.to_vec()], 1 << 32)
        .map_err(|refused| crate::Error::Image(format!("in ordinary memory: {refused}")))?;
    let engine = Named { name: Trieline::NAME, built };
    let queries = Queries { addresses: addresses.to_vec(), tables: Vec::new() };
    match engine.check(&queries, expected) {
        None => Ok(engine.touched(&queries, addresses.len())),
        Some(_) => Err(crate::Error::References(format!("of {} entries (walk of the image)", entries.len()))),
    }
}

impl Touch for Recorder {
    fn load(&mut self, at: u32, bytes: u32) {
        for line in at / 64..=(at + bytes - 1) / 64 {
            if !self.lines.contains(&line) {
                self.lines.push(line);
            }
        }
        for page in at / PAGE as u32..=(at + bytes - 1) / PAGE as u32 {
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }
    fn step(&mut self) {
        self.steps += 1;
    }
}

/// A structure of whatever kind, ready to be measured.
pub trait Engine<A> {
    /// Its name in results.
    fn name(&self) -> &'static str;
    /// Its memory.
    fn bytes(&self) -> u64;
    /// Time to build it.
    fn build_ms(&self) -> f64;
    /// The first query of `count` that the lookup or the traced walk answers otherwise than `expected`: its number and the wrong answer.
    fn check(&self, queries: &Queries<A>, expected: &[u32]) -> Option<(usize, u32)>;
    /// The memory that the first `count` queries touch.
    fn touched(&self, queries: &Queries<A>, count: usize) -> Touched;
    /// Thread CPU time of all queries; with the processor's own instruction for population counts or without.
    fn time(&self, queries: &Queries<A>, order: Order, popcount: bool) -> Duration;
}

struct Named<E> {
    name: &'static str,
    built: Built<E>,
}

impl<A: Address, E: for<'a> Lookup<'a, A>> Engine<A> for Named<E> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bytes(&self) -> u64 {
        self.built.bytes
    }

    fn build_ms(&self) -> f64 {
        self.built.build_ms
    }

    fn check(&self, queries: &Queries<A>, expected: &[u32]) -> Option<(usize, u32)> {
        let view = self.built.engine.view();
        expected.iter().enumerate().find_map(|(n, expected)| {
            let (table, address) = queries.at(n);
            let answers = [E::get(&view, table, address), self.built.engine.traced(table, address, &mut ())];
            answers.into_iter().find(|answer| answer != expected).map(|answer| (n, answer))
        })
    }

    fn touched(&self, queries: &Queries<A>, count: usize) -> Touched {
        let mut recorder = Recorder::default();
        let mut touched = Touched::default();
        let count = count.min(queries.addresses.len());
        for n in 0..count {
            let (table, address) = queries.at(n);
            self.built.engine.traced(table, address, &mut recorder);
            touched.add(&mut recorder, count);
        }
        touched
    }

    fn time(&self, queries: &Queries<A>, order: Order, popcount: bool) -> Duration {
        let view = self.built.engine.view();
        let began = clock_gettime(ClockId::ThreadCPUTime);
        let sum = if popcount {
            with_popcount::<A, E>(&view, queries, order)
        } else {
            pass::<A, E>(&view, queries, order)
        };
        let ended = clock_gettime(ClockId::ThreadCPUTime);
        std::hint::black_box(sum);
        let nanoseconds = (ended.tv_sec - began.tv_sec) * 1_000_000_000 + ended.tv_nsec - began.tv_nsec;
        Duration::from_nanos(nanoseconds.max(0) as u64)
    }
}

/// Whether this machine has the instruction.
pub fn has_popcount() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The lookups one after the other; the sum of the answers, so that none is left out. Compiled for any x86-64, which means that
/// population counts are shifts, additions and a multiplication, as in BPF.
#[inline(never)]
fn pass<'a, A: Address, E: Lookup<'a, A>>(view: &E::View, queries: &Queries<A>, order: Order) -> u32 {
    run::<A, E>(view, queries, order)
}

/// The same source compiled with the instruction.
fn with_popcount<'a, A: Address, E: Lookup<'a, A>>(
    view: &E::View,
    queries: &Queries<A>,
    order: Order,
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "popcnt,bmi1,bmi2,lzcnt")]
        #[inline(never)]
        fn compiled<'a, A: Address, E: Lookup<'a, A>>(
            view: &E::View,
            queries: &Queries<A>,
            order: Order,
        ) -> u32 {
            run::<A, E>(view, queries, order)
        }
        if has_popcount() {
            // SAFETY: a processor with popcnt and bmi2 has all four.
            return unsafe { compiled::<A, E>(view, queries, order) };
        }
    }
    pass::<A, E>(view, queries, order)
}

#[inline(always)]
fn run<'a, A: Address, E: Lookup<'a, A>>(view: &E::View, queries: &Queries<A>, order: Order) -> u32 {
    let addresses = &queries.addresses[..];
    let mut sum = 0u32;
    // Plain loops: what is not inlined here is not compiled for the instruction.
    match (order, &queries.tables[..]) {
        (Order::Independent, []) => {
            for address in addresses {
                sum = sum.wrapping_add(E::get(view, 0, *address));
            }
        }
        (Order::Independent, tables) => {
            for (table, address) in tables.iter().zip(addresses) {
                sum = sum.wrapping_add(E::get(view, *table, *address));
            }
        }
        (Order::Dependent, tables) => {
            // Always 0, but the compiler does not know it.
            let nothing = std::hint::black_box(0);
            let mut answer = 0;
            for n in 0..addresses.len() {
                let n = n + (answer & nothing) as usize;
                let (Some(address), table) = (addresses.get(n), tables.get(n).copied().unwrap_or(0)) else {
                    break;
                };
                answer = E::get(view, table, *address);
                sum = sum.wrapping_add(answer);
            }
        }
    }
    sum
}

/// A structure or why there is none.
pub type Outcome<A> = (&'static str, Result<Box<dyn Engine<A>>, Refused>);

/// Builds every structure for the tables `sets`, each sorted; calls `each` before each.
pub fn build_all<A: Address>(
    sets: &[Vec<Entry<A>>],
    limit: u64,
    mut before: impl FnMut(&'static str) -> crate::Result<()>,
) -> crate::Result<Vec<Outcome<A>>> {
    fn engine<A: Address, E: for<'a> Lookup<'a, A>>(
        name: &'static str,
        built: Result<Built<E>, Refused>,
    ) -> Outcome<A> {
        (name, built.map(|built| Box::new(Named { name, built }) as Box<dyn Engine<A>>))
    }
    let mut all = Vec::new();
    before(Trieline::NAME)?;
    all.push(engine(Trieline::NAME, Trieline::build(sets, limit)));
    macro_rules! candidates {
        ($($candidate:ty),*) => {$(
            let name = <$candidate as Candidate<A>>::NAME;
            before(name)?;
            all.push(engine::<A, _>(name, flats::<A, $candidate>(sets, limit)));
        )*};
    }
    candidates!(Bitmap<6>, Bitmap<8>, Hashed, Poptrie, Flat, Dir24, Intervals, TreeBitmap);
    Ok(all)
}
