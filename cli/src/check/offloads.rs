//! Offloads of a device that change its frames, or take them, before XDP sees them.

use super::finding::Finding;
use trieline_router::AttachMode;
use trieline_router::kernel::ethtool::Offload;

/// Links whose features say nothing about their frames. Of a veth those of the peer decide; a VLAN device and a bond have their frames from
/// the devices below.
const VIRTUAL: [&str; 3] = ["veth", "vlan", "bond"];

/// Offloads that trielined does not refuse: their name for `ethtool -K`, and the harm they do.
const HARMFUL: [(&str, &str); 6] = [
    ("rx-gro-hw", "joins packets in the NIC: many drivers then refuse XDP"),
    ("rx-fcs", "leaves the checksum at the end of each frame: XDP forwards it as payload"),
    ("rx-all", "lets damaged frames in: XDP forwards them"),
    ("hw-tc-offload", "lets rules of tc in the NIC take packets before XDP"),
    ("l2-fwd-offload", "gives frames of macvlans to queues of their own, past XDP"),
    ("esp-hw-offload", "lets the NIC decrypt IPsec: XDP forwards what was inside"),
];

/// Findings about the features of a device that are on; `None`: they are not known.
pub(super) fn findings(
    name: &str,
    kind: &str,
    features: Option<&[String]>,
    mode: AttachMode,
) -> Vec<Finding> {
    let Some(features) = features else {
        let mend = format!("ethtool -k {name}");
        return vec![Finding::warn(name, "offloads unknown: the kernel does not list them", mend)];
    };
    if VIRTUAL.contains(&kind) {
        return Vec::new();
    }
    let off = |offload: &str| format!("ethtool -K {name} {offload} off");
    let mut findings = Vec::new();
    for feature in features {
        if let Some(offload) = Offload::by_feature(feature) {
            let what = format!("{} {}", offload.name(), offload.harm());
            findings.push(Finding::no_go(name, what, off(offload.name())));
        }
        // In generic mode the kernel turns it off by itself.
        let is_meant =
            |offload: &str| offload == feature && (mode == AttachMode::Native || offload != "rx-gro-hw");
        if let Some((offload, harm)) = HARMFUL.iter().find(|(offload, _)| is_meant(offload)) {
            findings.push(Finding::warn(name, format!("{offload} {harm}"), off(offload)));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::go(name, "offloads: none is in the way"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn found(kind: &str, features: &[&str], mode: AttachMode) -> Vec<(Level, Option<String>)> {
        let features: Vec<String> = features.iter().map(|&name| name.to_owned()).collect();
        findings("eth0", kind, Some(&features), mode)
            .into_iter()
            .map(|found| (found.level, found.mend))
            .collect()
    }

    #[test]
    fn each_offload_in_the_way_has_its_command() {
        let off = |offload: &str| Some(format!("ethtool -K eth0 {offload} off"));
        let all =
            ["rx-lro", "rx-checksum", "rx-vlan-hw-parse", "rx-vlan-stag-hw-parse", "rx-gro-hw", "rx-fcs"];
        let expected = [
            (Level::NoGo, off("lro")),
            (Level::NoGo, off("rxvlan")),
            (Level::NoGo, off("rx-vlan-stag-hw-parse")),
            (Level::Warn, off("rx-gro-hw")),
            (Level::Warn, off("rx-fcs")),
        ];
        assert_eq!(found("", &all, AttachMode::Native), expected);
        assert_eq!(found("", &["rx-gro-hw", "rx-gro"], AttachMode::Generic), [(Level::Go, None)]);
        assert!(found("veth", &all, AttachMode::Native).is_empty());
        let unknown = findings("eth0", "", None, AttachMode::Native);
        assert_eq!((unknown[0].level, unknown[0].mend.as_deref()), (Level::Warn, Some("ethtool -k eth0")));
    }
}
