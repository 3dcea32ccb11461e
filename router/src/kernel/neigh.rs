//! Neighbours: which MAC address an address on a link has, and the request to the kernel to check one again.

use super::attribute::{
    Attributes, FLAG_CREATE, FLAG_DUMP, Request, address_bytes, read_address, read_u16, read_u32,
};
use super::{family, known, message};
use std::net::IpAddr;

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// The link.
    pub ifindex: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address, if the kernel has one of six bytes and sends no unknown attribute of the neighbour.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*` state.
    pub state: u16,
}

const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

const NTF_USE: u8 = 0x01;
const NTF_PROXY: u8 = 0x08;
const RTN_UNICAST: u8 = 1;

impl Neighbour {
    /// The MAC address to send to, when the kernel would send to it too: a stale one is used until proven wrong.
    pub fn usable(&self) -> Option<[u8; 6]> {
        (self.state & (REACHABLE | STALE | DELAY | PROBE | NOARP | PERMANENT) != 0)
            .then_some(self.mac)
            .flatten()
    }

    /// Whether the kernel waits for traffic before it checks the neighbour again.
    pub fn is_stale(&self) -> bool {
        self.state & STALE != 0
    }
}

/// Decodes the payload of a neighbour message; `None` also for proxy and multicast entries.
pub fn decode(payload: &[u8]) -> Option<Neighbour> {
    let fixed = payload.first_chunk::<12>()?;
    let (flags, kind) = (fixed[10], fixed[11]);
    if ![family::INET, family::INET6].contains(&fixed[0]) || flags & NTF_PROXY != 0 || kind != RTN_UNICAST {
        return None;
    }
    let attributes = Attributes::new(&payload[12..]);
    let known = known::NEIGHBOUR.first_unknown(attributes.clone()).is_none();
    Some(Neighbour {
        ifindex: read_u32(&fixed[4..])?,
        address: attributes.clone().find(1).and_then(read_address)?,
        mac: attributes.find(2).and_then(|mac| mac.try_into().ok()).filter(|_| known),
        state: read_u16(&fixed[8..])?,
    })
}

/// Asks for all neighbours of a family.
pub fn dump(family: u8) -> Request {
    let mut fixed = [0; 12];
    fixed[0] = family;
    Request::new(message::GET_NEIGH, FLAG_DUMP, &fixed)
}

/// Tells the kernel that the neighbour is in use, so that it checks a stale one as if it had sent a packet itself.
pub fn in_use(ifindex: u32, address: &IpAddr) -> Request {
    used(ifindex, address, 0)
}

/// Makes the kernel ask for the neighbour's MAC address.
pub fn resolve(ifindex: u32, address: &IpAddr) -> Request {
    used(ifindex, address, FLAG_CREATE)
}

fn used(ifindex: u32, address: &IpAddr, flags: u16) -> Request {
    let mut fixed = [0; 12];
    fixed[0] = if address.is_ipv4() { family::INET } else { family::INET6 };
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[10] = NTF_USE;
    Request::new(message::NEW_NEIGH, flags, &fixed).attribute(1, &address_bytes(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCOMPLETE: u16 = 0x01;
    use crate::kernel::attribute::HEADER;

    #[test]
    fn a_neighbour_is_used_as_the_kernel_would() {
        let mac = |state: u16, more: &[u16]| {
            let mut fixed = [0; 12];
            (fixed[0], fixed[4], fixed[11]) = (family::INET, 7, RTN_UNICAST);
            fixed[8..10].copy_from_slice(&state.to_ne_bytes());
            let request = Request::new(0, 0, &fixed).attribute(1, &[10, 0, 0, 1]).attribute(2, &[2; 6]);
            let request = more.iter().fold(request, |request, kind| request.attribute(*kind, &[0; 4]));
            decode(&request.finish(0)[HEADER..]).unwrap().usable()
        };
        for state in [REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT] {
            assert_eq!(mac(state, &[3, 4, 12, 15]), Some([2; 6]), "{state:#x}");
            assert_eq!(mac(state, &[3, 17]), None, "an attribute that is not known");
        }
        assert_eq!((mac(INCOMPLETE, &[]), mac(0x20, &[]), mac(0, &[])), (None, None, None));
    }
}
