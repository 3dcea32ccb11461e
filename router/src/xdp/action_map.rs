//! Actions as the XDP program reads them: one word each, and the records that words lead to.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::seg6::{CsidLengths, Flavours};
use crate::xdp::action::{
    Action, Adjacency, DropReason, FlowLabel, Headend, PASS, Shape, Target, endpoint_kind, endpoint_of,
};
use crate::xdp::layout::{
    tl_action, tl_action_kind as Kind, tl_adjacency, tl_adjacency_flags as Flags, tl_dt46, tl_flavour,
    tl_group, tl_limits, tl_long_outer,
};
use trieline_bpf::Mapping;

/// EtherType of an 802.1Q tag, as in the frame.
const TPID: [u8; 2] = [0x81, 0x00];
/// Header bytes that an adjacency itself holds.
pub(crate) const OUTER_MAX: usize = tl_limits::TL_OUTER_MAX.0 as usize;
/// Buckets of a group.
pub(crate) const BUCKETS: usize = tl_limits::TL_BUCKETS.0 as usize;

/// Detail of [`Kind::TL_ACTION_FORWARD`]: to the destination itself.
const ON_LINK: u8 = 1;

/// A word taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) kind: Kind,
    /// Verdict or flavours.
    pub(crate) detail: u8,
    pub(crate) counter: u16,
    pub(crate) index: u32,
}

impl Word {
    pub(crate) fn new(kind: Kind, detail: u8, index: u32) -> Self {
        Self { kind, detail, counter: 0, index }
    }

    /// As `struct tl_action` lies in memory, whatever the byte order.
    pub(crate) fn pack(self) -> u64 {
        let mut bytes = [0; size_of::<tl_action>()];
        bytes[0] = self.kind.0 as u8;
        bytes[1] = self.detail;
        bytes[2..4].copy_from_slice(&self.counter.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.index.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let b = word.to_ne_bytes();
        Self {
            kind: Kind(u32::from(b[0])),
            detail: b[1],
            counter: u16::from_ne_bytes([b[2], b[3]]),
            index: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Index of the adjacency that it leads to.
    pub(crate) fn adjacency(self) -> Option<u32> {
        let leads = match endpoint_of(self.kind) {
            Some((_, shape)) => !matches!(shape, Shape::Port | Shape::Lookup),
            None => {
                matches!(self.kind, Kind::TL_ACTION_FORWARD | Kind::TL_ACTION_ENCAPS | Kind::TL_ACTION_INSERT)
            }
        };
        leads.then_some(self.index)
    }

    /// Index of the group that it leads to.
    pub(crate) fn group(self) -> Option<u32> {
        (self.kind == Kind::TL_ACTION_GROUP).then_some(self.index)
    }
}

/// The content of an action's word, without the record it leads to.
pub(crate) enum Encoded<'a> {
    /// Nothing more.
    Word(Word),
    /// An adjacency, without its index.
    Record(Word, Box<tl_adjacency>, &'a [u8]),
    /// A group.
    Group(&'a [(u16, Action)]),
}

/// The words and records to write for an action.
pub(crate) fn encode(action: &Action) -> Encoded<'_> {
    let lookup = |kind, lookup| Encoded::Word(Word::new(kind, 0, lookup));
    let leads = |kind, adjacency| Encoded::Record(Word::new(kind, 0, 0), Box::new(record(adjacency)), &[]);
    match action {
        Action::Pass(reason) => Encoded::Word(Word::new(Kind::TL_ACTION_VERDICT, reason.verdict(), 0)),
        Action::Drop(reason) => Encoded::Word(Word::new(Kind::TL_ACTION_VERDICT, reason.verdict(), 0)),
        Action::Forward(adjacency) => leads(Kind::TL_ACTION_FORWARD, adjacency),
        Action::Deliver(adjacency) => {
            let word = Word::new(Kind::TL_ACTION_FORWARD, ON_LINK, 0);
            Encoded::Record(word, Box::new(record(adjacency)), &[])
        }
        Action::Encaps { adjacency, outer, headend } => {
            pushes(Kind::TL_ACTION_ENCAPS, adjacency, outer, headend.flags())
        }
        Action::Insert { adjacency, outer } => pushes(Kind::TL_ACTION_INSERT, adjacency, outer, 0),
        Action::Endpoint { endpoint, flavours, target } => {
            let kind = endpoint_kind(*endpoint, target).unwrap_or(Kind::TL_ACTION_NONE);
            encode_endpoint(kind, flavours, target)
        }
        Action::Table(table) => lookup(Kind::TL_ACTION_TABLE, *table),
        Action::Group(members) => Encoded::Group(members),
    }
}

fn encode_endpoint<'a>(kind: Kind, flavours: &Flavours, target: &'a Target) -> Encoded<'a> {
    let (block, node_function) =
        flavours.next_csid.map_or((0, 0), |lengths| (lengths.block, lengths.node_function));
    let word = |index| Word::new(kind, flavours.bits(), index);
    let leads = |record| Encoded::Record(word(0), Box::new(record), &[]);
    match target {
        Target::Port => Encoded::Word(word(u32::from(block) << 8 | u32::from(node_function))),
        Target::Lookup(table) => Encoded::Word(word(*table)),
        Target::Adjacency(adjacency) => {
            leads(tl_adjacency { csid_block: block, csid_function: node_function, ..record(adjacency) })
        }
        Target::Lookups { ipv4, ipv6 } => {
            let lookups = tl_dt46 { lookup4: *ipv4, lookup6: *ipv6, ..Default::default() };
            // SAFETY: both are integers without padding (asserted in intf.h), of one size, all of whose bit patterns are valid.
            leads(unsafe { std::mem::transmute::<tl_dt46, tl_adjacency>(lookups) })
        }
        Target::Device { ifindex, mtu } => {
            leads(tl_adjacency { ifindex: *ifindex, mtu: *mtu, ..Default::default() })
        }
        Target::Insert { adjacency, outer } => pushes(kind, adjacency, outer, 0),
        Target::Encaps { adjacency, outer, headend } => pushes(kind, adjacency, outer, headend.flags()),
    }
}

fn pushes<'a>(kind: Kind, adjacency: &Adjacency, outer: &'a [u8], bits: u8) -> Encoded<'a> {
    let mut record = record(adjacency);
    (record.outer_len, record.flags) = (outer.len() as u16, bits);
    let long = match record.outer.get_mut(..outer.len()) {
        Some(place) => {
            place.copy_from_slice(outer);
            &[][..]
        }
        None => outer,
    };
    Encoded::Record(Word::new(kind, 0, 0), Box::new(record), long)
}

fn record(adjacency: &Adjacency) -> tl_adjacency {
    let mut record = tl_adjacency { ifindex: adjacency.ifindex, mtu: adjacency.mtu, ..Default::default() };
    record.macs[..6].copy_from_slice(&adjacency.destination);
    record.macs[6..].copy_from_slice(&adjacency.source);
    if let Some(vid) = adjacency.vlan {
        let [high, low] = vid.to_be_bytes();
        record.tag = u32::from_ne_bytes([TPID[0], TPID[1], high, low]);
    }
    record
}

fn adjacency_of(record: &tl_adjacency) -> Adjacency {
    let mut adjacency = Adjacency {
        ifindex: record.ifindex,
        mtu: record.mtu,
        destination: [0; 6],
        source: [0; 6],
        vlan: None,
    };
    adjacency.destination.copy_from_slice(&record.macs[..6]);
    adjacency.source.copy_from_slice(&record.macs[6..]);
    if record.tag != 0 {
        let [_, _, high, low] = record.tag.to_ne_bytes();
        adjacency.vlan = Some(u16::from_be_bytes([high, low]));
    }
    adjacency
}

impl Headend {
    fn flags(self) -> u8 {
        let label = match self.label {
            FlowLabel::Inner => 0,
            FlowLabel::Zero => Flags::TL_OUTER_LABEL_NONE.0,
            FlowLabel::Hash => Flags::TL_OUTER_LABEL_HASH.0,
        };
        let bit = |on: bool, flag: Flags| if on { flag.0 } else { 0 };
        (label | bit(self.l2, Flags::TL_OUTER_L2) | bit(self.rfc, Flags::TL_OUTER_RFC)) as u8
    }

    fn of(bits: u8) -> Self {
        let has = |flag: Flags| u32::from(bits) & flag.0 != 0;
        let label = match (has(Flags::TL_OUTER_LABEL_NONE), has(Flags::TL_OUTER_LABEL_HASH)) {
            (true, _) => FlowLabel::Zero,
            (_, true) => FlowLabel::Hash,
            _ => FlowLabel::Inner,
        };
        Self { l2: has(Flags::TL_OUTER_L2), label, rfc: has(Flags::TL_OUTER_RFC) }
    }
}

impl Flavours {
    /// As the XDP program has them.
    fn bits(&self) -> u8 {
        let bit = |on: bool, flag: tl_flavour| if on { flag.0 } else { 0 };
        let bits = bit(self.psp, tl_flavour::TL_END_PSP)
            | bit(self.next_csid.is_some(), tl_flavour::TL_END_NEXT_CSID);
        bits as u8
    }

    fn of(bits: u8, block: u8, node_function: u8) -> Self {
        let has = |flag: tl_flavour| u32::from(bits) & flag.0 != 0;
        let next_csid = has(tl_flavour::TL_END_NEXT_CSID).then_some(CsidLengths { block, node_function });
        Self { psp: has(tl_flavour::TL_END_PSP), next_csid, ..Self::default() }
    }
}

/// A neighbour that packets went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Used {
    /// Device they left by.
    pub ifindex: u32,
    /// Their tag.
    pub vlan: Option<u16>,
    /// MAC address of the neighbour.
    pub destination: [u8; 6],
}

/// The memory of one map, mapped.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) memory: Mapping,
    pub(crate) count: u32,
}

impl Array {
    /// The words of an element of `T`'s size.
    fn element<T>(&self, index: u32) -> Option<&[AtomicU64]> {
        let words = size_of::<T>() / 8;
        self.memory.words64(self.count as usize * words).chunks_exact(words).nth(index as usize)
    }
}

/// The bytes of a record as they lie in memory.
fn bytes(record: &tl_adjacency) -> [u8; size_of::<tl_adjacency>()] {
    // SAFETY: the struct has no padding (128 bytes of fields, asserted in intf.h's static assert).
    unsafe { std::mem::transmute(*record) }
}

fn store(words: &[AtomicU64], bytes: &[u8]) {
    for (to, from) in words.iter().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..from.len()].copy_from_slice(from);
        to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

fn load(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

/// The records that a word leads to, to be used again once no packet reads them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) adjacencies: Vec<u32>,
    pub(crate) long_outers: Vec<u32>,
    pub(crate) groups: Vec<u32>,
}

/// The maps that actions lie in.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) actions: Array,
    pub(crate) adjacencies: Array,
    pub(crate) long_outers: Array,
    pub(crate) groups: Array,
}

impl Records {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.actions.memory.words64(self.actions.count as usize)
    }

    fn adjacency(&self, index: u32) -> Option<tl_adjacency> {
        let bytes = load(self.adjacencies.element::<tl_adjacency>(index)?);
        let bytes: [u8; size_of::<tl_adjacency>()] = bytes.try_into().ok()?;
        // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
        Some(unsafe { std::mem::transmute::<[u8; size_of::<tl_adjacency>()], tl_adjacency>(bytes) })
    }

    /// Neighbours that the program has sent packets to since the last call: those of the first `count` adjacencies.
    pub(crate) fn take_used(&self, count: u32) -> BTreeSet<Used> {
        const WORDS: usize = size_of::<tl_adjacency>() / 8;
        const AT: usize = std::mem::offset_of!(tl_adjacency, used);
        let all = self.adjacencies.memory.words64(count.min(self.adjacencies.count) as usize * WORDS);
        let mut used = BTreeSet::new();
        for (index, words) in (0..).zip(all.chunks_exact(WORDS)) {
            let word = &words[AT / 8];
            // The program writes this byte alone, and the owner no other while an action leads here.
            let mut bytes = [0xff; 8];
            bytes[AT % 8] = 0;
            if word.load(Ordering::Relaxed) & !u64::from_ne_bytes(bytes) == 0 {
                continue;
            }
            word.fetch_and(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            if let Some(record) = self.adjacency(index) {
                let Adjacency { ifindex, vlan, destination, .. } = adjacency_of(&record);
                used.insert(Used { ifindex, vlan, destination });
            }
        }
        used
    }

    pub(crate) fn write_adjacency(&self, index: u32, record: &tl_adjacency) {
        let bytes = bytes(record);
        if let Some(words) = self.adjacencies.element::<tl_adjacency>(index) {
            store(words, &bytes);
        }
    }

    pub(crate) fn write_long(&self, index: u32, outer: &[u8]) {
        if let Some(words) = self.long_outers.element::<tl_long_outer>(index) {
            store(words, outer);
        }
    }

    pub(crate) fn write_group(&self, index: u32, buckets: &[u64; BUCKETS]) {
        if let Some(words) = self.groups.element::<tl_group>(index) {
            words.iter().zip(buckets).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        }
    }

    fn buckets(&self, index: u32) -> Vec<u64> {
        let words = self.groups.element::<tl_group>(index).unwrap_or_default();
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// All that a word leads to.
    pub(crate) fn parts(&self, word: u64) -> Parts {
        let mut parts = Parts::default();
        self.add_parts(Word::unpack(word), &mut parts);
        parts
    }

    fn add_parts(&self, word: Word, parts: &mut Parts) {
        if let Some(index) = word.adjacency() {
            parts.adjacencies.push(index);
            let record = self.adjacency(index);
            parts.long_outers.extend(
                record.filter(|r| usize::from(r.outer_len) > OUTER_MAX).map(|record| record.long_outer),
            );
        }
        if let Some(index) = word.group() {
            parts.groups.push(index);
            // Buckets of one member hold the same word; a group never holds a group.
            for word in BTreeSet::from_iter(self.buckets(index)) {
                let word = Word::unpack(word);
                if word.group().is_none() {
                    self.add_parts(word, parts);
                }
            }
        }
    }

    /// The action of that number.
    pub(crate) fn action(&self, id: u32) -> Option<Action> {
        self.read(self.words().get(id as usize)?.load(Ordering::Acquire))
    }

    fn read(&self, word: u64) -> Option<Action> {
        let word = Word::unpack(word);
        let lookup = word.index;
        Some(match word.kind {
            Kind::TL_ACTION_VERDICT => {
                if word.detail == DropReason::Blackhole.verdict() {
                    Action::Drop(DropReason::Blackhole)
                } else {
                    Action::Pass(PASS.iter().find(|(_, v)| v.0 == u32::from(word.detail))?.0)
                }
            }
            Kind::TL_ACTION_TABLE => Action::Table(lookup),
            Kind::TL_ACTION_GROUP => {
                let mut members: Vec<(u64, u16)> = Vec::new();
                for word in self.buckets(word.index) {
                    match members.last_mut() {
                        Some((last, share)) if *last == word => *share += 1,
                        _ => members.push((word, 1)),
                    }
                }
                let read = |(word, share)| Some((share, self.read(word)?));
                let members: Vec<_> = members.into_iter().filter_map(read).collect();
                Action::Group(members)
            }
            kind => match endpoint_of(kind) {
                Some((endpoint, Shape::Port)) => {
                    let [_, _, block, node_function] = word.index.to_be_bytes();
                    let flavours = Flavours::of(word.detail, block, node_function);
                    Action::Endpoint { endpoint, flavours, target: Target::Port }
                }
                Some((endpoint, Shape::Lookup)) => Action::endpoint(endpoint, Target::Lookup(lookup)),
                _ => self.read_adjacency(word)?,
            },
        })
    }

    fn read_adjacency(&self, word: Word) -> Option<Action> {
        let record = self.adjacency(word.adjacency()?)?;
        let adjacency = adjacency_of(&record);
        let len = usize::from(record.outer_len);
        let outer = match record.outer.get(..len) {
            Some(outer) => outer.to_vec(),
            None => load(self.long_outers.element::<tl_long_outer>(record.long_outer)?).get(..len)?.to_vec(),
        };
        let headend = Headend::of(record.flags);
        Some(match word.kind {
            Kind::TL_ACTION_FORWARD if word.detail == ON_LINK => Action::Deliver(adjacency),
            Kind::TL_ACTION_FORWARD => Action::Forward(adjacency),
            Kind::TL_ACTION_ENCAPS => Action::Encaps { adjacency, outer, headend },
            Kind::TL_ACTION_INSERT => Action::Insert { adjacency, outer },
            kind => {
                let (endpoint, shape) = endpoint_of(kind)?;
                let target = match shape {
                    Shape::Port | Shape::Lookup => return None,
                    Shape::Adjacency => Target::Adjacency(adjacency),
                    Shape::Device => Target::Device { ifindex: record.ifindex, mtu: record.mtu },
                    Shape::Insert => Target::Insert { adjacency, outer },
                    Shape::Encaps => Target::Encaps { adjacency, outer, headend },
                    Shape::Lookups => {
                        // SAFETY: as in `encode_endpoint`.
                        let lookups = unsafe { std::mem::transmute::<tl_adjacency, tl_dt46>(record) };
                        Target::Lookups { ipv4: lookups.lookup4, ipv6: lookups.lookup6 }
                    }
                };
                let flavours = Flavours::of(word.detail, record.csid_block, record.csid_function);
                Action::Endpoint { endpoint, flavours, target }
            }
        })
    }

    /// Whether the action of that number is `action`, word for word and byte for byte; counters are left out.
    pub(crate) fn holds(&self, id: u32, action: &Action) -> bool {
        let word = self.words().get(id as usize).map(|word| word.load(Ordering::Acquire));
        word.is_some_and(|word| self.is(Word::unpack(word), action))
    }

    fn is(&self, found: Word, action: &Action) -> bool {
        let alike = |word: &Word| (word.kind, word.detail) == (found.kind, found.detail);
        match encode(action) {
            Encoded::Word(word) => alike(&word) && word.index == found.index,
            Encoded::Record(word, record, long) => {
                let Some(there) = self.adjacency(found.index).filter(|_| alike(&word)) else { return false };
                let outer = self.long_outers.element::<tl_long_outer>(there.long_outer).map(load);
                let same_outer =
                    long.is_empty() || outer.is_some_and(|outer| outer.get(..long.len()) == Some(long));
                // The program sets the one, and the owner chooses the other.
                let (used, long_outer) = (there.used, there.long_outer);
                same_outer && bytes(&there) == bytes(&tl_adjacency { used, long_outer, ..*record })
            }
            Encoded::Group(members) => {
                let weights: Vec<u16> = members.iter().map(|(weight, _)| *weight).collect();
                let owners = members.iter().zip(shares(&weights));
                let owners = owners.flat_map(|((_, member), share)| std::iter::repeat_n(member, share));
                let buckets = self.buckets(found.index);
                found.kind == Kind::TL_ACTION_GROUP
                    && buckets.len() == BUCKETS
                    && buckets.iter().zip(owners).all(|(word, member)| self.is(Word::unpack(*word), member))
            }
        }
    }

    /// Numbers of the actions that are set.
    pub(crate) fn set_actions(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.words()
            .iter()
            .enumerate()
            .map(|(id, word)| (id as u32, word.load(Ordering::Acquire)))
            .filter(|(_, word)| Word::unpack(*word).kind != Kind::TL_ACTION_NONE)
    }
}

/// How many of a group's buckets each weight gets: in proportion, the largest remainders rounded up, at least one.
pub(crate) fn shares(weights: &[u16]) -> Vec<usize> {
    let sum: usize = weights.iter().map(|w| usize::from(*w)).sum::<usize>().max(1);
    let exact = |weight: u16| usize::from(weight) * BUCKETS;
    let mut shares: Vec<usize> = weights.iter().map(|w| (exact(*w) / sum).max(1)).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(exact(weights[*i]) % sum));
    let mut given: usize = shares.iter().sum();
    for i in order.into_iter().cycle().take(BUCKETS * weights.len().max(1)) {
        if given == BUCKETS {
            break;
        }
        if given < BUCKETS {
            (shares[i], given) = (shares[i] + 1, given + 1);
        } else if shares[i] > 1 {
            (shares[i], given) = (shares[i] - 1, given - 1);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights() {
        assert_eq!(shares(&[1]), [128]);
        assert_eq!(shares(&[1, 1]), [64, 64]);
        assert_eq!(shares(&[3, 1]), [96, 32]);
        assert_eq!(shares(&[1, 1, 1]).iter().sum::<usize>(), 128);
        assert_eq!(shares(&[1, 256]), [1, 127]);
        assert_eq!(shares(&[1; 128]), [1; 128]);
        let mixed = shares(&[256, 1, 1, 1, 100]);
        assert_eq!(mixed.iter().sum::<usize>(), 128);
        assert!(mixed.iter().all(|share| *share >= 1));
    }

    #[test]
    fn words_match_the_header() {
        let word = Word { kind: Kind::TL_ACTION_END_X, detail: 2, counter: 0x1234, index: 0xfedc_ba98 };
        let back = Word::unpack(word.pack());
        assert_eq!((back.kind, back.detail, back.counter, back.index), (word.kind, 2, 0x1234, 0xfedc_ba98));
        assert_eq!(word.pack() & 0xff, u64::from(Kind::TL_ACTION_END_X.0), "the program reads the low byte");
    }
}
