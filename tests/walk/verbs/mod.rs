//! The walk's commands: random ones of every verb of `ip` that changes the way of packets, and settings.

mod addresses;
mod links;
mod routes;
mod settings;
mod state;

use crate::script::{Step, node};
pub(crate) use state::{Kinds, Verbs};

/// A family of commands, by the name that `--without` takes.
type Verb = (&'static str, usize, fn(&mut Verbs) -> Step);

/// All verbs, each with how often it comes.
const VERBS: &[Verb] = &[
    ("route4", 24, |verbs| verbs.route(false)),
    ("route6", 24, |verbs| verbs.route(true)),
    ("route-del", 14, Verbs::route_del),
    ("sid", 12, Verbs::sid),
    ("nexthop", 12, Verbs::nexthop),
    ("rule", 12, Verbs::rule),
    ("rule-del", 7, Verbs::rule_del),
    ("rule-twice", 1, Verbs::rule_twice),
    ("rule-local", 1, Verbs::rule_local),
    ("neigh", 12, Verbs::neigh),
    ("addr", 10, Verbs::addr),
    ("addr-flush", 2, Verbs::addr_flush),
    ("up-down", 6, Verbs::up_down),
    ("carrier", 5, Verbs::carrier),
    ("mtu", 5, Verbs::mtu),
    ("mac", 3, Verbs::mac),
    ("arp", 2, Verbs::arp),
    ("name", 2, Verbs::name),
    ("altname", 3, Verbs::altname),
    ("netns", 2, Verbs::netns),
    ("bridge", 4, Verbs::bridge),
    ("dummy", 2, Verbs::dummy),
    ("vlan", 8, Verbs::vlan),
    ("vrf", 8, Verbs::vrf),
    ("bond", 4, Verbs::bond),
    ("setting", 14, Verbs::setting),
    ("table-flush", 2, Verbs::table_flush),
    ("mend", 14, Verbs::mend),
];

/// Names of all verbs and attributes that can be left out.
pub(crate) fn names() -> Vec<&'static str> {
    VERBS
        .iter()
        .map(|verb| verb.0)
        .chain(routes::ATTRIBUTES.iter().copied())
        .chain(settings::names())
        .collect()
}

impl Verbs {
    /// The commands that a walk begins with.
    pub(crate) fn first(&mut self) -> Step {
        let mut step: Step = [
            "ip route add 10.50.0.0/16 via 10.1.0.2",
            "ip route add 10.51.0.0/16 via 10.2.0.2",
            "ip route add default via 10.3.0.2",
            "ip route add 10.52.0.0/16 via 10.2.0.2 table 100",
            "ip -6 route add fd50::/32 via fd00:1::2",
            "ip -6 route add fd51::/32 via fd00:2::2",
            "ip -6 route add default via fd00:3::2",
            "ip -6 route add fd52::/32 via fd00:2::2 table 100",
            "ip -6 route add fd70::/16 via fd00:1::2",
            "ip -6 route add fd71::/16 via fd00:2::2",
        ]
        .map(node)
        .to_vec();
        step.extend(self.sid());
        step
    }

    /// The next step: some commands of one verb or two.
    pub(crate) fn step(&mut self) -> Step {
        let mut step = Step::new();
        for _ in 0..1 + self.random.below(3) {
            let all: usize = VERBS.iter().map(|verb| verb.1).sum();
            let mut at = self.random.below(all);
            let verb = VERBS.iter().find(|verb| {
                let is_it = at < verb.1;
                at = at.saturating_sub(verb.1);
                is_it
            });
            let Some((name, _, make)) = verb else { continue };
            let commands = make(self);
            if self.may(name) {
                step.extend(commands);
            }
        }
        step
    }
}
