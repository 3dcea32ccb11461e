//! The structs of `bpf/intf.h`: how Rust reads and writes them as bytes.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, SocketAddr};

use crate::backend::Backend;
use crate::filter::{Filter, network_namespace};
pub(crate) use crate::intf::{
    tr_config, tr_cpu, tr_identity, tr_inside, tr_payload, tr_record, tr_ring, tr_stamp, tr_stamps, tr_traced,
};
use crate::intf::{tr_point, tr_who};
use crate::options::{Client, Options};
use crate::record::{Ends, Flags, Kind, Point, Record, Socket, Transport};

/// 64-bit words of a record.
pub(crate) const RECORD_WORDS: usize = size_of::<tr_record>() / 8;
/// 64-bit words of a ring, before its records.
pub(crate) const RING_WORDS: usize = offset_of!(tr_ring, records) / 8;
/// 64-bit words of a CPU's state.
pub(crate) const CPU_WORDS: usize = size_of::<tr_cpu>() / 8;

/// 64-bit words beside a record, where bytes are captured, before those.
pub(crate) const PAYLOAD_WORDS: usize = offset_of!(tr_payload, bytes) / 8;
/// Bytes of a message that can be captured at most.
pub(crate) const CAPTURE_MAX: u32 = (size_of::<tr_payload>() - offset_of!(tr_payload, bytes)) as u32;

// Records are read word by word.
const _: () = {
    assert!(PAYLOAD_WORDS == 1 && offset_of!(tr_payload, captured) == 0);
    assert!(
        size_of::<tr_record>() == 40 && offset_of!(tr_cpu, unnoted) == 0 && offset_of!(tr_ring, claimed) == 0
    );
    assert!(offset_of!(tr_record, time_ns) == 0 && offset_of!(tr_record, socket) == 8);
    assert!(offset_of!(tr_record, id) == 16 && offset_of!(tr_record, who) == 24);
    assert!(offset_of!(tr_record, sequence) == 32 && offset_of!(tr_record, bytes) == 36);
    assert!(cfg!(target_endian = "little"));
};

// Bits of a record's fourth word (`enum tr_who`): two numbers of threads and processes, two of what was seen, and flags.
const PID_BITS: u32 = tr_who::TR_PID_BITS.0;
const KIND_BITS: u32 = tr_who::TR_KIND_BITS.0;
const PROCESS_AT: u32 = tr_who::TR_WHO_PROCESS.0;
const POINT_AT: u32 = tr_who::TR_WHO_POINT.0;
const TRANSPORT_AT: u32 = tr_who::TR_WHO_TRANSPORT.0;
const FLAGS_AT: u32 = tr_who::TR_WHO_FLAGS.0;

/// So many bits of a word, from there on.
fn bits(word: u64, at: u32, count: u32) -> u32 {
    (word >> at) as u32 & ((1 << count) - 1)
}

/// The sequence number in the last word of a record.
pub(crate) fn sequence(last: u64) -> u32 {
    last as u32
}

/// The first word beside a record: how many bytes follow, and the message's position.
pub(crate) fn payload_header(first: u64) -> (u32, u32) {
    (first as u32, (first >> 32) as u32)
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Message,
    /// A socket that was seen for the first time.
    Opened,
    /// A thread that ends.
    Ended,
    /// A process that begins another program.
    Program,
}

/// The kind of a record, and the point of a message; a record without a message gets a point that messages have.
fn what(who: u64) -> (What, Point) {
    let point = bits(who, POINT_AT, KIND_BITS);
    let what = match tr_point(point) {
        tr_point::TR_OPENED => What::Opened,
        tr_point::TR_ENDED => What::Ended,
        tr_point::TR_PROGRAM => What::Program,
        _ => return (What::Message, Point::ALL[point as usize]),
    };
    // These have no point of their own.
    (what, Point::Received)
}

/// The socket in a `struct tr_identity`; `None`: too few bytes, or an address family that is not traced.
pub(crate) fn socket(of: &Record, bytes: &[u8], salt: u64) -> Option<Socket> {
    const IPV4: u16 = 2;
    const UNIX: u16 = 1;
    let port = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let ends = match port(offset_of!(tr_identity, family))? {
        UNIX => {
            let peer = u64::from_le_bytes(*bytes.get(offset_of!(tr_identity, peer)..)?.first_chunk()?);
            Ends::Unix((peer != 0).then_some(peer ^ salt))
        }
        family => {
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
                let [a, b, c, d, ..] = bytes;
                Some(if family == IPV4 { [a, b, c, d].into() } else { IpAddr::from(bytes).to_canonical() })
            };
            let end = |at, port_at| Some(SocketAddr::new(address(at)?, port(port_at)?));
            Ends::Internet {
                local: end(offset_of!(tr_identity, local), offset_of!(tr_identity, local_port))?,
                remote: end(offset_of!(tr_identity, remote), offset_of!(tr_identity, remote_port))?,
            }
        }
    };
    Some(Socket { number: of.socket, transport: of.transport, ends })
}

/// Bytes of a `struct tr_identity`.
const IDENTITY_BYTES: u32 = size_of::<tr_identity>() as u32;

/// Bytes that lie beside each record.
pub(crate) fn payload_bytes(options: &Options) -> u32 {
    let identity = if options.has_streams() { IDENTITY_BYTES } else { 0 };
    PAYLOAD_WORDS as u32 * 8 + options.capture.max(identity)
}

/// A record from its words, and what it is of; `salt` hides the socket's address. `None`: no such transport, which no hook writes.
pub(crate) fn record(words: [u64; RECORD_WORDS], salt: u64) -> Option<(What, Record)> {
    let [time_ns, socket, id, who, last] = words;
    let flags = Flags((who >> FLAGS_AT) as u16);
    let (what, point) = what(who);
    let record = Record {
        time_ns,
        socket: socket ^ salt,
        id: flags.has_id().then_some(id),
        thread: bits(who, 0, PID_BITS),
        process: bits(who, PROCESS_AT, PID_BITS),
        bytes: (last >> 32) as u32,
        point,
        transport: *Transport::ALL.get(bits(who, TRANSPORT_AT, KIND_BITS) as usize)?,
        kind: Kind::Message,
        position: if flags.has_id() { 0 } else { id as u32 },
        flags,
    };
    Some((what, record))
}

/// `struct tr_traced` as bytes.
pub(crate) fn who(filter: &Filter) -> Vec<u8> {
    let mut bytes = vec![0u8; size_of::<tr_traced>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    for (index, process) in filter.processes.iter().enumerate() {
        put(offset_of!(tr_traced, tgid) + 4 * index, &process.to_le_bytes());
    }
    if let Some(comm) = &filter.comm {
        put(offset_of!(tr_traced, comm), comm.as_bytes());
    }
    if let Some(cgroup) = filter.cgroup {
        put(offset_of!(tr_traced, cgroup), &cgroup.number.to_le_bytes());
        put(offset_of!(tr_traced, cgroup_level), &cgroup.level.to_le_bytes());
    }
    put(offset_of!(tr_traced, port), &u32::from(filter.port.unwrap_or(0)).to_le_bytes());
    bytes
}

/// `struct tr_config` as bytes; `slots`: records of a ring; `sent_udp`: UDP is noted when sent; `inside`: the hooks take their own times.
pub(crate) fn config(
    options: &Options,
    backend: Backend,
    slots: u32,
    sent_udp: bool,
    inside: bool,
) -> Vec<u8> {
    let filter = &options.filter;
    let mut bytes = vec![0u8; size_of::<tr_config>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    macro_rules! set {
        ($field:ident, $value:expr) => {
            put(offset_of!(tr_config, $field), &$value.to_le_bytes())
        };
    }
    set!(tgids, filter.processes.len() as u32);
    set!(except, filter.except.unwrap_or(0));
    set!(descendants, u32::from(filter.descendants));
    set!(by_comm, u32::from(filter.comm.is_some()));
    set!(by_cgroup, u32::from(filter.cgroup.is_some()));
    set!(by_port, u32::from(filter.port.is_some()));
    set!(network, network_namespace("thread-self").unwrap_or(0));
    set!(transports, filter.transports.iter().fold(0, |mask, transport| mask | 1u32 << *transport as u32));
    set!(slots_mask, (slots - 1));
    set!(stamp_over, options.stamp.unwrap_or(0));
    if let Some(id) = options.id {
        put(offset_of!(tr_config, id_offset), &id.received.to_le_bytes());
        put(offset_of!(tr_config, id_offset) + 4, &id.sent.to_le_bytes());
        set!(id_bytes, u32::from(id.bytes));
    }
    set!(capture, options.capture);
    set!(stages, u32::from(options.has_streams()));
    let mut clients = 0u32;
    for client in &options.clients {
        match client {
            Client::Process(process) => {
                put(offset_of!(tr_config, client) + 4 * clients as usize, &process.to_le_bytes());
                clients += 1;
            }
            Client::Name(name) => put(offset_of!(tr_config, client_comm), name.as_bytes()),
        }
    }
    set!(clients, clients);
    set!(clients_only, u32::from(options.is_clients_only()));
    set!(inside, u32::from(inside));
    set!(sent_udp, u32::from(sent_udp));
    set!(by_inode, u32::from(backend == Backend::SystemCalls));
    bytes
}

/// Whether a configuration sets only what the plain programs read (`TR_PLAIN` in `bpf/filter.bpf.h`).
pub(crate) fn is_plain(config: &[u8]) -> bool {
    let mut rest = config.to_vec();
    // Arrivals alone ask for the network, and they have ids.
    for at in [
        offset_of!(tr_config, tgids),
        offset_of!(tr_config, except),
        offset_of!(tr_config, transports),
        offset_of!(tr_config, slots_mask),
        offset_of!(tr_config, network),
        offset_of!(tr_config, inside),
        offset_of!(tr_config, sent_udp),
    ] {
        rest[at..at + 4].fill(0);
    }
    rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::IdAt;

    #[test]
    fn only_traces_of_processes_by_their_numbers_are_plain() {
        let of = |options: &Options, backend| is_plain(&config(options, backend, 1 << 16, false, true));
        let filter = Filter { processes: vec![7, 9], except: Some(8), ..Filter::default() };
        let plain = Options::new(filter.clone());
        assert!(of(&plain, Backend::Sockets) && of(&plain, Backend::Functions));
        assert!(!of(&plain, Backend::SystemCalls), "its sockets are numbered by their inodes");
        let id = IdAt { received: 0, sent: 0, bytes: 8 };
        for other in [
            Options { id: Some(id), ..plain.clone() },
            Options { capture: 8, ..plain.clone() },
            Options { stages: true, ..plain.clone() },
            Options { clients: vec![Client::Process(5)], ..plain.clone() },
            Options::new(Filter { descendants: true, ..filter.clone() }),
            Options::new(Filter { comm: Some("broker".into()), ..filter.clone() }),
            Options::new(Filter { port: Some(1883), ..filter }),
        ] {
            assert!(!of(&other, Backend::Sockets), "{other:?}");
        }
    }
}
