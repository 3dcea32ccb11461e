//! Why packets are the kernel's, in the same words wherever they are shown.

use serde_json::Value;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// SIDs in a table of their own are listed with the table. Those that no rule leads to have the reason.
#[test]
fn sids_of_all_tables_are_shown() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 rule add pref 100 to fd00:a::/64 lookup 77");
    bed.node.ip("-6 route add fd00:a::1/128 encap seg6local action End dev n1 table 77");
    bed.node.ip("-6 route add blackhole default table 77");
    bed.node.ip("-6 route add fd00:a::2/128 encap seg6local action End dev n1 table 78");
    bed.node.ip("-6 route add fd00:a::3/128 encap seg6local action End.DT6 table 99 dev n1");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let sids = || trieline(&bed.node, "-j sid show").json();
    assert!(eventually(5.0, || sids().as_array().is_some_and(|sids| sids.len() == 3)), "{:#}", sids());
    let sid = |address: &str| {
        let all = sids();
        let found = all.as_array().expect("a list").iter().find(|sid| sid["dst"] == address).cloned();
        found.unwrap_or_else(|| panic!("no {address} in {all:#}"))
    };
    let used = sid("fd00:a::1");
    assert_eq!(
        (&used["table"], &used["action"], &used["packets"]),
        (&"77".into(), &"end".into(), &0.into()),
        "{used:#}"
    );
    let unused = sid("fd00:a::2");
    let hint = unused["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("leads to table 78") && unused["packets"].is_null(), "{unused:#}");
    let text = trieline(&bed.node, "sid show fd00:a::1").ok();
    assert!(text.contains("action End") && text.contains("table 77") && text.contains("[end]"), "{text}");
    trieline(&bed.node, "sid show fd00:b::1").fails(1, &["no SID fd00:b::1 in any table"]);
}

/// A reason has the same words in `route get`, `route show`, `sid show` and `node status`.
#[test]
fn one_reason_has_one_text() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("link add o0 type veth peer name o1");
    bed.node.ip("link set o0 up");
    bed.node.ip("link set o1 up");
    bed.node.ip("addr add 10.9.0.1/24 dev o0");
    bed.node.ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev o0");
    bed.node.ip("route add 10.51.0.0/16 via 10.9.0.2");
    bed.node.ip("-6 route add fd60::/32 from fd00::/64 via fd00:1::2");
    bed.node.ip("-6 route add local fd00:c::9/128 encap seg6local action End dev n1");
    let daemon = Daemon::start(&bed.node, DEVICES);
    let hint = |value: &Value| value["hint"].as_str().unwrap_or_default().to_owned();
    for (show, address, words, is_in_status) in [
        ("route show 10.51.0.0/16", "10.51.0.1", "o0 is not one of `devices`", true),
        ("-6 route show fd60::/32", "fd60::1", "selects by more than the destination", true),
        ("sid show fd00:c::9", "fd00:c::9", "type is local", true),
    ] {
        let shown = || hint(&trieline(&bed.node, &format!("-j {show}")).json()[0]);
        let told = || hint(&trieline(&bed.node, &format!("-j route get {address}")).json()[0]);
        assert!(
            eventually(5.0, || shown().contains(words)),
            "{show}: {}
{}",
            shown(),
            daemon.log()
        );
        assert_eq!(told(), shown(), "{address}");
        assert!(trieline(&bed.node, &format!("route get {address}")).stdout.contains(&shown()), "{address}");
        let status = trieline(&bed.node, "node status").ok();
        assert!(
            !is_in_status || status.contains(&shown()),
            "{address}: {}
{status}",
            shown()
        );
    }
}

/// A rule for a range of users concerns forwarded packets only if user 0 is in it, or if it is inverted.
#[test]
fn rules_of_users_concern_user_0() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.50.0.0/16 via 10.2.0.2 table 100");
    if bed.node.try_ip("rule add pref 100 uidrange 1000-2000 lookup 100").code != 0 {
        return skip("uidrange: `ip` does not know it");
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let to = "10.50.0.1:9";
    bed.becomes("others' rule", to, (0, 5, 0));
    let punted = || status(&bed.node)["families"][0]["punted"].to_string();
    assert_eq!(punted(), "[]");
    bed.node.ip("rule add pref 90 not uidrange 1000-2000 lookup 100");
    bed.becomes("not theirs", to, (0, 0, 5));
    bed.node.ip("rule del pref 90");
    bed.becomes("theirs alone again", to, (0, 5, 0));
    bed.node.ip("rule add pref 90 uidrange 0-10 lookup 100");
    // The kernel forwards by table 100: its packets are of user 0.
    bed.becomes("user 0", to, (5, 0, 5));
    assert!(punted().contains("users are not seen"), "{}", punted());
}
