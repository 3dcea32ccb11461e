//! The answer for an address: the image's, explained by the daemon if it runs.

use super::filters;
use super::ingress::{Decided, Ingress};
use crate::client::{Names, one};
use std::net::IpAddr;
use trieline_lpm::{Memory, Reader};
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::api::route::{Explained, Route};
use trieline_router::api::route_json;
use trieline_router::{Action, Filters, PinnedMaps, Rule, VALUE_THROW};

/// How often image and daemon may disagree because a route is just changing.
const ATTEMPTS: u32 = 5;

/// The image's answer for each address, in the daemon's words if it runs.
///
/// The image decides: the daemon's explanation is taken only when it is about the very value the image gave.
pub fn answers(
    addresses: &[IpAddr],
    ingress: &Ingress,
    pinned: &PinnedMaps,
    instance: &Instance,
    names: &mut Names,
) -> anyhow::Result<Vec<Route>> {
    let memory = pinned.memory();
    let reader = Reader::new(memory.words())?;
    let first = |address: &IpAddr| {
        let number = if address.is_ipv4() { ingress.lookups.0 } else { ingress.lookups.1 };
        ingress.decide(pinned, &reader, number, *address)
    };
    // An action may name another lookup id; its answer counts, and the action is shown with it.
    let vrf_lookup =
        |address: &IpAddr, decided: Decided| match decided.value.and_then(|value| pinned.action(value)) {
            Some(Action::Table(number)) => Some(ingress.decide(pinned, &reader, number, *address)),
            _ => None,
        };
    let filtering = if ingress.filter { pinned.filters(Filters::PORTS) } else { Vec::new() };
    let mut found = vec![None; addresses.len()];
    let mut open: Vec<usize> = (0..addresses.len()).collect();
    for attempt in 0..ATTEMPTS {
        let decided: Vec<_> = open
            .iter()
            .map(|at| {
                let first = first(&addresses[*at]);
                let last = vrf_lookup(&addresses[*at], first);
                (first, last.unwrap_or(first))
            })
            .collect();
        let asked = open.iter().zip(&decided);
        let asked: Vec<_> =
            asked.map(|(at, (_, last))| (addresses[*at], last.table.unwrap_or(u32::MAX))).collect();
        let explained = explain(asked, instance)?;
        let mut differ = Vec::new();
        for (nth, (at, (first, last))) in open.iter().zip(&decided).enumerate() {
            let address = &addresses[*at];
            let mut answer =
                Route { dst: address.to_string(), source: Some("image".into()), ..Route::default() };
            if let Some(Explained { id, route }) = explained.as_ref().and_then(|all| all.get(nth)) {
                let id = id.filter(|id| *id != VALUE_THROW);
                if last.table.is_none() {
                    // A rule decides by itself; no table is asked.
                } else if id != last.value {
                    differ.push(*at);
                    if attempt + 1 < ATTEMPTS {
                        continue;
                    }
                } else {
                    answer = Route { source: Some("image+daemon".into()), ..route.clone() };
                }
            }
            answer.through = (first != last).then(|| "vrf".into());
            answer.rule = last.rule.map(|rule| selector(&rule));
            let forwards = if address.is_ipv4() { ingress.forwards.0 } else { ingress.forwards.1 };
            if last.table.is_none() && last.value.is_some() {
                // A rule decides by itself.
                answer.kind = Some("rule".into());
            }
            match last.value.map(|value| pinned.action(value)) {
                // Whatever the tables say: where no port forwards this family, its packets are the kernel's.
                Some(Some(action)) if !forwards && !matches!(action, Action::Pass(_)) => {
                    answer.action = Some("pass".into());
                    answer.reason = Some("forwarding_off".into());
                }
                Some(Some(action)) => route_json::action(&action, |ifindex| names.get(ifindex), &mut answer),
                Some(None) => answer.action = Some("pass".into()),
                None => {
                    answer.kind = Some("none".into());
                    answer.action = Some("pass".into());
                    answer.reason = Some("no_route".into());
                }
            }
            if ingress.filter {
                filters::apply(&filtering, &reader, ingress.from, *address, &mut answer);
            }
            if ingress.tenant {
                drop_for_tenant(&mut answer);
            }
            found[*at] = Some(answer);
        }
        open = differ;
        if open.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(found.into_iter().flatten().collect())
}

/// Packets that the kernel would get are dropped, except for those to the node itself.
fn drop_for_tenant(answer: &mut Route) {
    if answer.action.as_deref() != Some("pass") || answer.reason.as_deref() == Some("local") {
        return;
    }
    answer.action = Some("drop".into());
    if let Some(first) = answer.reason.replace("tenant".into()) {
        answer.first_reason = Some(first);
    }
}

/// The daemon's explanations; `None` if no daemon runs.
fn explain(asked: Vec<(IpAddr, u32)>, instance: &Instance) -> anyhow::Result<Option<Vec<Explained>>> {
    Ok(one(instance, &Request::Explain { asked })?.ok())
}

/// Which packets a rule selects, in the words of `ip rule`.
fn selector(rule: &Rule) -> String {
    let not = if rule.inverted { "not " } else { "" };
    let from = rule.from.map_or(format!("{not}from all"), |from| format!("{not}from {from}"));
    rule.to.map_or(from.clone(), |to| format!("{from} to {to}"))
}
