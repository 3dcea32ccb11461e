//! Actions and adjacencies: what the values in the prefix tables stand for.
//!
//! The XDP program reads `actions[value]` as one word and follows it to `adjacencies[index]`. A new record is written where no
//! action leads to, then the word is stored; the record before is used again after a grace period. So a packet sees the
//! whole old or the whole new header, and no route's value changes when a neighbour does.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::VERDICTS;
use crate::error::{Error, Result};
use crate::layout::{tl_action, tl_action_kind, tl_adjacency, tl_verdict};
use trieline_bpf::Mapping;

/// EtherType of an 802.1Q tag, as in the frame.
const TPID: [u8; 2] = [0x81, 0x00];
/// IPv6 header and an SRH with one segment.
const OUTER_BYTES: usize = 64;

/// What happens to packets whose longest match has this action's number as its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The kernel does it.
    Pass(PassReason),
    /// Dropped.
    Drop(DropReason),
    /// Forwarded.
    Forward(Adjacency),
    /// SRv6 H.Encaps (RFC 8986 5.1): an outer header is pushed.
    Encaps {
        /// Towards the first segment. `mtu` is that of the encapsulated packet.
        adjacency: Adjacency,
        /// IPv6 header and SRH of one segment, 64 bytes, as they leave over an IPv4 packet. The payload length and the SRH's next
        /// header are filled in for each packet; over an IPv6 packet also traffic class, flow label and hop limit.
        outer: Vec<u8>,
    },
    /// SRv6 End.DX4 (RFC 8986 4.5): outer headers are removed.
    EndDx4 {
        /// Where the inner packet goes; `None`: as the port's IPv4 table says for its destination.
        adjacency: Option<Adjacency>,
    },
    /// Looked up again, in another view ([`crate::Rules`]), whose action is the packet's; not more than once.
    Table(u32),
}

/// Why the kernel gets a packet that a route matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassReason {
    /// Address of this node.
    Local,
    /// Unreachable route: the kernel answers.
    Unreachable,
    /// Prohibit route: the kernel answers.
    Prohibit,
    /// The next hop's link-layer address is not known: the kernel resolves it.
    Unresolved,
    /// A route only the kernel can follow.
    Unsupported,
}

/// Why a packet that a route matches is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Blackhole route.
    Blackhole,
}

/// Next hop on a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Adjacency {
    /// Device that sends: for a VLAN device the one below it, with `vlan`. Must be given to the dataplane
    /// ([`crate::Dataplane::set_device`]).
    pub ifindex: u32,
    /// Largest IP packet.
    pub mtu: u16,
    /// MAC address of the next hop.
    pub destination: [u8; 6],
    /// MAC address of the device.
    pub source: [u8; 6],
    /// 802.1Q tag to send with, 1 … 4094.
    pub vlan: Option<u16>,
}

const PASS: [(PassReason, tl_verdict); 5] = [
    (PassReason::Local, tl_verdict::TL_PASS_LOCAL),
    (PassReason::Unreachable, tl_verdict::TL_PASS_UNREACHABLE),
    (PassReason::Prohibit, tl_verdict::TL_PASS_PROHIBIT),
    (PassReason::Unresolved, tl_verdict::TL_PASS_UNRESOLVED),
    (PassReason::Unsupported, tl_verdict::TL_PASS_UNSUPPORTED),
];

impl PassReason {
    pub(crate) fn verdict(self) -> u8 {
        PASS.iter().find(|(reason, _)| *reason == self).map_or(0, |(_, verdict)| verdict.0 as u8)
    }

    /// Name of the verdict its packets are counted under.
    pub fn name(self) -> &'static str {
        VERDICTS[usize::from(self.verdict())].name
    }
}

impl DropReason {
    pub(crate) fn verdict(self) -> u8 {
        match self {
            DropReason::Blackhole => tl_verdict::TL_DROP_BLACKHOLE.0 as u8,
        }
    }

    /// Name of the verdict its packets are counted under.
    pub fn name(self) -> &'static str {
        VERDICTS[usize::from(self.verdict())].name
    }
}

/// An action as its word.
pub(crate) fn pack(kind: tl_action_kind, verdict: u8, adjacency: u32) -> u64 {
    let action = tl_action { kind: kind.0 as u8, verdict, reserved: 0, adjacency };
    // As `struct tl_action` lies in memory, whatever the byte order.
    let mut bytes = [0; 8];
    bytes[0] = action.kind;
    bytes[1] = action.verdict;
    bytes[4..].copy_from_slice(&action.adjacency.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn unpack(word: u64) -> (tl_action_kind, u8, u32) {
    let b = word.to_ne_bytes();
    (tl_action_kind(u32::from(b[0])), b[1], u32::from_ne_bytes([b[4], b[5], b[6], b[7]]))
}

pub(crate) fn record(adjacency: &Adjacency, outer: &[u8]) -> tl_adjacency {
    let mut record = tl_adjacency {
        ifindex: adjacency.ifindex,
        mtu: adjacency.mtu,
        outer_len: outer.len() as u16,
        ..Default::default()
    };
    record.macs[..6].copy_from_slice(&adjacency.destination);
    record.macs[6..].copy_from_slice(&adjacency.source);
    if let Some(vid) = adjacency.vlan {
        let [high, low] = vid.to_be_bytes();
        record.tag = u32::from_ne_bytes([TPID[0], TPID[1], high, low]);
    }
    record.outer[..outer.len()].copy_from_slice(outer);
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

/// The two maps, mapped.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) actions: Mapping,
    pub(crate) adjacencies: Mapping,
    pub(crate) action_count: u32,
    pub(crate) adjacency_count: u32,
}

impl Records {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.actions.words64(self.action_count as usize)
    }

    /// The words of one record.
    pub(crate) fn record(&self, index: u32) -> Option<&[AtomicU64]> {
        let words = size_of::<tl_adjacency>() / 8;
        let all = self.adjacencies.words64(self.adjacency_count as usize * words);
        all.chunks_exact(words).nth(index as usize)
    }

    fn read(&self, index: u32) -> Option<tl_adjacency> {
        let mut bytes = [0u8; size_of::<tl_adjacency>()];
        for (to, from) in bytes.chunks_exact_mut(8).zip(self.record(index)?) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
        Some(unsafe { std::mem::transmute::<[u8; size_of::<tl_adjacency>()], tl_adjacency>(bytes) })
    }

    pub(crate) fn write(&self, index: u32, record: &tl_adjacency) {
        // SAFETY: as above; the struct has no padding (128 bytes of fields, asserted in intf.h's static assert).
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<tl_adjacency>())
        };
        if let Some(words) = self.record(index) {
            for (to, from) in words.iter().zip(bytes.chunks_exact(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(from);
                to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }
    }

    /// The action of that number.
    pub(crate) fn action(&self, id: u32) -> Option<Action> {
        let (kind, verdict, index) = unpack(self.words().get(id as usize)?.load(Ordering::Acquire));
        match kind {
            tl_action_kind::TL_ACTION_VERDICT => {
                if verdict == DropReason::Blackhole.verdict() {
                    return Some(Action::Drop(DropReason::Blackhole));
                }
                PASS.iter().find(|(_, v)| v.0 == u32::from(verdict)).map(|(reason, _)| Action::Pass(*reason))
            }
            tl_action_kind::TL_ACTION_FORWARD => Some(Action::Forward(adjacency_of(&self.read(index)?))),
            tl_action_kind::TL_ACTION_ENCAPS => {
                let record = self.read(index)?;
                let outer = record.outer.get(..usize::from(record.outer_len))?.to_vec();
                Some(Action::Encaps { adjacency: adjacency_of(&record), outer })
            }
            tl_action_kind::TL_ACTION_END_DX4 => {
                Some(Action::EndDx4 { adjacency: Some(adjacency_of(&self.read(index)?)) })
            }
            tl_action_kind::TL_ACTION_END_DX4_TABLE => Some(Action::EndDx4 { adjacency: None }),
            tl_action_kind::TL_ACTION_TABLE => Some(Action::Table(index)),
            _ => None,
        }
    }

    /// Numbers of the actions that are set.
    pub(crate) fn set_actions(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.words()
            .iter()
            .enumerate()
            .map(|(id, word)| (id as u32, word.load(Ordering::Acquire)))
            .filter(|(_, word)| unpack(*word).0 != tl_action_kind::TL_ACTION_NONE)
    }
}

/// Index of the record that a word leads to.
pub(crate) fn record_of(word: u64) -> Option<u32> {
    let (kind, _, index) = unpack(word);
    matches!(
        kind,
        tl_action_kind::TL_ACTION_FORWARD
            | tl_action_kind::TL_ACTION_ENCAPS
            | tl_action_kind::TL_ACTION_END_DX4
    )
    .then_some(index)
}

/// The XDP program pushes headers of one shape.
pub(crate) fn check_outer(outer: &[u8]) -> Result<()> {
    let fits = outer.len() == OUTER_BYTES
        && outer[0] >> 4 == 6
        && outer[6] == 43 // next header: routing
        && outer[41] == 2 // SRH length: one segment
        && outer[42] == 4; // routing type: segment routing
    if fits {
        Ok(())
    } else {
        Err(Error::argument("outer header: must be IPv6 and an SRH of one segment, 64 bytes"))
    }
}
