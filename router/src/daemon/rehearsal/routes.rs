//! A list of routes as `ip -j route` prints it, in the place of the kernel's: each table that the list names is replaced.

use crate::kernel::route::{Nexthop, NexthopGroup, kind};
use crate::kernel::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, family};
use crate::rib::family::Family;
use crate::rib::mirror::Mirror;
use crate::rib::nexthop_group::NexthopGroups;
use crate::rib::table::{Ip, Route, Table};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};

/// The metric of an IPv6 route that names none.
const METRIC6: u32 = 1024;

/// The error of a list of routes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not such a list.
    #[error("invalid list of routes: {0}; expected the output of `ip -j route` or `ip -j -6 route`")]
    Json(#[from] serde_json::Error),
    /// It has no route.
    #[error("no routes; expected the output of `ip -j route` or `ip -j -6 route`")]
    Empty,
    /// One of its routes.
    #[error("route {number} ({dst}): {what}")]
    Route {
        /// Its place, from 1.
        number: usize,
        /// Its destination.
        dst: String,
        /// Its mistake.
        what: String,
    },
}

/// A way out, as `ip -j` prints it.
#[derive(Debug, Deserialize)]
struct Way {
    gateway: Option<IpAddr>,
    via: Option<Via>,
    dev: Option<String>,
    #[serde(default = "one")]
    weight: u16,
    #[serde(default)]
    flags: Vec<String>,
    encap: Option<Value>,
}

/// A gateway of the other family.
#[derive(Debug, Deserialize)]
struct Via {
    host: IpAddr,
}

fn one() -> u16 {
    1
}

/// A route, as `ip -j` prints it.
#[derive(Debug, Deserialize)]
struct Given {
    dst: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    table: Option<Value>,
    metric: Option<u32>,
    prefsrc: Option<IpAddr>,
    #[serde(flatten)]
    way: Way,
    nexthops: Option<Vec<Way>>,
    #[serde(default)]
    metrics: Vec<Metrics>,
    /// Selectors, which the kernel alone follows.
    tos: Option<Value>,
    from: Option<Value>,
}

/// The metrics that change what becomes of a packet.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Metrics {
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    hoplimit: u32,
}

/// Routes to be tried in the place of the kernel's.
#[derive(Debug)]
pub struct RouteList(Vec<Given>);

impl std::str::FromStr for RouteList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let routes: Vec<Given> = serde_json::from_str(text)?;
        if routes.is_empty() { Err(Error::Empty) } else { Ok(Self(routes)) }
    }
}

impl RouteList {
    /// Replaces the tables. Routes that do not show their family are of `default`.
    pub(super) fn put(self, default: u8, mirror: &mut Mirror) -> Result<(), Error> {
        let links: HashMap<String, u32> = mirror
            .kernel
            .links
            .values()
            .flat_map(|link| link.names().map(|name| (name.to_owned(), link.ifindex)))
            .collect();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (at, given) in self.0.into_iter().enumerate() {
            let (number, dst) = (at + 1, given.dst.clone());
            let fail = |what| Error::Route { number, dst: dst.clone(), what };
            let prefix = given.prefix(default).map_err(fail)?;
            // The node's own addresses stay: they are not routes that somebody chooses.
            let table = given.table().map_err(fail)?;
            if table == TABLE_LOCAL {
                continue;
            }
            match prefix {
                IpPrefix::V4(prefix) => v4.push((number, table, prefix, given)),
                IpPrefix::V6(prefix) => v6.push((number, table, prefix, given)),
            }
        }
        replace(v4, &links, &mut mirror.v4, &mut mirror.nhgs)?;
        replace(v6, &links, &mut mirror.v6, &mut mirror.nhgs)?;
        (mirror.changes.v4.all, mirror.changes.v6.all, mirror.changes.kernel) = (true, true, true);
        Ok(())
    }
}

type Numbered<A> = (usize, u32, Prefix<A>, Given);

fn replace<A: Ip>(
    routes: Vec<Numbered<A>>,
    links: &HashMap<String, u32>,
    family: &mut Family<A>,
    nhgs: &mut NexthopGroups,
) -> Result<(), Error> {
    let mut tables: BTreeMap<u32, Vec<(Prefix<A>, Route)>> = BTreeMap::new();
    for (number, table, prefix, given) in routes {
        let fail = |what: String| Error::Route { number, dst: given.dst.clone(), what };
        let into = tables.entry(table).or_default();
        if given.is_encapsulated() {
            // Its printed form has not all of it: it stays as the kernel has it.
            let known = family.table(table).map(|known| known.get(&prefix)).unwrap_or_default();
            let same = |route: &&Route| {
                nhgs.get(route.nhg).is_some_and(|nhg| nhg.hops.iter().any(|hop| hop.encap.is_some()))
            };
            let kept: Vec<_> = known.iter().filter(same).map(|route| (prefix, *route)).collect();
            if kept.is_empty() {
                return Err(fail(
                    "`encap`, and the kernel has no such route; expected one that the kernel has".into(),
                ));
            }
            into.extend(kept);
            continue;
        }
        let metric = given.metric.unwrap_or(if A::NETLINK == family::INET6 { METRIC6 } else { 0 });
        let nhg = given.nhg(A::NETLINK, links).map_err(fail)?;
        into.push((prefix, Route { metric, nhg: nhgs.intern_nhg(nhg) }));
    }
    for (number, routes) in tables {
        let table = Table::from_dump(routes);
        match number {
            TABLE_MAIN => family.main = table,
            number => *family.other(number, false) = table,
        }
    }
    family.find_reached(nhgs);
    Ok(())
}

impl Given {
    fn prefix(&self, default: u8) -> Result<IpPrefix, String> {
        if self.dst == "default" {
            let gateway = self.ways().find_map(Way::next);
            let is_v6 = match (gateway, self.prefsrc) {
                // `via` names a gateway of the other family.
                (Some(gateway), _) => gateway.is_ipv6() != self.ways().any(|way| way.via.is_some()),
                (None, Some(source)) => source.is_ipv6(),
                (None, None) => default == family::INET6,
            };
            return Ok(if is_v6 {
                IpPrefix::V6(Prefix::truncated(0, 0))
            } else {
                IpPrefix::V4(Prefix::truncated(0, 0))
            });
        }
        let host = |address: IpAddr| match address {
            IpAddr::V4(address) => IpPrefix::V4(Prefix::host(address.into())),
            IpAddr::V6(address) => IpPrefix::V6(Prefix::host(address.into())),
        };
        let parsed = self.dst.parse().or_else(|error| self.dst.parse().map(host).map_err(|_| error));
        parsed.map_err(|error| format!("invalid dst: {error}"))
    }

    fn table(&self) -> Result<u32, String> {
        let named = match &self.table {
            None => return Ok(TABLE_MAIN),
            Some(Value::Number(number)) => number.as_u64().and_then(|number| number.try_into().ok()),
            Some(Value::String(name)) => match name.as_str() {
                "main" => Some(TABLE_MAIN),
                "local" => Some(TABLE_LOCAL),
                "default" => Some(TABLE_DEFAULT),
                name => name.parse().ok(),
            },
            Some(_) => None,
        };
        named.ok_or_else(|| {
            let named = self.table.clone().unwrap_or_default();
            format!("invalid table {named}: expected a number (`ip -N -j route`), main, local or default")
        })
    }

    fn ways(&self) -> impl Iterator<Item = &Way> {
        std::iter::once(&self.way).chain(self.nexthops.iter().flatten())
    }

    fn is_encapsulated(&self) -> bool {
        self.ways().any(|way| way.encap.is_some())
    }

    /// How the packets of the route are forwarded.
    fn nhg(&self, family: u8, links: &HashMap<String, u32>) -> Result<NexthopGroup, String> {
        if self.tos.is_some() || self.from.is_some() {
            return Err(
                "it selects by more than the destination; expected a route without `tos` and `from`".into()
            );
        }
        let name = self.kind.as_deref().unwrap_or("unicast");
        let known = kind::UNICAST..=kind::THROW;
        let kind = known.into_iter().find(|kind| kind::name(*kind) == name);
        let kind = kind.ok_or_else(|| format!("invalid type {name:?}: expected one of `ip route`"))?;
        let metrics = self.metrics.first().copied().unwrap_or_default();
        let mut hops = Vec::new();
        // Routes that do not forward may name a device all the same.
        if kind == kind::UNICAST {
            match &self.nexthops {
                Some(ways) => {
                    for way in ways {
                        hops.push(way.hop(links)?);
                    }
                }
                None => hops.push(self.way.hop(links)?),
            }
        }
        Ok(NexthopGroup {
            family,
            kind,
            protocol: 0,
            scope: 0,
            tos: 0,
            source_len: 0,
            preferred: self.prefsrc,
            mtu: metrics.mtu,
            hop_limit: metrics.hoplimit,
            nexthop: None,
            expires: false,
            unknown: None,
            foreign: Vec::new(),
            sid: None,
            table: 0,
            hops,
        })
    }
}

impl Way {
    fn next(&self) -> Option<IpAddr> {
        self.gateway.or(self.via.as_ref().map(|via| via.host))
    }

    fn hop(&self, links: &HashMap<String, u32>) -> Result<Nexthop, String> {
        let dev = self.dev.as_deref().ok_or("no device; expected `dev`")?;
        let ifindex = links.get(dev).copied();
        Ok(Nexthop {
            ifindex: ifindex.ok_or_else(|| format!("{dev}: no such device in this network namespace"))?,
            gateway: self.next(),
            onlink: self.flags.iter().any(|flag| flag == "onlink"),
            weight: self.weight,
            dead: false,
            encap: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Given {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn routes_as_ip_prints_them() {
        let links = HashMap::from([("eth0".to_owned(), 2), ("eth1".to_owned(), 3)]);
        let route = given(
            r#"{"dst":"10.0.0.0/8","gateway":"192.0.2.1","dev":"eth0","protocol":"bgp","metric":20,"flags":["onlink"]}"#,
        );
        assert_eq!(route.prefix(family::INET).unwrap().to_string(), "10.0.0.0/8");
        let nhg = route.nhg(family::INET, &links).unwrap();
        assert_eq!((nhg.hops[0].ifindex, nhg.hops[0].onlink), (2, true));
        assert_eq!(nhg.hops[0].gateway, Some("192.0.2.1".parse().unwrap()));
        let route = given(
            r#"{"dst":"default","protocol":"static","flags":[],"nexthops":[{"gateway":"fe80::1","dev":"eth0","weight":1,"flags":[]},
                {"gateway":"fe80::2","dev":"eth1","weight":3,"flags":["dead"]}]}"#,
        );
        assert_eq!(route.prefix(family::INET).unwrap().to_string(), "::/0");
        assert_eq!(route.nhg(family::INET6, &links).unwrap().hops[1].weight, 3);
        let route = given(r#"{"dst":"default","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0"}"#);
        assert_eq!(route.prefix(family::INET6).unwrap().to_string(), "0.0.0.0/0");
        let route = given(r#"{"type":"blackhole","dst":"192.0.2.7","table":"100","metrics":[{"mtu":1400}]}"#);
        assert_eq!((route.table(), route.nhg(family::INET, &links).unwrap().mtu), (Ok(100), 1400));
        assert_eq!(route.prefix(family::INET).unwrap().to_string(), "192.0.2.7/32");
    }

    #[test]
    fn mistakes_are_named() {
        let links = HashMap::new();
        let refused = |text: &str| given(text).nhg(family::INET, &links).unwrap_err();
        assert!(refused(r#"{"dst":"default","dev":"eth9"}"#).contains("eth9: no such device"));
        assert!(refused(r#"{"dst":"default"}"#).contains("expected `dev`"));
        assert!(
            refused(r#"{"dst":"default","dev":"eth9","tos":"0x10"}"#).contains("more than the destination")
        );
        assert!(refused(r#"{"dst":"default","dev":"eth9","type":"nat"}"#).contains("invalid type"));
        assert!(given(r#"{"dst":"x"}"#).prefix(family::INET).is_err());
        assert!(given(r#"{"dst":"default","table":"red"}"#).table().unwrap_err().contains("ip -N"));
        assert!(matches!("[]".parse::<RouteList>(), Err(Error::Empty)));
        assert!(matches!("{}".parse::<RouteList>(), Err(Error::Json(_))));
    }
}
