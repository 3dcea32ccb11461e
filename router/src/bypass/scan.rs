//! Processing of the kernel that packets bypass when XDP forwards them: found, named, and obeyed where it decides about packets.

use crate::bypass::hooks::{self, Handler};
use crate::bypass::iptables;
use crate::bypass::netfilter::{self, Chain, Hook, Reach};
use crate::bypass::reach::{Forwarded, Own, nftables};
use crate::bypass::rx_handler_scan::{Devices, RxHandlerScan};
use crate::bypass::state::Bypass;
use crate::kernel::ethtool::Offloads;
use crate::kernel::family;
use crate::kernel::link::{Link, mac_text};
use crate::kernel::optional::Part;
use crate::kernel::socket::{self, Netlink, Received};
use crate::kernel::traffic;
use crate::rib::kernel_state::KernelState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

/// [`Bypassed::kind`] of the note that the kernel does not list the users of netfilter's hooks.
pub const UNLISTED: &str = "hooks";

/// Something that the kernel does to packets and XDP does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bypassed {
    /// `nftables`, `iptables`, `ip6tables`, `netfilter` (not known which), `conntrack`, `tc`, `offload`, `handler`, `macvlan`; `hooks`: the kernel does not list
    /// who is at netfilter's hooks.
    pub kind: String,
    /// In words.
    pub what: String,
    /// Families concerned: `inet`, `inet6`.
    pub families: Vec<String>,
    /// Because of it their packets are passed to the kernel; else they go past it.
    pub passes: bool,
}

impl std::fmt::Display for Bypassed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line =
            if self.passes { "passed to the kernel because of" } else { "not met by what XDP forwards" };
        write!(f, "{line}: {}", self.what)
    }
}

/// Questions to the kernel about bypassed processing, with the answers so far.
#[derive(Debug, Default)]
pub struct Probes {
    /// Receive handlers that take packets.
    pub rx_handlers: RxHandlerScan,
    /// Offloads of devices.
    pub offloads: Offloads,
}

impl Bypass {
    /// Asks the kernel; `vrf`: routes lead into VRF devices, whose packets meet hook output. O(chains + rules of legacy iptables +
    /// disciplines and filters).
    pub fn read(
        probes: &mut Probes,
        requests: &mut Netlink,
        kernel: &KernelState,
        devices: &Devices,
        vrf: bool,
    ) -> Self {
        // Frames of a given bond come in and leave by its ports.
        let of_given = |link: &&Link| link.master.is_some_and(|master| devices.contains_key(&master));
        let ports: Vec<_> = kernel.links.values().filter(of_given).collect();
        let names: Vec<&str> =
            devices.values().map(String::as_str).chain(ports.iter().map(|link| link.name.as_str())).collect();
        let tunnels = setting("nf_hooks_lwtunnel") > 0;
        let meets = |hook| tunnels || hook != Hook::Input && (hook != Hook::Output || vrf);
        let own = own(kernel, devices);
        let forwarded = Forwarded { devices: &own };
        let (chains, handlers, unknown) = match netfilter(meets, forwarded) {
            Ok((chains, handlers)) => (chains, handlers, None),
            Err(error) => (Vec::new(), None, Some(format!("cannot read netfilter's rules: {error}"))),
        };
        let met = chains.into_iter().filter(|chain| meets(chain.hook) && chain.is_at(&names));
        let (chains, others): (Vec<_>, Vec<_>) = met.partition(Chain::acts);
        // For a veth, the peer's setting decides whether a tag comes beside the frame; the veth itself always says "on". A VLAN
        // device has its frames from the one below, a bond from its ports.
        let hands_over = |kind: &str| !["veth", "vlan", "bond"].contains(&kind);
        // The packets of a bond come in by its ports.
        let is_given = |link: &&Link| {
            let bond =
                || link.master.filter(|master| kernel.links.get(master).is_some_and(|on| on.kind == "bond"));
            devices.contains_key(&link.ifindex) || bond().is_some_and(|bond| devices.contains_key(&bond))
        };
        let checked = kernel.links.values().filter(|link| is_given(link) && hands_over(&link.kind));
        let given = || devices.keys().filter_map(|device| kernel.links.get(device));
        let below = given().filter(|link| link.kind != "veth").filter_map(|link| link.parent);
        let numbers =
            devices.keys().copied().chain(ports.iter().map(|link| link.ifindex)).chain(below).collect();
        let traffic = traffic::read(requests, &numbers).unwrap_or_default();
        let named = traffic.into_iter().map(|(device, traffic)| (kernel.name(device), traffic));
        let loops = given().filter(|link| link.kind == "veth" && link.parent.is_some());
        Self {
            chains,
            counting: others.into_iter().filter(|chain| chain.counts).collect(),
            handlers,
            ipvs: std::path::Path::new("/proc/thread-self/net/ip_vs").exists(),
            unknown,
            conntrack: setting("nf_conntrack_count") > 0,
            offloads: probes.offloads.in_the_way(checked.map(|link| link.ifindex)).unwrap_or_default(),
            rx_handlers: probes.rx_handlers.of(kernel, devices),
            traffic: named.collect(),
            macvlans: macvlans(kernel, devices),
            loops: loops.map(|link| link.name.clone()).collect(),
        }
    }

    /// All of it in words; `accepted`: packets go past netfilter's rules.
    pub fn bypassed(&self, kernel: &KernelState) -> Vec<Bypassed> {
        let accepted = kernel.settings.bypass_netfilter;
        let bypassed = |kind: &str, what: String, v4: bool, v6: bool, passes: bool| {
            let families = [("inet", v4), ("inet6", v6)].into_iter().filter(|(_, concerned)| *concerned);
            Bypassed {
                kind: kind.into(),
                what,
                families: families.map(|(name, _)| name.to_owned()).collect(),
                passes,
            }
        };
        let chains = self.chains.iter().map(|chain| {
            let [v4, v6] = [family::INET, family::INET6].map(|family| chain.concerns(family));
            bypassed(chain.tool, chain.to_string() + &in_parts(chain), v4, v6, !accepted)
        });
        let counting = self.counting.iter().map(|chain| {
            let what = format!("{chain}: its rules only count or log these packets");
            bypassed(chain.tool, what, chain.v4, chain.v6, false)
        });
        let unknown =
            self.unknown.iter().map(|why| bypassed("netfilter", why.clone(), true, true, !accepted));
        let handlers = self.handlers.iter().flatten().map(|handler| {
            let v4 = handler.family == family::INET;
            bypassed("netfilter", handler.to_string(), v4, !v4, !accepted)
        });
        // Of interest only where something is known that may be there; `UNLISTED` entries are for scripts.
        let unlisted = match self.ipvs {
            true => ("netfilter", "IPVS is loaded, and this kernel does not list netfilter's hooks"),
            false => (UNLISTED, "this kernel does not list netfilter's hooks"),
        };
        let unlisted = (self.handlers.is_none() && self.unknown.is_none()).then(|| {
            let what = format!("{} (CONFIG_NETFILTER_NETLINK_HOOK is not set)", unlisted.1);
            bypassed(unlisted.0, what, true, true, false)
        });
        let conntrack = "the kernel tracks connections, but not those that XDP forwards";
        let conntrack =
            self.conntrack.then(|| bypassed("conntrack", conntrack.into(), true, true, false)).into_iter();
        let traffic = self.traffic.iter().flat_map(|(device, traffic)| {
            let disciplines = traffic.disciplines.iter().map(move |kind| format!("{device}: qdisc {kind}"));
            let filters = [("ingress", traffic.ingress), ("egress", traffic.egress)].into_iter();
            let filters =
                filters.filter(|(_, has)| *has).map(move |(way, _)| format!("{device}: {way} filters"));
            disciplines.chain(filters)
        });
        let traffic = traffic.map(|what| bypassed("tc", what, true, true, false));
        let offloads = self.offloads.iter().map(|(device, offload)| {
            let (dev, name, harm) = (kernel.name(*device), offload.name(), offload.harm());
            bypassed(
                "offload",
                format!("{dev}: {name} {harm} (ethtool -K {dev} {name} off)"),
                true,
                true,
                true,
            )
        });
        let rx_handlers = self.rx_handlers.iter().map(|(device, what)| {
            let what =
                format!("{}: {what} takes its packets before the kernel routes them", kernel.name(*device));
            bypassed("handler", what, true, true, true)
        });
        let macvlans = self.macvlans.iter().map(|(device, what)| {
            bypassed("macvlan", format!("{}: {what}", kernel.name(*device)), true, true, true)
        });
        chains
            .chain(counting)
            .chain(handlers)
            .chain(rx_handlers)
            .chain(macvlans)
            .chain(unknown)
            .chain(unlisted)
            .chain(offloads)
            .chain(conntrack)
            .chain(traffic)
            .collect()
    }
}

/// Macvlans on devices, whose frames XDP passes: they come in by another device, with settings of its own.
fn macvlans(kernel: &KernelState, devices: &Devices) -> Vec<(u32, String)> {
    let macvlans = kernel.links.values().filter(|link| link.kind == "macvlan" && link.is_up());
    let reported = macvlans.filter_map(|link| {
        let device = link.parent.filter(|parent| devices.contains_key(parent))?;
        let (mac, name) = (mac_text(&link.mac?), &link.name);
        Some((
            device,
            format!(
                "packets to {mac} go to macvlan {name} (VRRP: keepalived without use_vmac leaves them to XDP)"
            ),
        ))
    });
    reported.collect()
}

/// The list of the hooks' users, nftables, and the socket for requests to both.
static HOOKS_PART: Part = Part::new(&["nfnetlink_hook"]);
static NFTABLES: Part = Part::new(&["nf_tables"]);
static NFNETLINK: Part = Part::new(&["nfnetlink"]);

/// Chains of nftables and of the legacy iptables, and who else hangs at the hooks that `meets` picks.
fn netfilter(
    meets: impl Fn(Hook) -> bool,
    forwarded: Forwarded<'_>,
) -> Result<(Vec<Chain>, Option<Vec<Handler>>), String> {
    let mut chains = iptables::chains(forwarded).map_err(|error| format!("iptables: {error}"))?;
    if NFNETLINK.is_missing() {
        return Ok((chains, None));
    }
    let mut socket = match Netlink::netfilter() {
        Ok(socket) => socket,
        Err(error) if is_missing(&error) => {
            NFNETLINK.miss();
            return Ok((chains, None));
        }
        Err(error) => return Err(error.to_string()),
    };
    if !NFTABLES.is_missing() {
        match netfilter::chains(&mut socket) {
            Ok(modern) => chains.extend(reached(&mut socket, modern, &meets, forwarded)),
            Err(error) if is_missing(&error) => NFTABLES.miss(),
            Err(error) => return Err(format!("nftables: {error}")),
        }
    }
    if HOOKS_PART.is_missing() {
        return Ok((chains, None));
    }
    match hooks::handlers(&mut socket, meets) {
        Ok(handlers) => Ok((chains, Some(handlers))),
        Err(error) if is_missing(&error) => {
            HOOKS_PART.miss();
            Ok((chains, None))
        }
        Err(error) => Err(format!("hooks: {error}")),
    }
}

/// The chains of nftables with what their rules can reach. Rules are read only where a chain has some that matter: O(rules).
fn reached(
    socket: &mut Netlink,
    mut chains: Vec<Chain>,
    meets: &impl Fn(Hook) -> bool,
    forwarded: Forwarded<'_>,
) -> Vec<Chain> {
    if !chains.iter().any(|chain| chain.acts() && meets(chain.hook)) {
        return chains;
    }
    // Where the kernel does not tell its rules, they reach everything.
    let Ok(rules) = nftables::rules(socket) else { return chains };
    for chain in &mut chains {
        let Some(rules) = rules.get(&chain.table) else { continue };
        chain.reach = forwarded.reached(chain, rules);
        chain.counts = forwarded.counted(chain, rules);
    }
    chains
}

/// The devices that forwarded packets come in or go out by, as netfilter's rules see them: those given, their VLAN devices, and the
/// VRF devices.
fn own(kernel: &KernelState, devices: &Devices) -> Vec<Own> {
    let given = |index: u32| devices.contains_key(&index);
    let base =
        |link: &Link| given(link.ifindex) || link.parent.is_some_and(given) || link.vrf_table.is_some();
    let masters: BTreeSet<u32> =
        kernel.links.values().filter(|link| base(link)).filter_map(|link| link.master).collect();
    let links = kernel.links.values().filter(|link| base(link) || masters.contains(&link.ifindex));
    let links = links.map(|link| (link.ifindex, link.name.clone()));
    links.chain(devices.iter().map(|(index, name)| (*index, name.clone()))).collect()
}

/// Which packets a chain decides about, where those are not all.
fn in_parts(chain: &Chain) -> String {
    let families = [family::INET, family::INET6].into_iter().filter(|family| chain.concerns(*family));
    if families.clone().any(|family| chain.meets_all(family)) {
        return String::new();
    }
    let parts: BTreeSet<Reach> = families.flat_map(|family| chain.parts(family)).collect();
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    if parts.is_empty() { String::new() } else { format!(", which concern packets {}", parts.join("; ")) }
}

/// Whether this kernel has no such part of netfilter.
fn is_missing(error: &socket::Error) -> bool {
    match error {
        // EPROTONOSUPPORT has no kind of its own.
        socket::Error::Socket { source, .. } => source.kind() != ErrorKind::PermissionDenied,
        socket::Error::Refused { source, .. } => source.kind() == ErrorKind::InvalidInput,
    }
}

/// A number below `net.netfilter`; 0 where the kernel has no such setting.
fn setting(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Hears of changes of nftables. Those of all else are found by asking.
#[derive(Debug)]
pub struct Watch {
    socket: Netlink,
}

impl Watch {
    /// Listens from now on; `None`: this kernel has no nftables.
    pub fn start(buffer: usize) -> Result<Option<Self>, socket::Error> {
        let started = Netlink::netfilter().and_then(|mut socket| {
            socket.subscribe(&[netfilter::GROUP], buffer)?;
            Ok(Self { socket })
        });
        match started {
            Ok(watch) => Ok(Some(watch)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads what is queued; whether chains may have changed.
    pub fn changed(&mut self) -> Result<bool, socket::Error> {
        let mut changed = false;
        let received =
            self.socket.changes(1024, |message| changed |= netfilter::is_about_chains(message.kind))?;
        Ok(changed || received == Received::Overrun)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bypass::netfilter::forward_chain as chain;
    use crate::kernel::ethtool::Offload;
    use crate::kernel::traffic::Traffic;

    #[test]
    fn a_user_of_a_hook_is_named_with_its_family() {
        let (family, hook, what) = (family::INET6, Hook::Prerouting, "ila_nf_input of module ila".into());
        let handlers = Some(vec![Handler { family, hook, what }]);
        let bypass = Bypass { handlers, ..Bypass::default() };
        let kernel = KernelState::default();
        let reported = |bypass: Bypass| -> Vec<_> {
            bypass
                .bypassed(&kernel)
                .iter()
                .map(|bypassed| (bypassed.families.len(), bypassed.passes))
                .collect()
        };
        assert_eq!(reported(bypass), [(1, true)]);
        assert_eq!(reported(Bypass::default()), [(2, false)], "a kernel that does not tell");
        let kind = |ipvs| Bypass { ipvs, ..Bypass::default() }.bypassed(&kernel)[0].kind.clone();
        assert_eq!((kind(true), kind(false)), ("netfilter".into(), UNLISTED.into()));
    }

    #[test]
    fn processing_that_does_not_decide_is_named_and_passes_nothing() {
        let disciplines = [String::from("tbf")].into();
        let traffic = Traffic { disciplines, ingress: true, egress: false };
        let bypass = Bypass {
            ipvs: false,
            chains: vec![chain("ip6 fw", false, true)],
            counting: vec![chain("ip meter", true, false)],
            handlers: Some(Vec::new()),
            unknown: None,
            conntrack: true,
            offloads: vec![(7, Offload::RxVlan)],
            rx_handlers: vec![(9, "an ipvlan".into())],
            traffic: [("n0".into(), traffic)].into(),
            macvlans: Vec::new(),
            loops: Vec::new(),
        };
        let mut kernel = KernelState::default();
        for accepted in [false, true] {
            kernel.settings.bypass_netfilter = accepted;
            let reported: Vec<_> = bypass.bypassed(&kernel);
            let reported: Vec<_> =
                reported.iter().map(|s| (s.kind.as_str(), s.families.len(), s.passes)).collect();
            let offload = ("offload", 2, true);
            let rest = [offload, ("conntrack", 2, false), ("tc", 2, false), ("tc", 2, false)];
            let rx_handlers = ("handler", 2, true);
            assert_eq!(
                reported,
                [&[("nftables", 1, !accepted), ("nftables", 1, false), rx_handlers], &rest[..]].concat()
            );
        }
    }
}
