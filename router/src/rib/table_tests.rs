//! Routes of one table: the order of equal prefixes, dumps, and what each message changes.

use super::*;
use crate::kernel::route::{decode_nhg, kind};

fn route(metric: u32, nhg: NhgId) -> Route {
    Route { metric, nhg }
}

fn dump(routes: &[(&str, Route)]) -> Table<u128> {
    Table::from_dump(routes.iter().map(|(prefix, route)| (prefix.parse().unwrap(), *route)).collect())
}

/// The kernel keeps routes that select by the source apart: no other one replaces or joins them.
#[test]
fn routes_by_source_are_not_replaced_by_others() {
    let mut nhgs = NexthopGroups::default();
    let group = |kind, source_len, gateway: &str| {
        let gateway = gateway.parse().ok();
        let hop = Nexthop { ifindex: 1, gateway, onlink: false, weight: 1, dead: false, encap: None };
        NexthopGroup { family: family::INET6, kind, source_len, hops: vec![hop], ..decode_nhg(&[]) }
    };
    for (kind, gateway) in [(kind::UNICAST, "fd00::3"), (kind::THROW, "")] {
        let [from, plain, new] =
            [group(kind::UNICAST, 32, ""), group(kind::UNICAST, 0, "fd00::2"), group(kind, 0, gateway)]
                .map(|group| route(1024, nhgs.intern_nhg(group)));
        let mut routes = vec![from, plain];
        assert_eq!(add_ipv6(&mut routes, new, FLAG_REPLACE, &mut nhgs), Followed::Exactly);
        assert_eq!(routes, [from, new]);
        let mut routes = vec![from];
        assert_eq!(add_ipv6(&mut routes, new, FLAG_REPLACE, &mut nhgs), Followed::Exactly);
        assert!(routes.len() == 2 && routes.contains(&from));
    }
    // A next hop goes, and the other stays, though a route by source has the same.
    let hops = |gateways: &[&str]| {
        let hops = gateways.iter().flat_map(|gateway| group(kind::UNICAST, 0, gateway).hops);
        NexthopGroup { hops: hops.collect(), ..group(kind::UNICAST, 0, "") }
    };
    let [from, both, one, other] = [
        group(kind::UNICAST, 32, "fd00::2"),
        hops(&["fd00::2", "fd00::3"]),
        hops(&["fd00::2"]),
        hops(&["fd00::3"]),
    ]
    .map(|group| route(1024, nhgs.intern_nhg(group)));
    let mut routes = vec![from, both];
    assert_eq!(remove_ipv6(&mut routes, one, &mut nhgs), Followed::Exactly);
    assert_eq!(routes, [from, other]);
}

/// A walk that starts again tells a route twice when others came in front of it.
#[test]
fn a_route_reported_twice_is_one() {
    let mut table =
        dump(&[("2000::/16", route(7, 1)), ("2000::/16", route(7, 1)), ("2000::/16", route(9, 2))]);
    assert_eq!(table.routes(), 2);
    assert_eq!(table.get(&"2000::/16".parse().unwrap()), [route(7, 1), route(9, 2)]);
    assert_eq!(
        table.remove("2000::/16".parse().unwrap(), route(7, 1), &mut NexthopGroups::default()),
        Followed::Exactly
    );
    assert_eq!(table.routes(), 1);
}

/// Routes that changed during a dump are as they were followed, the others as dumped; a missed route stays for one dump.
#[test]
fn an_interrupted_dump_is_repaired() {
    let mut nhgs = NexthopGroups::default();
    let prefix = |text: &str| -> Prefix<u128> { text.parse().unwrap() };
    let mut before = dump(&[
        ("2000::/16", route(7, 1)),
        ("2001::/16", route(7, 1)),
        ("2001::/16", route(9, 1)),
        ("2002::/16", route(7, 1)),
        ("2003::/16", route(7, 1)),
    ]);
    before.watch();
    assert_eq!(before.remove(prefix("2000::/16"), route(7, 1), &mut nhgs), Followed::Exactly);
    assert_eq!(before.remove(prefix("2001::/16"), route(9, 1), &mut nhgs), Followed::Exactly);
    assert!(before.is_touched());
    // dumped before the removals, and without 2003::/16
    let reported = [
        ("2000::/16", route(7, 1)),
        ("2001::/16", route(7, 3)),
        ("2001::/16", route(9, 1)),
        ("2002::/16", route(7, 2)),
    ];
    let mut table = dump(&reported);
    table.repair(&before);
    assert!(table.get(&prefix("2000::/16")).is_empty());
    assert_eq!(table.get(&prefix("2001::/16")), [route(7, 3)]);
    assert_eq!(table.get(&prefix("2002::/16")), [route(7, 2)]);
    assert_eq!(table.get(&prefix("2003::/16")), [route(7, 1)]);
    assert_eq!(table.routes(), 3);
    // missed a second time: gone
    table.watch();
    let mut again = dump(&[("2001::/16", route(7, 3)), ("2002::/16", route(7, 2))]);
    again.repair(&table);
    assert!(again.get(&prefix("2003::/16")).is_empty());
}

fn group(family: u8, hops: u8, mtu: u32) -> NexthopGroup {
    let mut fixed = [0; 12];
    (fixed[0], fixed[7]) = (family, 1);
    let hop = |ifindex: u8| Nexthop {
        ifindex: ifindex.into(),
        gateway: Some([10, 0, 0, ifindex].into()),
        onlink: false,
        weight: 1,
        dead: false,
        encap: None,
    };
    NexthopGroup { mtu, hops: (1..=hops).map(hop).collect(), ..decode_nhg(&fixed) }
}

/// A next hop died after the route was made, and before it goes.
#[test]
fn routes_with_dead_next_hops_are_found() {
    let mut nhgs = NexthopGroups::default();
    let (mut table, prefix) = (Table::<u32>::default(), "10.0.0.0/8".parse().unwrap());
    let mut dead = group(family::INET, 2, 0);
    dead.hops[1].dead = true;
    let [dead, alive, other] = [dead, group(family::INET, 2, 0), group(family::INET, 2, 1400)]
        .map(|nhg| route(7, nhgs.intern_nhg(nhg)));
    assert_eq!(table.add(prefix, dead, 0, &mut nhgs), Followed::Exactly);
    assert_eq!(table.add(prefix, alive, FLAG_APPEND, &mut nhgs), Followed::Exactly);
    assert_eq!(table.get(&prefix), [dead], "the dump knew more");
    assert_eq!(table.remove(prefix, other, &mut nhgs), Followed::Ambiguously);
    assert_eq!(table.remove(prefix, alive, &mut nhgs), Followed::Exactly);
    assert!(table.is_empty());
}

/// The kernel tells the metrics of one next hop of an IPv6 route: those of the others are not known until one is left.
#[test]
fn metrics_of_other_next_hops_stay_unknown() {
    let mut nhgs = NexthopGroups::default();
    let (mut table, prefix) = (Table::<u128>::default(), "2000::/16".parse().unwrap());
    let of = |hops, mtu| group(family::INET6, hops, mtu);
    let [one, two] = [of(1, 1400), of(2, 0)].map(|nhg| route(7, nhgs.intern_nhg(nhg)));
    assert_eq!(table.add(prefix, one, 0, &mut nhgs), Followed::Exactly);
    assert_eq!(table.add(prefix, two, FLAG_APPEND, &mut nhgs), Followed::Exactly);
    let hides = |table: &Table<u128>, nhgs: &NexthopGroups| {
        table.get(&prefix).iter().all(|route| nhgs.get(route.nhg).unwrap().hides_metrics())
    };
    assert!(hides(&table, &nhgs) && nhgs.hide_metrics());
    let mut dumped = dump(&[("2000::/16", two), ("2001::/16", two)]);
    dumped.hide_metrics(&table, &mut nhgs);
    assert!(hides(&dumped, &nhgs));
    assert_eq!(dumped.get(&"2001::/16".parse().unwrap()), [two]);
    assert_eq!(dumped.remove(prefix, route(7, nhgs.intern_nhg(of(1, 0))), &mut nhgs), Followed::Ambiguously);
    let mut dumped = dump(&[("2000::/16", one)]);
    dumped.hide_metrics(&table, &mut nhgs);
    assert_eq!(dumped.get(&prefix), [one], "one next hop is left");
}

/// Whether the kernel joins routes of router advertisements no message says.
#[test]
fn routes_of_advertisements_and_sources_are_asked_for() {
    let mut nhgs = NexthopGroups::default();
    let (mut table, prefix) = (Table::<u128>::default(), "2000::/16".parse().unwrap());
    let advertised = NexthopGroup { protocol: RTPROT_RA, ..group(family::INET6, 1, 0) };
    let advertised = route(7, nhgs.intern_nhg(advertised));
    let plain = route(7, nhgs.intern_nhg(group(family::INET6, 2, 0)));
    let from = NexthopGroup { source_len: 16, ..group(family::INET6, 1, 0) };
    let from = route(7, nhgs.intern_nhg(from));
    assert_eq!(table.add(prefix, advertised, 0, &mut nhgs), Followed::Exactly);
    assert_eq!(table.add(prefix, plain, FLAG_APPEND, &mut nhgs), Followed::Ambiguously);
    assert_eq!(table.add("2001::/16".parse().unwrap(), from, 0, &mut nhgs), Followed::Ambiguously);
    assert_eq!(table.remove("2001::/16".parse().unwrap(), from, &mut nhgs), Followed::Ambiguously);
}
