//! The namespaces and links of experiment `forward`: one node with two ingresses, one for each plane.
//!
//! ```text
//!   gen            node                        sink
//!   g0 ─────────── n0  (trieline)   ┐
//!   gk ─────────── k0  (kernel)     ├── n1 ─── s0
//!   gf ─────────── f0  (fib)        │
//!   gr ─────────── r0  (redirect)   ┘
//! ```
//! All planes use the same kernel FIB and the same egress, so that they can be interleaved in one run.

use std::{net::Ipv4Addr, net::Ipv6Addr};

use trieline_testbed::{
    command,
    namespace::{End, Namespace, mac, veth},
};

use crate::{
    Context,
    error::{Error, Result},
    netns,
};

/// Next hops behind n1.
pub const GATEWAYS: u32 = 16;
/// IPv4 prefix of one plain route.
pub const PLAIN_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(203, 0, 113, 128), 25);
/// IPv4 prefix whose route has `encap seg6 mode encap` with one segment.
pub const ENCAP_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 16);
/// With `mode encap.red`.
pub const ENCAP_RED_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 17);
/// With three segments.
pub const ENCAP_3_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 128, 0), 17);
/// The segment that the `encap seg6` route names, from the block for SIDs (RFC 9602).
pub const ENCAP_SEGMENT: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xe, 0, 0, 0, 0, 1);
/// The node's own SID, behaviour End.DX4 towards one next hop.
pub const DECAP_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 4);
/// End.DX4 towards 0.0.0.0: the inner packet is routed by table main.
pub const DECAP_FULL_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 5);
/// End.DT6 with table main.
pub const DECAP_DT6_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 6);
/// End.DT4 with the table of a VRF, where the kernel has VRFs.
pub const DECAP_DT4_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 7);
/// End.DX4 towards a next hop in the tenant's VRF, where the kernel has VRF and VLAN devices.
pub const DECAP_VRF_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 8);
/// End.DT4 with the table of the tenant's VRF.
pub const DECAP_VRF_DT4_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 9);
/// The VLAN by which the tenant's packets come and leave.
pub const VLAN: u16 = 7;
/// End.
pub const END_SID: Ipv6Addr = Ipv6Addr::new(0x5f00, 0, 0xd, 0, 0, 0, 0, 1);
/// Outer source of what the node encapsulates.
pub const TUNNEL_SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// Source of every IPv4 frame.
pub const SOURCE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Source of every IPv6 frame.
pub const SOURCE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2);

/// One end of a veth pair.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in its namespace.
    pub name: &'static str,
    /// Its index there.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// The namespaces; dropping removes them.
#[derive(Debug)]
pub struct Topology {
    /// Where the generator sends from.
    pub source: Namespace,
    /// The node under test.
    pub node: Namespace,
    /// Where frames end.
    pub sink: Namespace,
    /// The generator's ends, and what each leads to in the node.
    pub g0: Device,
    /// The generator's end of the kernel's ingress.
    pub gk: Device,
    /// The generator's end of the ingress of plane `fib`.
    pub gf: Device,
    /// The generator's end of the bare redirect's ingress.
    pub gr: Device,
    /// The product's ingress.
    pub n0: Device,
    /// The kernel's ingress.
    pub k0: Device,
    /// The ingress of plane `fib`.
    pub f0: Device,
    /// The bare redirect's ingress.
    pub r0: Device,
    /// The node's only egress.
    pub n1: Device,
    /// Its other end.
    pub s0: Device,
    /// Whether the node has a tenant's VRF and VLAN, and SIDs that lead there; some kernels have no such devices.
    pub has_vrf: bool,
}

/// IPv4 address of gateway `i`.
pub fn gateway4(i: u32) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 16 + (i % GATEWAYS) as u8)
}

/// IPv6 address of gateway `i`.
pub fn gateway6(i: u32) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 16 + (i % GATEWAYS) as u16)
}

/// MAC address of gateway `i`, both families.
pub fn gateway_mac(i: u32) -> [u8; 6] {
    [2, 0x74, 0x6c, 0, 1, (i % GATEWAYS) as u8]
}

impl Topology {
    /// Makes namespaces, links, addresses, permanent neighbours and the SRv6 routes; no other routes.
    pub fn create(context: &Context) -> Result<Topology> {
        context.progress.phase("namespaces", 0);
        let (source, node, sink) = (netns::create("gen")?, netns::create("node")?, netns::create("sink")?);
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/default/accept_ra", "0"),
            ("ipv6/conf/all/seg6_enabled", "1"),
            ("ipv6/conf/default/seg6_enabled", "1"),
        ] {
            node.write_sysctl(&format!("net/{key}"), value)?;
        }
        for quiet in [&source, &sink] {
            quiet.write_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
            quiet.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        let mut number = 0;
        let mut device = |name| {
            number += 1;
            Device { name, index: 0, mac: [2, 0x74, 0x6c, 0, 0, number] }
        };
        let mut pair = |(near, at): (&'static str, &Namespace), (far, there): (&'static str, &Namespace)| {
            let (mut near, mut far) = (device(near), device(far));
            let end = |device: &Device, namespace| End { namespace, device: device.name, mac: device.mac };
            veth(end(&near, at), end(&far, there))?;
            for (device, namespace) in [(&mut near, at), (&mut far, there)] {
                namespace.ip_words(&["link", "set", device.name, "up"])?;
                device.index = namespace.ifindex(device.name)?;
            }
            Ok::<_, Error>((near, far))
        };
        let (g0, n0) = pair(("g0", &source), ("n0", &node))?;
        let (gk, k0) = pair(("gk", &source), ("k0", &node))?;
        let (gf, f0) = pair(("gf", &source), ("f0", &node))?;
        let (gr, r0) = pair(("gr", &source), ("r0", &node))?;
        let (n1, s0) = pair(("n1", &node), ("s0", &sink))?;
        {
            // GRO gives a veth end its NAPI: without one it takes no XDP frames.
            let _inside = source.enter_here()?;
            for end in [&g0, &gk, &gf, &gr] {
                command::output("ethtool", &["-K", end.name, "gro", "on"])?;
            }
        }
        {
            let _inside = node.enter_here()?;
            command::output("ethtool", &["-K", k0.name, "gro", "on"])?;
        }
        let mut topology =
            Topology { source, node, sink, g0, gk, gf, gr, n0, k0, f0, r0, n1, s0, has_vrf: false };
        topology.configure()?;
        topology.has_vrf = topology.add_vrf()?;
        Ok(topology)
    }

    fn configure(&self) -> Result<()> {
        let mut lines = vec![
            "link set lo up".to_owned(),
            "address add 198.51.100.1/25 dev n0".into(),
            "address add 198.51.100.129/25 dev k0".into(),
            "address add 192.0.2.1/24 dev n1".into(),
            "address add 2001:db8:a::1/64 dev n0 nodad".into(),
            "address add 2001:db8:b::1/64 dev k0 nodad".into(),
            format!("address add {TUNNEL_SOURCE}/64 dev n1 nodad"),
        ];
        for i in 0..GATEWAYS {
            let address = mac(gateway_mac(i));
            lines.push(format!("neigh replace {} lladdr {address} dev n1 nud permanent", gateway4(i)));
            lines.push(format!("neigh replace {} lladdr {address} dev n1 nud permanent", gateway6(i)));
        }
        // End.DX4 towards an on-link next hop would resolve the *inner destination*, so the next hop lies behind a gateway.
        lines.push(format!("route add 203.0.113.9/32 via {} dev n1", gateway4(0)));
        lines.push(format!("route add {}/{} via {} dev n1", PLAIN_PREFIX.0, PLAIN_PREFIX.1, gateway4(1)));
        lines
            .push(format!("route add {DECAP_SID}/128 encap seg6local action End.DX4 nh4 203.0.113.9 dev n1"));
        lines.push(format!(
            "route add {DECAP_FULL_SID}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev n1"
        ));
        lines.push(format!("route add {DECAP_DT6_SID}/128 encap seg6local action End.DT6 table 254 dev n1"));
        lines.push(format!("route add {END_SID}/128 encap seg6local action End dev n1"));
        lines.push(format!("route add 5f00:0:e::/64 via {} dev n1", gateway6(0)));
        for ((prefix, len), mode, segments) in [
            (ENCAP_PREFIX, "encap", format!("{ENCAP_SEGMENT}")),
            (ENCAP_RED_PREFIX, "encap.red", format!("{ENCAP_SEGMENT}")),
            (ENCAP_3_PREFIX, "encap", format!("{ENCAP_SEGMENT},5f00:0:f::1,5f00:0:f::2")),
        ] {
            lines.push(format!("route add {prefix}/{len} encap seg6 mode {mode} segs {segments} dev n1"));
        }
        lines.push(format!("sr tunsrc set {TUNNEL_SOURCE}"));
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            self.node.ip_words(&words)?;
        }
        Ok(())
    }

    /// The VRFs, and the SIDs that lead into them; false where the kernel has no VRF or no VLAN devices.
    ///
    /// `vrf0` has a default route and nothing else. The others are the SRv6 gateway of a cloud: the tenant's VRF `red` encapsulates, and its default route
    /// leads to the VRF `cluster`, to which the VLAN devices belong.
    fn add_vrf(&self) -> Result<bool> {
        let vlan = |device: &str| format!("link add link {device} name {device}.{VLAN} type vlan id {VLAN}");
        for probe in ["link add vrf0 type vrf table 1000", &vlan("n0")] {
            match self.node.ip_words(&probe.split(' ').collect::<Vec<_>>()) {
                Err(error) if error.to_string().contains("Unknown device type") => return Ok(false),
                done => done?,
            };
        }
        self.node.write_sysctl("net/vrf/strict_mode", "1")?;
        {
            // The sink sees frames, and not what is beside them: the tag has to be in the frame.
            let _inside = self.node.enter_here()?;
            command::output("ethtool", &["-K", self.n1.name, "txvlan", "off"])?;
        }
        let mut lines: Vec<String> = vec![
            "link set vrf0 up".into(),
            format!("route add default via {} dev n1 table 1000", gateway4(2)),
            format!("route add {DECAP_DT4_SID}/128 encap seg6local action End.DT4 vrftable 1000 dev n1"),
            "link add red type vrf table 1001".into(),
            "link set red up".into(),
            "link add cluster type vrf table 1002".into(),
            "link set cluster up".into(),
            vlan("k0"),
            vlan("n1"),
        ];
        for (number, device) in ["n0", "k0", "n1"].into_iter().enumerate() {
            lines.push(format!("link set {device}.{VLAN} master cluster"));
            lines.push(format!("link set {device}.{VLAN} up"));
            lines.push(format!("address add 100.64.{number}.1/24 dev {device}.{VLAN}"));
        }
        let ((plain, plain_len), (encap, encap_len)) = (PLAIN_PREFIX, ENCAP_PREFIX);
        lines.extend([
            format!("neigh replace 100.64.2.2 lladdr {} dev n1.{VLAN} nud permanent", mac(gateway_mac(3))),
            format!("route add {plain}/{plain_len} via 100.64.2.2 table 1002"),
            format!("route add {encap}/{encap_len} dev red table 1002"),
            format!(
                "route add {encap}/{encap_len} encap seg6 mode encap segs {ENCAP_SEGMENT} dev n1 table 1001"
            ),
            "route add default dev cluster table 1001".into(),
            "route add 169.254.0.1/32 dev red".into(),
            format!("route add {DECAP_VRF_SID}/128 encap seg6local action End.DX4 nh4 169.254.0.1 dev n1"),
            format!("route add {DECAP_VRF_DT4_SID}/128 encap seg6local action End.DT4 vrftable 1001 dev n1"),
        ]);
        for line in lines {
            self.node.ip_words(&line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(true)
    }

    /// The generator's end that leads to a device of the node.
    pub fn towards(&self, ingress: &Device) -> &Device {
        match ingress.name {
            "n0" => &self.g0,
            "k0" => &self.gk,
            "f0" => &self.gf,
            _ => &self.gr,
        }
    }
}
