//! The traffic of experiment `forward` along each path, and the routes that the node's kernel gets for it.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::{
    Context, Error, Result,
    frames::Kind,
    generator::{ADDRESSES, Destinations, Generator},
    netns,
    tables::{
        Random, Tables,
        destinations::{forwardable4, forwardable6, random_hosts},
    },
    topology::{
        DECAP_DT4_SID, DECAP_DT6_SID, DECAP_FULL_SID, DECAP_SID, DECAP_VRF_DT4_SID, DECAP_VRF_SID,
        ENCAP_3_PREFIX, ENCAP_PREFIX, ENCAP_RED_PREFIX, GATEWAYS, PLAIN_PREFIX, Topology, gateway4, gateway6,
    },
};

/// A way through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// IPv4 to random addresses of one route.
    Ipv4,
    /// IPv4 to random addresses inside the whole table.
    Ipv4Full,
    /// IPv6 likewise.
    Ipv6,
    /// End.DX4 with a next hop: the outer IPv6 and its SRH come off.
    Decap,
    /// End.DX4 without one: the inner packet is routed by the whole table, to random addresses inside it.
    DecapFull,
    /// End.DT4: by the default route of a VRF. Only where the kernel has VRFs.
    DecapDt4,
    /// End.DT6 by the whole table.
    DecapDt6,
    /// H.Encaps with one segment: outer IPv6 and SRH are put on.
    Encap,
    /// H.Encaps.Red with one segment: outer IPv6 without an SRH.
    EncapRed,
    /// H.Encaps with three segments.
    Encap3,
    /// End: on to the second of two segments.
    End,
    /// End.DX4 to a next hop in a tenant's VRF, whose default route leads through the cluster's VRF to a VLAN. Only where the kernel has VRF
    /// and VLAN devices, as the next two.
    DecapVrf,
    /// End.DT4 into the same VRF.
    DecapVrfDt4,
    /// H.Encaps of packets of a VLAN: the cluster's VRF leads to the tenant's, whose route encapsulates.
    EncapVrf,
}

impl Path {
    /// All of them.
    pub const ALL: [Path; 14] = [
        Path::Ipv4,
        Path::Ipv4Full,
        Path::Ipv6,
        Path::Decap,
        Path::DecapFull,
        Path::DecapDt4,
        Path::DecapDt6,
        Path::Encap,
        Path::EncapRed,
        Path::Encap3,
        Path::End,
        Path::DecapVrf,
        Path::DecapVrfDt4,
        Path::EncapVrf,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Path::Ipv4 => "ipv4",
            Path::Ipv4Full => "ipv4-full",
            Path::Ipv6 => "ipv6",
            Path::Decap => "decap",
            Path::DecapFull => "decap-full",
            Path::DecapDt4 => "decap-dt4",
            Path::DecapDt6 => "decap-dt6",
            Path::Encap => "encap",
            Path::EncapRed => "encap-red",
            Path::Encap3 => "encap-3",
            Path::End => "end",
            Path::DecapVrf => "decap-vrf",
            Path::DecapVrfDt4 => "decap-vrf-dt4",
            Path::EncapVrf => "encap-vrf",
        }
    }

    /// The frames it takes.
    pub fn kind(self) -> Kind {
        match self {
            Path::Ipv4 | Path::Ipv4Full | Path::Encap | Path::EncapRed | Path::Encap3 => Kind::Ipv4,
            Path::Ipv6 => Kind::Ipv6,
            Path::Decap => Kind::Srv6(DECAP_SID),
            Path::DecapFull => Kind::Srv6(DECAP_FULL_SID),
            Path::DecapDt4 => Kind::Srv6(DECAP_DT4_SID),
            Path::DecapDt6 => Kind::Srv6Ipv6(DECAP_DT6_SID),
            Path::End => Kind::Transit,
            Path::DecapVrf => Kind::Srv6(DECAP_VRF_SID),
            Path::DecapVrfDt4 => Kind::Srv6(DECAP_VRF_DT4_SID),
            Path::EncapVrf => Kind::Tagged,
        }
    }

    /// The path that does the same with fewer routes, or is a part of this one.
    pub fn simpler(self) -> Option<Path> {
        match self {
            Path::Ipv4Full => Some(Path::Ipv4),
            Path::DecapFull => Some(Path::Decap),
            _ => None,
        }
    }
}

/// Addresses to send to along each path, and a generator that knows them; `has_vrf` as the topology says.
pub fn generator(tables: &Tables, has_vrf: bool, seed: u64) -> Result<(Generator, Vec<Path>)> {
    let mut random = Random::new(seed ^ 0x7472_6166_6669_6300);
    let mut generator = Generator::new();
    let mut paths = Vec::new();
    let mut give = |hosts: &Destinations, along: &[Path]| {
        paths.extend(along);
        along.iter().try_for_each(|path| generator.destinations(path.name(), hosts))
    };
    if !tables.v4.is_empty() {
        let hosts = random_hosts(&tables.v4, ADDRESSES, &mut random, forwardable4)
            .ok_or(Error::NoDestinations("IPv4"))?;
        let hosts = Destinations::V4(hosts.into_iter().map(Ipv4Addr::from).collect());
        give(&hosts, &[Path::Ipv4Full, Path::DecapFull])?;
    }
    if !tables.v6.is_empty() {
        let hosts = random_hosts(&tables.v6, ADDRESSES, &mut random, forwardable6)
            .ok_or(Error::NoDestinations("IPv6"))?;
        let hosts = Destinations::V6(hosts.into_iter().map(Ipv6Addr::from).collect());
        give(&hosts, &[Path::Ipv6, Path::DecapDt6])?;
    }
    let mut inside = |(prefix, len): (Ipv4Addr, u8)| {
        let free = u32::MAX >> len;
        let hosts = (0..ADDRESSES).map(|_| Ipv4Addr::from(u32::from(prefix) | random.bits() as u32 & free));
        Destinations::V4(hosts.collect())
    };
    give(&inside(PLAIN_PREFIX), &[Path::Ipv4])?;
    // End.DX4 sends the inner packet to the next hop that it names, whatever its destination; End does not look.
    give(&inside(ENCAP_PREFIX), &[Path::Decap, Path::Encap, Path::End])?;
    if has_vrf {
        give(&inside(ENCAP_PREFIX), &[Path::DecapDt4, Path::EncapVrf])?;
        give(&inside(PLAIN_PREFIX), &[Path::DecapVrf, Path::DecapVrfDt4])?;
    }
    give(&inside(ENCAP_RED_PREFIX), &[Path::EncapRed])?;
    give(&inside(ENCAP_3_PREFIX), &[Path::Encap3])?;
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
    netns::ip_batch(&["-n", topology.node.name(), "-4"], lines, context)?;
    let mut gateway = {
        let mut random = Random::new(seed);
        move || random.below(GATEWAYS as usize) as u32
    };
    let lines = v6.iter().map(|prefix| format!("route add {prefix} via {} dev n1", gateway6(gateway())));
    netns::ip_batch(&["-n", topology.node.name(), "-6"], lines, context)?;
    Ok(count)
}
