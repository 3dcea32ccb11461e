//! A node with one way in and two ways out, whose routes are changed from one to the other while traffic runs.
//!
//! ```text
//!   gen            node               sink
//!   g0 ─────────── n0 ┐
//!                     ├── n1 ──────── s1   way A
//!                     └── n2 ──────── s2   way B
//! ```

use std::net::Ipv4Addr;

use trieline_lpm::Prefix;
use trieline_testbed::{
    command,
    namespace::{End, Namespace, mac, veth},
};

use crate::{
    Error, Result,
    netlink::{Change, Netlink, NextHop},
    netns,
    tables::{
        Random,
        destinations::{forwardable4, random_host},
        generate,
        reference::Reference,
    },
    topology::Device,
};

/// A way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By n1 to s1.
    A,
    /// By n2 to s2.
    B,
}

impl Way {
    /// The other one.
    pub fn other(self) -> Way {
        if self == Way::A { Way::B } else { Way::A }
    }
}

/// The namespaces; dropping removes them.
#[derive(Debug)]
pub struct Fork {
    /// Where the generator sends from.
    pub source: Namespace,
    /// The node under test.
    pub node: Namespace,
    /// Where frames end.
    pub sink: Namespace,
    /// The generator's end.
    pub g0: Device,
    /// The node's ingress.
    pub n0: Device,
    /// The node's ways out: A, B.
    egress: [Device; 2],
    /// Their other ends.
    ends: [Device; 2],
}

/// The gateways of both ways, each in a network of its own.
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 130)];

impl Fork {
    /// Makes namespaces, links, addresses and permanent neighbours, and no route.
    pub fn create() -> Result<Fork> {
        let (source, node, sink) = (netns::create("gen")?, netns::create("node")?, netns::create("sink")?);
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/conf/all/send_redirects", "0"),
        ] {
            node.write_sysctl(&format!("net/{key}"), value)?;
        }
        for namespace in [&source, &node, &sink] {
            namespace.write_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
            namespace.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        let mut number = 0;
        let mut pair = |near: (&'static str, &Namespace), far: (&'static str, &Namespace)| {
            let mut device = |name| {
                number += 1;
                Device { name, index: 0, mac: [2, 0x74, 0x6c, 0, 2, number] }
            };
            let (mut here, mut there) = (device(near.0), device(far.0));
            let end = |device: &Device, namespace| End { namespace, device: device.name, mac: device.mac };
            veth(end(&here, near.1), end(&there, far.1))?;
            for (device, namespace) in [(&mut here, near.1), (&mut there, far.1)] {
                namespace.ip_words(&["link", "set", device.name, "up"])?;
                device.index = namespace.ifindex(device.name)?;
                // GRO gives a veth end its NAPI: without one it takes no XDP frames.
                let _inside = namespace.enter_here()?;
                command::output("ethtool", &["-K", device.name, "gro", "on"])?;
            }
            Ok::<_, Error>((here, there))
        };
        let (g0, n0) = pair(("g0", &source), ("n0", &node))?;
        let (n1, s1) = pair(("n1", &node), ("s1", &sink))?;
        let (n2, s2) = pair(("n2", &node), ("s2", &sink))?;
        let fork = Fork { source, node, sink, g0, n0, egress: [n1, n2], ends: [s1, s2] };
        for words in [
            "link set lo up",
            "address add 198.51.100.1/24 dev n0",
            "address add 192.0.2.1/25 dev n1",
            "address add 192.0.2.129/25 dev n2",
        ] {
            fork.node.ip_words(&words.split(' ').collect::<Vec<_>>())?;
        }
        fork.know_neighbours()?;
        Ok(fork)
    }

    /// Makes the gateways' neighbour entries, which go when their link goes down.
    pub fn know_neighbours(&self) -> Result<()> {
        for way in [Way::A, Way::B] {
            let (gateway, address) = (GATEWAYS[way as usize].to_string(), mac(self.end(way).mac));
            let device = self.egress(way).name;
            let entry = ["neigh", "replace", &gateway, "lladdr", &address, "dev", device, "nud", "permanent"];
            self.node.ip_words(&entry)?;
        }
        Ok(())
    }

    /// The node's device of a way.
    pub fn egress(&self, way: Way) -> &Device {
        &self.egress[way as usize]
    }

    /// Where a way ends.
    pub fn end(&self, way: Way) -> &Device {
        &self.ends[way as usize]
    }

    /// The next hop of a way.
    pub fn next_hop(&self, way: Way) -> NextHop {
        NextHop { gateway: GATEWAYS[way as usize], device: self.egress(way).index }
    }

    /// A netlink socket of the node.
    pub fn netlink(&self) -> Result<Netlink> {
        Netlink::open(&self.node)
    }

    /// A route by a way.
    pub fn route(&self, prefix: Prefix<u32>, way: Way) -> Change {
        Change::Route(prefix, self.next_hop(way), 0)
    }
}

/// Prefixes of the Internet's shape in random order, each once.
pub struct Routes {
    /// The prefixes.
    pub prefixes: Vec<Prefix<u32>>,
    reference: Reference<u32>,
    seed: u64,
}

impl Routes {
    /// Draws `count` of them.
    pub fn draw(count: usize, seed: u64) -> Routes {
        let mut random = Random::new(seed ^ 0x666f_726b);
        // Some lie in networks that the lab uses itself.
        let mut prefixes = generate::internet::<u32>(count + count / 50 + 64, seed);
        prefixes.retain(|prefix| prefix.len() >= 8 && forwardable4(prefix.addr()));
        for at in (1..prefixes.len()).rev() {
            prefixes.swap(at, random.below(at + 1));
        }
        prefixes.truncate(count);
        let numbered = prefixes.iter().copied().zip(1..);
        Routes { reference: Reference::new(numbered), prefixes, seed }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// An address that the route with this index decides about; none if longer prefixes cover (nearly) all of it.
    fn host(&self, route: usize, random: &mut Random) -> Option<Ipv4Addr> {
        let prefix = self.prefixes.get(route)?;
        (0..64)
            .map(|_| random_host(std::slice::from_ref(prefix), random))
            .find(|host| forwardable4(*host) && self.reference.lookup(*host) as usize == route + 1)
            .map(Ipv4Addr::from)
    }

    /// At most `count` of `routes` (their indices), evenly spread from the first to the last, with an address that each decides about.
    pub fn hosts(&self, routes: &[usize], count: usize) -> Vec<(usize, Ipv4Addr)> {
        let mut random = Random::new(self.seed ^ 0x0068_6f73_7473);
        let steps = count.min(routes.len());
        let mut hosts: Vec<(usize, Ipv4Addr)> = Vec::with_capacity(steps);
        let mut from = 0;
        for step in 0..steps {
            let place = step * (routes.len() - 1) / (steps - 1).max(1);
            // Where longer prefixes cover a route, the next one takes its turn.
            let found = (place.max(from)..routes.len())
                .take(64)
                .find_map(|at| Some((at, self.host(routes[at], &mut random)?)));
            if let Some((at, host)) = found {
                hosts.push((routes[at], host));
                from = at + 1;
            }
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_host_belongs_to_its_route() {
        let routes = Routes::draw(5000, 3);
        assert_eq!((routes.len(), routes.is_empty()), (5000, false));
        assert_eq!(routes.prefixes.iter().collect::<HashSet<_>>().len(), 5000);
        let all: Vec<usize> = (0..routes.len()).collect();
        for (wanted, least) in [(1, 1), (100, 100), (10_000, 4500)] {
            let hosts = routes.hosts(&all, wanted);
            assert!(hosts.len() >= least && hosts.len() <= wanted.min(5000), "{} of {wanted}", hosts.len());
            assert_eq!(hosts.iter().map(|(route, _)| route).collect::<HashSet<_>>().len(), hosts.len());
            for (route, host) in hosts {
                let longest = routes.prefixes.iter().enumerate();
                let longest =
                    longest.filter(|(_, p)| p.contains(u32::from(host))).max_by_key(|(_, p)| p.len());
                assert_eq!(longest.map(|(index, _)| index), Some(route), "{host}");
            }
        }
        let last = routes.hosts(&all[4900..], 3);
        assert!(last.iter().all(|(route, _)| *route >= 4900));
    }
}
