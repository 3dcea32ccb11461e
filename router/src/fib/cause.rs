//! Why only the kernel can follow a route. It is found where the route is resolved, and kept with the route's action for all that show it.

use crate::kernel::seg6::TableRef;
use crate::kernel::{family, netconf};
use crate::rib::kernel_state::KernelState;
use crate::xdp::action::PassReason;
use std::net::IpAddr;

/// The text for [`PassReason::OnLink`].
pub(crate) const ON_LINK: &str = "nh4 is on-link, where Linux sends to the inner destination's own neighbour; give nh4 a gateway: ip route add NH4 via GATEWAY";

/// Why the kernel has the packets of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The verdict says it all.
    Verdict(PassReason),
    /// Frames cannot leave by the device (its number), for this reason.
    Exit(PassReason, u32),
    /// IPv6 forwarding is off, so that nothing leaves encapsulated.
    ForwardingOff,
    /// Something of the kernel's between routing and sending, which concerns the packets as they leave.
    Obstacle(String),
    /// A behaviour, flavour or tunnel that the XDP program does not have.
    Behaviour,
    /// A list that the XDP program cannot push: HMAC, TLVs, or more segments than there is room for.
    Segments,
    /// The device is the loopback: such an IPv6 route rejects its packets.
    Loopback,
    /// The first segment or next hop is link-local, loopback or a group. The kernel looks it up on the link that the packet came in by.
    Special(IpAddr),
    /// No route to the first segment or next hop.
    NoRoute(IpAddr),
    /// Its route does not plainly forward.
    NotForwarded(IpAddr),
    /// Its route encapsulates in its turn.
    Nested(IpAddr),
    /// Its route leads into a VRF, whose table decides about each packet.
    IntoVrf(IpAddr),
    /// Rules choose its route by the packets' source.
    BySource(IpAddr),
    /// A rule only the kernel can follow comes first.
    ByRule(IpAddr),
    /// Its routes select by more than the destination.
    ByRoute(IpAddr),
    /// Packets come to the route by devices or VRFs whose rules lead to it by different ways.
    Differs(IpAddr),
    /// The kernel chooses the outer source by more than is known: the route's device (its number) is not the way to the first segment.
    Source(u32),
    /// The outer hop limit would be 0.
    HopLimit,
    /// The table of a behaviour, and whether IPv4 is looked up in it.
    Table(TableRef, bool),
    /// Frames do not leave by this device (its number) as they are. It is a VLAN or bridge at End.DX2, a VLAN with priorities, or has no
    /// MAC address.
    Device(u32),
    /// A way of several on the link (its device's number): each destination has a neighbour of its own.
    OnLinkWay(u32),
    /// One of several ways is the kernel's. If XDP sent its own share, the kernel would share out the rest among all ways again.
    Way(Box<Cause>),
    /// More ways than a group of the XDP program holds.
    Ways,
    /// Several ways, one of them into a VRF.
    WayIntoVrf,
    /// A next hop object that trieline does not forward by.
    Object(u32),
}

impl From<PassReason> for Cause {
    fn from(reason: PassReason) -> Self {
        Self::Verdict(reason)
    }
}

impl Cause {
    /// The reason that the packets are counted by.
    pub fn reason(&self) -> PassReason {
        match self {
            Self::Verdict(reason) | Self::Exit(reason, _) => *reason,
            Self::Loopback => PassReason::Unreachable,
            Self::OnLinkWay(_) => PassReason::Unresolved,
            _ => PassReason::Unsupported,
        }
    }

    /// Whether it passes by itself: a neighbour answers, a carrier comes back, room is made.
    pub(super) fn is_passing(&self) -> bool {
        use PassReason::{NoCarrier, TableFull, Unresolved};
        matches!(self, Self::Verdict(Unresolved | TableFull) | Self::Exit(NoCarrier, _))
    }

    /// It in words, with what helps; `None`: the verdict is enough.
    pub fn text(&self, kernel: &KernelState) -> Option<String> {
        let name = |ifindex: &u32| kernel.name(*ifindex);
        Some(match self {
            Self::Verdict(PassReason::OnLink) => ON_LINK.into(),
            Self::Verdict(_) | Self::Exit(..) | Self::OnLinkWay(_) => return None,
            Self::Behaviour => "XDP has no such behaviour, flavour or mode, or this version does not know an attribute of it".into(),
            Self::ForwardingOff => "IPv6 forwarding is off: net.ipv6.conf.all.forwarding = 1".into(),
            Self::Obstacle(why) => why.clone(),
            Self::Segments => "the XDP program pushes no HMAC, no TLVs, and 32 segments at most".into(),
            Self::Loopback => {
                "an IPv6 route by the loopback rejects its packets, whatever it encapsulates; give it another device".into()
            }
            Self::Special(address) => format!(
                "Linux looks {address} up on the link that a packet came in by; give a global address that the link has"
            ),
            Self::NoRoute(address) => {
                format!("no route to {address} in the tables that the rules ask: ip route add {address} via GATEWAY")
            }
            Self::NotForwarded(address) => format!("the route to {address} does not forward: ip route get {address}"),
            Self::Nested(address) => format!("the route to {address} encapsulates, too"),
            Self::IntoVrf(address) => format!(
                "the route to {address} leads into a VRF, whose table decides about each packet; give {address} a gateway"
            ),
            Self::BySource(address) => {
                format!("rules choose the route to {address} by the packets' source (ip rule), and the ways differ")
            }
            Self::ByRule(address) => {
                format!("only the kernel can follow a rule on the way to {address} (ip rule); see `left to the kernel` in node status")
            }
            Self::ByRoute(address) => {
                format!("the route to {address} selects by more than the destination, or several are equal")
            }
            Self::Differs(address) => format!(
                "packets come to this route by devices or VRFs whose rules take different ways to {address}; give each a route in a table of its own"
            ),
            Self::Source(device) => format!(
                "the kernel chooses the outer source by device {}, which is not the way to the first segment: ip sr tunsrc set ADDRESS",
                name(device)
            ),
            Self::HopLimit => "the route's hoplimit leaves no hop to the outer packet".into(),
            Self::Table(table, v4) => return table_text(*table, *v4, kernel),
            Self::Device(device) => format!(
                "frames do not leave by {} as they are: it is a VLAN with priorities or of End.DX2, or has no MAC address",
                name(device)
            ),
            Self::Way(cause) => {
                let why = match &**cause {
                    Self::OnLinkWay(device) => format!("the way by {} has no gateway", name(device)),
                    Self::Exit(PassReason::NoDevice, device) => format!("{} is not one of `devices`", name(device)),
                    Self::Exit(_, device) => format!("{} takes no redirected frames", name(device)),
                    cause => cause.text(kernel).unwrap_or_else(|| cause.reason().name().into()),
                };
                format!("one of several ways is the kernel's, and so are all, for flows to keep their shares: {why}")
            }
            Self::Ways => "more than 128 ways".into(),
            Self::WayIntoVrf => "several ways, one of them into a VRF".into(),
            Self::Object(id) => format!(
                "next hop object {id} is a blackhole, of a bridge, or has an attribute that this version does not know"
            ),
        })
    }
}

/// Why XDP cannot look packets up in a table.
fn table_text(table: TableRef, v4: bool, kernel: &KernelState) -> Option<String> {
    let number = match table {
        TableRef::Table(number) => {
            return Some(format!(
                "rules of netfilter concern packets of table {number}, or the image has no room for it"
            ));
        }
        TableRef::Vrf(number) => number,
    };
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
    match kernel.rp_filter(vrf) {
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
