//! Verdicts of the ports' filters on the packets of `trieline route get`.

use super::ingress::lookup_table;
use std::net::IpAddr;
use trieline_lpm::Reader;
use trieline_router::api::route::Route;
use trieline_router::{Filter, FilterAction, FilterMatch};

/// Whether a filter matches packets of unknown protocol and ports; `None`: it depends on them, or on the source.
fn matches(filter: &Filter, reader: &Reader<'_>, from: Option<IpAddr>, to: IpAddr) -> Option<bool> {
    let table = if to.is_ipv4() { filter.table4 } else { filter.table6 };
    let Some(table) = table else { return Some(false) };
    let address = if filter.rule.address == FilterMatch::Source { from? } else { to };
    if lookup_table(reader, table, &address).is_none() {
        return Some(false);
    }
    (filter.rule.protocol.is_none() && filter.rule.ports.is_empty()).then_some(true)
}

/// Puts what the filters decide, or may decide, into the answer. Filters come before routes.
///
/// A filter that surely drops or passes the packets takes the place of the route's action. One that may do so is listed under
/// `filters_may_match`.
pub fn apply(filters: &[Filter], reader: &Reader<'_>, from: Option<IpAddr>, to: IpAddr, answer: &mut Route) {
    let from = from.filter(|from| from.is_ipv4() == to.is_ipv4());
    let mut may = Vec::new();
    for filter in filters.iter().filter(|filter| filter.rule.action != FilterAction::Count) {
        let (name, action) = (&filter.rule.name, filter.rule.action);
        match matches(filter, reader, from, to) {
            Some(false) => continue,
            None if action == FilterAction::Allow => {}
            None => may.push(format!("{name} ({action})")),
            Some(true) if may.is_empty() && action != FilterAction::Allow => {
                let pass = action == FilterAction::Pass;
                *answer = Route {
                    action: Some(if pass { "pass" } else { "drop" }.into()),
                    reason: Some(if pass { "filter" } else { "filtered" }.into()),
                    filter: Some(name.clone()),
                    ..without_way_out(std::mem::take(answer))
                };
                return;
            }
            // It decides wherever none before it does.
            Some(true) => {
                if action != FilterAction::Allow {
                    may.push(format!("{name} ({action})"));
                }
                break;
            }
        }
    }
    answer.filters_may_match = may;
}

/// The route without what XDP would write into the packets and where it would send them.
fn without_way_out(route: Route) -> Route {
    let (out, lladdr, smac, vlan, members, first_reason) = Default::default();
    let (outer_src, outer_dst, outer_segs, outer_bytes, outer_flow) = Default::default();
    let route = Route { out, lladdr, smac, vlan, members, first_reason, ..route };
    Route { outer_src, outer_dst, outer_segs, outer_bytes, outer_flow, ..route }
}
