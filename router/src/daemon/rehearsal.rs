//! A rehearsal of a start: reads what a daemon would read, asks what it would refuse, and runs this node's program over this node's
//! routes. It attaches nothing, pins nothing that others see, and leaves nothing behind.

mod private;
pub mod routes;
mod what_if;

pub use what_if::WhatIf;

use crate::bypass::scan::{Bypassed, Probes};
use crate::daemon::config::Config;
use crate::daemon::error::Error;
use crate::daemon::ports::Ports;
use crate::daemon::start_check::{FAMILIES, check_at_start};
use crate::dataplane::Dataplane;
use crate::dataplane::frames::{FRAME, ethernet, frame4, frame6};
use crate::fib::publish::Publisher;
use crate::kernel::link::Link;
use crate::kernel::seg6::Encap;
use crate::kernel::socket::Netlink;
use crate::rib::kernel_state::Sysctl;
use crate::rib::mirror::Mirror;
use crate::xdp::ports::{Port, PortFlags};
use crate::xdp::sys;
use libbpf_rs::libbpf_sys::XDP_REDIRECT;
use std::collections::BTreeSet;
use trieline_lpm::Prefix;

/// The loopback device: each network namespace has it under this number, and programs can run as if packets came in there.
const LOOPBACK: u32 = 1;
/// Destinations of each family.
const DESTINATIONS: usize = 2048;
/// Runs over each destination.
const ROUNDS: usize = 5;
/// Runs of the frame that tells the cost of one run by itself.
const CALIBRATION: u32 = 1000;
const ETHER_ARP: [u8; 2] = [0x08, 0x06];

/// The state of the kernel that a start would find.
#[derive(Debug)]
pub struct Rehearsal {
    config: Config,
    mirror: Mirror,
    ports: Ports,
    refusal: Option<Error>,
}

/// The tables of this node, and the time of its packets.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Map type of the image.
    pub map_type: String,
    /// Limit of the image, bytes.
    pub image_bytes: u64,
    /// Bytes that the tables take.
    pub used: u64,
    /// The time of IPv4 packets, where there are destinations that XDP forwards.
    pub v4: Option<PacketTime>,
    /// That of IPv6 packets.
    pub v6: Option<PacketTime>,
    /// Why a family's routes do not fit.
    pub blocked: Vec<String>,
}

/// The time that the program takes for a packet, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct PacketTime {
    /// The median.
    pub ns: f64,
    /// The fastest twentieth is not slower than this.
    pub ns_low: f64,
    /// The slowest twentieth is not faster than this.
    pub ns_high: f64,
    /// Part of the random destinations that XDP forwards. The kernel has the others.
    pub forwarded: f64,
}

impl Rehearsal {
    /// Reads links, settings, rules, routes and what XDP would go past, as a daemon does. Changes nothing.
    pub fn read(config: Config) -> Result<Self, Error> {
        let mut requests = Netlink::route()?;
        let mut mirror = Mirror::default();
        mirror.kernel.settings = config.settings();
        mirror.dump_kernel_state(&mut requests)?;
        let kernel = &mut mirror.kernel;
        kernel.settings.tenants.apply(&mut kernel.links);
        let mut dump = mirror.begin_ipv4(&mut requests)?;
        while dump.go_on(&mut mirror.nhgs, &mut requests)? {}
        mirror.adopt_ipv4(dump);
        let mut dump = mirror.begin_ipv6(&mut requests)?;
        while dump.go_on(&mut mirror.nhgs, &mut requests)? {}
        mirror.adopt_ipv6(dump);
        let ports = Ports::unattached(config.devices.clone(), config.mode);
        let tunnels: Vec<String> =
            mirror.nhgs.encapsulating().map(|device| mirror.kernel.name(device)).collect();
        let watched = ports.watched(&mirror.kernel).into_iter().chain(tunnels.iter().map(String::as_str));
        let sysctl = Sysctl::read(&mut requests, watched)?;
        mirror.kernel.sysctl = sysctl;
        let refusal = check_at_start(&mut mirror, &mut Probes::default(), &mut requests, &ports).err();
        Ok(Self { config, mirror, ports, refusal })
    }

    /// Why a daemon would refuse to start.
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// Configured devices that this network namespace does not have.
    pub fn missing(&self) -> Vec<&str> {
        self.ports.missing(&self.mirror.kernel).collect()
    }

    /// The links of the configured devices.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        let named =
            |link: &&Link| link.names().any(|name| self.config.devices.iter().any(|given| given == name));
        self.mirror.kernel.links.values().filter(named)
    }

    /// A link by its number.
    pub fn link(&self, ifindex: u32) -> Option<&Link> {
        self.mirror.kernel.links.get(&ifindex)
    }

    /// Processing that packets bypass when XDP forwards them, or that keeps them with the kernel.
    pub fn bypassed(&self) -> Vec<Bypassed> {
        self.mirror.kernel.bypass.bypassed(&self.mirror.kernel)
    }

    /// Why all packets of a family are the kernel's: the family, and what it is.
    pub fn obstacles(&self) -> Vec<(&'static str, String)> {
        let found = FAMILIES.iter().map(|(family, name)| (*name, self.mirror.kernel.obstacle(*family)));
        found.filter_map(|(name, what)| Some((name, what?))).collect()
    }

    /// The families that a device does not forward, each with the setting that would change it.
    pub fn not_forwarded(&self, ifindex: u32) -> Vec<(&'static str, String)> {
        let kernel = &self.mirror.kernel;
        let off = FAMILIES.iter().filter(|(family, _)| !kernel.forwards(*family, ifindex));
        off.map(|(family, name)| (*name, kernel.forwarding_setting(*family, ifindex))).collect()
    }

    /// Bytes of the longest header that a route pushes.
    pub fn longest_push(&self) -> usize {
        let hops = self.mirror.nhgs.iter().flat_map(|(_, nhg)| &nhg.hops);
        hops.filter_map(|hop| hop.encap.as_ref()).map(Encap::pushes).max().unwrap_or(0)
    }

    /// Routes of both families, all tables.
    pub fn routes(&self) -> usize {
        self.mirror.routes()
    }

    /// Builds the tables in maps of this process alone, and runs the program on packets to random destinations of the routes. `None`:
    /// no device has a MAC address.
    pub fn measure(&mut self) -> Result<Option<Measured>, Error> {
        let (_private, mut dataplane) = self.dataplane(None)?;
        let mut publisher = Publisher::new(&mut dataplane)?;
        let egress: BTreeSet<u32> = self.links().map(|link| link.ifindex).collect();
        for device in &egress {
            dataplane.open_device(*device, false)?;
        }
        dataplane.beat(None)?;
        publisher.publish(&mut self.mirror, dataplane.parts(), &egress);
        let wanted = self.ports.wanted(&self.mirror.kernel, &publisher.policies.lookup_ids, (true, true));
        let Some(port) = wanted.values().next().copied() else { return Ok(None) };
        let flags = PortFlags {
            forward4: true,
            forward6: true,
            // Frames of the model have no peer whose packets would be the kernel's.
            csum_partial: false,
            redirects4: false,
            redirects6: false,
            // A random source lies behind any device: the loose filter costs the same lookup.
            rpf_loose: port.flags.rpf_loose || port.flags.rpf_strict,
            rpf_strict: false,
            ..port.flags
        };
        dataplane.set_port(LOOPBACK, None, Port { flags, ..port })?;
        let mut random = Random::new();
        let alone = run_alone(&dataplane, port.mac)?;
        let destinations = sample(publisher.v4.main.table.iter().flat_map(|table| table.iter()), &mut random);
        let v4 = time(&dataplane, alone, &destinations, |to, from| {
            frame4(port.mac, host(to, &mut random), from.addr())
        })?;
        let destinations = sample(publisher.v6.main.table.iter().flat_map(|table| table.iter()), &mut random);
        let v6 = time(&dataplane, alone, &destinations, |to, from| {
            frame6(port.mac, host(to, &mut random), from.addr())
        })?;
        let blocked = [publisher.v4.blocked(), publisher.v6.blocked()].into_iter().flatten();
        Ok(Some(Measured {
            map_type: dataplane.map_type().to_string(),
            image_bytes: dataplane.image_bytes(),
            used: publisher.image_stats().used,
            v4,
            v6,
            blocked: blocked.map(|(why, _)| why.clone()).collect(),
        }))
    }
}

/// A generator of random numbers (splitmix64), seeded by the kernel.
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        Self(RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// An address of a family, as random bits make it.
trait Addr: trieline_lpm::Address + Copy {
    fn with_random(self, len: u16, random: &mut Random) -> Self;
}

impl Addr for u32 {
    fn with_random(self, len: u16, random: &mut Random) -> Self {
        self | random.next() as u32 & u32::MAX.checked_shr(len.into()).unwrap_or(0)
    }
}

impl Addr for u128 {
    fn with_random(self, len: u16, random: &mut Random) -> Self {
        let bits = u128::from(random.next()) << 64 | u128::from(random.next());
        self | bits & u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }
}

/// A random address that a prefix covers.
fn host<A: Addr>(prefix: Prefix<A>, random: &mut Random) -> A {
    prefix.addr().with_random(prefix.len(), random)
}

/// Prefixes of a table at random, some twice.
fn sample<A: Addr>(table: impl Iterator<Item = (Prefix<A>, u32)>, random: &mut Random) -> Vec<Prefix<A>> {
    let all: Vec<Prefix<A>> = table.map(|(prefix, _)| prefix).filter(|prefix| prefix.len() > 0).collect();
    if all.is_empty() {
        return all;
    }
    (0..DESTINATIONS).map(|_| all[(random.next() % all.len() as u64) as usize]).collect()
}

/// The time that one run takes by itself: what a frame that the program leaves at once takes alone, less what it takes among many.
fn run_alone(dataplane: &Dataplane, mac: [u8; 6]) -> Result<f64, Error> {
    let frame = ethernet(mac, ETHER_ARP);
    let mut single = Vec::new();
    for _ in 0..CALIBRATION {
        single.push(f64::from(run(dataplane, &frame, 1)?.1));
    }
    let among = f64::from(run(dataplane, &frame, CALIBRATION)?.1);
    Ok((at(&mut single, 0.5) - among).max(0.0))
}

fn run(dataplane: &Dataplane, frame: &[u8], times: u32) -> Result<(u32, u32), Error> {
    sys::time_run(dataplane.program(), LOOPBACK, frame, times).map_err(|error| {
        crate::xdp::error::Error::kernel("cannot run the XDP program for a test", error).into()
    })
}

/// Runs the program on a packet to each destination. The sources are other destinations.
fn time<A: Addr>(
    dataplane: &Dataplane,
    alone: f64,
    destinations: &[Prefix<A>],
    mut frame: impl FnMut(Prefix<A>, Prefix<A>) -> [u8; FRAME],
) -> Result<Option<PacketTime>, Error> {
    let sources = destinations.iter().cycle().skip(destinations.len() / 2);
    let frames: Vec<_> = destinations.iter().zip(sources).map(|(to, from)| frame(*to, *from)).collect();
    let mut forwarded = Vec::new();
    for frame in &frames {
        if run(dataplane, frame, 1)?.0 == XDP_REDIRECT {
            forwarded.push(frame);
        }
    }
    if forwarded.is_empty() {
        return Ok(None);
    }
    let mut times = Vec::with_capacity(forwarded.len() * ROUNDS);
    for _ in 0..ROUNDS {
        for frame in forwarded.iter().copied() {
            times.push((f64::from(run(dataplane, frame, 1)?.1) - alone).max(1.0));
        }
    }
    let [ns_low, ns, ns_high] = [0.05, 0.5, 0.95].map(|part| at(&mut times, part));
    Ok(Some(PacketTime { ns, ns_low, ns_high, forwarded: forwarded.len() as f64 / frames.len() as f64 }))
}

/// The value that this part of all lies below; 0 of none.
fn at(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len() as f64 * part) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_hosts_stay_in_their_prefix() {
        let mut random = Random::new();
        for len in [1, 8, 31, 32] {
            let prefix = Prefix::truncated(0x0a01_0203_u32, len);
            assert!((0..50).all(|_| prefix.contains(host(prefix, &mut random))), "/{len}");
        }
        for len in [1, 64, 127, 128] {
            let prefix = Prefix::truncated(0xfd00_u128 << 112 | 7, len);
            assert!((0..50).all(|_| prefix.contains(host(prefix, &mut random))), "/{len}");
        }
    }

    #[test]
    fn a_header_has_the_right_checksum() {
        let frame = frame4([2, 0, 0, 0, 0, 1], 0xc633_6401, 0xffff_fffe);
        let words =
            frame[14..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn parts_of_values() {
        let mut values = [3.0, 1.0, 2.0];
        assert_eq!([0.05, 0.5, 0.95].map(|part| at(&mut values, part)), [1.0, 2.0, 3.0]);
        assert_eq!(at(&mut [], 0.5), 0.0);
    }
}
