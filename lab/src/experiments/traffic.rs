//! What experiment `forward` sends along each path, and the routes that the node's kernel gets for it.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::{
    Context, Error, Result, command,
    frames::Kind,
    generator::{ADDRESSES, Destinations, Generator},
    tables::{
        Random, Tables,
        destinations::{forwardable4, forwardable6, random_hosts},
    },
    topology::{ENCAP_PREFIX, GATEWAYS, Topology, gateway4, gateway6},
};

/// A way through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// IPv4 to addresses inside the table.
    Ipv4,
    /// IPv6 likewise.
    Ipv6,
    /// End.DX4: the outer IPv6 and its SRH come off.
    Decap,
    /// H.Encaps with one segment: they are put on.
    Encap,
}

impl Path {
    /// All of them, as results list them.
    pub const ALL: [Path; 4] = [Path::Ipv4, Path::Ipv6, Path::Decap, Path::Encap];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Path::Ipv4 => "ipv4",
            Path::Ipv6 => "ipv6",
            Path::Decap => "decap",
            Path::Encap => "encap",
        }
    }

    /// The frames it takes.
    pub fn kind(self) -> Kind {
        match self {
            Path::Ipv4 | Path::Encap => Kind::Ipv4,
            Path::Ipv6 => Kind::Ipv6,
            Path::Decap => Kind::Srv6,
        }
    }
}

/// Addresses to send to along each path, and a generator that knows them.
pub fn generator(tables: &Tables, seed: u64) -> Result<(Generator, Vec<Path>)> {
    let mut random = Random::new(seed ^ 0x7472_6166_6669_6300);
    let mut generator = Generator::new();
    let mut paths = Vec::new();
    if !tables.v4.is_empty() {
        let hosts = random_hosts(&tables.v4, ADDRESSES, &mut random, forwardable4)
            .ok_or(Error::NoDestinations("IPv4"))?;
        let hosts = Destinations::V4(hosts.into_iter().map(Ipv4Addr::from).collect());
        generator.destinations(Path::Ipv4.name(), &hosts)?;
        paths.push(Path::Ipv4);
    }
    if !tables.v6.is_empty() {
        let hosts = random_hosts(&tables.v6, ADDRESSES, &mut random, forwardable6)
            .ok_or(Error::NoDestinations("IPv6"))?;
        let hosts = Destinations::V6(hosts.into_iter().map(Ipv6Addr::from).collect());
        generator.destinations(Path::Ipv6.name(), &hosts)?;
        paths.push(Path::Ipv6);
    }
    let (prefix, len) = ENCAP_PREFIX;
    let free = u32::MAX >> len;
    let hosts = (0..ADDRESSES).map(|_| Ipv4Addr::from(u32::from(prefix) | random.bits() as u32 & free));
    let hosts = Destinations::V4(hosts.collect());
    // What comes out of the outer header goes to the next hop that End.DX4 names, whatever its destination.
    generator.destinations(Path::Decap.name(), &hosts)?;
    generator.destinations(Path::Encap.name(), &hosts)?;
    paths.extend([Path::Decap, Path::Encap]);
    Ok((generator, paths))
}

/// Loads the table into the node's kernel, spread over the gateways; the number of routes added.
pub fn load_routes(topology: &Topology, tables: &Tables, seed: u64, context: &Context) -> Result<u64> {
    let mut random = Random::new(seed ^ 0x726f_7574_6573);
    let mut gateway = move || random.below(GATEWAYS as usize) as u32;
    // Networks of the topology's own stay as they are.
    let v4: Vec<_> = tables.v4.iter().filter(|p| p.len() < 8 || forwardable4(p.addr())).collect();
    let v6: Vec<_> = tables.v6.iter().filter(|p| p.len() < 8 || forwardable6(p.addr())).collect();
    let count = (v4.len() + v6.len()) as u64;
    context.progress.phase("routes into the kernel", count);
    let lines = v4.iter().map(|prefix| format!("route add {prefix} via {} dev n1", gateway4(gateway())));
    command::ip_batch(&["-n", topology.node.name(), "-4"], lines, context)?;
    let mut gateway = {
        let mut random = Random::new(seed);
        move || random.below(GATEWAYS as usize) as u32
    };
    let lines = v6.iter().map(|prefix| format!("route add {prefix} via {} dev n1", gateway6(gateway())));
    command::ip_batch(&["-n", topology.node.name(), "-6"], lines, context)?;
    Ok(count)
}
