//! Other users of netfilter's hooks: IPVS, BPF programs, modules, as the kernel lists them (`nft list hooks`). Chains of nftables and
//! iptables are read with their rules elsewhere; these have none.

use super::netfilter::Hook;
use crate::kernel::attribute::{Attributes, FLAG_DUMP, Request, read_text};
use crate::kernel::family;
use crate::kernel::socket::{Error, Netlink};
use std::fmt;

/// Something that sees packets at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// Address family of the packets.
    pub family: u8,
    /// Where it hangs.
    pub hook: Hook,
    /// Its function, with its module where it is one's; of a BPF program its number.
    pub what: String,
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = if self.family == family::INET { "IPv4" } else { "IPv6" };
        write!(f, "{} at netfilter's hook {} of {ip}", self.what, self.hook.name())
    }
}

/// `NFNL_SUBSYS_HOOK`, `NFNL_MSG_HOOK_GET`: asks, and answers.
const HOOK: u16 = 12 << 8;
/// `NFNL_HOOK_TYPE_BPF`.
const BPF: u32 = 2;
/// `struct nfgenmsg`: family, version, resource id.
const FIXED: usize = 4;

/// Functions that do nothing to a packet that XDP may forward. Their work is read elsewhere (iptables, connection tracking and NAT, whose
/// rules are chains) or concerns other packets (bridges, labels of security modules).
const QUIET: [&str; 19] = [
    "apparmor_",
    "ip6t_do_table",
    "ip6table_",
    "ip_sabotage_in",
    "ipt_do_table",
    "iptable_",
    "ipv4_confirm",
    "ipv4_conntrack_",
    "ipv4_helper",
    "ipv6_confirm",
    "ipv6_conntrack_",
    "ipv6_defrag",
    "ipv6_helper",
    "nf_confirm",
    "nf_nat_",
    "nf_route_table_",
    "nft_",
    "selinux_",
    "smack_",
];

fn read_be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Decodes one that may decide about packets at `hook`. A chain of nftables is none.
pub(crate) fn decode(payload: &[u8], hook: Hook) -> Option<Handler> {
    let family = *payload.first()?;
    let (mut function, mut module, mut chain) = (None, None, None);
    for (kind, value) in Attributes::new(payload.get(FIXED..)?) {
        match kind {
            4 => function = Some(read_text(value)),
            5 => module = Some(read_text(value)),
            6 => chain = Some(value),
            _ => {}
        }
    }
    let what = match (chain, function) {
        (Some(chain), _) => {
            let chain = Attributes::new(chain);
            if chain.clone().find(2).and_then(read_be32) != Some(BPF) {
                return None;
            }
            let number = chain.find(1).and_then(|about| Attributes::new(about).find(1)).and_then(read_be32);
            number.map_or("a BPF program".into(), |number| format!("BPF program {number}"))
        }
        (None, Some(function)) if QUIET.iter().any(|quiet| function.starts_with(quiet)) => return None,
        (None, Some(function)) => match module {
            Some(module) => format!("{function} of module {module}"),
            None => function,
        },
        (None, None) => "a function without a name".into(),
    };
    Some(Handler { family, hook, what })
}

/// Asks who hangs at the hooks that `meets` picks, of both families. Linux tells since 5.14, with CONFIG_NETFILTER_NETLINK_HOOK.
/// O(handlers).
pub fn handlers(socket: &mut Netlink, meets: impl Fn(Hook) -> bool) -> Result<Vec<Handler>, Error> {
    let mut found = Vec::new();
    for family in [family::INET, family::INET6] {
        for (number, hook) in
            (0_u32..).zip(Hook::INET).filter(|(_, hook)| *hook != Hook::Ingress && meets(*hook))
        {
            let request =
                Request::new(HOOK, FLAG_DUMP, &[family, 0, 0, 0]).attribute(1, &number.to_be_bytes());
            socket.dump(request, |message| {
                found.extend((message.kind == HOOK).then(|| decode(message.payload, hook)).flatten());
            })?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = (value.len() + 4) as u16;
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        [&[family, 0, 0, 0][..], &attributes.concat()].concat()
    }

    fn reported(message: &[u8]) -> Option<String> {
        decode(message, Hook::Forward).map(|handler| handler.to_string())
    }

    #[test]
    fn deciding_hooks_are_reported_by_name() {
        let ipvs = [attribute(4, b"ip_vs_forward_icmp\0"), attribute(5, b"ip_vs\0")];
        let expected = "ip_vs_forward_icmp of module ip_vs at netfilter's hook forward of IPv4";
        assert_eq!(reported(&message(family::INET, &ipvs)).as_deref(), Some(expected));
        let unnamed = message(family::INET6, &[attribute(2, &[0; 4])]);
        assert_eq!(
            reported(&unnamed).as_deref(),
            Some("a function without a name at netfilter's hook forward of IPv6")
        );
        for cut in 0..4 {
            assert_eq!(reported(&unnamed[..cut]), None);
        }
    }

    #[test]
    fn programs_are_reported_by_id_and_chains_not() {
        let of = |kind: u32| {
            let about = attribute(1, &attribute(1, &17_u32.to_be_bytes()));
            let info = [about, attribute(2, &kind.to_be_bytes())].concat();
            message(family::INET, &[attribute(4, b"nf_hook_run_bpf\0"), attribute(6, &info)])
        };
        assert_eq!(reported(&of(BPF)).as_deref(), Some("BPF program 17 at netfilter's hook forward of IPv4"));
        assert_eq!(reported(&of(1)), None, "a chain of nftables");
    }

    #[test]
    fn hooks_without_effect_are_not_reported() {
        for function in ["ipt_do_table\0", "nf_nat_ipv4_out\0", "ipv6_conntrack_in\0", "selinux_ip_forward\0"]
        {
            assert_eq!(
                reported(&message(family::INET, &[attribute(4, function.as_bytes())])),
                None,
                "{function}"
            );
        }
    }
}
