//! Routes in the words of `ip route`, with XDP's action for each.

use std::fmt::Display;
use trieline_router::api::route::Route;

/// A line of words, each after the name of its key.
#[derive(Default)]
struct Line(String);

impl Line {
    /// Adds a name, which may be empty, and its value.
    fn word(&mut self, name: &str, value: &Option<impl Display>) {
        if let Some(value) = value {
            let space = if name.is_empty() { "" } else { " " };
            self.0 += &format!("{space}{name} {value}");
        }
    }

    /// Adds a name and a list with commas.
    fn list(&mut self, name: &str, values: &[impl Display]) {
        let values: Vec<_> = values.iter().map(ToString::to_string).collect();
        self.word(name, &(!values.is_empty()).then(|| values.join(",")));
    }

    /// Adds the keys of one way out.
    fn way(&mut self, way: &Route) {
        self.word("encap", &way.encap);
        self.word("mode", &way.mode);
        self.word("action", &way.behaviour);
        self.list("segs", &way.segs);
        self.word("nh4", &way.nh4);
        self.word("nh6", &way.nh6);
        self.word("oif", &way.oif);
        self.word("table", &way.lookup);
        self.word("vrftable", &way.vrftable);
        self.list("flavors", &way.flavors);
        self.word("via", &way.gateway);
        self.word("via inet6", &way.via.as_ref().map(|via| via.host));
        self.word("dev", &way.dev);
    }

    /// Adds XDP's action.
    fn action(&mut self, route: &Route) {
        self.0 += route.action.as_deref().unwrap_or("kernel");
        for member in &route.members {
            self.0 += " (";
            self.action(member);
            self.word("weight", &member.weight);
            self.0 += ")";
        }
        self.word("", &route.reason);
        self.word("for", &route.first_reason);
        self.word("", &route.hint);
        self.word("by filter", &route.filter);
        self.list("unless a filter matches:", &route.filters_may_match);
        self.word("out", &route.out);
        self.word("", &route.lladdr);
        self.word("smac", &route.smac);
        self.word("vlan", &route.vlan);
        self.word("outer from", &route.outer_src);
        self.word("to", &route.outer_dst);
        self.list("segs", &route.outer_segs);
        self.word("flow label", &route.outer_flow);
        self.word("bytes", &route.outer_bytes);
    }
}

/// A route as `ip route` would print it, then what XDP does.
pub fn text(route: &Route) -> String {
    let mut line = Line::default();
    if let Some(kind) = &route.kind {
        line.0 += &format!("{kind} ");
    }
    line.0 += &route.dst;
    line.word("in", &route.prefix);
    line.word("rule", &route.rule);
    if route.nexthops.is_empty() {
        line.way(route);
    }
    line.word("table", &route.table);
    line.word("proto", &route.protocol);
    line.word("scope", &route.scope);
    line.word("src", &route.prefsrc);
    line.word("metric", &route.metric);
    line.word("nhid", &route.nhid);
    for way in &route.nexthops {
        line.0 += " nexthop";
        line.way(way);
        line.word("weight", &way.weight);
    }
    line.0 += "  [";
    line.action(route);
    line.0 + "]"
}
