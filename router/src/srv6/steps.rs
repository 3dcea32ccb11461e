//! Prefixes whose destinations the kernel changes by itself (NEXT-C-SID), for the XDP program's guard. It follows packets that it
//! passes, and has to know the steps whatever may be done with their routes here.

use crate::kernel::route::NexthopGroup;
use crate::kernel::seg6::{ACTION_END_BPF, Behaviour, CsidLengths, Encap, Flavours, TYPE_SEG6_LOCAL};
use crate::rib::mirror::Mirror;
use crate::rib::table::Table;
use crate::srv6::csids::{CsidMap, Steps};
use std::collections::BTreeSet;
use std::net::IpAddr;
use trieline_lpm::Prefix;

fn of_nhg(nhg: &NexthopGroup) -> impl Iterator<Item = Steps> + '_ {
    nhg.hops.iter().filter_map(|hop| hop.encap.as_ref().and_then(of))
}

/// How packets to such an endpoint are given another destination that stands in this one; `None`: they are not.
fn of(encap: &Encap) -> Option<Steps> {
    match encap {
        // A decapsulation that XDP does not do either.
        Encap::Seg6Local(Behaviour {
            flavours: Flavours { usd: true, .. } | Flavours { usp: true, .. },
            ..
        }) => Some(Steps::Unknown),
        Encap::Seg6Local(Behaviour { flavours, .. }) => flavours
            .next_csid
            .map(|CsidLengths { block, node_function }| Steps::Next { block, node_function }),
        // Flavours or attributes that are not known here. The operator answers for a program's steps.
        Encap::OtherLocal(ACTION_END_BPF, _) => None,
        Encap::OtherLocal(..) | Encap::Other(TYPE_SEG6_LOCAL) => Some(Steps::Unknown),
        _ => None,
    }
}

/// The prefixes with their steps, of all tables together: which one decides for a packet is the kernel's business. O(paths), and
/// O(prefixes · tables) if there are any; O(routes) if some hang on next hop objects or multipath routes.
pub fn find(mirror: &Mirror) -> CsidMap {
    let mut prefixes = BTreeSet::new();
    let mut scattered = BTreeSet::new();
    for (id, nhg) in mirror.nhgs.iter().filter(|(_, nhg)| of_nhg(nhg).next().is_some()) {
        match nhg.sid {
            Some((IpAddr::V6(address), len)) => {
                prefixes.insert(Prefix::truncated(u128::from(address), len.into()));
            }
            _ => {
                scattered.insert(id);
            }
        }
    }
    if !scattered.is_empty() {
        let routes = mirror.v6.tables().flat_map(Table::iter);
        let found = routes.filter(|(_, routes)| routes.iter().any(|route| scattered.contains(&route.nhg)));
        prefixes.extend(found.map(|(prefix, _)| prefix));
    }
    prefixes.into_iter().filter_map(|prefix| Some((prefix, at(mirror, prefix)?))).collect()
}

/// The steps of a prefix in the tables; `None` if no table has it any more.
fn at(mirror: &Mirror, prefix: Prefix<u128>) -> Option<Steps> {
    let routes = mirror.v6.tables().filter_map(|table| Some(table.covering(prefix).next()?.1));
    let nhgs = routes.flatten().filter_map(|route| mirror.nhgs.get(route.nhg));
    nhgs.flat_map(of_nhg).reduce(|one, other| if one == other { one } else { Steps::Unknown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::family;
    use crate::kernel::route::{Nexthop, kind};
    use crate::kernel::seg6::{Endpoint, Operand};
    use crate::rib::table::{Ip, Route};

    /// Routes of table main (254) and others, with the behaviour of each; `apart`: it hangs on a next hop object.
    fn found(routes: &[(u32, &str, Encap, bool)]) -> Vec<(String, Steps)> {
        let mut mirror = Mirror::default();
        let mut tables = std::collections::BTreeMap::<u32, Vec<_>>::new();
        for (table, prefix, encap, apart) in routes {
            let prefix: Prefix<u128> = prefix.parse().unwrap();
            let mut nhg = crate::kernel::route::decode_nhg(&[]);
            (nhg.family, nhg.kind) = (family::INET6, kind::UNICAST);
            nhg.sid = (!apart).then(|| (prefix.addr().ip(), prefix.len() as u8));
            let encap = Some(encap.clone());
            nhg.hops =
                vec![Nexthop { ifindex: 1, gateway: None, onlink: false, weight: 1, dead: false, encap }];
            let nhg = mirror.nhgs.intern_nhg(nhg);
            tables.entry(*table).or_default().push((prefix, Route { metric: 1024, nhg }));
        }
        for (number, routes) in tables {
            match number {
                254 => mirror.v6.main = Table::from_dump(routes),
                number => *mirror.v6.other(number, false) = Table::from_dump(routes),
            }
        }
        find(&mirror).into_iter().map(|(prefix, steps)| (prefix.to_string(), steps)).collect()
    }

    #[test]
    fn steps_of_all_tables_are_joined() {
        let end = |flavours| {
            Encap::Seg6Local(Behaviour { endpoint: Endpoint::End, flavours, operand: Operand::None })
        };
        let csid = |block, node_function| end(Flavours::next_csid(block, node_function));
        let next = |block, node_function| Steps::Next { block, node_function };
        let plain = || end(Flavours::PSP);
        let (long, short) = ("fd00:c:1::/48", "fd00:c::/32");
        for flavours in
            [Flavours { usd: true, ..Flavours::default() }, Flavours { usp: true, ..Flavours::PSP }]
        {
            let unknown = found(&[(254, long, end(flavours), false)]);
            assert!(matches!(unknown[..], [(_, Steps::Unknown)]), "{unknown:?}");
        }
        let said = |routes: &[(u32, &str, Encap, bool)]| {
            found(routes).into_iter().map(|(prefix, steps)| (prefix.len(), steps)).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&[(254, long, plain(), false), (77, short, Encap::OtherLocal(15, Vec::new()), false)]),
            []
        );
        for apart in [false, true] {
            let one = (254, long, csid(4, 2), apart);
            assert_eq!(said(std::slice::from_ref(&one)), [(13, next(4, 2))]);
            assert_eq!(said(&[one.clone(), (77, long, csid(4, 2), false)]), [(13, next(4, 2))]);
            assert_eq!(said(&[one.clone(), (77, long, csid(4, 4), false)]), [(13, Steps::Unknown)]);
            // Another table has only the shorter one: there its lengths hold.
            let shorter = [(11, next(4, 4)), (13, Steps::Unknown)];
            assert_eq!(said(&[one.clone(), (77, short, csid(4, 4), apart)]), shorter);
            // In one table the longer prefix decides.
            let both = [(11, next(4, 4)), (13, next(4, 2))];
            assert_eq!(said(&[one.clone(), (254, short, csid(4, 4), apart)]), both);
            assert_eq!(
                said(&[one, (77, long, Encap::OtherLocal(1, Vec::new()), apart)]),
                [(13, Steps::Unknown)]
            );
        }
    }
}
