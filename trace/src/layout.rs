//! The structs of `bpf/intf.h`, made from the BTF of the compiled hooks, and how Rust reads and writes them as bytes.

use std::mem::{offset_of, size_of};

/// Generated: the structs by their names in C.
#[allow(
    missing_docs,
    dead_code,
    clippy::all,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
}
pub(crate) use generated::types::{tr_config, tr_cpu, tr_histogram, tr_payload, tr_record};

use crate::hooks::Options;
use crate::record::{Flags, Kind, Point, Record, Transport};

/// 64-bit words of a record.
pub(crate) const RECORD_WORDS: usize = size_of::<tr_record>() / 8;
/// 64-bit words of a CPU's state.
pub(crate) const CPU_WORDS: usize = size_of::<tr_cpu>() / 8;

/// 64-bit words beside a record, where bytes are captured, before those.
pub(crate) const PAYLOAD_WORDS: usize = offset_of!(tr_payload, bytes) / 8;
/// Bytes of a message that can be captured at most.
pub(crate) const CAPTURE_MAX: u32 = (size_of::<tr_payload>() - offset_of!(tr_payload, bytes)) as u32;

// Records are read word by word.
const _: () = {
    assert!(PAYLOAD_WORDS == 1 && offset_of!(tr_payload, captured) == 0);
    assert!(size_of::<tr_record>() == 40 && offset_of!(tr_cpu, claimed) == 0);
    assert!(offset_of!(tr_record, time_ns) == 0 && offset_of!(tr_record, socket) == 8);
    assert!(offset_of!(tr_record, id) == 16 && offset_of!(tr_record, thread) == 24);
    assert!(offset_of!(tr_record, bytes) == 28 && offset_of!(tr_record, sequence) == 32);
    assert!(offset_of!(tr_record, point) == 36 && offset_of!(tr_record, transport) == 37);
    assert!(offset_of!(tr_record, flags) == 38 && cfg!(target_endian = "little"));
};

/// The sequence number in the last word of a record.
pub(crate) fn sequence(last: u64) -> u32 {
    last as u32
}

/// How many bytes follow the first word of what lies beside a record.
pub(crate) fn captured(first: u64) -> u32 {
    first as u32
}

/// A record from its words; `salt` hides the socket's address. `None`: no such point or transport, which no hook writes.
pub(crate) fn record(words: [u64; RECORD_WORDS], salt: u64) -> Option<Record> {
    let [time_ns, socket, id, moved, last] = words;
    let [.., point, transport, low, high] = last.to_le_bytes();
    let flags = Flags(u16::from_le_bytes([low, high]));
    Some(Record {
        time_ns,
        socket: socket ^ salt,
        id: flags.has_id().then_some(id),
        thread: moved as u32,
        bytes: (moved >> 32) as u32,
        point: *Point::ALL.get(usize::from(point))?,
        transport: *Transport::ALL.get(usize::from(transport))?,
        kind: Kind::Message,
        flags,
    })
}

/// `struct tr_config` as bytes; `sent_udp`: UDP is noted when sent.
pub(crate) fn config(options: &Options, sent_udp: bool) -> Vec<u8> {
    let filter = &options.filter;
    let mut bytes = vec![0u8; size_of::<tr_config>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    macro_rules! set {
        ($field:ident, $value:expr) => {
            put(offset_of!(tr_config, $field), &$value.to_le_bytes())
        };
    }
    set!(tgids, filter.processes.len() as u32);
    for (index, process) in filter.processes.iter().enumerate() {
        put(offset_of!(tr_config, tgid) + 4 * index, &process.to_le_bytes());
    }
    set!(descendants, u32::from(filter.descendants));
    if let Some(comm) = &filter.comm {
        put(offset_of!(tr_config, comm), comm.as_bytes());
    }
    if let Some(cgroup) = filter.cgroup {
        set!(cgroup, cgroup.number);
        set!(cgroup_level, cgroup.level);
    }
    set!(port, u32::from(filter.port.unwrap_or(0)));
    set!(transports, filter.transports.iter().fold(0, |mask, transport| mask | 1u32 << *transport as u32));
    set!(slots_mask, (options.slots - 1));
    if let Some(id) = options.id {
        put(offset_of!(tr_config, id_offset), &id.received.to_le_bytes());
        put(offset_of!(tr_config, id_offset) + 4, &id.sent.to_le_bytes());
        set!(id_bytes, u32::from(id.bytes));
    }
    set!(capture, options.capture);
    set!(histogram, u32::from(options.histogram));
    set!(sent_udp, u32::from(sent_udp));
    bytes
}
