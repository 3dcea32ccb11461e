//! Why the packets of a route are the kernel's, where a person can do something about it: in words, with what helps.

use crate::kernel::route::{NexthopGroup, kind};
use crate::kernel::seg6::{Behaviour, Encap, Endpoint, Operand, TableRef};
use crate::kernel::{family, netconf};
use crate::rib::kernel_state::KernelState;
use crate::xdp::action::PassReason;

/// The reason why only the kernel can follow a path, and what helps; `None`: the verdict is enough.
pub fn of(nhg: &NexthopGroup, reason: PassReason, kernel: &KernelState) -> Option<String> {
    if let Some(unknown) = nhg.unknown {
        return Some(format!("this version of trieline does not know {unknown}"));
    }
    if nhg.tos != 0 || nhg.source_len != 0 {
        return Some("the route selects by more than the destination (tos, from)".into());
    }
    let endpoint = nhg.hops.iter().find_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(behaviour)) => Some(behaviour),
        _ => None,
    });
    match (reason, endpoint) {
        (PassReason::OnLink, _) => Some(
            "nh4 is on-link, where Linux sends to the inner destination's own neighbour; give nh4 a gateway: ip route add NH4 via \
             GATEWAY"
                .into(),
        ),
        (PassReason::Unsupported, Some(Behaviour { endpoint, operand: Operand::Table(table), .. })) => {
            let v4 = matches!(endpoint, Endpoint::EndDt4 | Endpoint::EndDt46);
            vrf(*table, v4, kernel)
        }
        (PassReason::Unsupported, None) if nhg.kind == kind::UNICAST && nhg.hops.is_empty() => nhg
            .nexthop
            .map(|id| format!("next hop object {id} is a blackhole, of a bridge, or has an attribute that this version does not know")),
        _ => None,
    }
}

/// Which setting of a VRF keeps XDP from looking packets up in it.
fn vrf(table: TableRef, v4: bool, kernel: &KernelState) -> Option<String> {
    let TableRef::Vrf(number) = table else { return None };
    let Some(vrf) = kernel.links.values().find(|link| link.vrf_table == Some(number)) else {
        return Some(format!("no VRF has table {number}"));
    };
    let name = &vrf.name;
    if !vrf.is_up() {
        return Some(format!("VRF {name} is down: ip link set {name} up"));
    }
    let families = [(family::INET, "ipv4", v4), (family::INET6, "ipv6", true)];
    for (family, ip, _) in families.into_iter().filter(|(_, _, concerned)| *concerned) {
        if !kernel.forwards(family, vrf.ifindex) {
            return Some(format!("forwarding is off in VRF {name}: net.{ip}.conf.{name}.forwarding = 1"));
        }
    }
    // The kernel takes the larger number of the two.
    let all = kernel.netconf(family::INET, netconf::ALL).rp_filter.unwrap_or(0);
    match kernel.rp_filter(vrf.ifindex) {
        0 => None,
        _ if !v4 => None,
        mode if all != 0 => Some(format!(
            "rp_filter is {mode} in VRF {name}, which only the kernel can follow there: net.ipv4.conf.all.rp_filter = 0 and \
             net.ipv4.conf.{name}.rp_filter = 0"
        )),
        mode => Some(format!(
            "rp_filter is {mode} in VRF {name}, which only the kernel can follow there: net.ipv4.conf.{name}.rp_filter = 0"
        )),
    }
}
