//! Flags of ports, by the kernel's state of their links.

use super::*;
use crate::kernel::addr::Addr;
use crate::kernel::netconf::{ALL, Netconf};
use crate::kernel::rule::{FibRuleAction, Rule};

fn kernel() -> KernelState {
    let mut kernel = KernelState::default();
    for family in [family::INET, family::INET6] {
        for ifindex in [ALL, 7] {
            let forwarding = Some(true);
            kernel.update_netconf(&Netconf { family, ifindex, forwarding, ..Netconf::default() });
        }
        let rules = [(0, 255), (32766, 254)];
        let rules =
            rules.map(|(priority, table)| Rule::lookup(family, priority, FibRuleAction::Table(table)));
        kernel.rules.extend(rules);
    }
    kernel
}

fn link(flags: u32) -> Link {
    let (mac, vlan, parent) = (Some([2, 0, 0, 0, 0, 1]), Some(100), Some(3));
    let (name, kind) = ("n0.100".into(), "vlan".into());
    Link {
        ifindex: 7,
        name,
        alt_names: Vec::new(),
        flags,
        mtu: 1500,
        has_ethernet: true,
        mac,
        kind,
        vlan,
        egress_qos: false,
        parent,
        master: None,
        backup: false,
        vrf_table: None,
    }
}

fn allowed(kernel: &KernelState, link: &Link) -> [bool; 3] {
    let flags = flags(kernel, link, (true, true));
    [flags.forward4, flags.forward6, flags.seg6]
}

#[test]
fn a_link_that_is_down_takes_nothing() {
    assert_eq!(allowed(&kernel(), &link(0x1_1043)), [true; 3]);
    assert_eq!(allowed(&kernel(), &link(0x1002)), [false; 3]);
}

#[test]
fn a_port_forwards_nothing_on_its_way_to_a_tenant() {
    let flags = flags(&kernel(), &link(0x1_1043), (true, true));
    let port = Port { table4: 0, table6: 1, flags, ifindex: 7, mac: [2; 6] };
    let tenants = Port { table4: 300, table6: 301, flags: PortFlags { tenant: true, ..flags }, ..port };
    for (before, after) in [(port, tenants), (tenants, port)] {
        let frozen = frozen(&before, &after).unwrap();
        assert_eq!([frozen.flags.forward4, frozen.flags.forward6, frozen.flags.seg6], [false; 3]);
        assert!(frozen.flags.tenant && (frozen.table4, frozen.table6) == (before.table4, before.table6));
    }
    assert_eq!(frozen(&port, &Port { table4: 300, ..port }), None);
}

#[test]
fn policies_leave_their_family_to_the_kernel() {
    let mut kernel = kernel();
    kernel.sysctl.policies.v4 = true;
    assert_eq!(allowed(&kernel, &link(0x1_1043)), [false, true, true]);
    kernel.sysctl.policies.v6 = true;
    assert_eq!(allowed(&kernel, &link(0x1_1043)), [false; 3]);
}

#[test]
fn every_filter_but_one_is_loose() {
    let mut kernel = kernel();
    let address = [10, 0, 0, 1].into();
    kernel.follow_address(Addr { ifindex: 7, address, peer: address, prefix_len: 24 }, true);
    for (rp_filter, loose, strict) in
        [(0, false, false), (1, false, true), (2, true, false), (3, true, false)]
    {
        let (family, rp_filter) = (family::INET, Some(rp_filter));
        kernel.update_netconf(&Netconf { family, ifindex: 7, rp_filter, ..Netconf::default() });
        let flags = flags(&kernel, &link(0x1_1043), (true, true));
        assert_eq!((flags.rpf_loose, flags.rpf_strict), (loose, strict), "{rp_filter:?}");
    }
}
