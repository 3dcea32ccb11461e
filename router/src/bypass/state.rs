//! Processing of the kernel that packets bypass when XDP forwards them, as it was last read: what of it decides about packets.

use crate::bypass::hooks::Handler;
use crate::bypass::netfilter::{Chain, Hook, Reach};
use crate::kernel::ethtool::Offload;
use crate::kernel::traffic::Traffic;
use std::collections::{BTreeMap, BTreeSet};

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

impl Bypass {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bypass::netfilter::forward_chain as chain;
    use crate::kernel::family;

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
    fn a_user_of_a_hook_is_in_the_way_of_its_family() {
        let (family, hook, what) = (family::INET6, Hook::Prerouting, "ila_nf_input of module ila".into());
        let bypass = Bypass { handlers: Some(vec![Handler { family, hook, what }]), ..Bypass::default() };
        assert_eq!(bypass.obstacle(family::INET), None);
        assert!(bypass.obstacle(family::INET6).is_some_and(|why| why.contains("ila_nf_input")));
    }

    #[test]
    fn offloads_and_receive_handlers_exclude_their_devices() {
        let (offloads, rx_handlers) = (vec![(7, Offload::RxVlan)], vec![(9, "an ipvlan".into())]);
        let bypass = Bypass { offloads, rx_handlers, ..Bypass::default() };
        assert!(bypass.excludes(7) && !bypass.excludes(8) && bypass.excludes(9));
    }
}
