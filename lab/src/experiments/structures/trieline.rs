//! The product's image among the candidates: built and looked up through its own API, and walked a second time word by word to
//! count what a lookup touches.

use std::{mem::offset_of, sync::Arc, time::Instant};

use trieline_lpm::{
    Address, HeapMemory, Image, Memory, NoReaders, Table, TableReader,
    image::layout::{self, Skip, TableHeader},
};

use super::{
    bench::{Built, Lookup},
    space::{PAGE, Refused, Touch},
    spread::Entry,
};

/// One image with all tables of a case.
pub struct Trieline {
    memory: Arc<HeapMemory>,
    image: Image<Arc<HeapMemory>, NoReaders>,
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
            let memory = Arc::new(HeapMemory::new(size.min(limit) as usize));
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
    type View = Vec<TableReader<'a, A>>;

    fn view(&'a self) -> Self::View {
        let reader = self.image.reader();
        (0..self.image.stats().tables).filter_map(|id| reader.table(id)).collect()
    }

    #[inline(always)]
    fn get(tables: &Self::View, table: u32, address: A) -> u32 {
        // A closure would be a function without the caller's instructions, and a call.
        let Some(of) = tables.get(table as usize) else { return 0 };
        of.lookup(address).unwrap_or(0)
    }

    fn traced<T: Touch>(&'a self, table: u32, address: A, touch: &mut T) -> u32 {
        let words = self.memory.words();
        let misaligned = words.as_ptr() as usize % PAGE;
        let mut walk = Walk { words, misaligned: misaligned as u32, touch };
        walk.table(self.image.reader().table_word(table), address)
    }
}

/// The walk of the product's reader, with every load recorded. The image's header and its directory, which all lookups share, are
/// not counted.
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
        let fallback = root - size_of::<TableHeader>() as u32 + offset_of!(TableHeader, fallback) as u32;
        // Every lookup loads it, whether it counts or not.
        let fallback = self.load(fallback);
        let entry = self.load(root + 4 * address.bits_at(0, bits) as u32);
        let value = if A::FAMILY == 4 {
            self.ipv4(word, entry, address, bits)
        } else {
            self.wide(entry, address, bits)
        };
        if value != 0 { value } else { fallback }
    }

    fn ipv4<A: Address>(&mut self, word: u32, mut entry: u32, address: A, mut depth: u16) -> u32 {
        while entry & layout::REF_NODE != 0 {
            self.touch.step();
            let node = (entry & layout::REF_OFFSET) * layout::UNIT;
            match layout::kind_of(entry) {
                layout::RANGES => {
                    let key = address.bits_at(depth, layout::RANGES_BITS) as u32;
                    let starts = [self.load64(node), self.load64(node + 8)];
                    let lanes =
                        starts.iter().flat_map(|pair| (0..4).map(move |lane| (pair >> (16 * lane)) as u16));
                    let above = lanes.filter(|start| u32::from(*start) > key).count() as u32;
                    return self.load(node + layout::RANGES_VALUES + 4 * above);
                }
                layout::HOSTS => {
                    let key = address.bits_at(depth, layout::RANGES_BITS) as u32;
                    let window = entry & layout::HOSTS_WINDOW;
                    let hosts = node - window * layout::UNIT;
                    let index = (key << (2 * window) & 0xffff) >> (16 - layout::HOSTS_BITS);
                    let host = self.load64(hosts + 8 * index);
                    if (host >> 32) as u32 & 0xffff == key {
                        return host as u32;
                    }
                    return self.load(hosts + 4) >> 16 | self.load(hosts + 12) & 0xffff_0000;
                }
                kind => {
                    let slot = address.bits_at(depth, layout::NODE6.stride);
                    let run = (self.load64(node) << (63 - slot)).count_ones() - 1;
                    let refs = node + layout::NODE6.refs;
                    if kind == layout::LEAF6 {
                        let code = self.load((refs + run) & !3) >> (8 * (run & 3)) & 0xff;
                        let palette = (word & !layout::DIR_BITS) + (4 << (word & layout::DIR_BITS));
                        return self.load(palette + 4 * code);
                    }
                    entry = self.load(refs + 4 * run);
                    depth += layout::NODE6.stride;
                }
            }
        }
        entry
    }

    fn wide<A: Address>(&mut self, mut entry: u32, address: A, mut depth: u16) -> u32 {
        while entry & layout::REF_NODE != 0 {
            self.touch.step();
            let node = (entry & layout::REF_OFFSET) * layout::UNIT;
            let slot = address.bits_at(depth, layout::NODE8.stride) as u32;
            match layout::kind_of(entry) {
                layout::RANGES32 => {
                    let key = (address.word_at(depth) >> layout::RANGES32_BITS) as u32;
                    let starts: Vec<u32> = (0..layout::RANGES32_STARTS as u32)
                        .map(|start| self.load(node + 4 * start))
                        .collect();
                    let above = starts.iter().filter(|start| **start > key).count() as u32;
                    entry = self.load(node + layout::RANGES32_REFS + 4 * above);
                    if starts.first() > starts.last() {
                        depth += layout::RANGES32_BITS;
                    }
                    continue;
                }
                layout::RAW8 => entry = self.load(node + 4 * slot),
                layout::SKIP => {
                    let len = self.load(node + offset_of!(Skip, len) as u32) as u16;
                    let same = (0..len).step_by(64).all(|from| {
                        let bits = self.load64(node + u32::from(from / 8));
                        let left = (len - from).min(64);
                        (bits ^ address.word_at(depth + from)) >> (64 - left) == 0
                    });
                    if !same {
                        return self.load(node + offset_of!(Skip, otherwise) as u32);
                    }
                    entry = self.load(node + offset_of!(Skip, next) as u32);
                    depth += len;
                    continue;
                }
                _ => {
                    let starts = self.load64(node + 8 * (slot / layout::NODE8_SLOTS));
                    let inside = (starts << (63 - slot % layout::NODE8_SLOTS)).count_ones();
                    let run = (starts >> layout::NODE8_SLOTS) as u32 + inside - 1;
                    entry = self.load(node + layout::NODE8.refs + 4 * run);
                }
            }
            depth += layout::NODE8.stride;
        }
        entry
    }
}
