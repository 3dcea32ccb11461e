//! Forwarding settings of devices (the sysctls `net.ipv4.conf.*` and `net.ipv6.conf.*`, as far as netlink tells them).

use super::attribute::{Attributes, FLAG_DUMP, Request};
use super::message;

/// A device's settings for one family. A field is `None` when the message does not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Netconf {
    /// Address family.
    pub family: u8,
    /// The device; -1 = `all`, -2 = `default`.
    pub ifindex: i32,
    /// `forwarding`.
    pub forwarding: Option<bool>,
    /// `rp_filter` (IPv4): 0 off, 1 strict, all others loose.
    pub rp_filter: Option<i32>,
    /// `proxy_ndp` (IPv6), `proxy_arp` (IPv4).
    pub proxy: Option<bool>,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<bool>,
}

/// Index of the settings that concern all devices.
pub const ALL: i32 = -1;

/// Decodes the payload of a settings message.
pub fn decode(payload: &[u8]) -> Option<Netconf> {
    let mut netconf = Netconf { family: *payload.first()?, ..Netconf::default() };
    let mut known = false;
    for (kind, value) in Attributes::new(payload.get(4..)?) {
        let Some(value) = value.first_chunk().map(|b| i32::from_ne_bytes(*b)) else { continue };
        match kind {
            1 => (netconf.ifindex, known) = (value, true),
            2 => netconf.forwarding = Some(value != 0),
            3 => netconf.rp_filter = Some(value),
            5 => netconf.proxy = Some(value != 0),
            6 => netconf.ignore_linkdown = Some(value != 0),
            _ => {}
        }
    }
    known.then_some(netconf)
}

impl Netconf {
    /// Whether the message tells nothing of the device's settings.
    pub fn is_empty(&self) -> bool {
        *self == Self { family: self.family, ifindex: self.ifindex, ..Self::default() }
    }

    /// Takes over what `newer` tells.
    pub fn update(&mut self, newer: &Netconf) {
        self.forwarding = newer.forwarding.or(self.forwarding);
        self.rp_filter = newer.rp_filter.or(self.rp_filter);
        self.proxy = newer.proxy.or(self.proxy);
        self.ignore_linkdown = newer.ignore_linkdown.or(self.ignore_linkdown);
    }
}

/// Asks for all settings of a family.
pub fn dump(family: u8) -> Request {
    Request::new(message::GET_NETCONF, FLAG_DUMP, &[family, 0, 0, 0])
}
