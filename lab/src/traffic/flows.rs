//! The flows of a sender: where each goes, and the order in which they take turns.

use std::net::{IpAddr, Ipv4Addr};

use super::FLOWS_MAX;
use crate::tables::Random;

/// Places of the order; flows take turns in it again and again.
pub(super) const ORDER: usize = 1 << 20;
/// Source port of flow 0.
const SOURCE_PORT: u16 = 9000;

/// Flows, each with a destination and a UDP source port.
#[derive(Clone, Debug)]
pub struct Flows {
    pub(super) ends: Vec<(IpAddr, u16)>,
    pub(super) order: Vec<u16>,
    pub(super) first: u16,
}

impl Flows {
    /// A flow to each destination, from one source port. At most [`FLOWS_MAX`] are taken.
    pub fn to(destinations: impl IntoIterator<Item = IpAddr>) -> Flows {
        Flows::of(destinations.into_iter().map(|address| (address, SOURCE_PORT)))
    }

    /// Flows by destination and source port, which take turns one after another. At most [`FLOWS_MAX`] are taken.
    pub fn of(ends: impl IntoIterator<Item = (IpAddr, u16)>) -> Flows {
        let ends: Vec<_> = ends.into_iter().take(FLOWS_MAX).collect();
        let order = (0..ends.len()).map(|flow| flow as u16).collect();
        Flows { ends, order, first: 0 }
    }

    /// `count` flows to one address, each from a source port of its own.
    pub fn by_port(destination: IpAddr, count: usize) -> Flows {
        Flows::of((0..count).map(|i| (destination, SOURCE_PORT.wrapping_add(i as u16))))
    }

    /// `count` flows, each to a random address within the prefix and from a random source port above 1023.
    pub fn within(prefix: Ipv4Addr, len: u8, count: usize, seed: u64) -> Flows {
        let mut random = Random::new(seed ^ 0x666c_6f77_7300);
        let free = u32::MAX.checked_shr(len.into()).unwrap_or(0);
        Flows::of((0..count).map(|_| {
            let address = u32::from(prefix) & !free | random.bits() as u32 & free;
            (Ipv4Addr::from(address).into(), 1024 + random.below(64_512) as u16)
        }))
    }

    /// The flows take turns in this order, again and again. Numbers of flows that do not exist are left out, and so are places after the
    /// first 2^20.
    #[must_use]
    pub fn in_order(mut self, order: impl IntoIterator<Item = usize>) -> Flows {
        let count = self.ends.len();
        self.order =
            order.into_iter().filter(|flow| *flow < count).take(ORDER).map(|flow| flow as u16).collect();
        self
    }

    /// Numbers the flows from `first` on, so that several senders can have one receiver.
    #[must_use]
    pub fn numbered_from(mut self, first: u16) -> Flows {
        self.first = first;
        self
    }

    /// Destination and source port of each flow.
    pub fn ends(&self) -> impl Iterator<Item = (IpAddr, u16)> {
        self.ends.iter().copied()
    }

    /// How many flow numbers a receiver has to know: all from 0 to the last of these.
    pub fn count(&self) -> usize {
        usize::from(self.first) + self.ends.len()
    }
}
