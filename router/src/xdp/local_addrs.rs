//! Own addresses as the XDP program asks for them: Linux forwards no IPv4 packet from an address of its own, or from a broadcast
//! address. A set bit means that a source may be one; then the routes decide.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::xdp::damage::Damage;
use trieline_bpf::Mapping;
use trieline_lpm::Prefix;

use crate::xdp::layout::{TL_LOCAL_HASH, tl_flows, tl_limits};

const BITS: usize = tl_limits::TL_LOCAL_BITS.0 as usize;
const WORDS: usize = BITS / 64;
const HASH: u32 = TL_LOCAL_HASH;

/// The bits of a set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddrBits(Box<[u64; WORDS]>);

impl Default for LocalAddrBits {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl LocalAddrBits {
    /// Adds the addresses of a prefix whose packets are this node's. Of a shorter one than an address all bits are set: then each
    /// packet's source is looked up.
    pub fn add(&mut self, prefix: Prefix<u32>) {
        if prefix.len() < 32 {
            self.0.fill(u64::MAX);
            return;
        }
        let bit = prefix.addr().to_be().wrapping_mul(HASH) as usize >> (32 - BITS.ilog2());
        self.0[bit / 64] |= 1 << (bit % 64);
    }
}

/// The fields that distinguish flows when they choose among next hops, by the kernel's settings of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKeys {
    /// `fib_multipath_hash_policy`: 0 addresses, 1 addresses, protocol and ports, 2 those of the packet inside, 3 `fields`.
    pub policy: u8,
    /// `fib_multipath_hash_fields`.
    pub fields: u16,
}

impl Default for FlowKeys {
    /// The kernel's defaults.
    fn default() -> Self {
        Self { policy: 0, fields: 7 }
    }
}

impl FlowKeys {
    fn bits(self) -> u64 {
        u64::from(self.policy) | u64::from(self.fields) << tl_flows::TL_FLOWS_FIELDS.0
    }
}

fn flows_word(v4: FlowKeys, v6: FlowKeys) -> u64 {
    v4.bits() | v6.bits() << tl_flows::TL_FLOWS_FAMILY.0
}

/// The bits that packets meet, and what tells their flows apart.
#[derive(Clone, Debug)]
pub struct LocalAddrs(Arc<Mapping>);

impl LocalAddrs {
    pub(crate) const BYTES: u64 = BITS as u64 / 8 + 8;

    pub(crate) fn new(memory: Mapping) -> Self {
        Self(Arc::new(memory))
    }

    /// Sets the keys that distinguish flows from now on, those of IPv4 and of IPv6.
    pub fn set_flows(&self, v4: FlowKeys, v6: FlowKeys) {
        self.0.words64(WORDS + 1)[WORDS].store(flows_word(v4, v6), Ordering::Relaxed);
    }

    /// Entries that are not these bits and keys, which were set.
    pub fn damage(&self, bits: &LocalAddrBits, [v4, v6]: [FlowKeys; 2]) -> Vec<Damage> {
        let words = self.0.words64(WORDS + 1);
        let (mut missing, mut others) = (0, 0);
        for (found, written) in words.iter().zip(bits.0.iter()) {
            let found = found.load(Ordering::Relaxed);
            missing += (written & !found).count_ones();
            others += (found & !written).count_ones();
        }
        let mut damaged = Vec::new();
        if (missing, others) != (0, 0) {
            let all: u32 = bits.0.iter().map(|word| word.count_ones()).sum();
            let (written, found) =
                (format!("{all} bits"), format!("{missing} of them clear, {others} others"));
            damaged.push(Damage::new("own addresses", Some(written), Some(found)));
        }
        let (written, found) = (flows_word(v4, v6), words[WORDS].load(Ordering::Relaxed));
        if written != found {
            let text = |word: u64| Some(format!("{word:#x}"));
            damaged.push(Damage::new("keys of flows", text(written), text(found)));
        }
        damaged
    }

    /// Packets meet these bits from now on.
    pub fn set(&self, bits: &LocalAddrBits) {
        for (to, from) in self.0.words64(WORDS).iter().zip(bits.0.iter()) {
            to.store(*from, Ordering::Relaxed);
        }
    }
}
