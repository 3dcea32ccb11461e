//! The kernel's processing of packets besides routing. The daemon does not forward past netfilter's rules unless `bypass_netfilter` is set.
//! It follows rules that come and go, and names other processing that XDP does not do.

use serde_json::Value;
use trieline_testbed::bed::{Bed, Counts, until_counts};
use trieline_testbed::command::{run, run_with};
use trieline_testbed::daemon::{Daemon, Leftovers, status, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{craft, eventually, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"beside";

/// Whether a tool is there and its kernel's side too. Says what is missing when not.
pub(crate) fn has(namespace: &Namespace, probe: &str) -> bool {
    let tool = probe.split(' ').next().unwrap_or_default();
    let there = run_with("sh", &["-c", &format!("command -v {tool}")], "").code == 0;
    let works = there && namespace.run(probe).code == 0;
    if !works {
        skip(&format!("`{probe}` {}", if there { "fails on this kernel" } else { "is not installed" }));
    }
    works
}

/// Loads rules, as `nft -f -` does.
#[track_caller]
pub(crate) fn nft(namespace: &Namespace, rules: &str) {
    run_with("ip", &["netns", "exec", namespace.name(), "nft", "-f", "-"], rules).ok();
}

fn ipv4() -> Vec<u8> {
    craft::ipv4("10.0.0.2", "10.50.0.1", MARKER, |_| {})
}

fn ipv6() -> Vec<u8> {
    craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(MARKER)), |_| {})
}

/// Waits until a packet goes as expected: (passed, sink, side).
#[track_caller]
fn becomes(bed: &Bed, what: &str, packet: &[u8], counts: Counts) {
    until_counts(what, counts, || bed.send_ip(packet, MARKER).counts());
}

/// The rows of `node status`: kind, words, whether packets are passed because of it.
fn named(bed: &Bed) -> Vec<(String, String, bool)> {
    let status = status(&bed.node);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let skipped = status["bypassed"].as_array().unwrap_or_else(|| panic!("no list in {status:#}"));
    // what this kernel does not tell is the same in every test
    let reported = skipped.iter().filter(|s| !text(&s["what"]).contains("CONFIG_NETFILTER_NETLINK_HOOK"));
    reported.map(|s| (text(&s["kind"]), text(&s["what"]), s["passes"] == true)).collect()
}

/// Rules that are there before the daemon: it refuses to start, names them and says how to go on; with `bypass_netfilter`, it forwards past
/// them.
#[test]
fn the_daemon_does_not_start_past_forward_rules() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "nft list ruleset") {
        return;
    }
    let drop_all = "table inet fw {\n chain transit {\n type filter hook forward priority 0;\n meta nfproto ipv4 counter drop\n jump more\n }\n chain more {\n }\n}";
    // (1) rules, or a policy alone, at each hook that forwarded packets meet
    for (rules, printed) in [
        (drop_all, &["inet fw", "chain transit", "hook forward", "2 rules"][..]),
        (
            "table ip6 p {\n chain f {\n type filter hook forward priority 0; policy drop;\n }\n}",
            &["ip6 p", "0 rules", "policy drop"],
        ),
        (
            "table ip nat {\n chain out {\n type nat hook postrouting priority 100;\n masquerade\n }\n}",
            &["ip nat", "postrouting", "1 rule"],
        ),
        (
            "table netdev d {\n chain in {\n type filter hook ingress device n1 priority 0;\n ip saddr 192.0.2.1 drop\n }\n}",
            &["netdev d", "hook ingress"],
        ),
    ] {
        nft(&bed.node, rules);
        let refusal = Daemon::refused(&bed.node, DEVICES);
        refusal.fails(1, printed);
        refusal.fails(1, &["bypass_netfilter = true", "remove it"]);
        assert!(!bed.node.ip("link show dev n0").contains("xdp"), "attached although refused");
        trieline(&bed.node, "node status").fails(1, &["no trielined was started"]);
        nft(&bed.node, "flush ruleset");
    }
    // (2) with bypass_netfilter, in the file as by the flag
    nft(&bed.node, drop_all);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_string_lossy().into_owned();
    let devices = "devices = [\"n0\", \"n1\", \"n2\"]\n";
    std::fs::write(&path, format!("{devices}bypass_netfilter = true\n")).expect("written");
    let daemon = Daemon::start(&bed.node, &format!("--config {path}"));
    assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "past the rules");
    let name = "nftables table inet fw, chain transit (hook forward): 2 rules";
    assert_eq!(named(&bed), [("nftables".into(), name.into(), false)]);
    assert!(daemon.log().contains(&format!("not met by what XDP forwards: {name}")), "{}", daemon.log());
    // (3) no longer
    std::fs::write(&path, devices).expect("written");
    run(&format!("kill -HUP {}", daemon.pid())).ok();
    becomes(&bed, "not accepted any more", &ipv4(), (1, 0, 0));
    assert_eq!(named(&bed), [("nftables".into(), name.into(), true)]);
    let text = trieline(&bed.node, "node status").ok();
    assert!(text.contains(&format!("passed to the kernel because of: {name}")), "{text}");
    daemon.kill();
    let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --bypass-netfilter"));
    assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "past the rules, by the flag");
}

/// Rules that come while the daemon runs, or while it does not: packets meet them, the family that they do not concern is forwarded.
#[test]
fn forward_rules_that_come_later_are_met() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "nft list ruleset") {
        return;
    }
    // (1) chains that can do nothing, and rules for what is not forwarded, are in nobody's way
    nft(
        &bed.node,
        "table ip fw {\n chain transit {\n type filter hook forward priority 0;\n }\n chain in {\n type filter hook input priority 0;\n ip saddr 192.0.2.1 drop\n }\n}\ntable inet asleep {\n flags dormant\n chain transit {\n type filter hook forward priority 0; policy drop;\n }\n}",
    );
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "an empty chain");
    assert_eq!(named(&bed), []);
    // (2) a rule
    bed.node.run("nft add rule ip fw transit meta l4proto udp drop").ok();
    becomes(&bed, "a rule that drops", &ipv4(), (1, 0, 0));
    assert_eq!(bed.send_ip(&ipv6(), MARKER).counts(), (0, 1, 0), "IPv6 beside a rule of IPv4");
    let reason = status(&bed.node)["families"][0]["reason"].to_string();
    assert!(reason.contains("table ip fw, chain transit (hook forward): 1 rule"), "{reason}");
    assert!(daemon.log().contains("netfilter rules may decide about IPv4 packets"), "{}", daemon.log());
    // (3) gone with its chain's rules, but the policy stays, then that too
    bed.node.run("nft add chain ip fw transit { policy drop ; }").ok();
    bed.node.run("nft flush chain ip fw transit").ok();
    becomes(&bed, "a policy that drops", &ipv4(), (1, 0, 0));
    bed.node.run("nft add chain ip fw transit { policy accept ; }").ok();
    becomes(&bed, "nothing left", &ipv4(), (0, 1, 0));
    assert!(daemon.log().contains("no netfilter rules decide about IPv4 packets"), "{}", daemon.log());
    // (4) a table that wakes
    bed.node.run("nft add table inet asleep").ok();
    becomes(&bed, "awake, IPv6", &ipv6(), (1, 0, 0));
    becomes(&bed, "awake, IPv4", &ipv4(), (1, 0, 0));
    bed.node.run("nft delete table inet asleep").ok();
    becomes(&bed, "deleted", &ipv6(), (0, 1, 0));
    // (5) while no daemon runs; the next one takes over what forwards and makes it meet the rule
    let leftovers = Leftovers(&bed.node);
    daemon.kill();
    bed.node.run("nft add rule ip fw transit drop").ok();
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(
        bed.send_ip(&ipv4(), MARKER).counts(),
        (1, 0, 0),
        "a rule that came meanwhile: {}",
        daemon.log()
    );
    bed.node.run("nft flush ruleset").ok();
    becomes(&bed, "flushed", &ipv4(), (0, 1, 0));
    drop((daemon, leftovers));
}

/// The legacy iptables, whose changes the kernel does not announce: a table that was only read is not in the way.
#[test]
fn rules_of_the_legacy_iptables_are_met() {
    needs_root!();
    let bed = Bed::routed();
    for (tool, packet, family) in [("iptables-legacy", ipv4(), 0), ("ip6tables-legacy", ipv6(), 1)] {
        if !has(&bed.node, &format!("{tool} -w -S FORWARD")) {
            continue;
        }
        let table = |args: &str| bed.node.run(&format!("{tool} -w {args}")).ok();
        let shown = tool.trim_end_matches("-legacy");
        // (1) before the daemon
        table("-A FORWARD -m comment --comment made_longer_by_a_match -j DROP");
        table("-A FORWARD -j ACCEPT");
        Daemon::refused(&bed.node, DEVICES)
            .fails(1, &[&format!("{shown} table filter"), "chain FORWARD", "2 rules"]);
        table("-F FORWARD");
        table(
            "-A INPUT -s ::1/128 -j DROP"
                .replace("::1/128", if family == 0 { "192.0.2.1" } else { "::1" })
                .as_str(),
        );
        let daemon = Daemon::start(&bed.node, DEVICES);
        assert_eq!(bed.send_ip(&packet, MARKER).counts(), (0, 1, 0), "{tool}: an empty chain");
        // (2) while it runs
        table("-P FORWARD DROP");
        becomes(&bed, &format!("{tool}: a policy that drops"), &packet, (1, 0, 0));
        let reason = status(&bed.node)["families"][family]["reason"].to_string();
        assert!(
            reason.contains(&format!("{shown} table filter, chain FORWARD"))
                && reason.contains("policy drop"),
            "{reason}"
        );
        table("-P FORWARD ACCEPT");
        becomes(&bed, &format!("{tool}: a policy that accepts"), &packet, (0, 1, 0));
        table("-F INPUT");
        daemon.stop();
        trieline(&bed.node, "node detach").ok();
    }
}

/// Traffic control and connection tracking are named at the start and when they come, and stop nothing.
#[test]
fn processing_that_does_not_decide_is_named() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "tc qdisc add dev n1 root tbf rate 1gbit burst 64kb latency 50ms") {
        return;
    }
    let daemon = Daemon::start(&bed.node, DEVICES);
    assert!(daemon.log().contains("not met by what XDP forwards: n1: qdisc tbf"), "{}", daemon.log());
    assert_eq!(named(&bed), [("tc".into(), "n1: qdisc tbf".into(), false)]);
    bed.node.run("tc qdisc del dev n1 root").ok();
    // Without filters nothing hangs there.
    bed.node.run("tc qdisc add dev n0 clsact").ok();
    assert!(eventually(5.0, || named(&bed).is_empty()), "{:?}", named(&bed));
    bed.node.run("tc filter add dev n0 ingress u32 match u32 0 0 action mirred egress redirect dev n2").ok();
    let expected = [("tc".into(), "n0: ingress filters".into(), false)];
    assert!(eventually(5.0, || named(&bed) == expected), "{:?}", named(&bed));
    assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "past a filter");
    bed.node.run("tc qdisc del dev n0 clsact").ok();
    if has(&bed.node, "nft list ruleset") {
        // Connections are tracked as soon as a rule asks for one, though only of packets to the node.
        nft(
            &bed.node,
            "table ip fw {\n chain in {\n type filter hook input priority 0;\n ct state established accept\n }\n}",
        );
        bed.generator.run("ping -c 1 -W 2 10.0.0.1").ok();
        let tracked = || named(&bed).iter().any(|(kind, _, passes)| kind == "conntrack" && !passes);
        assert!(eventually(5.0, tracked), "{:?}", named(&bed));
        assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "beside connection tracking");
    }
}

/// Rules as Docker writes them for its bridge, which is not trieline's: by the modern and by the legacy iptables.
fn docker(program: &str) -> Vec<String> {
    [
        "-N DOCKER",
        "-N DOCKER-ISOLATION-STAGE-1",
        "-N DOCKER-ISOLATION-STAGE-2",
        "-N DOCKER-USER",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -j DOCKER-ISOLATION-STAGE-1",
        "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A FORWARD -o docker0 -j DOCKER",
        "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        "-A FORWARD -i docker0 -o docker0 -j DROP",
        "-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT",
        "-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2",
        "-A DOCKER-ISOLATION-STAGE-1 -j RETURN",
        "-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP",
        "-A DOCKER-ISOLATION-STAGE-2 -j RETURN",
        "-A DOCKER-USER -j RETURN",
        "-t nat -N DOCKER",
        "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
        "-t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER",
        "-t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
        "-t nat -A DOCKER -i docker0 -j RETURN",
    ]
    .map(|rule| format!("{program} {rule}"))
    .to_vec()
}

/// Rules that only match devices of others do nothing to what XDP forwards; those of a source concern that source's packets. One rule that
/// may concern the others turns the family off, as ever.
#[test]
fn rules_of_other_devices_are_out_of_the_way() {
    needs_root!();
    for program in ["iptables-nft", "iptables-legacy"] {
        let bed = Bed::routed();
        if !has(&bed.node, &format!("{program} -L -n")) {
            return;
        }
        bed.node.ip("link add docker0 type bridge");
        bed.node.ip("addr add 172.17.0.1/16 dev docker0");
        for line in docker(program) {
            bed.node.run(&line).ok();
        }
        // (1) the daemon starts with them and forwards; packets from the containers' prefix are the kernel's
        let _daemon = Daemon::start(&bed.node, DEVICES);
        becomes(&bed, &format!("{program}: others' rules"), &ipv4(), (0, 1, 0));
        let from = |source: &str| craft::ipv4(source, "10.50.0.1", MARKER, |_| {});
        becomes(&bed, &format!("{program}: masqueraded"), &from("172.17.0.9"), (1, 1, 0));
        becomes(&bed, &format!("{program}: not masqueraded"), &from("172.18.0.9"), (0, 1, 0));
        let (named, counting): (Vec<_>, Vec<_>) = named(&bed).into_iter().partition(|(.., passes)| *passes);
        let printed = format!("{named:?}, {counting:?}");
        let concerned = printed.contains("which concern packets from 172.17.0.0/16");
        assert!(concerned && !named.iter().any(|(_, what, _)| what.contains("FORWARD")), "{printed}");
        let counts =
            |what: &str| what.contains("FORWARD") && what.contains("only count or log these packets");
        assert!(counting.iter().any(|(_, what, _)| counts(what)), "{printed}");
        // (2) each of these concerns others too
        for rule in [
            "FORWARD -i n0 -j DROP",
            "FORWARD -i n+ -j DROP",
            "FORWARD ! -i docker0 -j DROP",
            "FORWARD -o n1 -p udp -j DROP",
            "DOCKER-USER -p udp -j DROP",
            "FORWARD -m limit --limit 1/h -j DROP",
            "FORWARD ! -s 172.17.0.0/16 -j DROP",
            // Answers are of the connection, too: XDP would forward them past its state, or with the address that was written in.
            "FORWARD -d 172.18.0.0/16 -m conntrack --ctstate INVALID -j DROP",
            "PREROUTING -t nat -m addrtype --dst-type LOCAL -p tcp --dport 80 -j DNAT --to-destination 10.1.0.2",
            "PREROUTING -t nat -d 172.18.0.1 -j DNAT --to-destination 10.1.0.2",
        ] {
            let (chain, rest) = rule.split_once(' ').expect("a chain");
            bed.node.run(&format!("{program} -I {chain} {rest}")).ok();
            let met = eventually(10.0, || bed.send_ip(&ipv4(), MARKER).counts().0 == 1);
            assert!(met, "{program}: {rule}");
            bed.node.run(&format!("{program} -D {chain} {rest}")).ok();
            becomes(&bed, &format!("{program}: without {rule}"), &ipv4(), (0, 1, 0));
        }
        // (3) these do not
        for rule in
            ["FORWARD -i docke+ -j DROP", "FORWARD -s 10.77.0.0/16 -j DROP", "FORWARD -d 172.17.0.2 -j DROP"]
        {
            bed.node.run(&format!("{program} -A {rule}")).ok();
        }
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "{program}: none of its business");
    }
}

/// The same in the words of nft.
#[test]
fn nft_rules_of_other_devices_are_out_of_the_way() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "nft list ruleset") {
        return;
    }
    bed.node.ip("link add docker0 type bridge");
    let chain = |rules: &str| {
        format!(
            "table inet fw {{\n chain more {{\n counter\n }}\n chain f {{\n type filter hook forward priority 0;\n {rules}\n }}\n}}"
        )
    };
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for (rules, met) in [
        ("iifname \"docker0\" drop", false),
        ("iifname \"docker*\" oifname \"n1\" drop", false),
        ("iif \"docker0\" drop", false),
        ("jump more", false),
        ("iifname \"docker0\" jump more\n counter accept", false),
        ("ip saddr 10.77.0.0/16 drop", false),
        ("ip saddr 10.64.0.0/12 ip daddr 10.50.0.0/16 drop", false),
        ("ip6 saddr fd00::/16 drop", false),
        ("iifname != \"docker0\" drop", true),
        ("iifname \"n*\" drop", true),
        ("iif \"n0\" drop", true),
        ("iifname { \"docker0\", \"n0\" } drop", true),
        ("ip saddr 10.0.0.0/24 drop", true),
        ("ip saddr != 10.77.0.0/16 drop", true),
        ("meta mark set 1 iifname \"docker0\" drop", true),
        ("ip saddr vmap { 10.0.0.2 : drop }", true),
        ("meta l4proto udp drop", true),
    ] {
        nft(&bed.node, &chain(rules));
        let seen = || bed.send_ip(&ipv4(), MARKER).counts();
        assert!(
            eventually(10.0, || if met { seen().0 == 1 } else { seen() == (0, 1, 0) }),
            "{rules}: {:?}",
            seen()
        );
        if !met {
            // It was not only before trielined looked.
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "{rules}");
        }
        // Counters that XDP's packets do not reach are named.
        let counts = rules.contains("more");
        let named = || status(&bed.node)["bypassed"].to_string().contains("only count or log these packets");
        assert!(eventually(5.0, || named() == counts), "{rules}: {}", status(&bed.node)["bypassed"]);
        nft(&bed.node, "flush ruleset");
    }
}

/// Rules that neither drop nor change a forwarded packet stop nothing. They set connection tracking aside, look at it to accept, log, limit
/// or trace.
#[test]
fn rules_that_cannot_drop_are_out_of_the_way() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "nft list ruleset") {
        return;
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let mut tried = 0;
    for (hook, rules, met) in [
        ("prerouting", "notrack", false),
        ("prerouting", "counter notrack", false),
        ("forward", "ct state established,related accept", false),
        ("forward", "ct state invalid accept\n ct state new log accept", false),
        ("prerouting", "ct mark set 7", false),
        ("prerouting", "ct zone set 7", false),
        ("forward", "log prefix \"seen\"", false),
        ("forward", "limit rate 1/second log", false),
        ("forward", "quota over 10 mbytes log accept", false),
        ("forward", "meta nftrace set 1", false),
        ("forward", "counter name seen", false),
        ("forward", "ct state invalid drop", true),
        ("forward", "ct state established accept\n ip saddr 10.77.0.0/16 drop", true),
        ("forward", "limit rate over 1/second drop", true),
        ("forward", "quota over 10 mbytes drop", true),
        ("forward", "log queue-threshold 1 group 1 reject", true),
        ("prerouting", "meta mark set ct mark", true),
        ("prerouting", "notrack meta mark set 1", true),
    ] {
        let table = format!(
            "table inet fw {{\n counter seen {{\n }}\n chain f {{\n type filter hook {hook} priority -300; policy accept;\n {rules}\n }}\n}}"
        );
        let loaded = run_with("ip", &["netns", "exec", bed.node.name(), "nft", "-f", "-"], &table);
        if loaded.code != 0 {
            println!("this kernel has no `{rules}`: {}", loaded.stderr);
            continue;
        }
        tried += 1;
        let acts = |bed: &Bed| named(bed).iter().any(|(kind, _, passes)| kind == "nftables" && *passes);
        assert!(eventually(5.0, || acts(&bed) == met), "{rules}: {:?}", named(&bed));
        let expected = if met { (1, 1, 0) } else { (0, 1, 0) };
        if !rules.contains("drop") && !rules.contains("reject") {
            becomes(&bed, rules, &ipv4(), expected);
        }
        if !met {
            // It was not only before trielined looked.
            std::thread::sleep(std::time::Duration::from_millis(1200));
            assert_eq!((acts(&bed), bed.send_ip(&ipv4(), MARKER).counts()), (false, (0, 1, 0)), "{rules}");
            let missed =
                named(&bed).iter().any(|(_, what, _)| what.contains("only count or log these packets"));
            let counts = rules.contains("counter") || rules.contains("log");
            assert_eq!(missed, counts, "{rules}: {:?}", named(&bed));
        }
        nft(&bed.node, "flush ruleset");
    }
    assert!(tried > 6, "{tried}");
}

/// The same of the legacy iptables.
#[test]
fn legacy_rules_that_cannot_drop_are_out_of_the_way() {
    needs_root!();
    let bed = Bed::routed();
    if !has(&bed.node, "iptables-legacy -w -S FORWARD") {
        return;
    }
    let daemon = Daemon::start(&bed.node, DEVICES);
    for rule in [
        "-t raw PREROUTING -j CT --notrack",
        "FORWARD -j LOG",
        "FORWARD -m limit --limit 1/s -j ACCEPT",
        "FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
    ] {
        let (table, rest) = rule.strip_prefix("-t raw ").map_or(("filter", rule), |rest| ("raw", rest));
        let (chain, rest) = rest.split_once(' ').expect("a chain");
        let change = |how: &str| bed.node.run(&format!("iptables-legacy -w -t {table} {how} {chain} {rest}"));
        if change("-A").code != 0 {
            println!("this kernel has no `{rule}`");
            continue;
        }
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert_eq!(bed.send_ip(&ipv4(), MARKER).counts(), (0, 1, 0), "{rule}\n{}", daemon.log());
        assert!(named(&bed).iter().all(|(.., passes)| !passes), "{rule}: {:?}", named(&bed));
        change("-D").ok();
    }
}
