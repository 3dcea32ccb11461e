//! The product's image among the candidates: built and looked up through its own API, and walked a second time word by word to
//! count what a lookup touches.

use std::{mem::offset_of, sync::Arc, time::Instant};

use trieline_lpm::{
    Address, HeapMemory, Image, Memory, NoReaders, Reader, Table,
    image::layout::{self, Kind, Skip, TableHeader},
};

use super::{
    bench::{Built, Lookup},
    space::{PAGE, Refused, Touch},
    spread::Entry,
};

/// Memory that the image and whoever counts both read.
#[derive(Clone, Debug)]
struct Shared(Arc<HeapMemory>);

// SAFETY: the words are those of the one HeapMemory behind the counter, which keeps every promise of the trait and stays where it is
// while a clone lives.
unsafe impl Memory for Shared {
    fn words(&self) -> &[std::sync::atomic::AtomicU32] {
        self.0.words()
    }
}

/// One image with all tables of a case.
pub struct Trieline {
    memory: Shared,
    image: Image<Shared, NoReaders>,
}

impl Trieline {
    /// Its name in results.
    pub const NAME: &'static str = "trieline";

    /// Builds every table into one image of at most `limit` bytes.
    pub fn build<A: Address>(sets: &[Vec<Entry<A>>], limit: u64) -> Result<Built<Self>, Refused> {
        let prefixes: usize = sets.iter().map(Vec::len).sum();
        // Too small is tried again: how large an image gets is known when it is built.
        let mut size = (prefixes as u64 * 16 + sets.len() as u64 * 2048 + (4 << 20)).next_power_of_two();
        loop {
            let memory = Shared(Arc::new(HeapMemory::new(size.min(limit) as usize)));
            let failed = |error: trieline_lpm::image::Error| Refused::Unfit(error.to_string());
            let mut image =
                Image::create(memory.clone(), NoReaders::default(), sets.len() as u32).map_err(failed)?;
            let began = Instant::now();
            let tables: Result<(), _> = (0..).zip(sets).try_for_each(|(id, entries)| {
                Table::create(&mut image, id, entries.iter().copied()).map(drop)
            });
            let build_ms = began.elapsed().as_secs_f64() * 1e3;
            match tables {
                Ok(()) => {
                    let bytes = image.stats().used + 4 * sets.len() as u64;
                    let engine = Trieline { memory, image };
                    return Ok(Built { engine, bytes, build_ms });
                }
                Err(trieline_lpm::image::Error::Full { .. }) if size < limit => size *= 2,
                Err(trieline_lpm::image::Error::Full { .. }) => return Err(Refused::Memory { limit }),
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl<'a, A: Address> Lookup<'a, A> for Trieline {
    type View = Reader<'a>;

    fn view(&'a self) -> Reader<'a> {
        self.image.reader()
    }

    #[inline(always)]
    fn get(reader: &Reader<'a>, table: u32, address: A) -> u32 {
        reader.lookup(table, address).unwrap_or(0)
    }

    fn traced<T: Touch>(&'a self, table: u32, address: A, touch: &mut T) -> u32 {
        let words = self.memory.words();
        let misaligned = words.as_ptr() as usize % PAGE;
        let mut walk = Walk { words, misaligned: misaligned as u32, touch };
        walk.table(self.image.reader().table_word(table), address)
    }
}

/// The walk of `lpm.h`, with every load told. The header and the directory, which all lookups share, are not counted.
struct Walk<'w, T> {
    words: &'w [std::sync::atomic::AtomicU32],
    /// Of the image's first byte in its page: what is counted are the machine's lines and pages.
    misaligned: u32,
    touch: &'w mut T,
}

impl<T: Touch> Walk<'_, T> {
    fn load(&mut self, at: u32) -> u32 {
        self.touch.load(at + self.misaligned, 4);
        self.words.get(at as usize / 4).map_or(0, |word| word.load(std::sync::atomic::Ordering::Acquire))
    }

    fn load64(&mut self, at: u32) -> u64 {
        u64::from(self.load(at)) | u64::from(self.load(at + 4)) << 32
    }

    fn table<A: Address>(&mut self, word: u32, address: A) -> u32 {
        let (root, bits) = (word & !layout::DIR_BITS, (word & layout::DIR_BITS) as u16);
        let mut entry = self.load(root + 4 * address.bits_at(0, bits) as u32);
        let mut depth = bits;
        let kind = Kind::of_family(A::FAMILY);
        while entry & layout::REF_NODE != 0 {
            self.touch.step();
            let node = (entry & layout::REF_OFFSET) * layout::UNIT;
            let slot = address.bits_at(depth, kind.stride) as u32;
            match layout::kind_of(entry) {
                layout::RAW8 if A::FAMILY != 4 => {
                    entry = self.load(node + 4 * slot);
                    depth += 8;
                }
                layout::SKIP if A::FAMILY != 4 => {
                    let len = self.load(node + offset_of!(Skip, len) as u32) as u16;
                    let same = (0..len).step_by(64).all(|from| {
                        let bits = self.load64(node + u32::from(from / 8));
                        let left = (len - from).min(64);
                        (bits ^ address.word_at(depth + from)) >> (64 - left) == 0
                    });
                    if !same {
                        entry = self.load(node + offset_of!(Skip, otherwise) as u32);
                        break;
                    }
                    entry = self.load(node + offset_of!(Skip, next) as u32);
                    depth += len;
                }
                _ => {
                    let starts = self.load64(node + kind.starts + 8 * (slot / 64));
                    let before =
                        if kind.stride == 6 { 0 } else { self.load(node) >> (8 * (slot / 64)) & 0xff };
                    let run = before + (starts << (63 - slot % 64)).count_ones();
                    entry = self.load(node + kind.refs - 4 + 4 * run);
                    depth += kind.stride;
                }
            }
        }
        if entry != 0 {
            return entry;
        }
        self.load(root - size_of::<TableHeader>() as u32 + offset_of!(TableHeader, fallback) as u32)
    }
}
