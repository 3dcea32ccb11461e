//! The flows whose packets are spread over queues: uniform, by the real table's destinations, and with packets after Zipf; inside
//! SRv6 tunnels or not.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    flow_sender::FLOW_AT,
    frames::{ETHERNET, Kind},
    tables::{
        Random, Tables,
        destinations::{forwardable4, random_hosts},
    },
};

/// Where the flows come from, and how many packets each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// Random addresses and ports; each flow has as many packets.
    Uniform,
    /// From hosts of one /16 to random hosts inside prefixes of the table, port 443; each flow has as many packets.
    Table,
    /// The same flows; the n-th has packets in proportion to 1/n.
    Zipf,
}

impl Traffic {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Uniform => "uniform",
            Traffic::Table => "table",
            Traffic::Zipf => "zipf",
        }
    }
}

/// A UDP or TCP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub source: Ipv4Addr,
    /// Receiver.
    pub destination: Ipv4Addr,
    /// Ports of both.
    pub ports: [u16; 2],
    /// The tunnel that it is in.
    pub outer: Outer,
}

/// The outer IPv6 header of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The headend.
    pub source: Ipv6Addr,
    /// The SID.
    pub destination: Ipv6Addr,
    /// The flow label, 20 bits.
    pub label: u32,
}

impl Flow {
    /// The answers' flow. Its label is another one: another headend computes it.
    pub fn answers(self) -> Flow {
        let Outer { source, destination, label } = self.outer;
        let label = label.reverse_bits() >> 12;
        Flow {
            source: self.destination,
            destination: self.source,
            ports: [self.ports[1], self.ports[0]],
            outer: Outer { source: destination, destination: source, label },
        }
    }
}

impl Flow {
    /// Its frame of 60 bytes, from and to these MAC addresses, with its number behind the UDP header.
    pub fn frame(&self, number: u32, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
        let mut blank = Kind::Ipv4.frame(from, to);
        blank.bytes[ETHERNET + 12..ETHERNET + 16].copy_from_slice(&self.source.octets());
        let mut bytes = blank.towards4(self.destination);
        for (at, port) in [20, 22].into_iter().zip(self.ports) {
            bytes[ETHERNET + at..ETHERNET + at + 2].copy_from_slice(&port.to_be_bytes());
        }
        bytes[FLOW_AT..FLOW_AT + 4].copy_from_slice(&number.to_ne_bytes());
        bytes
    }
}

/// Flows with the share of the packets that each has.
pub struct Flows {
    /// The flows.
    pub list: Vec<Flow>,
    /// Shares, which sum to 1.
    pub shares: Vec<f64>,
}

/// The source of every outer header, and the first SID.
pub const HEADEND: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// The SID of the first tunnel, from the block for SIDs (RFC 9602).
pub const SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xe, 0, 0, 0, 0, 1);

/// The addresses of the tunnels: of the first the constants, of each further one a headend and a SID in a random /64.
fn tunnel_addresses(count: usize, random: &mut Random) -> Vec<(Ipv6Addr, Ipv6Addr)> {
    let mut further = |address: Ipv6Addr| {
        Ipv6Addr::from_bits(address.to_bits() & !(0xffff << 64) | (random.bits() as u128 & 0xffff) << 64)
    };
    let first = std::iter::once((HEADEND, SID));
    first.chain(std::iter::repeat_with(|| (further(HEADEND), further(SID)))).take(count.max(1)).collect()
}

impl Flows {
    /// `count` flows in `tunnels` tunnels. Of each flow its label is as random as the kernel's hash of flows.
    pub fn draw(
        traffic: Traffic,
        count: usize,
        tunnels: usize,
        tables: &Tables,
        random: &mut Random,
    ) -> Result<Flows> {
        let to =
            random_hosts(&tables.v4, count, random, forwardable4).ok_or(Error::NoDestinations("IPv4"))?;
        let tunnels = tunnel_addresses(tunnels, random);
        let mut list = Vec::with_capacity(count);
        for (n, to) in to.into_iter().enumerate() {
            let (source, destination) = tunnels[n % tunnels.len()];
            let outer = Outer { source, destination, label: random.bits() as u32 & 0xf_ffff };
            let flow = match traffic {
                Traffic::Uniform => Flow {
                    source: anywhere(random),
                    destination: anywhere(random),
                    ports: [random.bits() as u16, destination_port(random)],
                    outer,
                },
                Traffic::Table | Traffic::Zipf => Flow {
                    source: Ipv4Addr::from_bits(0x0a00_0000 | random.below(1 << 16) as u32),
                    destination: Ipv4Addr::from_bits(to),
                    // Linux's range of local ports.
                    ports: [32_768 + random.below(28_232) as u16, 443],
                    outer,
                },
            };
            list.push(flow);
        }
        let weight = |n: usize| if traffic == Traffic::Zipf { 1.0 / (n + 1) as f64 } else { 1.0 };
        let sum: f64 = (0..count).map(weight).sum();
        Ok(Flows { list, shares: (0..count).map(|n| weight(n) / sum).collect() })
    }

    /// The flow of each of `count` packets, drawn by the shares.
    pub fn order(&self, count: usize, random: &mut Random) -> Vec<u32> {
        let sums: Vec<f64> = self.shares.iter().scan(0.0, |sum, share| Some(add(sum, *share))).collect();
        let last = self.list.len().saturating_sub(1);
        (0..count)
            .map(|_| {
                let at = random.unit();
                sums.partition_point(|sum| *sum <= at).min(last) as u32
            })
            .collect()
    }
}

fn add(sum: &mut f64, share: f64) -> f64 {
    *sum += share;
    *sum
}

/// A random unicast address.
fn anywhere(random: &mut Random) -> Ipv4Addr {
    loop {
        let address = random.bits() as u32;
        if forwardable4(address) {
            return Ipv4Addr::from_bits(address);
        }
    }
}
/// A random port that is none of VXLAN's or Geneve's: trieline leaves datagrams to those to the kernel on a veth, since the frame inside may have an
/// unfinished checksum.
fn destination_port(random: &mut Random) -> u16 {
    match random.bits() as u16 {
        4789 | 6081 | 8472 => 443,
        port => port,
    }
}
