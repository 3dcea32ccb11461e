//! Links: names, states, MTUs, MAC addresses, and what a VLAN device stands on.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_text, read_u8, read_u16, read_u32};
use super::{family, known, message};
use std::path::PathBuf;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index in its namespace.
    pub ifindex: u32,
    /// Name.
    pub name: String,
    /// Other names of the device (`ip link property add … altname`): the kernel takes them where it takes the name.
    pub alt_names: Vec<String>,
    /// `IFF_*` flags.
    pub flags: u32,
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Its frames begin with an Ethernet header.
    pub has_ethernet: bool,
    /// MAC address; `None` for a device that has none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Kind as `ip link` calls it; empty for hardware.
    pub kind: String,
    /// VLAN id, for a device of kind `vlan` with protocol 802.1Q.
    pub vlan: Option<u16>,
    /// The VLAN device has an `egress-qos-map`: the tag's priority depends on the packet.
    pub egress_qos: bool,
    /// The device below, in the same namespace.
    pub parent: Option<u32>,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// A port of a bond that gets no packets from it: the kernel drops what comes in there.
    pub backup: bool,
    /// Table of a device of kind `vrf`.
    pub vrf_table: Option<u32>,
}

/// Longest alternative name of a device: `ALTIFNAMSIZ` without the final zero. A device's own name has 15 at most.
const NAME_MAX: usize = 127;

/// Refuses names that the kernel would not take for a device.
pub fn check_name(name: &str) -> Result<(), String> {
    let has_bad = name.contains(|c: char| c.is_whitespace() || c == '/');
    if has_bad || ["", ".", ".."].contains(&name) || name.len() > NAME_MAX {
        let expected = format!("1 to {NAME_MAX} characters without spaces and slashes, such as eth0");
        return Err(format!("invalid {name:?} for a device name: expected {expected}"));
    }
    Ok(())
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_PROMISC: u32 = 0x100;
const IFF_ALLMULTI: u32 = 0x200;
const IFF_NOARP: u32 = 0x80;
const IFF_LOWER_UP: u32 = 0x1_0000;

impl Link {
    /// The name, then the alternative ones.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.alt_names.iter().map(String::as_str))
    }

    /// Whether the device has this name, or has it as an alternative one.
    pub fn is_named(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Whether the kernel may have changed routes or neighbours since the link was as `before`. It does so for most changes, mostly without a
    /// message, but not when a program begins to watch the link's packets.
    pub fn may_move_routes(&self, before: &Self) -> bool {
        let watched = IFF_PROMISC | IFF_ALLMULTI;
        self.flags & !watched != before.flags & !watched
            || Self { flags: self.flags, ..before.clone() } != *self
    }

    /// Senders may be on this very machine, with no device in between that finishes their checksums.
    pub fn leaves_checksums(&self) -> bool {
        ["veth", "tun"].contains(&self.kind.as_str())
    }

    /// Administratively up.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Up and with a carrier.
    pub fn has_carrier(&self) -> bool {
        self.is_up() && self.flags & IFF_LOWER_UP != 0
    }

    /// Neighbours have MAC addresses of their own. On other devices (a VRF, a tunnel) the kernel makes entries up that name none.
    pub fn resolves_neighbours(&self) -> bool {
        self.flags & IFF_NOARP == 0
    }

    /// The loopback device.
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }
}

/// Decodes the payload of a link message.
pub fn decode(payload: &[u8]) -> Option<Link> {
    let fixed = payload.first_chunk::<16>()?;
    if fixed[0] != family::UNSPEC {
        return None; // a bridge telling of its ports: half a link
    }
    let mut link = Link {
        ifindex: read_u32(&fixed[4..])?,
        name: String::new(),
        alt_names: Vec::new(),
        flags: read_u32(&fixed[8..])?,
        mtu: 0,
        has_ethernet: read_u16(&fixed[2..])
            .is_some_and(|kind| [ARPHRD_ETHER, ARPHRD_LOOPBACK].contains(&kind)),
        mac: None,
        kind: String::new(),
        vlan: None,
        egress_qos: false,
        parent: None,
        master: None,
        backup: false,
        vrf_table: None,
    };
    let mut foreign_parent = false;
    for (kind, value) in Attributes::new(&payload[16..]) {
        match kind {
            1 => link.mac = value.try_into().ok(),
            3 => link.name = read_text(value),
            4 => link.mtu = read_u32(value)?,
            5 => link.parent = read_u32(value).filter(|index| *index != 0),
            10 => link.master = read_u32(value).filter(|index| *index != 0),
            18 => decode_kind(value, &mut link),
            PROPERTIES => {
                let names = Attributes::new(value).filter(|(kind, _)| *kind == ALT_NAME);
                link.alt_names = names.map(|(_, name)| read_text(name)).collect();
            }
            37 => foreign_parent = true, // IFLA_LINK_NETNSID: the index below is of another namespace
            _ => {}
        }
    }
    if foreign_parent {
        link.parent = None;
    }
    Some(link)
}

const PROPERTIES: u16 = 52; // IFLA_PROP_LIST
const ALT_NAME: u16 = 53; // IFLA_ALT_IFNAME

/// `IFLA_LINKINFO`.
fn decode_kind(bytes: &[u8], link: &mut Link) {
    link.kind = Attributes::new(bytes).find(1).map(read_text).unwrap_or_default();
    // IFLA_INFO_SLAVE_KIND, IFLA_INFO_SLAVE_DATA with IFLA_BOND_SLAVE_STATE: 0 is active.
    let of_bond = Attributes::new(bytes).find(4).map(read_text).as_deref() == Some("bond");
    let state = Attributes::new(bytes)
        .find(5)
        .and_then(|reported| Attributes::new(reported).find(1))
        .and_then(read_u8);
    link.backup = of_bond && state != Some(0);
    let Some(settings) = Attributes::new(bytes).find(2) else { return };
    if link.kind == "vrf" {
        link.vrf_table = Attributes::new(settings).find(1).and_then(read_u32);
    }
    if link.kind == "vlan" {
        let protocol =
            Attributes::new(settings).find(5).and_then(|b| b.first_chunk().map(|b| u16::from_be_bytes(*b)));
        // A VLAN device with an attribute that is not known is none that trieline sends by: its packets are the kernel's.
        let known = known::VLAN.first_unknown(Attributes::new(settings)).is_none();
        if known && protocol.is_none_or(|protocol| protocol == 0x8100) {
            link.vlan = Attributes::new(settings).find(1).and_then(read_u16);
            link.egress_qos = Attributes::new(settings).find(3).is_some();
        }
    }
}

/// Asks for all links.
pub fn dump() -> Request {
    Request::new(message::GET_LINK, FLAG_DUMP, &[0; 16])
}

const PARENT_DEVICE: u16 = 56; // IFLA_PARENT_DEV_NAME
const PARENT_BUS: u16 = 57; // IFLA_PARENT_DEV_BUS_NAME

/// The folder in `/sys` of the hardware behind a device, which is the same in every network namespace. `None`: the device has no
/// hardware, or the kernel does not tell (before Linux 5.14).
pub fn hardware_folder(ifindex: u32) -> Result<Option<PathBuf>, super::socket::Error> {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let mut folder = None;
    super::socket::Netlink::route()?.request(Request::new(message::GET_LINK, 0, &fixed), |message| {
        let attributes = Attributes::new(message.payload.get(16..).unwrap_or_default());
        let text = |kind| attributes.clone().find(kind).map(read_text);
        if let (Some(device), Some(bus)) = (text(PARENT_DEVICE), text(PARENT_BUS)) {
            folder = Some(PathBuf::from("/sys/bus").join(bus).join("devices").join(device));
        }
    })?;
    Ok(folder)
}

/// The links of this thread's network namespace. Needs no root.
pub fn list() -> Result<Vec<Link>, super::socket::Error> {
    let mut links = Vec::new();
    super::socket::Netlink::route()?.dump(dump(), |message| links.extend(decode(message.payload)))?;
    Ok(links)
}

/// A MAC address, or part of one, as `ip link` writes it.
pub fn mac_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attribute::{HEADER, Request};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        Request::new(0, 0, &[]).attribute(kind, value).finish(0).split_off(HEADER)
    }

    #[test]
    fn bond_ports_report_whether_they_are_active() {
        let backup = |kind: &[u8], data: &[u8]| {
            let info = [attribute(4, kind), attribute(5, data)].concat();
            decode(&[vec![0; 16], attribute(18, &info)].concat()).unwrap().backup
        };
        assert!(!backup(b"bond\0", &attribute(1, &[0])) && backup(b"bond\0", &attribute(1, &[1])));
        assert!(backup(b"bond\0", &[]), "not known");
        assert!(!backup(b"bridge\0", &attribute(1, &[1])));
    }

    #[test]
    fn vlans_report_their_priorities() {
        let id = attribute(1, &100u16.to_ne_bytes());
        let map = attribute(3, &attribute(1, &[6, 0, 0, 0, 5, 0, 0, 0]));
        let decoded = |settings: &[u8]| {
            let info = [attribute(1, b"vlan\0"), attribute(2, settings)].concat();
            decode(&[vec![0; 16], attribute(18, &info)].concat()).unwrap()
        };
        let (plain, mapped) = (decoded(&id), decoded(&[id.clone(), map].concat()));
        assert_eq!((plain.vlan, plain.egress_qos), (Some(100), false));
        assert_eq!((mapped.vlan, mapped.egress_qos), (Some(100), true));
    }
}
