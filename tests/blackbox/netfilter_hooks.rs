//! Users of netfilter's hooks without rules: the kernel's own parts, IPVS, BPF programs. Packets would go past them.

use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// ILA (Identifier Locator Addressing) rewrites IPv6 packets at hook prerouting as long as it has mappings.
#[test]
fn programs_at_netfilter_hooks_are_obeyed() {
    needs_root!();
    let bed = Bed::routed();
    let reason = |family: usize| status(&bed.node)["families"][family]["reason"].to_string();
    let reported = || status(&bed.node)["bypassed"].to_string();
    let daemon = Daemon::start(&bed.node, DEVICES);
    if reported().contains("CONFIG_NETFILTER_NETLINK_HOOK") {
        println!("EXPECTED SKIP: hooks: this kernel does not tell who hangs at them, and the status says so");
        return;
    }
    let add = "ila add loc_match 1:2:3:4 loc 5:6:7:8 csum-mode no-action";
    if bed.node.try_ip(add).code != 0 {
        println!("EXPECTED SKIP: hooks: this kernel has no ILA");
        return;
    }
    assert!(eventually(10.0, || reason(1).contains("ila_nf_input of module ila")), "{}", reason(1));
    assert!(
        !reason(0).contains("ila_nf_input") && reported().contains("hook prerouting of IPv6"),
        "{}",
        reported()
    );
    bed.becomes("IPv4 is not concerned", "10.50.0.1:9", (0, 5, 0));
    bed.becomes("IPv6 is the kernel's", "[fd50::1]:9", (5, 5, 0));
    daemon.stop();
    trieline(&bed.node, "node detach").ok();
    Daemon::refused(&bed.node, DEVICES).fails(1, &["ila_nf_input of module ila", "bypass_netfilter"]);
    let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --bypass-netfilter"));
    bed.becomes("IPv6 goes past it", "[fd50::1]:9", (0, 5, 0));
}
