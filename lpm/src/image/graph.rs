//! A table of an image laid open, node by node, so that it can be drawn and described.

use super::error::Error;
use super::exact::{Entry, Hash};
use super::layout::{
    DIR_BITS, DIRECT_BITS, DIRECT_UNITS, Kind, NODE6, RANGES, RANGES_BITS, RANGES_VALUES, RANGES32,
    RANGES32_BITS, RANGES32_REFS, REF_NODE, REF_OFFSET, SKIP, Skip, UNIT, kind_of,
};
use super::runs::starts;
use super::verify::{TableReport, names, verify};
use super::walk;
use super::words::{directory, load};
use crate::graph::{Graph, GraphEdge, GraphNode, PathStep, digits};
use crate::{Address, Prefix};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::mem::offset_of;
use core::ops::RangeInclusive;
use core::sync::atomic::AtomicU32;

/// Longest window of key bits whose slots are named by binary digits; longer ones take hexadecimal ones.
const BINARY_MAX: u16 = 8;

/// Which keys go a way.
#[derive(Debug)]
enum Keys {
    /// Those whose next bits are one of these.
    Slots(RangeInclusive<u32>),
    /// Those whose next bits are a skip's: its bits, the first one highest.
    Chain(u128),
    /// Those that no way before this one takes.
    Others,
    /// Those of the hash table's ways.
    Hashed,
}

#[derive(Debug)]
struct Way {
    keys: Keys,
    /// A ref: value, 0 or node; a code stands here as its value.
    entry: u32,
    /// The node that it leads to.
    to: Option<usize>,
}

impl Way {
    fn slots(slots: RangeInclusive<u32>, entry: u32) -> Self {
        Self { keys: Keys::Slots(slots), entry, to: None }
    }

    fn takes<A: Address>(&self, addr: A, at: u16, bits: u16) -> bool {
        match &self.keys {
            Keys::Slots(slots) => slots.contains(&(addr.bits_at(at, bits) as u32)),
            Keys::Chain(chain) => {
                let key =
                    u128::from(addr.word_at(at)) << 64 | u128::from(addr.word_at(at.saturating_add(64)));
                (key ^ chain).leading_zeros() >= bits.into()
            }
            Keys::Others => true,
            Keys::Hashed => false,
        }
    }

    fn label(&self, bits: u16) -> String {
        let slot = |slot: u32| match bits {
            ..=BINARY_MAX => digits(slot as usize, bits),
            _ => format!("0x{slot:0width$x}", width = usize::from(bits.div_ceil(4))),
        };
        match &self.keys {
            Keys::Slots(slots) if slots.start() == slots.end() => slot(*slots.start()),
            Keys::Slots(slots) => format!("{}-{}", slot(*slots.start()), slot(*slots.end())),
            Keys::Chain(chain) if bits <= BINARY_MAX => digits((chain >> (128 - bits)) as usize, bits),
            // Digits for all bits, those past its end being 0.
            Keys::Chain(chain) => {
                let digits = bits.div_ceil(4);
                format!("0x{:0width$x}", chain >> (128 - 4 * digits), width = usize::from(digits))
            }
            Keys::Others => "others".into(),
            Keys::Hashed => "full length".into(),
        }
    }
}

#[derive(Debug)]
struct Node {
    kind: &'static str,
    at: u16,
    bits: u16,
    /// Key bits that are above what its ways lead to.
    end: u16,
    label: Vec<String>,
    /// The value of the prefix of length 0, which the root's header holds.
    fallback: u32,
    ways: Vec<Way>,
}

impl Node {
    /// The slots that the node at the end of a way is for: all, unless both are ranges32 and look at the same bits.
    fn part(&self, way: usize) -> RangeInclusive<u32> {
        match &self.ways[way].keys {
            Keys::Slots(slots) if self.bits == RANGES32_BITS && self.end == self.at => slots.clone(),
            _ => 0..=u32::MAX,
        }
    }
}

/// A table of a sound image as nodes and ways, the root first.
///
/// Neighbouring slots of the same value, and those of none, are one way. A way's label has the first and the last key bits of its
/// slots, up to eight bits in binary (`0010-0101`), more in hexadecimal (`0x1000-0x10ff`).
///
/// ```
/// use trieline_lpm::image::graph::TableGraph;
/// use trieline_lpm::{HeapMemory, Image, Memory, NoReaders, Table};
/// let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 1)?;
/// Table::<u32>::create(&mut image, 0, [("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)])?;
/// let table = TableGraph::new(image.memory().words(), 0)?;
/// let graph = table.graph();
/// assert_eq!(graph.nodes[0].kind, "root");
/// assert_eq!(graph.nodes[0].children[1].label, "00001010");
/// let path = table.path(0x0a01_0001u32);
/// let end = &graph.nodes[path[1].node];
/// assert_eq!(end.children[path[1].edge.unwrap_or(0)].value, Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TableGraph {
    report: TableReport,
    nodes: Vec<Node>,
}

impl TableGraph {
    /// Opens table `id` of the image in `words`, which is checked first and which no writer may change meanwhile. O(bytes of the image);
    /// some 30 bytes a run.
    pub fn new(words: &[AtomicU32], id: u32) -> Result<Self, Error> {
        let report = verify(words)?;
        let tables = report.slots;
        let Some(report) = report.tables.into_iter().find(|table| table.id == id) else {
            return Err(Error::NoSuchTable { id, tables });
        };
        let root = directory(words, id) & !DIR_BITS;
        let palette = root + (4 << report.root_bits);
        let opener =
            Opener { words, kind: Kind::of_family(report.family), names: names(report.family), palette };
        Ok(Self { nodes: opener.table(root, &report), report })
    }

    /// The results of the check.
    pub fn report(&self) -> &TableReport {
        &self.report
    }

    /// Ways of all nodes, those that lead nowhere included.
    pub fn ways(&self) -> usize {
        self.nodes.iter().map(|node| node.ways.len()).sum()
    }

    /// The structure as plain data. Values are those of the slots; no node knows prefixes, but for the root that of length 0.
    pub fn graph(&self) -> Graph {
        let nodes = self.nodes.iter().map(|node| GraphNode {
            kind: node.kind,
            at: node.at,
            bits: node.bits,
            label: node.label.clone(),
            entries: (node.fallback != 0)
                .then(|| (self.default_prefix(), node.fallback))
                .into_iter()
                .collect(),
            children: node
                .ways
                .iter()
                .map(|way| GraphEdge {
                    label: way.label(node.bits),
                    to: way.to,
                    value: (way.to.is_none() && way.entry != 0).then_some(way.entry),
                })
                .collect(),
            ..GraphNode::default()
        });
        Graph { nodes: nodes.collect() }
    }

    /// The prefix of length 0.
    fn default_prefix(&self) -> String {
        match self.report.family {
            4 => Prefix::<u32>::truncated(0, 0).to_string(),
            6 => Prefix::<u128>::truncated(0, 0).to_string(),
            _ => "/0".into(),
        }
    }

    /// The nodes that a lookup of `addr` reads, by the indices of [`TableGraph::graph`]; none if the table has other keys. O(steps × ways).
    pub fn path<A: Address>(&self, addr: A) -> Vec<PathStep> {
        let mut path = Vec::new();
        if self.report.family != A::FAMILY || self.report.key_bits != A::WIDTH {
            return path;
        }
        let mut next = Some(0);
        if let Some(Way { keys: Keys::Hashed, to: Some(hashed), .. }) = self.nodes[0].ways.last() {
            let node = &self.nodes[*hashed];
            if let Some(edge) = node.ways.iter().position(|way| way.takes(addr, node.at, node.bits)) {
                let last = self.nodes[0].ways.len() - 1;
                return vec![
                    PathStep { node: 0, edge: Some(last), back: false },
                    PathStep { node: *hashed, edge: Some(edge), back: false },
                ];
            }
        }
        while let Some(index) = next {
            let node = &self.nodes[index];
            let edge = node.ways.iter().position(|way| way.takes(addr, node.at, node.bits));
            path.push(PathStep { node: index, edge, back: false });
            next = edge.and_then(|edge| node.ways[edge].to);
        }
        path
    }
}

/// Neighbours that hold the same value become one way; a slot that leads to a node is a way of its own.
fn merged(ways: impl IntoIterator<Item = Way>) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    for way in ways {
        if let (Some(Way { keys: Keys::Slots(last), entry, .. }), Keys::Slots(slots)) =
            (all.last_mut(), &way.keys)
            && *entry == way.entry
            && way.entry & REF_NODE == 0
        {
            *last = *last.start()..=*slots.end();
        } else {
            all.push(way);
        }
    }
    all
}

/// Ways by where each starts, in falling order: `entry(n)` is for the slots from `starts[n]` on and the last for those from `first` on.
fn by_starts(starts: &[u32], slots: RangeInclusive<u32>, entry: impl Fn(u32) -> u32) -> Vec<Way> {
    let mut end = *slots.end();
    let mut ways: Vec<Way> = Vec::new();
    for (run, start) in (0..).zip(starts.iter().filter(|start| **start != 0).chain([slots.start()])) {
        ways.push(Way::slots(*start..=end, entry(run)));
        end = start.saturating_sub(1);
    }
    ways.reverse();
    ways
}

/// Reads nodes of a table that has been checked.
struct Opener<'a> {
    words: &'a [AtomicU32],
    kind: Kind,
    /// Of the kinds.
    names: [&'static str; 4],
    palette: u32,
}

impl Opener<'_> {
    fn table(&self, root: u32, report: &TableReport) -> Vec<Node> {
        let bits = report.root_bits;
        let (label, fallback) = (vec![format!("{} bytes", report.root_bytes)], report.fallback);
        let ways = self.slots(root, bits);
        let mut nodes = vec![Node { kind: "root", at: 0, bits, end: bits, label, fallback, ways }];
        let mut done = 0;
        while done < nodes.len() {
            for way in 0..nodes[done].ways.len() {
                let (node, next) = (&nodes[done], nodes.len());
                let entry = node.ways[way].entry;
                if entry & REF_NODE != 0 {
                    let opened = self.node(entry, node.end, node.part(way));
                    nodes[done].ways[way].to = Some(next);
                    nodes.push(opened);
                }
            }
            done += 1;
        }
        if let Some((slots, hash)) = walk::exact(self.words, root) {
            let to = Some(nodes.len());
            nodes.push(self.hashed(slots, &hash));
            nodes[0].ways.push(Way { keys: Keys::Hashed, entry: 0, to });
        }
        nodes
    }

    /// The hash table whose words are at byte offset `slots`, with a way for each of its keys.
    fn hashed(&self, slots: u32, hash: &Hash) -> Node {
        let entries = (0..1usize << hash.bits).flat_map(|slot| {
            let word = load(self.words, slots + 4 * slot as u32);
            hash.entries(self.words, word).map(move |(name, value)| (hash.key(slot, name), value))
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        let way = |([hi, lo], value): Entry| Way {
            keys: Keys::Chain(u128::from(hi) << 64 | u128::from(lo)),
            entry: value,
            to: None,
        };
        Node {
            kind: "hash table",
            at: 0,
            bits: hash.key_bits,
            end: hash.key_bits,
            label: vec![format!("{} words", 1u32 << hash.bits)],
            fallback: 0,
            ways: entries.into_iter().map(way).collect(),
        }
    }

    /// The words of `bits` key bits from byte offset `first` on.
    fn slots(&self, first: u32, bits: u16) -> Vec<Way> {
        merged((0..1u32 << bits).map(|slot| Way::slots(slot..=slot, load(self.words, first + 4 * slot))))
    }

    /// The node that `entry` leads to; `part` is what a ranges32 above leaves to it.
    fn node(&self, entry: u32, at: u16, part: RangeInclusive<u32>) -> Node {
        let (words, id) = (self.words, kind_of(entry));
        let node = (entry & REF_OFFSET) * UNIT;
        let is_v4 = self.kind == NODE6;
        let mut taken = None;
        let (bits, bytes, ways) = match (is_v4, id) {
            _ if self.kind.is_direct(entry) => {
                (DIRECT_BITS, DIRECT_UNITS * UNIT, self.slots(node, DIRECT_BITS))
            }
            (true, RANGES) => {
                let starts: Vec<u32> = walk::ranges_starts(words, node).collect();
                let value = |run| load(words, node + RANGES_VALUES + 4 * run);
                let bytes = RANGES_VALUES + 4 * walk::ranges_values(words, node);
                (RANGES_BITS, bytes, by_starts(&starts, 0..=0xffff, value))
            }
            (false, RANGES32) => {
                let (starts, is_leaf) = walk::ranges32_starts(words, node);
                if !is_leaf {
                    taken = Some(0);
                }
                let value = |run| load(words, node + RANGES32_REFS + 4 * run);
                (RANGES32_BITS, walk::ranges32_bytes(words, node), by_starts(&starts, part, value))
            }
            (false, SKIP) => {
                let field = |field: usize| load(words, node + field as u32);
                let (chain, len) = walk::skip_bits(words, node);
                let next = Way { keys: Keys::Chain(chain), entry: field(offset_of!(Skip, next)), to: None };
                let others = Way { keys: Keys::Others, entry: field(offset_of!(Skip, otherwise)), to: None };
                (len as u16, walk::skip_units(len) * UNIT, vec![next, others])
            }
            _ => {
                let ways = self.bitmap(node, id == self.kind.leaf());
                let units = walk::bitmap_units(entry, self.kind, ways.len() as u32);
                (self.kind.stride, units * UNIT, ways)
            }
        };
        let end = at + taken.unwrap_or(bits);
        Node {
            kind: self.names[id as usize],
            at,
            bits,
            end,
            label: vec![format!("{} bytes", bytes.next_multiple_of(UNIT))],
            fallback: 0,
            ways,
        }
    }

    /// The runs of a bitmap node; of one with codes, what these stand for.
    fn bitmap(&self, node: u32, is_coded: bool) -> Vec<Way> {
        let words = self.words;
        let bits = starts(words, node, self.kind);
        let slots = 1u32 << self.kind.stride;
        let firsts: Vec<u32> =
            (0..slots).filter(|slot| bits[*slot as usize / 64] >> (slot % 64) & 1 != 0).collect();
        let lasts = firsts.iter().skip(1).map(|first| first - 1).chain([slots - 1]);
        let entry = |run: u32| match is_coded {
            true => {
                let at = node + self.kind.refs + run;
                let code = load(words, at & !3) >> (8 * (at % 4)) & 0xff;
                load(words, self.palette + 4 * code)
            }
            false => load(words, node + self.kind.refs + 4 * run),
        };
        let runs = firsts.iter().zip(lasts).zip(0..);
        runs.map(|((first, last), run)| Way::slots(*first..=last, entry(run))).collect()
    }
}
