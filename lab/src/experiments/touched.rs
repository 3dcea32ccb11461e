//! The cache lines and pages that a lookup reads. It has a recorder of loads, and the walk of an IPv4 table in trieline's image word by
//! word. The walk's answers must be those of trieline's reader.

use std::{
    mem::offset_of,
    sync::atomic::{AtomicU32, Ordering},
};

use trieline_lpm::{
    Address as _, HeapMemory, Image, Memory, NoReaders, Table,
    image::layout::{self, TableHeader},
};

use super::structure::{failed, image_bytes};
use crate::{Error, Result, tables::kinds::Entry};

/// A cache line.
const LINE: u32 = 64;
/// A page.
const PAGE: u32 = 4096;
const ID: u32 = 0;

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
}

/// The memory that one lookup touches.
#[derive(Default)]
pub struct Recorder {
    lines: Vec<u32>,
    pages: Vec<u32>,
}

impl Recorder {
    /// So many bytes at an offset are read.
    pub fn load(&mut self, at: u32, bytes: u32) {
        for (unit, seen) in [(LINE, &mut self.lines), (PAGE, &mut self.pages)] {
            for one in at / unit..=(at + bytes - 1) / unit {
                if !seen.contains(&one) {
                    seen.push(one);
                }
            }
        }
    }
}

impl Touched {
    /// Of lookups of `addresses`. `lookup` records what it reads; None unless its answers are `expected`.
    pub fn count(
        addresses: &[u32],
        expected: &[u32],
        lookup: impl Fn(u32, &mut Recorder) -> u32,
    ) -> Option<Touched> {
        let mut touched = Touched::default();
        let count = addresses.len() as f64;
        for (address, expected) in addresses.iter().zip(expected) {
            let mut recorder = Recorder::default();
            if lookup(*address, &mut recorder) != *expected {
                return None;
            }
            touched.lines += recorder.lines.len() as f64 / count;
            touched.pages += recorder.pages.len() as f64 / count;
            touched.lines_max = touched.lines_max.max(recorder.lines.len());
            touched.pages_max = touched.pages_max.max(recorder.pages.len());
        }
        Some(touched)
    }

    /// Of lookups in a trieline image of one table; an error unless its reader and the walk answer as `expected`.
    pub fn by_trieline(entries: &[Entry<u32>], addresses: &[u32], expected: &[u32]) -> Result<Touched> {
        let memory = HeapMemory::new(image_bytes(entries, 0)? as usize);
        let mut image = Image::create(memory, NoReaders::default(), 1).map_err(failed)?;
        Table::create(&mut image, ID, entries.iter().copied()).map_err(failed)?;
        let (reader, words) = (image.reader(), image.memory().words());
        let walk = Walk { words, misaligned: (words.as_ptr() as usize % PAGE as usize) as u32 };
        let table = reader.table::<u32>(ID).ok_or_else(|| Error::Image("it has no table".into()))?;
        let word = reader.table_word(ID);
        let agree = |(address, expected): (&u32, &u32)| table.lookup(*address).unwrap_or(0) == *expected;
        let counted = addresses.iter().zip(expected).all(agree).then(|| {
            Touched::count(addresses, expected, |address, recorder| walk.table(word, address, recorder))
        });
        counted
            .flatten()
            .ok_or_else(|| Error::References(format!("of {} entries (walk of the image)", entries.len())))
    }
}

/// The walk of the product's reader, with every load recorded. The image's header and its directory, which all lookups share, are
/// not counted.
struct Walk<'w> {
    words: &'w [AtomicU32],
    /// Of the image's first byte in its page: what is counted are the machine's lines and pages.
    misaligned: u32,
}

impl Walk<'_> {
    fn load(&self, at: u32, recorder: &mut Recorder) -> u32 {
        recorder.load(at + self.misaligned, 4);
        self.words.get(at as usize / 4).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn load64(&self, at: u32, recorder: &mut Recorder) -> u64 {
        u64::from(self.load(at, recorder)) | u64::from(self.load(at + 4, recorder)) << 32
    }

    fn table(&self, word: u32, address: u32, recorder: &mut Recorder) -> u32 {
        let (root, bits) = (word & !layout::DIR_BITS, (word & layout::DIR_BITS) as u16);
        // Each lookup compares it, whether it found a value or not. The fallback is known by then, and whether there is a hash table.
        self.load64(layout::DIRECTORY + layout::DIR_ENTRY * ID, recorder);
        let header = root - size_of::<TableHeader>() as u32;
        let known = |field: usize| self.words[(header as usize + field) / 4].load(Ordering::Acquire);
        let fallback = known(offset_of!(TableHeader, fallback));
        if layout::Keys::of(known(offset_of!(TableHeader, key_family))).has_exact {
            let value = self.hashed(header, address, recorder);
            if value != 0 {
                return value;
            }
        }
        let entry = self.load(root + 4 * address.bits_at(0, bits) as u32, recorder);
        let value = self.below(word, entry, address, bits, recorder);
        if value != 0 { value } else { fallback }
    }

    /// The value in the hash table of the table whose header is at `header`; 0 = none.
    fn hashed(&self, header: u32, address: u32, recorder: &mut Recorder) -> u32 {
        let field = |field: usize| header + field as u32;
        let key = u64::from(address) << 32;
        let mut field64 = |at: usize| self.load64(field(at), recorder);
        let (mask, first) = (field64(offset_of!(TableHeader, mask)), field64(offset_of!(TableHeader, first)));
        let hash = key.wrapping_mul(field64(offset_of!(TableHeader, multiplier)));
        if key & mask != first {
            return 0;
        }
        let exact = self.load(field(offset_of!(TableHeader, exact)), recorder);
        let slot = (hash >> (64 - (exact & layout::DIR_BITS))) as u32;
        let bucket = self.load((exact & !layout::DIR_BITS) + 4 * slot, recorder);
        if bucket & layout::REF_NODE == 0 {
            return 0;
        }
        let at = (bucket & layout::REF_OFFSET) * layout::UNIT;
        let entries = (at..).step_by(8).take(1 << layout::kind_of(bucket));
        let mut entries = entries.map(|entry| self.load64(entry, recorder));
        entries.find(|entry| *entry as u32 == (hash >> 32) as u32).map_or(0, |entry| (entry >> 32) as u32)
    }

    fn below(&self, word: u32, mut entry: u32, address: u32, mut depth: u16, recorder: &mut Recorder) -> u32 {
        while entry & layout::REF_NODE != 0 {
            let node = (entry & layout::REF_OFFSET) * layout::UNIT;
            match layout::kind_of(entry) {
                layout::RANGES => {
                    let key = address.bits_at(depth, layout::RANGES_BITS) as u32;
                    let starts = [self.load64(node, recorder), self.load64(node + 8, recorder)];
                    let lanes =
                        starts.iter().flat_map(|pair| (0..4).map(move |lane| (pair >> (16 * lane)) as u16));
                    let above = lanes.filter(|start| u32::from(*start) > key).count() as u32;
                    return self.load(node + layout::RANGES_VALUES + 4 * above, recorder);
                }
                kind => {
                    let slot = address.bits_at(depth, layout::NODE6.stride);
                    let run = (self.load64(node, recorder) << (63 - slot)).count_ones() - 1;
                    let refs = node + layout::NODE6.refs;
                    if kind == layout::LEAF6 {
                        let code = self.load((refs + run) & !3, recorder) >> (8 * (run & 3)) & 0xff;
                        let palette = (word & !layout::DIR_BITS) + (4 << (word & layout::DIR_BITS));
                        return self.load(palette + 4 * code, recorder);
                    }
                    entry = self.load(refs + 4 * run, recorder);
                    depth += layout::NODE6.stride;
                }
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{
        Random, destinations::random_host, generate::internet, kinds::numbered, reference::Reference,
    };

    #[test]
    fn distinct_lines_and_pages_are_counted() {
        let mut recorder = Recorder::default();
        for (at, bytes) in [(0, 4), (60, 4), (60, 8), (4092, 8)] {
            recorder.load(at, bytes);
        }
        assert_eq!((recorder.lines, recorder.pages), (vec![0, 1, 63, 64], vec![0, 1]));
    }

    #[test]
    fn the_walk_of_an_image_answers_as_the_reference() {
        let entries: Vec<Entry<u32>> = internet::<u32>(3000, 5).into_iter().zip(1..).collect();
        // Next hops that lie in a palette, hosts alone under their /24, and a table that is all root.
        let few = entries.iter().map(|(prefix, value)| (*prefix, 1 + value % 5)).collect();
        for entries in [entries, few, numbered(3000), numbered(1)] {
            let prefixes: Vec<_> = entries.iter().map(|(prefix, _)| *prefix).collect();
            let mut random = Random::new(5);
            let addresses: Vec<u32> = (0..5000)
                .map(|n| if n % 2 == 0 { random.bits() as u32 } else { random_host(&prefixes, &mut random) })
                .collect();
            let reference = Reference::new(entries.iter().copied());
            let mut expected: Vec<u32> = addresses.iter().map(|address| reference.lookup(*address)).collect();
            let touched = Touched::by_trieline(&entries, &addresses, &expected).unwrap();
            assert!(touched.lines >= 1.0 && touched.lines <= touched.lines_max as f64, "{touched:?}");
            assert!(touched.pages <= touched.lines && touched.lines_max <= 12, "{touched:?}");
            expected[7] += 1;
            assert!(matches!(
                Touched::by_trieline(&entries, &addresses, &expected),
                Err(Error::References(_))
            ));
        }
    }
}
