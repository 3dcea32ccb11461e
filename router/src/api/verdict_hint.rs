//! The text for each verdict by which the kernel has the packets of a route, and what helps. It is the same wherever it is shown.

use crate::fib::cause::ON_LINK;
use crate::kernel::route::NexthopGroup;
use crate::rib::kernel_state::KernelState;
use crate::xdp::action::PassReason;

/// The reason in words, and what helps; `None`: the kernel does its own work, and nothing is to be done. `dev`: the device that the
/// packets leave by.
pub fn of(reason: PassReason, dev: &str) -> Option<String> {
    Some(match reason {
        PassReason::Local | PassReason::Unreachable | PassReason::Prohibit | PassReason::Unresolved => {
            return None;
        }
        PassReason::Unsupported => "only the kernel can follow it".into(),
        PassReason::NoDevice => format!("{dev} is not one of `devices`"),
        PassReason::NoXdpXmit => {
            format!("{dev} takes no redirected frames (a veth: ethtool -K PEER gro on, at its peer)")
        }
        PassReason::NoCarrier => format!("{dev} is down or without carrier"),
        PassReason::TableFull => {
            "no room for its action: set a larger next_hops and restart trielined, or use fewer groups".into()
        }
        PassReason::Rule => {
            "only the kernel can follow a policy rule: `trieline node status` names it".into()
        }
        PassReason::OnLink => ON_LINK.into(),
    })
}

/// The same for a nexthop group.
pub fn of_nhg(nhg: &NexthopGroup, reason: PassReason, kernel: &KernelState) -> Option<String> {
    let devices: Vec<String> = nhg.hops.iter().map(|hop| kernel.name(hop.ifindex)).collect();
    of(reason, devices.first().map_or("the device", String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::action::PASS;

    #[test]
    fn each_reason_has_its_text_or_is_the_kernels_own_work() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verdicts.md")).unwrap();
        for (reason, _) in PASS {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` | pass |", reason.name())));
            let row = row.unwrap_or_else(|| panic!("{reason:?} has no row in docs/verdicts.md"));
            match of(reason, "n9") {
                Some(text) => assert!(text.len() > 20 && !text.ends_with('.'), "{text}"),
                None => assert!(row.contains("the kernel") || row.contains("this node"), "{row}"),
            }
        }
    }
}
