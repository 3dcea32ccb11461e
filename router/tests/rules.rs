//! Golden packets for lookup ids of several tables, in both map types. They cover rules by source and destination, `throw`, values that
//! decide by themselves, and actions that name another lookup id.
#![allow(clippy::unwrap_used)]

mod common;

use common::cases::*;
use common::packet::*;
use common::*;
use trieline_lpm::Table;
use trieline_router::{Action, DropReason, PassReason, Port, PortFlags, Rule, RuleAction, VALUE_THROW};
use trieline_testbed::needs_root;

/// Tables of IPv4 and of IPv6 routes; the first two are the bench's own, empty.
const TABLES4: [u32; 3] = [2, 3, 4];
const TABLES6: [u32; 3] = [5, 6, 7];

fn rule(from: &str, to: &str, then: RuleAction) -> Rule {
    let prefix = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    Rule { from: prefix(from), to: prefix(to), inverted: false, then }
}

/// A bench whose three tables a family say: `thrown` for throw, `near` forwards, `far` forwards through a VLAN, `gone` drops.
struct Rules {
    bench: Bench,
    /// The value of the last table's default route, and of routes of others.
    far: u32,
    dropped: u32,
}

impl Rules {
    fn new(map_type: trieline_router::ImageMapType) -> Self {
        let mut bench = Bench::new(map_type, &[]);
        let mut number = |action: Action| {
            let id = bench.dataplane.actions().alloc().unwrap();
            bench.dataplane.actions().set(id, &action).unwrap();
            id
        };
        let near = number(Action::Forward(adjacency(LO)));
        let far = number(Action::Forward(trieline_router::Adjacency { vlan: Some(100), ..adjacency(LO) }));
        let dropped = number(Action::Drop(DropReason::Blackhole));
        let again4 = number(Action::Table(TABLES4[1]));
        let again6 = number(Action::Table(TABLES6[1]));
        // back to where it came from: followed once
        let circle4 = number(Action::Table(TABLES4[0]));
        let circle6 = number(Action::Table(TABLES6[0]));
        let v4 = [
            vec![
                ("10.1.0.0/16", near),
                ("10.2.0.0/16", VALUE_THROW),
                ("10.3.0.0/16", again4),
                ("10.4.0.0/16", circle4),
            ],
            vec![("10.2.0.0/16", far), ("10.3.1.0/24", near), ("10.5.0.0/16", far)],
            vec![("0.0.0.0/0", far)],
        ];
        let v6 = [
            vec![
                ("2001:db8:1::/48", near),
                ("2001:db8:2::/48", VALUE_THROW),
                ("2001:db8:3::/48", again6),
                ("2001:db8:4::/48", circle6),
            ],
            vec![("2001:db8:2::/48", far), ("2001:db8:3:1::/64", near), ("2001:db8:5::/48", far)],
            vec![("::/0", far)],
        ];
        for (id, routes) in TABLES4.into_iter().zip(v4) {
            let routes = routes.into_iter().map(|(prefix, value)| (prefix.parse().unwrap(), value));
            Table::<u32>::create(&mut bench.image, id, routes).unwrap();
        }
        for (id, routes) in TABLES6.into_iter().zip(v6) {
            let routes = routes.into_iter().map(|(prefix, value)| (prefix.parse().unwrap(), value));
            Table::<u128>::create(&mut bench.image, id, routes).unwrap();
        }
        Self { bench, far, dropped }
    }

    /// The port follows these rules of each family.
    fn follow(&mut self, four: &[Rule], six: &[Rule], flags: PortFlags) {
        let rules = self.bench.dataplane.parts().0;
        let (table4, table6) = (rules.make(four).unwrap(), rules.make(six).unwrap());
        self.bench.dataplane.set_port(LO, None, Port { table4, table6, ..port(flags) }).unwrap();
    }

    #[track_caller]
    fn check(&self, source: &str, destination: &str, verdict: &str, vlans: Option<&[u16]>) {
        let packet =
            if source.contains(':') { ipv6(source, destination, 64) } else { ipv4(source, destination, 64) };
        let outcome = self.bench.run(&Frame::new(packet.clone()).bytes());
        assert_eq!(outcome.counted, verdict, "{source} to {destination}");
        if let Some(vlans) = vlans {
            assert_eq!(outcome.output, sent(vlans, &hop(&packet)), "{source} to {destination}");
        }
    }
}

#[test]
fn rules_decide_one_after_another() {
    needs_root!();
    for map_type in map_types() {
        let mut test = Rules::new(map_type);
        let dropped = test.dropped;
        let chain = |tables: [u32; 3], source: &'static str, destination: &'static str| {
            [
                rule(source, "", RuleAction::Table(tables[0])),
                rule("", "", RuleAction::Table(tables[1])),
                rule("", destination, RuleAction::Value(dropped)),
                rule(source, destination, RuleAction::Table(0)),
                rule(source, "", RuleAction::Table(tables[2])),
            ]
        };
        let four = chain(TABLES4, "198.51.100.0/24", "10.6.0.0/16");
        let six = chain(TABLES6, "2001:db8:9::/65", "2001:db8:6::/127");
        test.follow(&four, &six, ALL);
        for (ours, others, net, verdict) in [
            ("198.51.100.7", "198.51.101.7", "10.", "ipv4"),
            ("2001:db8:9::7", "2001:db9:9::7", "2001:db8:", "ipv6"),
        ] {
            let to = |place: u8| match (net, place) {
                ("10.", 31) => "10.3.1.1".to_owned(),
                ("10.", place) => format!("10.{place}.0.1"),
                (_, 31) => "2001:db8:3:1::1".to_owned(),
                (_, place) => format!("2001:db8:{place}::1"),
            };
            // (1) the first table, for its sources only
            test.check(ours, &to(1), verdict, Some(&[]));
            test.check(others, &to(1), "no_route", None);
            // (2) `throw` goes on
            test.check(ours, &to(2), verdict, Some(&[100]));
            // (3) another lookup id, whose routes decide; and no third one
            test.check(ours, &to(31), verdict, Some(&[]));
            test.check(ours, &to(3), "no_route", None);
            test.check(ours, &to(4), "unsupported", None);
            // (4) a later table, for all; a value by itself, for its destinations
            test.check(others, &to(5), verdict, Some(&[100]));
            test.check(others, &to(6), "blackhole", None);
            // (5) the last rule, for its sources
            test.check(ours, &to(7), verdict, Some(&[100]));
            test.check(others, &to(7), "no_route", None);
        }
        // (6) one bit beside a prefix is outside of it
        test.check("2001:db8:9::7", "2001:db8:6::2", "ipv6", Some(&[100]));
    }
}

/// `not`, `goto`, and a table but for one value (`suppress_prefixlength 0`).
#[test]
fn rules_select_others_jump_and_leave_out() {
    needs_root!();
    for map_type in map_types() {
        let mut test = Rules::new(map_type);
        let (dropped, far) = (test.dropped, test.far);
        let chain = |tables: [u32; 3], source: &'static str, destination: &'static str| {
            [
                // (0) from elsewhere: straight to the last
                Rule { inverted: true, ..rule(source, "", RuleAction::GoTo(4)) },
                // (1) not from there to here: neither prefix alone selects
                Rule { inverted: true, ..rule(source, destination, RuleAction::Table(tables[0])) },
                rule("", "", RuleAction::Except(tables[2], far)),
                // (3) past everything
                rule("", destination, RuleAction::GoTo(5)),
                rule("", "", RuleAction::Value(dropped)),
            ]
        };
        let four = chain(TABLES4, "198.51.100.0/24", "10.1.0.0/17");
        let six = chain(TABLES6, "2001:db8:9::/65", "2001:db8:1::/64");
        test.follow(&four, &six, ALL);
        test.check("198.51.101.7", "10.1.200.1", "blackhole", None);
        test.check("198.51.100.7", "10.1.200.1", "ipv4", Some(&[]));
        test.check("198.51.100.7", "10.1.0.1", "no_route", None);
        test.check("198.51.100.7", "10.7.0.1", "blackhole", None);
        test.check("2001:db9:9::7", "2001:db8:1:1::1", "blackhole", None);
        test.check("2001:db8:9::7", "2001:db8:1:1::1", "ipv6", Some(&[]));
        test.check("2001:db8:9::7", "2001:db8:1::1", "no_route", None);
        test.check("2001:db8:9::7", "2001:db8:7::1", "blackhole", None);
        let rules = test.bench.dataplane.parts().0;
        assert!(rules.make(&[rule("", "", RuleAction::GoTo(0))]).is_err(), "backwards");
        let chain = rules.make(&four).unwrap();
        let Bench { dataplane, image, fs } = test.bench;
        drop((image, dataplane));
        let lookup = trieline_router::open_readonly(&fs.path().join("node")).unwrap();
        let concerning = |from: &str, to: &str| -> Vec<RuleAction> {
            let rules = lookup.concerning(chain, from.parse().unwrap(), to.parse().unwrap());
            rules.into_iter().map(|rule| rule.then).collect()
        };
        assert_eq!(concerning("198.51.101.7", "10.1.0.1"), [RuleAction::Value(dropped)]);
        assert_eq!(concerning("198.51.100.7", "10.1.0.1"), [RuleAction::Except(TABLES4[2], far)]);
        assert_eq!(concerning("198.51.100.7", "10.7.0.1").len(), 3);
    }
}

/// The filter asks the way back by the same rules, source and destination changed over.
#[test]
fn reverse_paths_follow_rules() {
    needs_root!();
    for map_type in map_types() {
        let mut test = Rules::new(map_type);
        let four = [
            rule("", "192.0.2.0/24", RuleAction::Table(TABLES4[2])),
            rule("10.1.0.0/16", "", RuleAction::Table(TABLES4[1])),
        ];
        let six = [rule("", "", RuleAction::Table(TABLES6[2]))];
        test.follow(&four, &six, PortFlags { rpf_loose: true, ..ALL });
        // (1) the way back to 10.5.0.1 is known to packets from 10.1/16 only
        test.check("10.5.0.1", "192.0.2.1", "reverse_path", None);
        let back = [four[0], rule("192.0.2.0/24", "", RuleAction::Table(TABLES4[1]))];
        test.follow(&back, &six, PortFlags { rpf_loose: true, ..ALL });
        test.check("10.5.0.1", "192.0.2.1", "ipv4", Some(&[100]));
        test.check("10.9.0.1", "192.0.2.1", "reverse_path", None);
        // (2) strict: by the VLAN, which the port is not
        test.follow(&back, &six, PortFlags { rpf_strict: true, ..ALL });
        test.check("10.5.0.1", "192.0.2.1", "reverse_path", None);
    }
}

/// Rules given back are used again, after a grace period; a successor knows which are in use.
#[test]
fn places_are_used_again() {
    needs_root!();
    for map_type in map_types() {
        let mut test = Rules::new(map_type);
        let one = [rule("", "", RuleAction::Value(test.dropped))];
        let rules = test.bench.dataplane.parts().0;
        for _ in 0..200 {
            let lookup = rules.make(&one.repeat(32)).unwrap();
            assert!(trieline_router::is_rules(lookup));
            rules.release(lookup);
        }
        assert!(rules.make(&one.repeat(33)).is_err() && rules.make(&[]).is_err());
        let kept = [rules.make(&one.repeat(32)).unwrap(), rules.make(&one.repeat(31)).unwrap()];
        let error = rules.make(&one).unwrap_err().to_string();
        assert!(error.contains("rule"), "{error}");
        let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let Bench { dataplane, image, fs } = test.bench;
        drop((image, dataplane));
        let lookup = trieline_router::open_readonly(&fs.path().join("node")).unwrap();
        assert_eq!(lookup.concerning(kept[0], addresses[0], addresses[1]).len(), 32);
        let all = rule("", "", RuleAction::Table(7));
        assert_eq!(lookup.concerning(7, addresses[0], addresses[1]), [all]);
        drop(lookup);
        let mut dataplane = trieline_router::Dataplane::open(&options(&fs, map_type)).unwrap();
        let rules = dataplane.parts().0;
        assert!(rules.make(&one).is_err(), "what the owner before left is in use");
        rules.release_inherited();
        assert!(rules.make(&one.repeat(32)).is_ok());
    }
}

/// A pass by a value is the kernel's packet, as it came.
#[test]
fn a_value_can_pass() {
    needs_root!();
    for map_type in map_types() {
        let mut test = Rules::new(map_type);
        let (rules, actions) = test.bench.dataplane.parts();
        let id = actions.alloc().unwrap();
        actions.set(id, &Action::Pass(PassReason::Prohibit)).unwrap();
        let lookup = rules.make(&[rule("", "", RuleAction::Value(id))]).unwrap();
        test.bench
            .dataplane
            .set_port(LO, None, Port { table4: lookup, table6: lookup, ..port(ALL) })
            .unwrap();
        test.check("198.51.100.7", "10.1.0.1", "prohibit", None);
        test.check("2001:db8:9::7", "2001:db8:1::1", "prohibit", None);
    }
}
