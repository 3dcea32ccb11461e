//! Processing of the kernel that packets bypass when XDP forwards them: found, named, and obeyed where it decides about packets.

use crate::kernel::ethtool::{Offload, Offloads};
use crate::kernel::family;
use crate::kernel::hooks::{self, Handler};
use crate::kernel::iptables;
use crate::kernel::link::Link;
use crate::kernel::netfilter::{self, Chain, Hook};
use crate::kernel::optional::Part;
use crate::kernel::reach::{Forwarded, Own, Reach, nftables};
use crate::kernel::socket::{self, Netlink, Received};
use crate::kernel::traffic::{self, Traffic};
use crate::kernel_state::KernelState;
use crate::rx_handlers::RxHandlerScan;
use crate::status::Bypassed;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

/// Where only packets between these devices count, their numbers and names.
pub type Devices = BTreeMap<u32, String>;

/// [`Bypassed::kind`] of the note that the kernel does not list the users of netfilter's hooks.
pub const UNLISTED: &str = "hooks";

/// Processing that packets between the daemon's devices bypass when XDP forwards them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Bypass {
    /// Chains of netfilter that can do something to them.
    pub chains: Vec<Chain>,
    /// Those that only count them.
    pub counting: Vec<Chain>,
    /// Other users of netfilter's hooks; `None`: this kernel does not list them.
    pub handlers: Option<Vec<Handler>>,
    /// IPVS is in this kernel, for this namespace.
    pub ipvs: bool,
    /// Why those or the chains are not known.
    pub unknown: Option<String>,
    /// Connections are tracked.
    pub conntrack: bool,
    /// Offloads of devices that have to be off.
    pub offloads: Vec<(u32, Offload)>,
    /// Devices whose packets something takes before they are routed, and what.
    pub rx_handlers: Vec<(u32, String)>,
    /// Traffic control of the devices and of those below them, by name.
    pub traffic: BTreeMap<String, Traffic>,
    /// Macvlans with MAC addresses of their own on the devices: each device, and what of it.
    pub macvlans: Vec<(u32, String)>,
    /// Devices whose other end is here too: what the node sends there comes in with the mark that it was sent with.
    pub loops: Vec<String>,
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

    /// Rules or programs, if any, that may have set marks of a family's packets before the kernel looks up its rules. `accepted`: packets
    /// go past netfilter's rules. Else those that a chain names by prefix are the kernel's anyway, and the others keep mark 0.
    pub fn marks(&self, family: u8, accepted: bool) -> Option<String> {
        let meets = |chain: &Chain| if accepted { chain.concerns(family) } else { chain.meets_all(family) };
        let early = |chain: &&Chain| matches!(chain.hook, Hook::Ingress | Hook::Prerouting) && meets(chain);
        let chain = || self.chains.iter().find(early).map(Chain::to_string);
        let filters = || self.traffic.iter().find(|(_, traffic)| traffic.ingress);
        let filters = || filters().map(|(device, _)| format!("{device}: ingress filters"));
        let loops =
            || self.loops.first().map(|device| format!("{device}: its other end is in this namespace"));
        let early = |handler: &&Handler| handler.hook == Hook::Prerouting && handler.family == family;
        let handler = || self.handlers.iter().flatten().find(early).map(Handler::to_string);
        chain().or_else(handler).or_else(|| self.unknown.clone()).or_else(filters).or_else(loops)
    }

    /// Why packets of a family have to meet netfilter, if they have to.
    pub fn obstacle(&self, family: u8) -> Option<String> {
        let chain = self.chains.iter().find(|chain| chain.meets_all(family)).map(Chain::to_string);
        let mut handlers = self.handlers.iter().flatten();
        let handler = || handlers.find(|handler| handler.family == family).map(Handler::to_string);
        chain.or_else(handler).or_else(|| self.unknown.clone())
    }

    /// Where netfilter decides about some packets of a family only: which.
    pub fn parts(&self, family: u8) -> BTreeSet<Reach> {
        self.chains.iter().flat_map(|chain| chain.parts(family)).collect()
    }

    /// Whether a device's packets are not what was sent, or are taken before they are routed.
    pub fn excludes(&self, device: u32) -> bool {
        let is = |known: &u32| *known == device;
        self.offloads.iter().any(|(spoilt, _)| is(spoilt))
            || self.rx_handlers.iter().any(|(rx_handlers, _)| is(rx_handlers))
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
            let what = format!("{chain}: its rules only count these packets");
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
        let bytes: Vec<String> = link.mac?.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mac, name) = (bytes.join(":"), &link.name);
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
    use crate::kernel::family;

    fn chain(table: &str, v4: bool, v6: bool) -> Chain {
        Chain {
            tool: "nftables",
            table: table.into(),
            name: "forward".into(),
            hook: Hook::Forward,
            v4,
            v6,
            rules: 1,
            drops: false,
            devices: Vec::new(),
            reach: None,
            counts: false,
        }
    }

    #[test]
    fn a_chain_is_in_the_way_of_its_families() {
        let mut bypass = Bypass { chains: vec![chain("ip fw", true, false)], ..Bypass::default() };
        assert!(bypass.obstacle(family::INET).is_some_and(|why| why.contains("table ip fw, chain forward")));
        assert_eq!(bypass.obstacle(family::INET6), None);
        bypass.chains.push(chain("inet fw", true, true));
        assert!(bypass.obstacle(family::INET6).is_some_and(|why| why.contains("inet fw")));
        let unknown = Bypass { unknown: Some("not known".into()), ..Bypass::default() };
        assert_eq!(unknown.obstacle(family::INET6).as_deref(), Some("not known"));
    }

    #[test]
    fn marks_are_set_before_the_route_lookup_or_not_at_all() {
        let mut bypass = Bypass { chains: vec![chain("ip fw", true, true)], ..Bypass::default() };
        assert_eq!(bypass.marks(family::INET, false), None, "hook forward");
        bypass.chains.push(Chain { hook: Hook::Prerouting, ..chain("ip6 raw", false, true) });
        assert_eq!(bypass.marks(family::INET, false), None, "IPv6");
        assert!(bypass.marks(family::INET6, false).is_some_and(|who| who.contains("ip6 raw")));
        let traffic =
            |ingress| [("n0".into(), Traffic { ingress, egress: true, ..Traffic::default() })].into();
        for (bypass, marks) in [
            (Bypass { traffic: traffic(false), ..Bypass::default() }, None),
            (Bypass { traffic: traffic(true), ..Bypass::default() }, Some("n0: ingress filters")),
            (Bypass { unknown: Some("unknown".into()), ..Bypass::default() }, Some("unknown")),
            (
                Bypass { loops: vec!["n9".into()], ..Bypass::default() },
                Some("n9: its other end is in this namespace"),
            ),
        ] {
            assert_eq!(bypass.marks(family::INET, false).as_deref(), marks);
        }
    }

    #[test]
    fn who_hangs_at_a_hook_is_in_the_way_of_its_family() {
        let (family, hook, what) = (family::INET6, Hook::Prerouting, "ila_nf_input of module ila".into());
        let handlers = Some(vec![Handler { family, hook, what }]);
        let bypass = Bypass { handlers, ..Bypass::default() };
        assert_eq!(bypass.obstacle(family::INET), None);
        assert!(bypass.obstacle(family::INET6).is_some_and(|why| why.contains("ila_nf_input")));
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
    fn what_does_not_decide_is_named_and_passes_nothing() {
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
        assert!(bypass.excludes(7) && !bypass.excludes(8) && bypass.excludes(9));
        assert_eq!(bypass.obstacle(family::INET), None);
    }
}
