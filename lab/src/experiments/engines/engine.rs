//! The operations of each structure, and the loops that are timed: compiled once for each, with the structure's lookup inside.

use std::hint::black_box;

use trieline_lpm::Prefix;

use super::traffic::Stream;
use crate::tables::generate::Wide;

/// Addresses of a batch.
pub const BATCH: usize = 64;

/// How addresses are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One call an address, in a loop: the CPU overlaps them.
    Single,
    /// One call for 64 addresses.
    Batch,
    /// Each address waits for the answer before: latency.
    Dependent,
}

impl Mode {
    /// All.
    pub const ALL: [Mode; 3] = [Mode::Single, Mode::Batch, Mode::Dependent];

    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Single => "single",
            Mode::Batch => "batch",
            Mode::Dependent => "dependent",
        }
    }
}

/// A change: this value, or (None) no such prefix.
pub type Change<A> = (Prefix<A>, Option<u32>);

/// The lookups that the loops call.
pub trait Search<A: Wide> {
    /// Longest match; 0 = none.
    fn lookup(&self, addr: A) -> u32;
    /// Longest matches of a batch.
    fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        for (addr, value) in addrs.iter().zip(values) {
            *value = self.lookup(*addr);
        }
    }
}

impl<A: Wide, S: Search<A>> Search<A> for &S {
    #[inline(always)]
    fn lookup(&self, addr: A) -> u32 {
        (**self).lookup(addr)
    }
    #[inline(always)]
    fn lookup_batch(&self, addrs: &[A], values: &mut [u32]) {
        (**self).lookup_batch(addrs, values);
    }
}

/// A structure that Rust code searches.
pub trait Engine<A: Wide> {
    /// Whether its [`Search::lookup_batch`] is more than a loop.
    const BATCHES: bool = false;
    /// Whether it can be changed.
    const UPDATES: bool = true;
    /// The reader that a caller holds while it looks up.
    type Reader<'a>: Search<A>
    where
        Self: 'a;
    /// Takes one, once for many lookups.
    fn search(&self) -> Self::Reader<'_>;
    /// Makes a change; whether it was done.
    fn change(&mut self, change: Change<A>) -> bool;
    /// Bytes of what a lookup reads.
    fn bytes(&self) -> u64;
    /// Bytes that it has allocated and never touched: the rest of an image.
    fn untouched(&self) -> u64 {
        0
    }
    /// Makes all changes or none, if it can be asked so; whether it did.
    fn apply(&mut self, _: &[Change<A>]) -> Option<bool> {
        None
    }
    /// A function for another thread that looks up a batch at a time while the structure is changed, if that is allowed. It returns the sum
    /// of the answers.
    fn reader(&self) -> Option<ReadWhile<A>> {
        None
    }
}

/// Looks addresses up from another thread.
pub type ReadWhile<A> = Box<dyn FnMut(&[A]) -> u64 + Send>;

/// A structure under test, whatever it is written in.
pub trait Subject<A: Wide> {
    /// Looks up the stream's first `count` addresses; the sum of the answers. `Mode::Batch` only where [`Subject::batches`].
    fn pass(&self, mode: Mode, stream: &Stream<A>, count: usize) -> u64;
    /// Every answer of the stream's first ones.
    fn answers(&self, stream: &Stream<A>, values: &mut [u32]);
    /// Whether it has a call for many addresses.
    fn batches(&self) -> bool;
    /// Whether it can be changed.
    fn updates(&self) -> bool;
    /// Makes changes one by one; how many were done.
    fn change(&mut self, changes: &[Change<A>]) -> usize;
    /// Bytes of what a lookup reads.
    fn bytes(&self) -> u64;
    /// Bytes of everything it keeps, where the allocator does not count them.
    fn bytes_total(&self) -> Option<u64> {
        None
    }
    /// Seconds that building took, where preparations are not to count.
    fn build_seconds(&self) -> Option<f64> {
        None
    }
    /// [`Engine::untouched`].
    fn untouched(&self) -> u64 {
        0
    }
    /// [`Engine::apply`].
    fn apply(&mut self, _: &[Change<A>]) -> Option<bool> {
        None
    }
    /// [`Engine::reader`].
    fn reader(&self) -> Option<ReadWhile<A>> {
        None
    }
}

/// An [`Engine`] in the loops.
pub struct Native<E>(pub E);

impl<A: Wide, E: Engine<A>> Subject<A> for Native<E> {
    fn pass(&self, mode: Mode, stream: &Stream<A>, count: usize) -> u64 {
        let addrs = &stream.addrs[..count];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the CPU has these instructions.
            return unsafe { pass_with_bit_instructions(&self.0.search(), mode, addrs) };
        }
        pass(&self.0.search(), mode, addrs)
    }

    fn answers(&self, stream: &Stream<A>, values: &mut [u32]) {
        let (reader, half) = (self.0.search(), values.len() / 2);
        for (addr, value) in stream.addrs.iter().zip(values.iter_mut()).take(half) {
            *value = reader.lookup(*addr);
        }
        for (addrs, values) in stream.addrs[half..].chunks(BATCH).zip(values[half..].chunks_mut(BATCH)) {
            reader.lookup_batch(&addrs[..values.len()], values);
        }
    }

    fn batches(&self) -> bool {
        E::BATCHES
    }

    fn updates(&self) -> bool {
        E::UPDATES
    }

    fn change(&mut self, changes: &[Change<A>]) -> usize {
        changes.iter().filter(|change| self.0.change(**change)).count()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn untouched(&self) -> u64 {
        self.0.untouched()
    }

    fn apply(&mut self, changes: &[Change<A>]) -> Option<bool> {
        self.0.apply(changes)
    }

    fn reader(&self) -> Option<ReadWhile<A>> {
        self.0.reader()
    }
}

/// [`pass`] for CPUs that count bits by an instruction: what is inlined into it is compiled for them too, of every structure alike.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi1,bmi2,lzcnt")]
fn pass_with_bit_instructions<A: Wide>(engine: &impl Search<A>, mode: Mode, addrs: &[A]) -> u64 {
    pass(engine, mode, addrs)
}

#[inline(always)]
fn pass<A: Wide>(engine: &impl Search<A>, mode: Mode, addrs: &[A]) -> u64 {
    let mut sum = 0u64;
    match mode {
        Mode::Single => {
            for addr in addrs {
                sum += u64::from(engine.lookup(*addr));
            }
        }
        Mode::Batch => {
            let mut values = [0; BATCH];
            for addrs in addrs.chunks_exact(BATCH) {
                engine.lookup_batch(addrs, &mut values);
                sum += values.iter().map(|value| u64::from(*value)).sum::<u64>();
            }
        }
        Mode::Dependent => {
            // The compiler does not know that this is zero, so it cannot know the next address before the answer.
            let none = black_box(0u32);
            let mut answer = 0;
            for addr in addrs {
                answer = engine.lookup(addr.stirred(answer & none));
                sum += u64::from(answer);
            }
        }
    }
    sum
}
