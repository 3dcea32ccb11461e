//! Policy rules by mark: what XDP sees has none. So they are followed as the kernel follows them for the mark 0, until something on
//! the node may set marks.

use crate::bypass::{has, nft};
use crate::rules::{DEVICES, kernel, ours};
use std::collections::BTreeSet;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

const MARKED: &str = "pref 20 fwmark 0x7 lookup 300";

/// A node with another default route in table 300, by the side.
fn bed() -> Bed {
    let bed = Bed::routed();
    bed.node.ip("route add default via 10.2.0.2 table 300");
    bed.node.ip("-6 route add default via fd00:2::2 table 300");
    bed
}

/// The rules that `node status` lists as left to the kernel, of both families.
fn left(bed: &Bed) -> BTreeSet<String> {
    let status = trieline(&bed.node, "-j node status").json();
    let families = status["families"].as_array().expect("families").iter();
    let left = families.flat_map(|family| family["punted"].as_array().expect("a list"));
    left.map(|line| line.as_str().expect("a text").to_owned()).collect()
}

/// Every rule by mark, in each family: answers and packets go where the kernel's do.
#[test]
fn rules_by_mark_are_followed_while_nothing_sets_marks() {
    needs_root!();
    let bed = bed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (option, to, source) in [("-4", "10.50.0.1", "10.0.0.2"), ("-6", "fd50::1", "fd00::2")] {
        let packets = if option == "-4" { "10.50.0.1:9" } else { "[fd50::1]:9" };
        let addresses = [to.to_owned()];
        for (rule, counts) in [
            (MARKED, (0, 5, 0)),
            ("pref 20 fwmark 0x10/0xf0 prohibit", (0, 5, 0)),
            ("pref 20 fwmark 0/0xff lookup 300", (0, 0, 5)),
            ("pref 20 fwmark 0x10/0xf lookup 300", (0, 0, 5)),
            ("pref 20 not fwmark 7 lookup 300", (0, 0, 5)),
            ("pref 20 not fwmark 0/0xff blackhole", (0, 5, 0)),
            ("pref 20 not to 10::/16 fwmark 0 lookup 300", (0, 0, 5)),
        ] {
            let rule = if option == "-4" { rule.replace("10::/16", "10.51.0.0/16") } else { rule.to_owned() };
            bed.node.ip(&format!("{option} rule add {rule}"));
            bed.becomes(&rule, packets, counts);
            let kernel = kernel(&bed.node, option, &addresses, source, "n0");
            assert_eq!(ours(&bed.node, &addresses, source, "n0"), kernel, "{option} {rule}");
            assert_eq!(left(&bed), BTreeSet::new(), "{option} {rule}");
            bed.node.ip(&format!("{option} rule del {rule}"));
        }
    }
}

/// Filters on the way in of a device may set marks: then what comes to such a rule is the kernel's, and it is said.
#[test]
fn with_filters_on_the_way_in_rules_by_mark_are_the_kernels() {
    needs_root!();
    let bed = bed();
    if !has(&bed.node, "tc qdisc add dev n0 clsact") {
        return;
    }
    bed.node.ip(&format!("rule add {MARKED}"));
    let _daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("no filter", "10.50.0.1:9", (0, 5, 0));
    bed.node.run("tc filter add dev n0 ingress u32 match u32 0 0 flowid 1:1").ok();
    bed.becomes("a filter", "10.50.0.1:9", (5, 5, 0));
    let expected_text = "20: from all fwmark 0x7 lookup 300: packets may have marks (n0: ingress filters)";
    assert_eq!(left(&bed), [expected_text.to_owned()].into());
    bed.becomes("a filter, no rule", "[fd50::1]:9", (0, 5, 0));
    bed.node.run("tc qdisc del dev n0 clsact").ok();
    bed.becomes("no longer", "10.50.0.1:9", (0, 5, 0));
    assert_eq!(left(&bed), BTreeSet::new());
}

/// netfilter sets marks that XDP does not see; where packets may go past its rules they still go by the mark.
#[test]
fn marks_of_netfilter_count_even_where_it_is_gone_past() {
    needs_root!();
    let bed = bed();
    if !has(&bed.node, "nft list ruleset") {
        return;
    }
    bed.node.ip(&format!("rule add {MARKED}"));
    let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --bypass-netfilter"));
    bed.becomes("no netfilter rules", "10.50.0.1:9", (0, 5, 0));
    let hook = "type filter hook prerouting priority -150;";
    nft(&bed.node, &format!("table ip mangle {{\n chain first {{\n {hook}\n meta mark set 7\n }}\n}}"));
    bed.becomes("marked by netfilter", "10.50.0.1:9", (5, 0, 5));
    assert!(
        left(&bed).iter().any(|line| line.contains("packets may have marks (nftables table ip mangle")),
        "{:?}",
        left(&bed)
    );
    nft(&bed.node, "flush ruleset");
    bed.becomes("no longer", "10.50.0.1:9", (0, 5, 0));
    assert!(eventually(5.0, || left(&bed).is_empty()), "{:?}", left(&bed));
    // Some packets only: XDP evaluates no rule of netfilter, so all packets may have a mark.
    let some = "ip daddr 10.50.0.0/16 meta mark set 7";
    nft(&bed.node, &format!("table ip mangle {{\n chain first {{\n {hook}\n {some}\n }}\n}}"));
    bed.becomes("some marked by netfilter", "10.50.0.1:9", (5, 0, 5));
}

/// A rule is named as `ip rule` names it, whatever it selects by.
#[test]
fn rules_are_named_in_the_words_of_ip() {
    needs_root!();
    let bed = bed();
    let rules = [
        (
            "-4",
            concat!(
                "pref 20 not from 192.0.2.1 to 10.0.0.0/8 tos 0x10 fwmark 0x7 iif n0 oif n1 uidrange 1-5 ipproto udp sport 5-9 dport 53 ",
                "lookup 300 suppress_prefixlength 3 suppress_ifgroup 7 realms 3/4"
            ),
        ),
        ("-4", "pref 21 fwmark 0x10/0xf tun_id 7 prohibit"),
        ("-4", "pref 22 ipproto tcp dport 80 goto 32766"),
        ("-4", "pref 23 uidrange 0-0 nop"),
        ("-4", "pref 24 to 203.0.113.7 tos 0x08 lookup default"),
        ("-6", "pref 20 from 2001:db8::/32 to 2001:db8::1 ipproto ipv6-icmp blackhole"),
        ("-6", "pref 21 fwmark 0/0xff ipproto sctp sport 7 lookup main suppress_prefixlength 8"),
    ];
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (option, rule) in rules {
        bed.node.ip(&format!("{option} rule add {rule}"));
        let listed = bed.node.ip(&format!("{option} rule list"));
        let listed = listed.lines().find(|line| line.starts_with('2')).expect("the rule");
        // Some versions write two spaces before an action.
        let line = listed.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_named = || left(&bed).iter().any(|printed| printed.starts_with(&format!("{line}: ")));
        assert!(
            eventually(5.0, is_named),
            "`ip {option} rule` says {line:?}, `node status` {:#?}",
            left(&bed)
        );
        bed.node.ip(&format!("{option} rule del {rule}"));
    }
}
