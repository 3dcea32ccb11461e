//! Verdicts of the ports' filters on the packets of `trieline route get`.

use super::lookup_table;
use serde_json::{Map, Value};
use std::net::IpAddr;
use trieline_dataplane::{Filter, FilterAction};
use trieline_lpm::Reader;

/// Whether a filter matches packets of unknown protocol and ports; `None`: it depends on them, or on the source.
fn matches(filter: &Filter, reader: &Reader<'_>, from: Option<IpAddr>, to: IpAddr) -> Option<bool> {
    let table = if to.is_ipv4() { filter.table4 } else { filter.table6 };
    let Some(table) = table else { return Some(false) };
    let address = if filter.source { from? } else { to };
    if lookup_table(reader, table, &address).is_none() {
        return Some(false);
    }
    (filter.protocol.is_none() && filter.ports.is_empty()).then_some(true)
}

/// Puts what the filters decide, or may decide, into the answer. Filters come before routes.
///
/// A filter that surely drops or passes the packets takes the place of the route's action. One that may do so is listed under
/// `filters_may_match`.
pub fn apply(
    filters: &[Filter],
    reader: &Reader<'_>,
    from: Option<IpAddr>,
    to: IpAddr,
    answer: &mut Map<String, Value>,
) {
    let from = from.filter(|from| from.is_ipv4() == to.is_ipv4());
    let mut may: Vec<Value> = Vec::new();
    for filter in filters.iter().filter(|filter| filter.action != FilterAction::Count) {
        match matches(filter, reader, from, to) {
            Some(false) => continue,
            None if filter.action == FilterAction::Allow => {}
            None => may.push(format!("{} ({})", filter.name, filter.action).into()),
            Some(true) if may.is_empty() && filter.action != FilterAction::Allow => {
                let pass = filter.action == FilterAction::Pass;
                for gone in ["out", "lladdr", "smac", "vlan", "paths", "first_reason"] {
                    answer.remove(gone);
                }
                answer.retain(|key, _| !key.starts_with("outer_"));
                answer.insert("action".into(), if pass { "pass" } else { "drop" }.into());
                answer.insert("reason".into(), if pass { "filter" } else { "filtered" }.into());
                answer.insert("filter".into(), filter.name.clone().into());
                return;
            }
            // It decides wherever none before it does.
            Some(true) => {
                if filter.action != FilterAction::Allow {
                    may.push(format!("{} ({})", filter.name, filter.action).into());
                }
                break;
            }
        }
    }
    if !may.is_empty() {
        answer.insert("filters_may_match".into(), may.into());
    }
}
