//! Real packets over queues: a headend of the kernel's, and behind it a device whose program steers as a NIC would.
//!
//! ```text
//!   gen            headend                    node
//!   g0 ─────────── h0   kernel, seg6   h1 ─── n0   steer ── cpumap ── arrive, on the queue's CPU
//! ```

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use trieline_testbed::{
    command,
    namespace::{End, Namespace, mac, veth},
};

use super::{
    balance,
    document::Order,
    fields::Fields,
    flows::{Flows, HEADEND, SID},
    toeplitz::Words,
};
use crate::{
    Context,
    error::{During, Error, Result},
    flow_sender::{FlowSender, ORDER},
    measure::rounded,
    netns,
    object::{self, Compiled, compiled, get, types},
};

/// Packets that are on their way at once: fewer than a CPU map's queue holds.
const BATCH: u64 = 4096;
const QUEUE: u32 = 2 * BATCH as u32;
const COMPILED: fn() -> Compiled = || compiled!("rss");
const MACS: [[u8; 6]; 4] =
    [[2, 0x72, 0x73, 0, 0, 1], [2, 0x72, 0x73, 0, 0, 2], [2, 0x72, 0x73, 0, 0, 3], [2, 0x72, 0x73, 0, 0, 4]];

/// The headend's work on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headend {
    /// Forwards them.
    Forward,
    /// Encapsulates them for one SID, with the outer flow label 0 (`net.ipv6.seg6_flowlabel=0`, the default).
    ZeroLabel,
    /// Likewise with a label that it computes from each flow (`seg6_flowlabel=1`).
    HashLabel,
}

/// The packets to send.
pub struct Stream<'a> {
    /// The flows.
    pub flows: &'a Flows,
    /// The flow of each packet, over and over.
    pub order: Vec<u32>,
    /// The key of the hash.
    pub words: Words,
    /// How many packets.
    pub packets: u64,
}

/// The namespaces with the programs; dropping removes them.
pub struct Bed {
    source: Namespace,
    headend: Namespace,
    out: u32,
    object: Object,
    cpus: [usize; 2],
    _steer: Link,
    _node: Namespace,
}

impl Bed {
    /// Makes everything; the two queues are served by the first and the last CPU.
    pub fn create(context: &Context) -> Result<Bed> {
        context.progress.phase("namespaces", 0);
        let cpus = netns::two_cpus()?;
        let (source, headend, node) =
            (netns::create("gen")?, netns::create("headend")?, netns::create("node")?);
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/default/accept_dad", "0"),
        ] {
            headend.write_sysctl(&format!("net/{key}"), value)?;
        }
        for quiet in [&source, &node] {
            quiet.write_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
            quiet.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        let end = |namespace, device, n: usize| End { namespace, device, mac: MACS[n] };
        veth(end(&source, "g0", 0), end(&headend, "h0", 1))?;
        veth(end(&headend, "h1", 2), end(&node, "n0", 3))?;
        for (namespace, device) in [(&source, "g0"), (&headend, "h0"), (&headend, "h1"), (&node, "n0")] {
            namespace.ip_words(&["link", "set", device, "up"])?;
            // GRO gives a veth end its NAPI: without one it takes no XDP frames.
            let _inside = namespace.enter_here()?;
            command::output("ethtool", &["-K", device, "gro", "on"])?;
        }
        let to = mac(MACS[3]);
        for line in [
            "address add 198.51.100.1/24 dev h0".to_owned(),
            "address add 192.0.2.1/24 dev h1".into(),
            format!("address add {HEADEND}/64 dev h1 nodad"),
            format!("neigh replace 192.0.2.2 lladdr {to} dev h1 nud permanent"),
            format!("neigh replace 2001:db8:ffff::2 lladdr {to} dev h1 nud permanent"),
            format!("route add {SID}/128 via 2001:db8:ffff::2 dev h1"),
            format!("sr tunsrc set {HEADEND}"),
        ] {
            headend.ip_words(&line.split(' ').collect::<Vec<_>>())?;
        }
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        let arrive = compiled.program(&object, "arrive")?.as_fd().as_raw_fd();
        let map = compiled.map(&object, "cpus")?;
        for cpu in cpus {
            let value = [QUEUE.to_ne_bytes(), arrive.to_ne_bytes()].concat();
            map.update(&(cpu as u32).to_ne_bytes(), &value, MapFlags::ANY)
                .during(|| format!("cannot put CPU {cpu} into the CPU map"))?;
        }
        let steer = {
            let index = node.ifindex("n0")?;
            let _inside = node.enter_here()?;
            let program = compiled.program_mut(&object, "steer")?;
            program.attach_xdp(index as i32).during(|| "cannot attach the steering program to n0".into())?
        };
        let out = source.ifindex("g0")?;
        Ok(Bed { source, headend, out, object, cpus, _steer: steer, _node: node })
    }

    fn set(&self, headend: Headend) -> Result<()> {
        let label = if headend == Headend::HashLabel { "1" } else { "0" };
        self.headend.write_sysctl("net/ipv6/seg6_flowlabel", label)?;
        let route = match headend {
            Headend::Forward => "route replace default via 192.0.2.2 dev h1".to_owned(),
            _ => format!("route replace default encap seg6 mode encap segs {SID} dev h1"),
        };
        self.headend.ip_words(&route.split(' ').collect::<Vec<_>>())?;
        Ok(())
    }

    fn write(&self, section: &str, bytes: &[u8]) -> Result<()> {
        object::write(&COMPILED().map(&self.object, section)?, bytes)
    }

    fn read(&self, section: &str) -> Result<Vec<u8>> {
        object::read(&COMPILED().map(&self.object, section)?)
    }

    /// Sends the packets, steered over two queues. An error unless each one arrives, at the queue that the hash says.
    pub fn run(&self, fields: Fields, headend: Headend, stream: &Stream, context: &Context) -> Result<Order> {
        let Stream { flows, order, words, packets } = stream;
        let packets = *packets;
        context.check()?;
        self.set(headend)?;
        let table = balance::equal(2);
        let cpus: Vec<u8> = table.iter().flat_map(|queue| (self.cpus[*queue] as u32).to_ne_bytes()).collect();
        let mut run = vec![0; size_of::<types::lab_rss_run>()];
        let at = std::mem::offset_of!(types::lab_rss_run, fields);
        run[at..at + 4].copy_from_slice(&fields.number().to_ne_bytes());
        let frames: Vec<Vec<u8>> =
            (0..).zip(&flows.list).map(|(n, flow)| flow.frame(n, MACS[0], MACS[1])).collect();
        let order: Vec<u32> = order.iter().copied().cycle().take(ORDER).collect();
        let sender = FlowSender::new(&frames, &order)?;
        self.write(".bss.run", &run)?;
        self.write(".bss.toeplitz", &words.bytes())?;
        self.write(".bss.spread", &cpus)?;
        for section in [".bss.flows", ".bss.arrived"] {
            self.write(section, &[])?;
        }
        let mut sent = 0;
        while sent < packets {
            context.check()?;
            let count = BATCH.min(packets - sent);
            sender.send(&self.source, self.out, count, None)?;
            sent += count;
            self.settle(fields, sent)?;
            context.progress.advance(count);
        }
        let mut expected = vec![0; flows.list.len()];
        for flow in order.iter().cycle().take(packets as usize) {
            expected[*flow as usize] += 1;
        }
        self.result(fields, headend, stream, &expected)
    }

    /// Waits until all packets sent have come out of the queues.
    fn settle(&self, fields: Fields, sent: u64) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            let got = numbers(&self.read(".bss.arrived")?).iter().sum::<u64>();
            if got == sent {
                return Ok(());
            }
            if Instant::now() > until {
                let run = self.read(".bss.run")?;
                let what = format!(
                    "behind the queues chosen by {} ({} steered, {} of others)",
                    fields.name(),
                    get!(run, lab_rss_run.steered),
                    get!(run, lab_rss_run.other)
                );
                return Err(Error::Packets { what, got, expected: sent });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Compares what came with what must have come.
    fn result(&self, fields: Fields, headend: Headend, stream: &Stream, expected: &[u64]) -> Result<Order> {
        let Stream { flows, words, .. } = stream;
        let bytes = self.read(".bss.flows")?;
        let records: Vec<Vec<u64>> =
            bytes.chunks(size_of::<types::lab_rss_flow>()).map(numbers).take(flows.list.len()).collect();
        let table = balance::equal(2);
        let mut by_hash = [0; 2];
        let mut labels = BTreeSet::new();
        let (mut reordered, mut flows_reordered, mut arrived_flows) = (0, 0, 0);
        for (n, (record, expected)) in records.iter().zip(expected).enumerate() {
            // In the order of the struct: received, reordered, next, label.
            let [received, late, _, label] = record[..] else { continue };
            if received != *expected {
                let what = format!("of flow {n} by {}", fields.name());
                return Err(Error::Packets { what, got: received, expected: *expected });
            }
            let mut flow = flows.list[n];
            flow.outer.source = HEADEND;
            flow.outer.destination = SID;
            flow.outer.label = u32::from_be(label as u32);
            by_hash[table[balance::entry(words.hash(&fields.input(&flow)))]] += received;
            labels.insert((received > 0).then_some(label));
            reordered += late;
            flows_reordered += usize::from(late > 0);
            arrived_flows += usize::from(received > 0);
        }
        let arrived = numbers(&self.read(".bss.arrived")?);
        let per_queue = self.cpus.map(|cpu| arrived[cpu]);
        for (queue, (got, expected)) in per_queue.into_iter().zip(by_hash).enumerate() {
            if fields != Fields::Packet && got != expected {
                let what = format!("at queue {queue} by {}", fields.name());
                return Err(Error::Packets { what, got, expected });
            }
        }
        let packets = per_queue.iter().sum();
        Ok(Order {
            fields,
            flow_label: match headend {
                Headend::Forward => None,
                Headend::ZeroLabel => Some("zero"),
                Headend::HashLabel => Some("hash"),
            },
            labels: (headend != Headend::Forward).then(|| labels.iter().flatten().count()),
            queues: 2,
            flows: arrived_flows,
            packets,
            per_queue: per_queue.to_vec(),
            packet_share: rounded(balance::largest(&per_queue.map(|n| n as f64)), 3),
            reordered,
            flows_reordered,
        })
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    (0..bytes.len() / 8).map(|n| object::word(bytes, n * 8)).collect()
}
