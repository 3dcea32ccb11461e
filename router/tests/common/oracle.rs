//! The oracle of packets that must not leave. It has the kernel's own way with a frame that XDP passes to it, and the rules of filters, SID hooks
//! and tenants against it. Written after Linux (net/core/dev.c, 8021q, ip_input.c, ip6_input.c, seg6_local.c, exthdrs.c), not after the XDP
//! program. Where the kernel may do one of several things, each of them is followed.

use std::collections::BTreeMap;

use trieline_lpm::Prefix;
use trieline_router::{Action, CsidLengths, Endpoint, Flavours, PassReason, Target};

use super::model::*;

/// The rules in force on the port.
#[derive(Clone, Default)]
pub struct Rules {
    pub tenant: bool,
    pub filter: bool,
    pub sid_hook: bool,
    /// Sources that filters drop: of the port, and of each bound SID.
    pub bad4: Vec<u32>,
    pub bad6: Vec<u128>,
    /// A destination port that filters of the port drop.
    pub bad_port: u16,
    /// Where the kernel makes steps of NEXT-C-SID, by 4 bytes of block and 2 of function.
    pub csids: Vec<Prefix<u128>>,
    /// SIDs with something bound; whether it is a program.
    pub bound: BTreeMap<u128, bool>,
    /// Own addresses that are the tenant's, too.
    pub shared4: Vec<u32>,
    pub shared6: Vec<u128>,
}

/// EtherTypes that stay on the link.
const OF_LINK: [u16; 8] = [0x0806, 0x8809, 0x888e, 0x88cc, 0x88f5, 0x88f6, 0x88f7, 0x8902];

/// Protocols with a packet inside that the kernel may route.
const TUNNELS: [u8; 8] = [4, 41, 47, 103, 108, 115, 137, 143];

pub struct Oracle<'m> {
    pub model: &'m Model,
    pub rules: Rules,
}

/// Why the kernel may not have the frame.
type Verdict = Result<(), String>;

impl Oracle<'_> {
    /// Whether the kernel may have this frame.
    pub fn may_pass(&self, frame: &[u8]) -> Verdict {
        let Some((mac, mut kind, mut rest)) = ethernet(frame) else { return Ok(()) };
        let (mut vlan, mut foreign) = (0, false);
        // __netif_receive_skb_core, skb_vlan_untag, vlan_do_receive
        while matches!(kind, 0x8100 | 0x88a8) {
            let Some(inner) = rest.get(4..).filter(|inner| inner.len() >= 2) else { return Ok(()) };
            let id = u16::from_be_bytes([rest[0], rest[1]]) & 0xfff;
            if id != 0 {
                // A bridge, a receive handler, or a device in another namespace may take it.
                foreign |= vlan != 0 || kind != 0x8100 || !self.model.vlans.contains(&id);
                vlan = id;
            }
            kind = u16::from_be_bytes([rest[2], rest[3]]);
            rest = inner;
        }
        let rules = &self.rules;
        if !(rules.tenant || rules.filter || rules.sid_hook) {
            return Ok(());
        }
        let mine = mac == self.model.mac;
        let group = mac[0] & 1 == 1;
        match kind {
            0x0800 | 0x86dd if foreign && rules.tenant && !group => {
                Err("a tenant's packet for others".into())
            }
            0x0800 => self.ipv4(rest, mine, group),
            0x86dd => self.ipv6(rest, mine, group),
            _ if kind < 0x600 || OF_LINK.contains(&kind) => Ok(()),
            _ => Err(format!("EtherType {kind:#x}")),
        }
    }

    /// Whether it may leave XDP as it does: its headers were looked at, and its SID's hook.
    pub fn may_forward(&self, frame: &[u8]) -> Verdict {
        let (_, mut kind, mut rest) = ethernet(frame).ok_or("no Ethernet header")?;
        while matches!(kind, 0x8100 | 0x88a8) {
            kind = u16::from_be_bytes([rest[2], rest[3]]);
            rest = &rest[4..];
        }
        match kind {
            0x0800 => self.filtered4(rest),
            _ => {
                self.filtered6(rest)?;
                let [_, to] = addresses6(rest);
                self.sid(to, rest)
            }
        }
    }

    fn filtered4(&self, packet: &[u8]) -> Verdict {
        let [source, _] = addresses4(packet);
        if self.rules.filter && self.rules.bad4.contains(&source) {
            return Err("a filter drops it".into());
        }
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let (field, at) = (u16::from_be_bytes([packet[6], packet[7]]), usize::from(packet[0] & 15) * 4);
        if field & 0x1fff != 0 {
            return Ok(());
        }
        self.port(packet[9], &packet[..total.min(packet.len())], at, field & 0x2000 != 0)
    }

    /// The bytes behind the headers are for a port that filters drop, or the next fragment holds the port.
    fn port(&self, protocol: u8, packet: &[u8], at: usize, more: bool) -> Verdict {
        if !self.rules.filter || !matches!(protocol, 6 | 17 | 33 | 132 | 136) {
            return Ok(());
        }
        match packet.get(at + 2..at + 4) {
            Some(port) if port == self.rules.bad_port.to_be_bytes() => Err("a port is filtered".into()),
            None if more => Err("the next fragment has the port".into()),
            _ => Ok(()),
        }
    }

    fn filtered6(&self, packet: &[u8]) -> Verdict {
        let [source, _] = addresses6(packet);
        if self.rules.filter && self.rules.bad6.contains(&(source >> 80)) {
            return Err("a filter drops it".into());
        }
        let packet = trimmed(packet);
        let headers = Headers::of(packet);
        match headers.last {
            _ if headers.later => Ok(()),
            Some((protocol, at)) => self.port(protocol, packet, at, headers.more),
            None if headers.more && self.rules.filter => Err("the next fragment has the headers".into()),
            None => Ok(()),
        }
    }

    fn ipv4(&self, packet: &[u8], mine: bool, group: bool) -> Verdict {
        // ip_rcv_core
        let Some(header) = packet.get(..20) else { return Ok(()) };
        let (len, total) =
            (usize::from(header[0] & 15) * 4, usize::from(u16::from_be_bytes([header[2], header[3]])));
        if header[0] >> 4 != 4 || len < 20 || packet.len() < len || total < len || total > packet.len() {
            return Ok(());
        }
        if ones_complement(&packet[..len]) != 0xffff || !(mine || group) {
            return Ok(());
        }
        let [_, to] = addresses4(header);
        let on_link = to >> 8 == 0xe0_0000 || to == u32::MAX;
        let own = matches!(self.model.route4(to), Some(Action::Pass(PassReason::Local)));
        if !(on_link || is_of_link4(packet, own)) {
            self.filtered4(packet)?;
        }
        // Other groups may be forwarded (ip_mr_input).
        let many = on_link;
        if !self.rules.tenant || (group && !own && !many) {
            return Ok(()); // ip_forward drops what was not sent to this very host
        }
        match header[9] {
            _ if !own && !many => Err("the kernel forwards a tenant's packet".into()),
            _ if own && !self.rules.shared4.contains(&to) => {
                Err("an own address that is not the tenant's".into())
            }
            protocol if TUNNELS.contains(&protocol) => Err("a tunnel".into()),
            _ if own && len > 20 => Err("options, which may be a source route".into()),
            _ => Ok(()),
        }
    }

    fn ipv6(&self, packet: &[u8], mine: bool, group: bool) -> Verdict {
        // ip6_rcv_core
        let Some(header) = packet.get(..40) else { return Ok(()) };
        let len = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || len > packet.len() || !(mine || group) {
            return Ok(());
        }
        let packet = trimmed(packet);
        let [source, to] = addresses6(header);
        if source == 1 || source >> 120 == 0xff || to == 1 {
            return Ok(());
        }
        let own = matches!(self.model.route6(to), Some(Action::Pass(PassReason::Local)));
        if !(to >> 112 & 0xff0f == 0xff02 || is_of_link6(packet, own)) {
            self.filtered6(packet)?;
        }
        self.reaches(to, packet, group, 12)
    }

    /// The kernel looks up `to` for this packet, whose header may say otherwise by now.
    fn reaches(&self, to: u128, packet: &[u8], group: bool, depth: u8) -> Verdict {
        if depth == 0 {
            return Ok(());
        }
        self.sid(to, packet)?;
        let action = self.model.route6(to);
        let own = matches!(action, Some(Action::Pass(PassReason::Local)));
        // Other groups may be forwarded (ip6_mr_input).
        let local = own || to >> 112 & 0xff0f == 0xff02 || to >> 118 == 0xfe80 >> 6;
        if self.rules.tenant {
            if own && !self.rules.shared6.contains(&to) {
                return Err("an own address that is not the tenant's".into());
            }
            if !local && (!group || depth < 12) {
                return Err("the kernel forwards a tenant's packet".into());
            }
        }
        let headers = Headers::of(packet);
        let whole = headers.last.is_some_and(|(_, at)| at < packet.len());
        let asked = self.rules.tenant || self.rules.sid_hook;
        if asked && local && headers.more && !headers.later && !whole {
            return Err("the next fragment has the headers".into());
        }
        let next = |left: u8, to| self.reaches(to, &with_left(packet, &headers, left), group, depth - 1);
        let inside = || {
            let Some((kind, inner)) = headers.inner(packet) else { return Ok(()) };
            if self.rules.tenant && local {
                return Err("a tunnel".to_string());
            }
            match kind {
                // seg6_local does not look at the version
                41 if inner.len() >= 40 => {
                    let [_, to] = addresses6(inner);
                    self.reaches(to, inner, group, depth - 1)
                }
                _ => Ok(()),
            }
        };
        if self.rules.csids.iter().any(|prefix| prefix.contains(to))
            && let Some(to) = argument(Flavours::next_csid(4, 2), to)
        {
            return next(headers.left, to);
        }
        match action {
            // ipv6_srh_rcv
            Some(Action::Pass(PassReason::Local)) if headers.left > 0 => {
                if self.rules.tenant {
                    return Err("a segment is left".into());
                }
                headers.segment(packet).map_or(Ok(()), |to| next(headers.left - 1, to))
            }
            Some(Action::Pass(PassReason::Local)) => inside(),
            Some(Action::Endpoint { endpoint: Endpoint::End | Endpoint::EndX | Endpoint::EndT, .. }) => {
                headers.segment(packet).map_or(Ok(()), |to| next(headers.left - 1, to))
            }
            Some(
                Action::Endpoint { endpoint: Endpoint::EndDt6 | Endpoint::EndDt46, .. }
                | Action::Endpoint { endpoint: Endpoint::EndDx6, target: Target::Port, .. },
            ) if headers.left == 0 => inside(),
            // A SID of the kernel's own: any of both.
            Some(Action::Pass(PassReason::Unsupported)) => {
                headers.segment(packet).map_or(Ok(()), |to| next(headers.left - 1, to))?;
                if headers.left == 0 { inside() } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// The hook bound to `to` has checked this packet, or lets it through.
    fn sid(&self, to: u128, packet: &[u8]) -> Verdict {
        let Some(program) = self.rules.bound.get(&to).filter(|_| self.rules.sid_hook) else { return Ok(()) };
        if *program {
            return Err("a program is gone past".into());
        }
        let headers = Headers::of(packet);
        match headers.inner(packet) {
            Some((4, inner)) if inner.len() >= 20 && self.rules.bad4.contains(&addresses4(inner)[0]) => {
                Err("a hook's filter drops it".into())
            }
            Some((41, inner))
                if inner.len() >= 40 && self.rules.bad6.contains(&(addresses6(inner)[0] >> 80)) =>
            {
                Err("a hook's filter drops it".into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether no router forwards the packet, or it is `own`, to this node itself: OSPF, DHCP and IGMP by RFC 2328, 2131 and 3376.
fn is_of_link4(packet: &[u8], own: bool) -> bool {
    let [from, to] = addresses4(packet);
    let (ttl, protocol) = (packet[8], packet[9]);
    let whole = packet[0] == 0x45 && packet[6] & 0x3f == 0 && packet[7] == 0;
    let ports = packet.get(20..24).filter(|_| protocol == 17);
    let dhcp = ports.is_some_and(|ports| ports.chunks(2).all(|port| port == [0, 67] || port == [0, 68]));
    let link_local = [from, to].iter().all(|addr| addr >> 16 == 0xa9fe) && !TUNNELS.contains(&protocol);
    let ospf = protocol == 89 && [1, 255].contains(&ttl);
    whole && (protocol == 2 && ttl == 1 && to >> 28 == 0xe || own && (ospf || dhcp || link_local))
}

/// The same of IPv6: RFC 4291 2.5.6, RFC 4861, RFC 2710.
fn is_of_link6(packet: &[u8], own: bool) -> bool {
    let [from, to] = addresses6(packet);
    let link_local = |addr: u128| addr >> 118 == 0xfe80 >> 6;
    let headers = Headers::of(packet);
    if headers.left > 0 || headers.inner(packet).is_some() {
        return false;
    }
    let discovery =
        packet[6] == 58 && packet[7] == 255 && packet.get(40).is_some_and(|kind| (133..=137).contains(kind));
    link_local(from) && (link_local(to) || to >> 120 == 0xff && packet[7] == 1) || own && discovery
}

/// The bytes that the kernel takes for the packet: without a length it reads on behind hop-by-hop options.
fn trimmed(packet: &[u8]) -> &[u8] {
    let payload = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    if payload == 0 && packet[6] == 0 { packet } else { &packet[..packet.len().min(40 + payload)] }
}

fn ethernet(frame: &[u8]) -> Option<([u8; 6], u16, &[u8])> {
    let kind = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    Some((frame[..6].try_into().ok()?, kind, &frame[14..]))
}

/// The extension headers of an IPv6 packet, all of them.
#[derive(Default)]
struct Headers {
    /// Where the first SRH with segments left begins, and how many.
    srh: usize,
    left: u8,
    /// The protocol behind them all, and its place; `None` if it cannot be found.
    last: Option<(u8, usize)>,
    /// A fragment, with others to follow.
    more: bool,
    /// Not the first.
    later: bool,
}

impl Headers {
    fn of(packet: &[u8]) -> Self {
        let mut found = Self::default();
        let (mut kind, mut at) = (packet[6], 40);
        loop {
            let head = packet.get(at..at + 8);
            match (kind, head) {
                (0 | 43 | 60, Some(head)) => {
                    if kind == 43 && head[2] == 4 && head[3] > 0 && found.left == 0 {
                        (found.srh, found.left) = (at, head[3]);
                    }
                    (kind, at) = (head[0], at + (usize::from(head[1]) + 1) * 8);
                }
                (51, Some(head)) => (kind, at) = (head[0], at + (usize::from(head[1]) + 2) * 4),
                (44, Some(head)) => {
                    found.more |= head[3] & 1 != 0;
                    if head[2] != 0 || head[3] & 0xf8 != 0 {
                        found.later = true;
                        return found;
                    }
                    (kind, at) = (head[0], at + 8);
                }
                (0 | 43 | 44 | 51 | 60, None) => return found,
                _ => break,
            }
        }
        found.last = Some((kind, at));
        found
    }

    fn inner<'p>(&self, packet: &'p [u8]) -> Option<(u8, &'p [u8])> {
        let (kind, at) = self.last?;
        if TUNNELS.contains(&kind) { Some((kind, packet.get(at..)?)) } else { None }
    }

    /// The segment that is next.
    fn segment(&self, packet: &[u8]) -> Option<u128> {
        let left = usize::from(self.left.checked_sub(1)?);
        let at = self.srh + 8 + 16 * left;
        // Linux goes on only by an SRH whose lengths agree.
        let whole = self.srh + (usize::from(packet[self.srh + 1]) + 1) * 8;
        if at + 16 > whole || whole > packet.len() {
            return None;
        }
        Some(u128::from_be_bytes(packet[at..at + 16].try_into().unwrap()))
    }
}

/// The packet with another number of segments left.
fn with_left(packet: &[u8], headers: &Headers, left: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if headers.left > 0 {
        packet[headers.srh + 3] = left;
    }
    packet
}

fn argument(flavours: Flavours, to: u128) -> Option<u128> {
    let CsidLengths { block, node_function } = flavours.next_csid?;
    let (block, node_function) = (u32::from(block) * 8, u32::from(node_function) * 8);
    let rest = to << block << node_function;
    if rest == 0 {
        return None;
    }
    Some(to >> (128 - block) << (128 - block) | rest >> block)
}
