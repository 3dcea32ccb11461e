//! The cases: a plane, a path, and the frames of some flows.

use std::net::{Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{
    frames::{ENCAPSULATION, Frame, Kind},
    topology::DECAP_SID,
    traffic::Flows,
};

/// Bytes of the frame check sequence, which sizes have and frames in memory do not.
pub const FCS: usize = 4;
/// Sizes that a frame may have, with FCS.
pub const SIZES: std::ops::RangeInclusive<usize> = 64..=1518;
/// Places of a pattern of frames.
pub const PLACES: usize = 64;

/// The forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// The kernel.
    Kernel,
    /// The kernel without its transmit: a receiver on the egress.
    KernelTcSink,
    /// The kernel by an nftables flowtable.
    Flowtable,
    /// An XDP program by `bpf_fib_lookup`.
    Fib,
    /// trieline.
    Xdp,
    /// The bare redirect: an XDP program that looks nothing up.
    Redirect,
    /// Whatever lies between two devices.
    #[value(skip)]
    Device,
}

impl Plane {
    /// Those that the lab sets up itself.
    pub const OWN: [Plane; 6] =
        [Plane::Kernel, Plane::KernelTcSink, Plane::Flowtable, Plane::Fib, Plane::Xdp, Plane::Redirect];

    /// Whether it can do the work of a path.
    pub fn takes(self, path: Path) -> bool {
        path == Path::Ipv4 || !matches!(self, Plane::Flowtable | Plane::Fib | Plane::Redirect)
    }

    /// Whether a failure of it takes its own rows only, and not the run.
    pub fn is_rival(self) -> bool {
        !matches!(self, Plane::Xdp | Plane::Device)
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Plane::Kernel => "kernel",
            Plane::KernelTcSink => "kernel-tc-sink",
            Plane::Flowtable => "flowtable",
            Plane::Fib => "fib",
            Plane::Xdp => "xdp",
            Plane::Redirect => "redirect",
            Plane::Device => "device",
        }
    }
}

/// The node's work on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// Plain IPv4 forwarding.
    Ipv4,
    /// H.Encaps with one segment.
    Encap,
    /// End.DX4 with a next hop.
    Decap,
}

impl Path {
    /// All of them.
    pub const ALL: [Path; 3] = [Path::Ipv4, Path::Encap, Path::Decap];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Path::Ipv4 => "ipv4",
            Path::Encap => "encap",
            Path::Decap => "decap",
        }
    }

    /// The network that packets go to; inside the tunnel, where there is one.
    pub fn network(self) -> Ipv4Addr {
        match self {
            Path::Ipv4 => Ipv4Addr::new(203, 0, 113, 0),
            Path::Encap | Path::Decap => Ipv4Addr::new(198, 18, 0, 0),
        }
    }

    /// The frames that the node gets.
    fn kind(self) -> Kind {
        match self {
            Path::Ipv4 | Path::Encap => Kind::Ipv4,
            Path::Decap => Kind::Srv6(DECAP_SID),
        }
    }

    /// The SID that packets go to.
    pub fn sid(self) -> Option<Ipv6Addr> {
        (self == Path::Decap).then_some(DECAP_SID)
    }

    /// Bytes of outer headers that a packet has before the node and behind it.
    pub fn outer(self) -> (usize, usize) {
        match self {
            Path::Ipv4 => (0, 0),
            Path::Encap => (0, ENCAPSULATION),
            Path::Decap => (ENCAPSULATION, 0),
        }
    }
}

/// The frames that are sent, and their flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Its name in results: the size, `imix`, or the profile's.
    pub size: String,
    /// The node's work on them.
    pub path: Path,
    /// Sizes with FCS and without outer headers, and how often each comes in turn.
    pub frames: Vec<(usize, usize)>,
    /// Flows to random addresses of the network; one flow goes to one address of it.
    pub flows: usize,
    /// The network; its first 24 bits count.
    pub network: Ipv4Addr,
}

/// The simple IMIX: 7 : 4 : 1.
const IMIX: [(usize, usize); 3] = [(64, 7), (594, 4), (1518, 1)];
/// The one flow's address in its network.
const HOST: u32 = 200;

impl Traffic {
    /// Of one size or `imix`.
    pub fn of(size: &str, path: Path, flows: usize) -> Option<Traffic> {
        let frames = match size {
            "imix" => IMIX.to_vec(),
            size => vec![(size.parse().ok().filter(|size| SIZES.contains(size))?, 1)],
        };
        Some(Traffic { size: size.to_owned(), path, frames, flows, network: path.network() })
    }

    /// The frames as they are sent from `near` to `far` (MAC addresses).
    pub fn frames(&self, near: [u8; 6], far: [u8; 6]) -> Vec<Frame> {
        let kind = self.path.kind();
        let bytes = |size: usize| size - FCS + self.path.outer().0;
        self.frames.iter().map(|(size, _)| kind.frame_of(bytes(*size), near, far)).collect()
    }

    /// Which frame is next, again and again: each as often as it weighs, spread evenly.
    pub fn pattern(&self) -> Vec<u8> {
        let total: usize = self.frames.iter().map(|(_, weight)| weight).sum();
        let mut due = vec![0; self.frames.len()];
        let mut pattern = Vec::with_capacity(total);
        for _ in 0..total {
            // The one that is most behind what it should have by now.
            due.iter_mut().zip(&self.frames).for_each(|(due, (_, weight))| *due += *weight as i64);
            let Some(next) = (0..due.len()).max_by_key(|at| (due[*at], std::cmp::Reverse(*at))) else {
                break;
            };
            due[next] -= total as i64;
            pattern.push(next as u8);
        }
        pattern
    }

    /// Bytes of the first `count` frames when they come out of the node, without FCS.
    pub fn bytes_behind(&self, count: u64) -> u64 {
        let pattern = self.pattern();
        let bytes: Vec<u64> = pattern
            .iter()
            .map(|at| (self.frames[usize::from(*at)].0 - FCS + self.path.outer().1) as u64)
            .collect();
        let rest: u64 = bytes.iter().take((count % bytes.len() as u64) as usize).sum();
        count / bytes.len() as u64 * bytes.iter().sum::<u64>() + rest
    }

    /// Mean size of a frame, with FCS and without outer headers.
    pub fn mean_size(&self) -> f64 {
        let (bytes, weights) = self
            .frames
            .iter()
            .fold((0, 0), |(bytes, weights), (size, weight)| (bytes + size * weight, weights + weight));
        bytes as f64 / weights as f64
    }

    /// The flows.
    pub fn flows(&self, seed: u64) -> Flows {
        let network = u32::from(self.network) & !0xff;
        match self.flows {
            1 => Flows::to([Ipv4Addr::from(network | HOST).into()]),
            flows => Flows::within(network.into(), 24, flows, seed),
        }
    }
}

/// Traffic through a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The forwarder.
    pub plane: Plane,
    /// The frames.
    pub traffic: Traffic,
}

impl Case {
    /// Its name in messages.
    pub fn name(&self) -> String {
        let Traffic { path, size, flows, .. } = &self.traffic;
        let flow = if *flows == 1 { "flow" } else { "flows" };
        format!("{} {} {size} {flows} {flow}", self.plane.name(), path.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_every_frame_as_often_as_it_weighs() {
        let imix = Traffic::of("imix", Path::Ipv4, 1).unwrap();
        let pattern = imix.pattern();
        assert_eq!(pattern.len(), 12);
        assert_eq!([0, 1, 2].map(|at| pattern.iter().filter(|place| **place == at).count()), [7, 4, 1]);
        // Spread, not one after another.
        assert!(pattern.windows(4).all(|part| part.contains(&0)), "{pattern:?}");
        assert!((imix.mean_size() - (7.0 * 64.0 + 4.0 * 594.0 + 1518.0) / 12.0).abs() < 1e-9);
        let bytes = |traffic: &Traffic, count| traffic.bytes_behind(count);
        assert_eq!(bytes(&imix, 24), 2 * (7 * 60 + 4 * 590 + 1514));
        assert_eq!(bytes(&imix, 1), 60);
        let encap = Traffic::of("128", Path::Encap, 1).unwrap();
        assert_eq!(bytes(&encap, 3), 3 * (124 + 64));
        let decap = Traffic::of("128", Path::Decap, 1).unwrap();
        assert_eq!((bytes(&decap, 3), decap.frames([2; 6], [4; 6])[0].bytes.len()), (3 * 124, 124 + 64));
    }

    #[test]
    fn sizes_that_cannot_be_are_none() {
        for bad in ["63", "1519", "x", "", "-64"] {
            assert_eq!(Traffic::of(bad, Path::Ipv4, 1), None, "{bad}");
        }
    }
}
