//! Lookups in user space: the Rust twin of `include/trieline/lpm.h`.

use super::error::Error;
use super::exact;
use super::layout::{self, ImageHeader, Keys, RANGES32_STARTS, Skip, TableHeader};
use super::place::{Exact, Place};
use super::step::{above, skip};
use super::words::{self, load, near, near_code, near64, run8};
use crate::Address;
use core::hint::select_unpredictable;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Looks addresses up in an image, also while its writer changes it. Copy it freely.
///
/// A reader never reads outside its memory and ends after a bounded number of steps, whatever the bytes are. In an image that
/// [`verify`](crate::image::verify) would refuse it may find any number. Beside a
/// writer in another process it is right only as long as a grace period covers it; see [`crate::Grace`].
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub(super) words: &'a [AtomicU32],
    /// The first unit at which no node may begin, so that what lies before it can be read without a further look at the end.
    pub(super) end: u32,
    /// Slots in the directory.
    tables: u32,
    /// Whether the processor counts bits by itself.
    pub(super) popcnt: bool,
}

/// The fallback's word in a table's header.
const FALLBACK: usize = offset_of!(TableHeader, fallback) / 4;
/// Words of a table's header.
const HEADER: usize = size_of::<TableHeader>() / 4;

/// Default routes that may change under one lookup, or keys that may come beside its own, before it takes what it finds. (A thread can be held up, so more than the C
/// header allows.)
const TRIES: u32 = 64;

impl<'a> Reader<'a> {
    /// A reader of the image in `words`. It is an error when there is none or one of another version. So it is when the image does not
    /// begin at a multiple of eight bytes, as all [`crate::Memory`] does.
    pub fn new(words: &'a [AtomicU32]) -> Result<Self, Error> {
        super::header::header(words)?;
        Ok(Self::checked(words))
    }

    /// Reads an image whose header has been checked.
    pub(crate) fn checked(words: &'a [AtomicU32]) -> Self {
        let tables = load(words, offset_of!(ImageHeader, tables) as u32);
        Self { words, end: words::end(words), tables, popcnt: words::has_popcnt() }
    }

    /// Longest match of an IPv4 address in table `id`: O(1), at most six nodes. None: no prefix or no such table of IPv4.
    #[inline(always)]
    pub fn lookup4(&self, id: u32, addr: u32) -> Option<u32> {
        self.lookup(id, addr)
    }

    /// Longest match of an IPv6 address in table `id`: O(1), at most sixteen nodes. None: no prefix or no such table of IPv6.
    #[inline(always)]
    pub fn lookup6(&self, id: u32, addr: u128) -> Option<u32> {
        self.lookup(id, addr)
    }

    /// Longest match of `addr` in table `id`. At most one node for eight key bits. None: no prefix, or no such table of these keys.
    /// Take [`Reader::table`] once for many lookups.
    #[inline]
    pub fn lookup<A: Address>(&self, id: u32, addr: A) -> Option<u32> {
        self.open::<A, false>(id, A::WIDTH)?.lookup_once(addr)
    }

    /// As [`Reader::lookup`] in a table of keys of `key_bits` bits, which stand in the first bits of `addr`: see
    /// [`Table::create_narrow`](crate::Table::create_narrow). Bits behind them do not count.
    pub fn lookup_narrow<A: Address>(&self, id: u32, key_bits: u16, addr: A) -> Option<u32> {
        self.open::<A, false>(id, key_bits)?.lookup_once(addr)
    }

    /// Table `id` for lookups one after another. None: no such table, or one of another family or width.
    ///
    /// It gives the answers that [`Reader::lookup`] gives. So it does after the table has been replaced or its default route has changed, only
    /// then more slowly.
    #[inline]
    pub fn table<A: Address>(&self, id: u32) -> Option<TableReader<'a, A>> {
        self.table_narrow(id, A::WIDTH)
    }

    /// As [`Reader::table`], a table of keys of `key_bits` bits, which stand in the first bits of those of `A`.
    #[inline]
    pub fn table_narrow<A: Address>(&self, id: u32, key_bits: u16) -> Option<TableReader<'a, A>> {
        self.open::<A, true>(id, key_bits)
    }

    /// `KEEPS`: with its fallback, for more than one lookup.
    #[inline(always)]
    fn open<A: Address, const KEEPS: bool>(&self, id: u32, key_bits: u16) -> Option<TableReader<'a, A>> {
        if id >= self.tables {
            return None;
        }
        let directory = words::entry(self.words, id)?;
        let entry = directory.load(Ordering::Acquire);
        let word = entry as u32;
        let (root, bits) = ((word & !layout::DIR_BITS) as usize / 4, word & layout::DIR_BITS);
        // Some memory always lies behind a root: the guard at least, which is longer than a palette.
        let palette = root + (1usize << (bits & 31));
        if root < HEADER || bits > 24 || palette + layout::PALETTE > self.words.len() {
            return None;
        }
        let root = &self.words[root - HEADER..palette];
        let keys = Keys::of(root[offset_of!(TableHeader, key_family) / 4].load(Ordering::Relaxed));
        if keys.family != A::FAMILY || keys.key_bits != key_bits || key_bits > A::WIDTH {
            return None;
        }
        let exact = if keys.has_exact { Exact::of(self.words, word) } else { None };
        Some(TableReader {
            exact: exact.unwrap_or_default(),
            reader: *self,
            directory,
            // An odd count sets a bit of the number of root bits, which is 24 at most.
            entry: entry | entry >> 27 & 32,
            fallback: if KEEPS { root[FALLBACK].load(Ordering::Acquire) } else { 0 },
            // Without the instruction all go the long way.
            near_end: if self.popcnt { self.end.saturating_mul(layout::UNIT) } else { 0 },
            id,
            key_bits,
            root,
            palette: self.words[palette..].first_chunk()?,
            bits,
            addresses: PhantomData,
        })
    }

    /// The value that a ranges node has for the sixteen key bits `bits`; 0 in a damaged image.
    #[inline]
    pub(super) fn tail4(&self, entry: u32, bits: u32) -> u32 {
        let value = self.tail4_entry(entry, bits);
        if value & layout::REF_NODE == 0 { value } else { 0 }
    }

    #[inline]
    fn tail4_entry(&self, entry: u32, bits: u32) -> u32 {
        let node = (entry & layout::REF_OFFSET).min(self.end) as usize * 2;
        // SAFETY: the node begins before the guard, which is longer than the node.
        unsafe {
            let rest = 0x0000_ffff_0000_ffff - (u64::from(bits) | u64::from(bits) << 32);
            let (one, two) = (near64(self.words, node), near64(self.words, node + 2));
            let sum = (above(one, rest) + above(two, rest)) >> 16;
            let value = (sum + (sum >> 32)) as usize & 15;
            near(self.words, node + layout::RANGES_VALUES as usize / 4 + value)
        }
    }

    /// Walks on from `entry`, reached by the first `depth` bits of `addr`, in a table that is not of IPv4.
    #[inline(never)]
    pub(super) fn walk8<A: Address>(
        &self,
        palette: &Palette,
        mut entry: u32,
        addr: A,
        mut depth: u16,
    ) -> u32 {
        // The key bits that come next, and how many of them are the address's.
        let (mut key, mut known) = (addr.word_at(depth), 64);
        for _ in 0..=A::WIDTH.div_ceil(layout::NODE8.stride) {
            if entry & layout::REF_NODE == 0 {
                return entry;
            }
            let unit = entry & layout::REF_OFFSET;
            if unit >= self.end {
                return 0;
            }
            // SAFETY: `unit` lies before `end`, and no node of these kinds is longer than the guard behind it.
            let taken = unsafe {
                let node = self.words.get_unchecked(unit as usize * 2..);
                match layout::kind_of(entry) {
                    layout::DIRECT12 if A::FAMILY == 6 => {
                        if unit >= self.end.saturating_sub(layout::DIRECT_UNITS - 1) {
                            return 0;
                        }
                        entry = near(node, (key >> (64 - layout::DIRECT_BITS)) as usize);
                        layout::DIRECT_BITS
                    }
                    layout::RANGES32 if A::FAMILY != 6 => {
                        let above: usize = (0..RANGES32_STARTS)
                            .map(|start| usize::from(near(node, start) > (key >> 32) as u32))
                            .sum();
                        entry = near(node, RANGES32_STARTS + above);
                        let is_leaf = near(node, 0) > near(node, RANGES32_STARTS - 1);
                        u16::from(is_leaf) * layout::RANGES32_BITS
                    }
                    layout::SKIP => {
                        let (len, differs) = skip(self.words, unit * layout::UNIT, addr, depth);
                        if differs {
                            return near(node, offset_of!(Skip, otherwise) / 4) & layout::VALUE_MAX;
                        }
                        entry = near(node, offset_of!(Skip, next) / 4);
                        len
                    }
                    _ => {
                        let (starts, before) = run8(node, key >> 56);
                        let run = before + words::count_ones(starts, self.popcnt) as usize;
                        if A::FAMILY == 6 && layout::kind_of(entry) == layout::LEAF8 {
                            let code = near_code::<CODES8>(node, 0, run);
                            return palette[code].load(Ordering::Acquire) & layout::VALUE_MAX;
                        }
                        entry = near(node, layout::NODE8.refs as usize / 4 - 1 + run);
                        layout::NODE8.stride
                    }
                }
            };
            depth = depth.saturating_add(taken);
            if taken + layout::RANGES32_BITS <= known {
                key <<= taken;
                known -= taken;
            } else {
                (key, known) = (addr.word_at(depth), 64);
            }
        }
        0
    }

    /// The keys of table `id`; None if the table does not exist.
    pub fn keys(&self, id: u32) -> Option<Keys> {
        let header = (self.table_word(id) & !layout::DIR_BITS).checked_sub(size_of::<TableHeader>() as u32)?;
        Some(Keys::of(load(self.words, header + offset_of!(TableHeader, key_family) as u32)))
    }

    /// The word of the directory that says where the root of table `id` is; 0 if the table does not exist.
    #[inline(always)]
    pub fn table_word(&self, id: u32) -> u32 {
        if id >= self.tables {
            return 0;
        }
        words::directory(self.words, id)
    }
}

/// The values of a table's codes.
type Palette = [AtomicU32; layout::PALETTE];

/// Looks addresses up in one table of an image: what [`Reader::lookup`] finds out for every lookup is known here.
#[derive(Debug, Clone, Copy)]
pub struct TableReader<'a, A> {
    pub(super) reader: Reader<'a>,
    /// The table's entry in the directory, and what was there when this was made. If the fallback was changing then, this has a bit that no
    /// entry has: each lookup takes the table once more.
    directory: &'a AtomicU64,
    entry: u64,
    /// The value of the prefix of length 0; 0 = none.
    pub(super) fallback: u32,
    /// The byte offset before which a node must begin to be looked at the short way.
    pub(super) near_end: u32,
    pub(super) id: u32,
    pub(super) key_bits: u16,
    /// The table's header and the root's words.
    pub(super) root: &'a [AtomicU32],
    pub(super) palette: &'a Palette,
    pub(super) bits: u32,
    pub(super) exact: Exact<'a>,
    addresses: PhantomData<A>,
}

impl<A: Address> TableReader<'_, A> {
    /// Longest match of `addr`. At most one node for eight key bits; None: no prefix.
    #[inline(always)]
    pub fn lookup(&self, addr: A) -> Option<u32> {
        if self.exact.has_any() {
            return self.lookup_exact(addr);
        }
        let value = match self.find_near(addr) {
            // It costs less than a branch that depends on the address.
            Some(value) if !self.has_changed() => select_unpredictable(value != 0, value, self.fallback),
            _ => self.lookup_far(addr),
        };
        (value != 0).then_some(value)
    }

    /// As [`TableReader::lookup`], right after this was made: what it found is right, whatever has changed since.
    #[inline(always)]
    fn lookup_once(&self, addr: A) -> Option<u32> {
        if self.exact.has_any() {
            return self.lookup_exact(addr);
        }
        let mut value = self.find(addr);
        if value == 0 {
            value = self.fallback();
            if self.has_changed() {
                value = again(self.reader.words, self.id, self.key_bits, addr);
            }
        }
        (value != 0).then_some(value)
    }

    /// [`TableReader::lookup`] where the nearest nodes do not suffice, or the table has changed.
    // Apart, and once, so that the loop around a lookup keeps what it needs in registers.
    #[cold]
    #[inline(never)]
    fn lookup_far(&self, addr: A) -> u32 {
        let value = if A::FAMILY == 4 { self.find_far(addr) } else { self.find(addr) };
        if self.has_changed() {
            return again(self.reader.words, self.id, self.key_bits, addr);
        }
        if value != 0 { value } else { self.fallback }
    }

    /// [`TableReader::lookup`] in a table with a hash table.
    // By value and apart: without a hash table, the reader then stays in registers.
    #[inline(never)]
    fn lookup_exact(self, addr: A) -> Option<u32> {
        let place = self.place_of(addr);
        let value = self.attempt(addr, place, place.map_or(0, |place| place.seen()));
        let value = value.unwrap_or_else(|| again(self.reader.words, self.id, self.key_bits, addr));
        (value != 0).then_some(value)
    }

    /// The place of `addr` in the hash table.
    #[inline(always)]
    pub(super) fn place_of(&self, addr: A) -> Option<Place<'_>> {
        let header = self.root.first_chunk()?;
        self.exact.place(&super::walk::hash(header), exact::key(addr, self.key_bits))
    }

    /// The longest match, 0 = none; None if the table has changed meanwhile, so that what was found may not belong together.
    #[inline(always)]
    fn attempt(&self, addr: A, place: Option<Place<'_>>, seen: u32) -> Option<u32> {
        if let Some(place) = place {
            let value = place.find(self.reader.words, self.reader.end, seen);
            if value != 0 {
                return (!self.has_changed()).then_some(value);
            }
        }
        let mut found = self.find(addr);
        if found == 0 {
            found = self.fallback();
        }
        let is_settled = !self.has_changed()
            // After the walk: else a key may have come before what covered it went.
            && place.is_none_or(|place| place.seen() == seen);
        is_settled.then_some(found)
    }

    /// Longest match among the prefixes of 1 bit and more that stand below the root; 0 = none.
    #[inline(always)]
    fn find(&self, addr: A) -> u32 {
        if let Some(value) = self.find_near(addr) { value } else { self.find_far(addr) }
    }

    /// As [`TableReader::find`], an IPv4 address from the root on, whatever it takes.
    #[inline(always)]
    fn find_far(&self, addr: A) -> u32 {
        let entry = self.root(addr).load(Ordering::Acquire);
        walk4(self.reader.words, self.palette, entry, (addr.word_at(0) >> 32) as u32, self.bits)
    }

    /// As [`TableReader::find`]; None: an IPv4 address that takes more than the nearest nodes.
    #[inline(always)]
    fn find_near(&self, addr: A) -> Option<u32> {
        if A::FAMILY == 4 {
            return self.near4((addr.word_at(0) >> 32) as u32);
        }
        Some(self.find8(addr))
    }

    /// The root's word for `addr`.
    #[inline(always)]
    pub(super) fn root(&self, addr: A) -> &AtomicU32 {
        // In two steps, as a root of 0 bits takes a shift by 64.
        self.slot((addr.word_at(0) >> 1 >> (63 - self.bits)) as usize)
    }

    /// A word of the root, by the address's first bits.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> &AtomicU32 {
        debug_assert!(HEADER + slot < self.root.len());
        // SAFETY: the root has a word for each number of `bits` bits, and no caller takes more of an address.
        unsafe { self.root.get_unchecked(HEADER + slot) }
    }

    /// IPv4 in few instructions, so that many lookups overlap: the root and one bitmap node, which is where nearly every lookup
    /// ends.
    #[inline(always)]
    fn near4(&self, addr: u32) -> Option<u32> {
        // By shifts to the left, so that the number of bits is the count as it stands in memory. `32 - bits` is computed in an 8-bit
        // register, whose other bits are kept. They are those of the lookup before, so that this one then waits for its answer.
        let shifted = u64::from(addr) << self.bits;
        let entry = self.slot((shifted >> 32) as usize).load(Ordering::Acquire);
        if entry & layout::REF_NODE == 0 {
            return Some(entry);
        }
        let (words, node) = (self.reader.words, entry << 3);
        if node < self.near_end {
            // SAFETY: the node begins before the guard, and none that begins there is longer than that. The processor has the
            // instruction.
            unsafe {
                let node = words.get_unchecked(node as usize / 4..);
                // A shift takes no more than six bits: the slot's.
                let starts = near64(node, 0).wrapping_shl(!(shifted as u32 >> 26));
                let run = words::popcount(starts);
                let kind = entry >> layout::REF_KIND_SHIFT;
                if kind == LEAF6_REF {
                    return Some(self.palette[near_code::<CODES6>(node, 0, run)].load(Ordering::Acquire));
                }
                if kind == NODE6_REF {
                    let entry = near(node, run + 1);
                    if entry & layout::REF_NODE == 0 {
                        return Some(entry);
                    }
                }
            }
        }
        None
    }

    /// The ref of the root for an address that is not of IPv4, or of the direct12 there. Then the key bits that come next, and how many came
    /// before.
    #[inline(always)]
    pub(super) fn first8(&self, addr: A) -> (u32, u64, u32) {
        const DIRECT: u32 = layout::node_ref(layout::DIRECT12, 0);
        let (entry, key) = (self.root(addr).load(Ordering::Acquire), addr.word_at(0) << self.bits);
        // The first unit at which none may begin.
        let end = (self.near_end / layout::UNIT).saturating_sub(layout::DIRECT_UNITS - 1);
        if A::FAMILY != 6 || entry.wrapping_sub(DIRECT) >= end {
            return (entry, key, self.bits);
        }
        let slot = (key >> (64 - layout::DIRECT_BITS)) as usize;
        // SAFETY: a direct12 that begins there ends before the image does.
        let entry = unsafe { near(self.reader.words, (entry & layout::REF_OFFSET) as usize * 2 + slot) };
        (entry, key << layout::DIRECT_BITS, self.bits + u32::from(layout::DIRECT_BITS))
    }

    /// Keys that are not of IPv4: bitmap nodes one after another, as long as the key's first 64 bits last.
    #[inline(always)]
    fn find8(&self, addr: A) -> u32 {
        const STRIDE: u32 = layout::NODE8.stride as u32;
        let words = self.reader.words;
        let (mut entry, mut key, mut depth) = self.first8(addr);
        let is_bitmap = |entry: u32| match A::FAMILY {
            6 => entry >> layout::REF_KIND_SHIFT & !2 == NODE8_REF,
            _ => entry >> layout::REF_KIND_SHIFT == NODE8_REF,
        };
        while is_bitmap(entry) && depth <= 64 - STRIDE {
            let node = entry << 3;
            if node >= self.near_end {
                break;
            }
            // SAFETY: the node begins before the guard, which is longer. The processor has the instruction.
            unsafe {
                let node = words.get_unchecked(node as usize / 4..);
                let (starts, before) = run8(node, key >> 56);
                let run = before + words::popcount(starts);
                if A::FAMILY == 6 && entry >> layout::REF_KIND_SHIFT == LEAF8_REF {
                    return self.palette[near_code::<CODES8>(node, 0, run)].load(Ordering::Acquire);
                }
                entry = near(node, layout::NODE8.refs as usize / 4 - 1 + run);
            }
            key <<= STRIDE;
            depth += STRIDE;
        }
        if entry & layout::REF_NODE == 0 { entry } else { self.rest8(entry, addr, depth) }
    }

    /// As [`Reader::walk8`]. A skip inside the key's first 64 bits, which most keys end at that come here, takes no branch that depends on the
    /// key.
    #[inline(always)]
    pub(super) fn rest8(&self, mut entry: u32, addr: A, mut depth: u32) -> u32 {
        const SKIP: u32 = layout::node_ref(layout::SKIP, 0);
        if entry.wrapping_sub(SKIP) < self.reader.end {
            let (words, node) = (self.reader.words, entry.wrapping_sub(SKIP) as usize * 2);
            // SAFETY: the node begins before the guard, which is longer.
            let word = |word: usize| unsafe { near(words, node + word) };
            let [len, next, otherwise] = SKIP_FIELDS.map(|field| word(field / 4));
            let len = len & layout::SKIP_LEN;
            let end = depth + len;
            if end <= 64 {
                // The second half of what follows it, or a word that is there anyway and does not count.
                const BITS: [usize; 2] = [offset_of!(Skip, bits) / 4, size_of::<Skip>() / 4 + 1];
                let more = select_unpredictable(len > layout::SKIP_SHORT.into(), BITS[1], BITS[0]);
                let bits = u64::from(word(BITS[0])) << 32 | u64::from(word(more));
                let differ = (addr.word_at(0).wrapping_shl(depth) ^ bits).wrapping_shr(len.wrapping_neg());
                entry = select_unpredictable(differ == 0, next, otherwise & layout::VALUE_MAX);
                depth = end;
            }
        }
        if entry & layout::REF_NODE == 0 {
            entry
        } else {
            self.reader.walk8(self.palette, entry, addr, depth as u16)
        }
    }

    /// The value of the prefix of length 0 as it is now, not when this was made; 0 = none.
    #[inline(always)]
    fn fallback(&self) -> u32 {
        debug_assert!(FALLBACK < self.root.len());
        // SAFETY: `Reader::open` has taken a header and the root.
        unsafe { self.root.get_unchecked(FALLBACK) }.load(Ordering::Acquire)
    }

    /// Whether another table is there, or another fallback than when this was made. Asked after all that was looked at.
    #[inline(always)]
    pub(super) fn has_changed(&self) -> bool {
        self.directory.load(Ordering::Relaxed) != self.entry
    }
}

/// Of a skip: how many key bits it takes, and where they lead to.
const SKIP_FIELDS: [usize; 3] = [offset_of!(Skip, len), offset_of!(Skip, next), offset_of!(Skip, otherwise)];
/// Bytes before those of a leaf6.
pub(super) const CODES6: u32 = layout::NODE6.refs;
/// Bytes before those of a leaf8.
pub(super) const CODES8: u32 = layout::NODE8.refs;
/// The highest three bits of a ref to a leaf8.
const LEAF8_REF: u32 = layout::node_ref(layout::LEAF8, 0) >> layout::REF_KIND_SHIFT;
/// The highest three bits of a ref to a node8.
const NODE8_REF: u32 = layout::node_ref(layout::NODE8.id, 0) >> layout::REF_KIND_SHIFT;
/// The highest three bits of a ref to a node6.
const NODE6_REF: u32 = layout::node_ref(layout::NODE6.id, 0) >> layout::REF_KIND_SHIFT;
/// The highest three bits of a ref to a leaf6.
const LEAF6_REF: u32 = layout::node_ref(layout::LEAF6, 0) >> layout::REF_KIND_SHIFT;

/// Looks up once more, while the table is replaced, its default route changes, or a key comes to where this one is hashed to.
#[cold]
#[inline(never)]
fn again<A: Address>(words: &[AtomicU32], id: u32, key_bits: u16, addr: A) -> u32 {
    let reader = Reader::checked(words);
    let mut value = 0;
    for _ in 0..TRIES {
        let Some(entry) = words::entry(words, id).map(|entry| entry.load(Ordering::Acquire)) else {
            return 0;
        };
        let Some(table) = reader.open::<A, false>(id, key_bits) else { return 0 };
        let place = table.place_of(addr);
        let seen = place.map_or(0, |place| place.seen());
        value = place.map_or(0, |place| place.find(reader.words, reader.end, seen));
        if value == 0 {
            value = table.find(addr);
        }
        if value == 0 {
            value = table.fallback();
        }
        let has_changed = table.directory.load(Ordering::Relaxed) != entry
            || place.is_some_and(|place| place.seen() != seen);
        if !has_changed {
            break;
        }
    }
    value
}

// Cold, and with few plain arguments, so that the loop around a lookup keeps what it needs in registers.
/// Walks on from `entry` of an IPv4 table, reached by the first `depth` bits of `addr`.
#[cold]
#[inline(never)]
fn walk4(words: &[AtomicU32], palette: &Palette, mut entry: u32, addr: u32, depth: u32) -> u32 {
    let reader = Reader::checked(words);
    let mut key = u64::from(addr) << 32 << depth;
    for _ in 0..=u32::WIDTH.div_ceil(layout::NODE6.stride) {
        if entry & layout::REF_NODE == 0 {
            return entry;
        }
        let unit = entry & layout::REF_OFFSET;
        if unit >= reader.end {
            return 0;
        }
        let kind = layout::kind_of(entry);
        if kind > layout::LEAF6 {
            return reader.tail4(entry, (key >> 48) as u32);
        }
        // SAFETY: `unit` lies before `end`, and no bitmap of 64 runs is longer than the guard behind it.
        unsafe {
            let node = unit as usize * 2;
            let starts = near64(words, node) << (63 - (key >> 58));
            let run = words::count_ones(starts, reader.popcnt) as usize;
            if kind == layout::LEAF6 {
                let value = palette[near_code::<CODES6>(words, node, run)].load(Ordering::Acquire);
                return value & layout::VALUE_MAX;
            }
            entry = near(words, node + 1 + run);
        }
        key <<= layout::NODE6.stride;
    }
    0 // a node below the last key bit: a damaged image
}
