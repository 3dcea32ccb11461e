//! The kernel's choice of source addresses: asked once for each destination, and remembered until something changes.

use crate::kernel::route;
use crate::kernel::socket::{Error, Netlink};
use crate::rib::nexthop_group::NhgId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// An output device and a source address; `None`: the destination is unreachable.
type Choice = Option<(u32, Ipv6Addr)>;

/// Source addresses of outer headers, as the kernel chooses them.
#[derive(Debug)]
pub struct Sources {
    socket: RefCell<Netlink>,
    /// By destination: the nexthop group that it takes, and the kernel's choice.
    known: RefCell<HashMap<Ipv6Addr, (NhgId, Choice)>>,
}

impl Sources {
    /// None is known yet.
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { socket: RefCell::new(Netlink::route()?), known: RefCell::default() })
    }

    /// The output device and source address that the kernel would choose towards an address, which takes this nexthop group.
    pub fn get(&self, destination: Ipv6Addr, nhg: NhgId) -> Choice {
        match self.known.borrow().get(&destination) {
            Some((known, choice)) if *known == nhg => return *choice,
            _ => {}
        }
        let mut choice = None;
        // An error is an answer, too: unreachable.
        let _ = self.socket.borrow_mut().request(route::source_for(&destination.into()), |message| {
            if let Some((device, IpAddr::V6(source))) = route::decode_source(message.payload) {
                choice = Some((device, source));
            }
        });
        self.known.borrow_mut().insert(destination, (nhg, choice));
        choice
    }

    /// Addresses, links or routes changed: the kernel may choose otherwise.
    pub(super) fn forget(&self) {
        self.known.borrow_mut().clear();
    }
}
