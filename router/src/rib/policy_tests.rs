//! Rules of the kernel, and the steps that they become.

use super::*;

const LOCAL: FibRuleAction = FibRuleAction::Table(TABLE_LOCAL);
const MAIN: FibRuleAction = FibRuleAction::Table(TABLE_MAIN);

fn rule(priority: u32, then: FibRuleAction) -> Rule {
    Rule::lookup(2, priority, then)
}

fn from(priority: u32, net: &str, then: FibRuleAction) -> Rule {
    Rule { from: Some(net.parse().unwrap()), ..rule(priority, then) }
}

fn entries(rules: &[Rule], ingress: Ingress<'_>) -> (Vec<PolicyRule>, Vec<String>) {
    let mut punted = Vec::new();
    let entries = FibRules::new(rules.iter(), None).entries(ingress, |why| punted.push(why));
    (entries, punted)
}

const PORT: Ingress<'_> = Ingress { name: "n0", device: 7, vrf: None, filtered: false, reversed: false };
const TENANT: Ingress<'_> = Ingress { vrf: Some((9, 100)), ..PORT };

/// The rule, for packets that come in by n0 or n1, or by the VRF red.
fn by(name: &str, rule: Rule) -> Rule {
    let device = ["n0", "n1", "red"].iter().zip(7..).find(|(known, _)| **known == name);
    Rule { iif: Some(name.into()), attached: Attached::To(device.unwrap().1), ..rule }
}

/// The steps, when nothing is left to the kernel.
fn plain(rules: &[Rule], ingress: Ingress<'_>) -> Vec<PolicyAction> {
    let (entries, punted) = entries(rules, ingress);
    assert!(punted.is_empty(), "{punted:?}");
    entries.into_iter().map(|entry| entry.action).collect()
}

#[test]
fn the_default_rules_are_one_table() {
    let default = [rule(0, LOCAL), rule(32766, MAIN), rule(32767, FibRuleAction::Table(TABLE_DEFAULT))];
    assert_eq!(plain(&default, PORT), [PolicyAction::Main]);
    let with_vrfs = [&default[..], &[rule(1000, FibRuleAction::Vrf)]].concat();
    assert_eq!(plain(&with_vrfs, PORT), [PolicyAction::Main]);
    // a VRF's table comes between the two; main alone is in the merged table too, as local has been asked
    assert_eq!(
        plain(&with_vrfs, TENANT),
        [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Table(100), PolicyAction::Main]
    );
    // as the kernel's documentation advises: local comes last
    let advised = [rule(1000, FibRuleAction::Vrf), rule(32765, LOCAL), rule(32766, MAIN)];
    assert_eq!(plain(&advised, TENANT), [PolicyAction::Table(100), PolicyAction::Main]);
    assert_eq!(plain(&advised, PORT), [PolicyAction::Main]);
}

#[test]
fn rules_apply_by_priority_and_device() {
    let rules = [
        rule(32766, MAIN),
        rule(0, LOCAL),
        from(10, "10.0.0.0/8", FibRuleAction::Table(7)),
        by("n1", rule(5, FibRuleAction::Table(5))),
        by("n0", rule(20, FibRuleAction::Table(6))),
        Rule { oif: Some("n1".into()), ..rule(1, FibRuleAction::Table(8)) },
        rule(30, FibRuleAction::Nop),
        from(15, "10.1.0.0/16", FibRuleAction::Prohibit),
    ];
    let (entries, punted) = entries(&rules, PORT);
    assert!(punted.is_empty(), "{punted:?}");
    let net =
        |text: &str, action| PolicyRule { from: Some(text.parse().unwrap()), ..PolicyRule::all(action) };
    assert_eq!(
        entries,
        [
            PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)),
            net("10.0.0.0/8", PolicyAction::Table(7)),
            net("10.1.0.0/16", PolicyAction::Prohibit),
            PolicyRule::all(PolicyAction::Table(6)),
            PolicyRule::all(PolicyAction::Main)
        ]
    );
    let reversed = Ingress { reversed: true, filtered: true, ..PORT };
    assert_eq!(super::tests::entries(&rules, reversed).0, [PolicyRule::all(PolicyAction::Kernel)]);
}

/// Where table local comes first, all devices agree on the node's own addresses.
#[test]
fn sources_are_looked_up_by_the_outgoing_device() {
    let rules = [by("n1", rule(100, FibRuleAction::Table(100))), rule(32765, LOCAL), rule(32766, MAIN)];
    let reversed = Ingress { reversed: true, ..PORT };
    let (steps, why) = entries(&rules, reversed);
    assert_eq!(steps, [PolicyRule::all(PolicyAction::Kernel)]);
    assert!(why[0].contains("before table local"), "{why:?}");
    assert_eq!(plain(&rules, PORT), [PolicyAction::Main], "IPv6 asks for no source");
    let own = Rule {
        iif: Some("lo".into()),
        attached: Attached::To(LOOPBACK),
        ..rule(50, FibRuleAction::Table(9))
    };
    let behind = by("n1", rule(32765, FibRuleAction::Table(100)));
    let after = [own, rule(100, LOCAL), behind, rule(32766, MAIN)];
    let steps = [TABLE_LOCAL, 100].map(PolicyAction::Table).into_iter().chain([PolicyAction::Main]);
    let other = Ingress { device: 8, ..reversed };
    assert_eq!(plain(&after, other), steps.collect::<Vec<_>>(), "behind table local");
    assert_eq!(plain(&after, reversed), [PolicyAction::Main]);
    let usual = [&rules[..], &[rule(0, LOCAL)]].concat();
    assert_ne!(plain(&usual, reversed), [PolicyAction::Kernel]);
    assert_eq!(plain(&rules[1..], reversed), [PolicyAction::Main]);
}

/// A rule keeps a device that the kernel found by another name; without one it selects no packets.
#[test]
fn rules_select_devices_by_number() {
    let named =
        |name: &str, attached| Rule { iif: Some(name.into()), attached, ..rule(5, FibRuleAction::Table(5)) };
    let with = |rule: Rule| [super::tests::rule(0, LOCAL), rule, super::tests::rule(32766, MAIN)];
    let main = [PolicyAction::Main];
    let own = [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Table(5), PolicyAction::Main];
    assert_eq!(plain(&with(named("enp9s0", Attached::To(7))), PORT), own);
    assert_eq!(plain(&with(named("n0", Attached::To(8))), PORT), main);
    assert_eq!(plain(&with(named("n0", Attached::Nowhere)), PORT), main);
    let (steps, why) = entries(&with(named("enp9s0", Attached::Unknown)), PORT);
    let expected = [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Kernel];
    assert_eq!(steps, expected.map(PolicyRule::all));
    assert!(why[0].contains("no device has this name now"), "{why:?}");
    // the device that does not exist is not the one
    let inverted = Rule { inverted: true, ..named("n9", Attached::Nowhere) };
    assert_eq!(plain(&with(inverted), PORT), own);
}

#[test]
fn rules_that_xdp_cannot_follow_are_passed_and_reported() {
    let by_user =
        Rule { kernel: Some("users are not seen"), ..from(5, "10.0.0.0/8", FibRuleAction::Table(9)) };
    let rules = [rule(0, LOCAL), by_user.clone(), rule(32766, MAIN)];
    let (some, punted) = entries(&rules, PORT);
    assert_eq!(punted, ["5: from 10.0.0.0/8 lookup 9: users are not seen"]);
    assert_eq!((some.len(), some[1].action), (3, PolicyAction::Kernel));
    // for all packets: no rule after it counts
    let rules = [rule(0, LOCAL), Rule { from: None, ..by_user }, rule(32766, MAIN)];
    assert_eq!(entries(&rules, PORT).0.len(), 2);
    // `not`: only the kernel knows whose
    let inverted = Rule {
        inverted: true,
        kernel: Some("users are not seen"),
        ..from(5, "10.0.0.0/8", FibRuleAction::Table(9))
    };
    assert_eq!(
        entries(&[rule(0, LOCAL), inverted, rule(32766, MAIN)], PORT).0[1..],
        [PolicyRule::all(PolicyAction::Kernel)]
    );
    // no rules, no answers; main without local before it; more rules than a packet follows
    assert_eq!(entries(&[], PORT).0, [PolicyRule::all(PolicyAction::Kernel)]);
    assert_eq!(entries(&[rule(1, MAIN), rule(2, LOCAL)], PORT).0, [PolicyRule::all(PolicyAction::Kernel)]);
    let many: Vec<_> = (0..40).map(|n| rule(n, FibRuleAction::Table(n + 1))).collect();
    let (entries, punted) = super::tests::entries(&many, PORT);
    assert_eq!(
        (entries.len(), entries[RULES_MAX - 1].action, punted.len()),
        (RULES_MAX, PolicyAction::Kernel, 1)
    );
}

#[test]
fn not_selects_everybody_else() {
    let not = |priority, rule: Rule| Rule { inverted: true, priority, ..rule };
    let rules = [
        rule(0, LOCAL),
        not(5, from(0, "10.0.0.0/8", FibRuleAction::Table(5))),
        not(6, rule(0, FibRuleAction::Table(6))),
        not(7, by("n0", rule(0, FibRuleAction::Table(7)))),
        not(8, by("n1", from(0, "10.0.0.0/8", FibRuleAction::Table(8)))),
        not(9, Rule { oif: Some("n0".into()), ..rule(0, FibRuleAction::Table(9)) }),
        rule(32766, MAIN),
    ];
    let (entries, punted) = entries(&rules, PORT);
    assert!(punted.is_empty(), "{punted:?}");
    let others = PolicyRule {
        from: Some("10.0.0.0/8".parse().unwrap()),
        inverted: true,
        ..PolicyRule::all(PolicyAction::Table(5))
    };
    let all = [PolicyAction::Table(8), PolicyAction::Table(9), PolicyAction::Main].map(PolicyRule::all);
    assert_eq!(entries, [&[PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)), others][..], &all].concat());
    let reversed = Ingress { reversed: true, filtered: true, ..PORT };
    assert_eq!(super::tests::entries(&rules, reversed).0, [PolicyRule::all(PolicyAction::Kernel)]);
}

#[test]
fn marks_are_zero_unless_something_sets_them() {
    let marked = |priority, mark, mask, then| Rule { mark, mask, ..rule(priority, then) };
    let rules = [
        rule(0, LOCAL),
        marked(3, 7, u32::MAX, FibRuleAction::Prohibit),
        Rule { inverted: true, ..marked(4, 7, u32::MAX, FibRuleAction::Table(4)) },
        Rule { inverted: true, ..marked(5, 0, 0xff, FibRuleAction::Table(5)) },
        marked(6, 0, 0xff, FibRuleAction::Table(6)),
        marked(7, 0x10, 0xf, FibRuleAction::Table(7)),
        from(8, "10.0.0.0/8", FibRuleAction::GoTo(9)),
        marked(9, 1, 1, FibRuleAction::Table(9)),
        rule(32766, MAIN),
    ];
    // (1) nothing sets marks: 7 is nobody's, though others go on there
    let expected = [4, 6, 7].map(PolicyAction::Table);
    let ends = [PolicyAction::GoTo(5), PolicyAction::Main];
    assert_eq!(plain(&rules, PORT), [&[PolicyAction::Table(TABLE_LOCAL)], &expected[..], &ends].concat());
    // (2) something may: the first that asks for it is the kernel's
    let mut punted = Vec::new();
    let entries =
        FibRules::new(rules.iter(), Some("n0: ingress filters")).entries(PORT, |why| punted.push(why));
    assert_eq!(entries, [PolicyAction::Table(TABLE_LOCAL), PolicyAction::Kernel].map(PolicyRule::all));
    assert_eq!(punted, ["3: from all fwmark 0x7 prohibit: packets may have marks (n0: ingress filters)"]);
}

#[test]
fn goto_skips_rules() {
    let to = |priority, target| rule(priority, FibRuleAction::GoTo(target));
    let action = |rules: &[Rule]| plain(rules, PORT);
    // (1) all packets: what is skipped is not there; a jump to nowhere is none
    let some = [
        rule(0, LOCAL),
        to(5, 20),
        rule(10, FibRuleAction::Table(1)),
        rule(20, FibRuleAction::Table(2)),
        to(25, 26),
    ];
    let with_main = [&some[..], &[rule(32766, MAIN)]].concat();
    assert_eq!(
        action(&with_main),
        [TABLE_LOCAL, 2].map(PolicyAction::Table).into_iter().chain([PolicyAction::Main]).collect::<Vec<_>>()
    );
    // (2) some packets: past what ends the others' way
    let some = [
        rule(0, LOCAL),
        from(5, "10.0.0.0/8", FibRuleAction::GoTo(20)),
        to(6, 15),
        rule(7, FibRuleAction::Table(7)),
        rule(15, FibRuleAction::Prohibit),
        rule(20, FibRuleAction::Table(2)),
        rule(32766, MAIN),
    ];
    let expected = [
        PolicyAction::Table(TABLE_LOCAL),
        PolicyAction::GoTo(5),
        PolicyAction::GoTo(4),
        PolicyAction::Table(7),
        PolicyAction::Prohibit,
        PolicyAction::Table(2),
        PolicyAction::Main,
    ];
    assert_eq!(action(&some), expected);
    // (3) past table local, which has then not been asked
    let some = [from(0, "10.0.0.0/8", FibRuleAction::GoTo(20)), rule(1, LOCAL), rule(20, MAIN)];
    let (entries, punted) = entries(&some, PORT);
    assert_eq!((entries.len(), entries[2].action, punted.len()), (3, PolicyAction::Kernel, 1));
    // (4) beyond the last step that fits
    let many = (1..40).map(|n| rule(n, FibRuleAction::Table(n)));
    let many: Vec<_> = many.chain([from(0, "10.0.0.0/8", FibRuleAction::GoTo(39))]).collect();
    let (entries, _) = super::tests::entries(&many, PORT);
    assert_eq!((entries.len(), entries[0].action), (RULES_MAX, PolicyAction::GoTo(RULES_MAX - 1)));
    // (5) past all
    let some = [
        from(0, "10.0.0.0/8", FibRuleAction::GoTo(9)),
        rule(1, FibRuleAction::Table(1)),
        rule(9, FibRuleAction::Nop),
    ];
    assert_eq!(action(&some), [PolicyAction::GoTo(2), PolicyAction::Table(1)]);
}

#[test]
fn a_table_but_for_its_default_route_is_a_step_of_its_own() {
    let suppress = Rule { suppress_default: true, ..rule(100, MAIN) };
    let rules = [rule(0, LOCAL), suppress, rule(200, FibRuleAction::Table(7)), rule(32766, MAIN)];
    let (entries, punted) = entries(&rules, PORT);
    assert!(punted.is_empty(), "{punted:?}");
    let suppress_default = PolicyRule { suppress_default: true, ..PolicyRule::all(PolicyAction::Main) };
    let rest = [PolicyAction::Table(7), PolicyAction::Main].map(PolicyRule::all);
    assert_eq!(
        entries,
        [&[PolicyRule::all(PolicyAction::Table(TABLE_LOCAL)), suppress_default][..], &rest].concat()
    );
}

#[test]
fn devices_of_a_vrf_in_rules_are_the_kernels() {
    for name in ["n0", "red"] {
        let rules = [rule(0, LOCAL), by(name, rule(5, FibRuleAction::Table(9))), rule(32766, MAIN)];
        assert_eq!(entries(&rules, TENANT).0, [PolicyRule::all(PolicyAction::Kernel)]);
    }
}
