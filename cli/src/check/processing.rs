//! Processing of the kernel that a start would refuse, or that packets would bypass.

use super::finding::Finding;
use trieline_router::bypass::scan::UNLISTED;
use trieline_router::daemon::Error;
use trieline_router::daemon::rehearsal::Rehearsal;

/// Findings about processing that a start would refuse, or that packets would bypass.
pub(super) fn processing(rehearsal: &Rehearsal) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_checked = |device: &str| rehearsal.links().any(|link| link.name == device);
    if let Some(error) = rehearsal.refusal() {
        let text = error.to_string();
        // The daemon's own words end with the way out.
        let (what, mend) = text.rsplit_once("; ").unwrap_or((&text, "trielined --verbose"));
        match error {
            // The device's own findings have it.
            Error::Offload { device, .. } if is_checked(device) => {}
            Error::Offload { device, .. } => findings.push(Finding::no_go(device, what, mend)),
            Error::Netfilter { .. } => {
                let mend = "trielined --bypass-netfilter; or find the rules: nft list ruleset";
                findings.push(Finding::no_go("netfilter", what, mend));
            }
            _ => findings.push(Finding::no_go("netfilter", what, mend)),
        }
    }
    for bypassed in rehearsal.bypassed().iter().filter(|bypassed| bypassed.kind != UNLISTED) {
        let device = bypassed.what.split(':').next().unwrap_or_default();
        let is_same =
            |known: &Finding| known.what.contains(&bypassed.what) || bypassed.what.contains(&known.what);
        if findings.iter().any(is_same) {
            continue;
        }
        let what = bypassed.to_string();
        let finding = match bypassed.kind.as_str() {
            "offload" if is_checked(device) => continue,
            // Of a bond's port, say.
            "offload" => Finding::no_go(device, what, format!("ethtool -k {device}")),
            "handler" => {
                let mend = format!("ip link set dev {device} nomaster; or give its bond instead");
                Finding::no_go(device, what, mend)
            }
            kind => Finding::warn(kind, what, shows(kind)),
        };
        findings.push(finding);
    }
    for (family, what) in rehearsal.obstacles() {
        if !findings.iter().any(|known| known.what.contains(&what)) {
            let mend = unhinder(&what);
            let what = format!("{what}: the kernel forwards all {family} packets");
            findings.push(Finding::warn("kernel", what, mend));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::go("netfilter", "no rules, tracked connections or policies are in the way"));
    }
    findings
}

/// The command that shows processing of a kind, from which the operator decides.
fn shows(kind: &str) -> &'static str {
    match kind {
        "nftables" => "nft list ruleset",
        "iptables" => "iptables-save",
        "ip6tables" => "ip6tables-save",
        "conntrack" => "conntrack -L; nft list ruleset, for the rules with ct",
        "tc" => "tc qdisc show; tc filter show",
        "macvlan" => "ip -d link show type macvlan",
        _ => "nft list ruleset; iptables-save; ip6tables-save",
    }
}

/// The command that ends an obstacle of a whole family.
fn unhinder(what: &str) -> &'static str {
    if what.contains("IPsec") {
        "ip xfrm policy show; ip xfrm policy flush"
    } else if what.contains("ip_forward_use_pmtu") {
        "sysctl -w net.ipv4.ip_forward_use_pmtu=0"
    } else {
        shows("netfilter")
    }
}
