//! The image's layout for Rust: the twin of `include/trieline/image.h`, which describes it; `tests/header.rs` compares the two.

pub use crate::prefix::VALUE_MAX;
use core::mem::{offset_of, size_of};

/// `TL_IMAGE_MAGIC`: "TRIL".
pub const MAGIC: u32 = 0x4c49_5254;
/// `TL_IMAGE_VERSION`.
pub const VERSION: u16 = 6;
/// `TL_CHUNK`, bytes.
pub const CHUNK: u32 = 65536;
/// `TL_DIRECTORY`: offset of the directory, right behind the header, bytes.
pub const DIRECTORY: u32 = 64;
/// `TL_DIR_ENTRY`: bytes of an entry of the directory.
pub const DIR_ENTRY: u32 = 8;
/// `TL_DIR_BITS`: the part of a directory entry that holds the number of root bits.
pub const DIR_BITS: u32 = 63;
/// `TL_REF_NODE`: set in a ref that leads to a node.
pub const REF_NODE: u32 = 1 << 31;
/// `TL_REF_KIND_SHIFT`.
pub const REF_KIND_SHIFT: u32 = 29;
/// `TL_REF_OFFSET`: the part of a ref that holds a node's offset in [`UNIT`]s.
pub const REF_OFFSET: u32 = 0x1fff_ffff;
/// `TL_REF_UNIT`: bytes an offset in a ref counts in; also what the writer allocates in.
pub const UNIT: u32 = 8;
/// `TL_GUARD`: no node begins in that many last bytes of an image.
pub const GUARD: u32 = 2048;
/// `TL_EXACT`: set in a table's `key_family`.
pub const EXACT: u8 = 0x80;
/// `TL_EXACT_BITS_MAX`.
pub const EXACT_BITS_MAX: u16 = 24;
/// `TL_EXACT_SHORT`: bits of the longest keys whose buckets hold the rest of their hash.
pub const EXACT_SHORT: u16 = 48;
/// Bits of the longest keys that a hash table may hold.
pub const EXACT_WIDEST: u16 = 128;
/// `TL_BUCKET`: entries of the largest bucket.
pub const BUCKET: usize = 8;
/// A cache line, bytes: roots are aligned to it, and a node that fits one does not straddle two.
pub const LINE: u32 = 64;

/// `struct tl_image`, at offset 0.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct ImageHeader {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// Size of this header, bytes.
    pub header_bytes: u16,
    /// Size of the image, bytes.
    pub size: u64,
    /// Slots in the directory.
    pub tables: u32,
    /// Number of writers that opened this image so far.
    pub generation: u32,
    /// 0.
    pub reserved: [u32; 10],
}

/// `struct tl_table`, in the 64 bytes before a root.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct TableHeader {
    /// Value of the prefix of length 0; 0 = none. Each change counts in the table's directory entry before and after it is stored.
    pub fallback: u32,
    /// 4, 6 or 0: [`crate::Address::FAMILY`]. With [`EXACT`] if there is a hash table.
    pub key_family: u8,
    /// Address bits that index the root.
    pub root_bits: u8,
    /// Width of the keys.
    pub key_bits: u16,
    /// Prefixes in the table.
    pub prefixes: u32,
    /// `4 << root_bits`.
    pub root_bytes: u32,
    /// Entries of the palette behind the root: 0 or [`PALETTE`].
    pub palette: u32,
    /// The hash table of the prefixes of full length, in the form of a root word; 0 = none.
    pub exact: u32,
    /// Of the hash.
    pub multiplier: [u64; 2],
    /// Which of a key's first 64 bits are to be [`TableHeader::first`].
    pub mask: u64,
    /// 0 outside the mask.
    pub first: u64,
    /// 0.
    pub reserved: [u32; 2],
}

const _: () = {
    assert!(size_of::<ImageHeader>() == DIRECTORY as usize && size_of::<TableHeader>() == 64);
    assert!(offset_of!(ImageHeader, size) == 8);
    assert!(offset_of!(ImageHeader, tables) == 16 && offset_of!(ImageHeader, generation) == 20);
    assert!(offset_of!(TableHeader, key_family) == 4 && offset_of!(TableHeader, prefixes) == 8);
};

/// The keys of a table, as its header says: [`TableHeader::key_family`] and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// 4, 6 or 0: [`crate::Address::FAMILY`].
    pub family: u8,
    /// Their width.
    pub key_bits: u16,
    /// Whether those of full length may stand in a hash table.
    pub has_exact: bool,
}

impl Keys {
    /// Those of the header whose word at `key_family` is `word`.
    #[inline(always)]
    pub const fn of(word: u32) -> Self {
        let family = word as u8;
        Self { family: family & !EXACT, key_bits: (word >> 16) as u16, has_exact: family & EXACT != 0 }
    }
}

/// A kind of bitmap node: how many key bits it consumes and how long its bitmap is. (`struct tl_node6`, `struct tl_node8`.) A table's
/// family decides it, and with it the meaning of all kind bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The number in a ref's kind bits.
    pub id: u32,
    /// Key bits it consumes.
    pub stride: u16,
    /// Offset of `ref[0]`, behind the 64-bit words of `starts`, bytes.
    pub refs: u32,
    /// Whether kind 0 is [`DIRECT12`]: in tables of IPv6.
    has_direct: bool,
}

/// `TL_NODE6`.
pub const NODE6: Kind = Kind { id: 0, stride: 6, refs: 8, has_direct: false };
/// `TL_NODE8` of tables of other keys than addresses.
pub const NODE8: Kind = Kind { id: 1, stride: 8, refs: 40, has_direct: false };
/// `TL_NODE8` of tables of IPv6.
pub const NODE8_IPV6: Kind = Kind { has_direct: true, ..NODE8 };
/// Offset of a node8's `before`, four bytes.
pub const NODE8_BEFORE: u32 = 32;

/// `TL_LEAF6`: a [`NODE6`] of values, each one byte.
pub const LEAF6: u32 = 1;
/// `TL_PALETTE`: values in a palette; the first is 0.
pub const PALETTE: usize = 256;
/// `TL_RANGES`.
pub const RANGES: u32 = 2;
/// `TL_RANGES_STARTS`.
pub const RANGES_STARTS: usize = 8;
/// Bytes before a ranges node's values.
pub const RANGES_VALUES: u32 = 2 * RANGES_STARTS as u32;
/// Key bits that a ranges node covers: all that are left, or all that any prefix here looks at.
pub const RANGES_BITS: u16 = 16;
/// `TL_RANGES32`.
pub const RANGES32: u32 = 0;
/// `TL_RANGES32_STARTS`.
pub const RANGES32_STARTS: usize = 7;
/// Runs of a ranges32 node.
pub const RANGES32_RUNS: usize = RANGES32_STARTS + 1;
/// Bytes before the refs of a ranges32 node.
pub const RANGES32_REFS: u32 = 4 * RANGES32_STARTS as u32;
/// Key bits that a ranges32 node consumes.
pub const RANGES32_BITS: u16 = 32;

/// `TL_DIRECT12`.
pub const DIRECT12: u32 = 0;
/// Key bits that a direct12 consumes.
pub const DIRECT_BITS: u16 = 12;
/// Its size in [`UNIT`]s.
pub const DIRECT_UNITS: u32 = (4 << DIRECT_BITS) / UNIT;

/// `TL_LEAF8`: a [`NODE8`] of values, each one byte.
pub const LEAF8: u32 = 3;

/// `TL_SKIP`.
pub const SKIP: u32 = 2;
/// `TL_SKIP_MAX`, bits.
pub const SKIP_MAX: u16 = 96;
/// `TL_SKIP_SHORT`, bits.
pub const SKIP_SHORT: u16 = 32;
/// `TL_SKIP_LEN`: mask of a skip's `len`, whatever an image says.
pub const SKIP_LEN: u32 = 127;
/// A chain this long, in bits, becomes a skip where ranges do not fit; a shorter one does for a lone prefix.
pub const SKIP_MIN: u16 = 16;

/// `struct tl_skip`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Skip {
    /// Value for all other keys; 0 = none.
    pub otherwise: u32,
    /// Key bits that lead to `next`, left-aligned. If they are more than [`SKIP_SHORT`], 64 more follow this, low half first.
    pub bits: u32,
    /// The number of all those bits.
    pub len: u32,
    /// Ref.
    pub next: u32,
}

/// Bits 30..29 of a ref to a node.
pub const fn kind_of(entry: u32) -> u32 {
    (entry & !REF_NODE) >> REF_KIND_SHIFT
}

/// The ref to a node of kind `id` at `unit`.
pub const fn node_ref(id: u32, unit: u32) -> u32 {
    REF_NODE | id << REF_KIND_SHIFT | unit
}

impl Kind {
    /// The kind of the bitmap nodes of a table of this family.
    pub const fn of_family(family: u8) -> Self {
        match family {
            4 => NODE6,
            6 => NODE8_IPV6,
            _ => NODE8,
        }
    }

    /// The number in a ref's kind bits if all refs are values of the table's palette, a byte each.
    pub const fn leaf(self) -> u32 {
        if self.stride == NODE6.stride { LEAF6 } else { LEAF8 }
    }

    /// Size of a node of `runs` runs, in [`UNIT`]s.
    pub const fn units(self, runs: u32) -> u32 {
        (self.refs + 4 * runs).div_ceil(UNIT)
    }

    /// Whether `entry` leads to a direct12.
    pub const fn is_direct(self, entry: u32) -> bool {
        self.has_direct && entry & REF_NODE != 0 && kind_of(entry) == DIRECT12
    }

    /// 64-bit words of `starts`.
    pub const fn words(self) -> u32 {
        (1 << self.stride) / 64
    }
}
