//! Addresses: the local table repeats them, but what they change beside it the kernel does not report.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_address, read_u32};
use super::message;
use std::net::IpAddr;

/// Addresses that the kernel handles itself, whatever the routes say.
pub fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(addr) => {
            addr.is_loopback()
                || addr.is_multicast()
                || addr.is_broadcast()
                || addr.is_link_local()
                || addr.octets()[0] == 0
        }
        IpAddr::V6(addr) => {
            addr.is_loopback()
                || addr.is_multicast()
                || addr.is_unspecified()
                || addr.is_unicast_link_local()
                || addr.to_ipv4_mapped().is_some()
        }
    }
}

/// An address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    /// The device.
    pub ifindex: u32,
    /// The address itself (`IFA_LOCAL` where it differs from `IFA_ADDRESS`).
    pub address: IpAddr,
    /// The other end's address, where it differs (`IFA_ADDRESS`).
    pub peer: IpAddr,
    /// Length of its subnet's prefix.
    pub prefix_len: u8,
}

/// Decodes the payload of an address message.
pub fn decode(payload: &[u8]) -> Option<Addr> {
    let fixed = payload.first_chunk::<8>()?;
    let attributes = Attributes::new(&payload[8..]);
    let address = attributes.clone().find(2).or_else(|| attributes.clone().find(1)).and_then(read_address)?;
    let peer = attributes.find(1).and_then(read_address).unwrap_or(address);
    Some(Addr { ifindex: read_u32(&fixed[4..])?, address, peer, prefix_len: fixed[1] })
}

/// Asks for all addresses of a family.
pub fn dump(family: u8) -> Request {
    Request::new(message::GET_ADDR, FLAG_DUMP, &[family, 0, 0, 0, 0, 0, 0, 0])
}
