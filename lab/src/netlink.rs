//! Changes routes, next hop objects and links of a namespace by netlink, many in a datagram: `ip -batch` is slower than the kernel.

use std::{io, net::Ipv4Addr, os::fd::OwnedFd, time::Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use trieline_lpm::Prefix;
use trieline_testbed::namespace::Namespace;

use crate::error::{During, Error, Result};

/// A neighbour to send to, and the device that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its address.
    pub gateway: Ipv4Addr,
    /// Index of the device.
    pub device: u32,
}

/// One change of the kernel's state. A route or next hop that exists is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A route to one next hop. Routes to the same prefix with another metric stay.
    Route(Prefix<u32>, NextHop, u32),
    /// A route by the next hop object of this number.
    ByObject(Prefix<u32>, u32),
    /// A route to two next hops of equal weight.
    Multipath(Prefix<u32>, [NextHop; 2]),
    /// Removes the route to a prefix with this metric.
    Remove(Prefix<u32>, u32),
    /// A next hop object by its number.
    Object(u32, NextHop),
    /// Sets the device of this index up or down.
    Link(u32, bool),
}

// linux/netlink.h, linux/rtnetlink.h, linux/nexthop.h, linux/if.h
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const NEW_NEXT_HOP: u16 = 104;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_NH_ID: u16 = 30;
const NHA_ID: u16 = 1;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const TABLE_MAIN: u8 = 254;
const PROTOCOL_STATIC: u8 = 4;
const UNICAST: u8 = 1;
const INET: u8 = 2;
const IS_UP: u32 = 1;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

fn attribute(bytes: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    bytes.extend(8u16.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
}

fn header(bytes: &mut Vec<u8>, kind: u16, flags: u16) {
    bytes.extend([0; 4]); // the length, when the message is whole
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | REQUEST).to_ne_bytes());
    bytes.extend([0; 8]);
}

/// `struct rtmsg` and the destination.
fn route(bytes: &mut Vec<u8>, kind: u16, flags: u16, prefix: Prefix<u32>) {
    header(bytes, kind, flags);
    bytes.extend([INET, prefix.len() as u8, 0, 0, TABLE_MAIN, PROTOCOL_STATIC, 0, UNICAST, 0, 0, 0, 0]);
    attribute(bytes, RTA_DST, prefix.addr().to_be_bytes());
}

impl Change {
    /// Appends its message; all lengths are multiples of four, as netlink wants them.
    fn write(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        match *self {
            Change::Route(prefix, to, metric) => {
                route(bytes, NEW_ROUTE, CREATE | REPLACE, prefix);
                attribute(bytes, RTA_GATEWAY, to.gateway.octets());
                attribute(bytes, RTA_OIF, to.device.to_ne_bytes());
                attribute(bytes, RTA_PRIORITY, metric.to_ne_bytes());
            }
            Change::ByObject(prefix, object) => {
                route(bytes, NEW_ROUTE, CREATE | REPLACE, prefix);
                attribute(bytes, RTA_NH_ID, object.to_ne_bytes());
            }
            Change::Multipath(prefix, hops) => {
                // `struct rtnexthop` (8 bytes) with its gateway (8), twice.
                const HOP: u16 = 16;
                route(bytes, NEW_ROUTE, CREATE | REPLACE, prefix);
                bytes.extend((4 + 2 * HOP).to_ne_bytes());
                bytes.extend(RTA_MULTIPATH.to_ne_bytes());
                for hop in hops {
                    bytes.extend(HOP.to_ne_bytes());
                    bytes.extend([0, 0]);
                    bytes.extend(hop.device.to_ne_bytes());
                    attribute(bytes, RTA_GATEWAY, hop.gateway.octets());
                }
            }
            Change::Remove(prefix, metric) => {
                route(bytes, DELETE_ROUTE, 0, prefix);
                attribute(bytes, RTA_PRIORITY, metric.to_ne_bytes());
            }
            Change::Object(object, to) => {
                header(bytes, NEW_NEXT_HOP, CREATE | REPLACE);
                bytes.extend([INET, 0, PROTOCOL_STATIC, 0, 0, 0, 0, 0]); // struct nhmsg
                attribute(bytes, NHA_ID, object.to_ne_bytes());
                attribute(bytes, NHA_OIF, to.device.to_ne_bytes());
                attribute(bytes, NHA_GATEWAY, to.gateway.octets());
            }
            Change::Link(device, up) => {
                header(bytes, NEW_LINK, 0);
                bytes.extend([0; 4]); // struct ifinfomsg: family, kind of device
                bytes.extend(device.to_ne_bytes());
                bytes.extend(if up { IS_UP } else { 0 }.to_ne_bytes());
                bytes.extend(IS_UP.to_ne_bytes());
            }
        }
        let length = (bytes.len() - start) as u32;
        bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A netlink socket of a namespace that changes its state.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// Changes in a datagram when no pace is asked for.
const BATCH: usize = 256;

impl Netlink {
    /// Opens it; it belongs to the namespace whichever thread uses it.
    pub fn open(namespace: &Namespace) -> Result<Netlink> {
        let _inside = namespace.enter_here()?;
        // Protocol 0: NETLINK_ROUTE.
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)
            .during(|| format!("cannot open a netlink socket in {}", namespace.name()))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Makes the changes as fast as the kernel takes them. `go_on` gets the number so far after each datagram, and says whether to go on;
    /// the number made in the end.
    ///
    /// # Errors
    /// The first change that the kernel refused; those behind it in the same datagram have been tried, too.
    pub fn make(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        let mut changes = changes.into_iter();
        let mut made = 0;
        loop {
            let count = self.datagram(changes.by_ref().take(BATCH))?;
            made += count;
            if count == 0 || !go_on(made) {
                return Ok(made);
            }
        }
    }

    /// Likewise, at most so many a second: the changes of each millisecond in one datagram.
    pub fn make_paced(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        per_second: u32,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        const TURN: std::time::Duration = std::time::Duration::from_millis(1);
        let mut changes = changes.into_iter();
        let began = Instant::now();
        let mut made = 0;
        loop {
            let due = (began.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
            // A thread that was held up catches up in datagrams of a moderate size.
            let turn = due.saturating_sub(made).min(4 * BATCH as u64);
            if turn == 0 {
                std::thread::sleep(TURN);
            } else {
                let count = self.datagram(changes.by_ref().take(turn as usize))?;
                made += count;
                if count < turn {
                    return Ok(made);
                }
            }
            if !go_on(made) {
                return Ok(made);
            }
        }
    }

    /// Sends the changes in one datagram and waits until the kernel has made the last; their number.
    fn datagram(&mut self, changes: impl Iterator<Item = Change>) -> Result<u64> {
        let mut bytes = Vec::new();
        let (mut count, mut last, mut sent) = (0, 0, Vec::new());
        for change in changes {
            last = bytes.len();
            change.write(&mut bytes);
            self.sequence = self.sequence.wrapping_add(1);
            bytes[last + 8..last + 12].copy_from_slice(&self.sequence.to_ne_bytes());
            sent.push(change);
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // The kernel makes them one after the other: its answer to the last comes when all are made. It reports errors unasked.
        bytes[last + 6] |= ACKNOWLEDGE as u8;
        let what = || "cannot send changes by netlink".to_owned();
        rustix::net::send(&self.socket, &bytes, SendFlags::empty()).during(what)?;
        let mut refused = None;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let what = || "cannot read the kernel's answer by netlink".to_owned();
            let (length, _) =
                rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()).during(what)?;
            for (sequence, code) in errors(&buffer[..length.min(1 << 16)]) {
                if code != 0 && refused.is_none() {
                    let behind = self.sequence.wrapping_sub(sequence) as usize;
                    let change = sent.len().checked_sub(1 + behind).and_then(|at| sent.get(at));
                    refused = Some(Error::Io {
                        what: change.map_or("the kernel refuses a change".into(), |change| {
                            format!("the kernel refuses {change:?}")
                        }),
                        cause: io::Error::from_raw_os_error(-code),
                    });
                }
                if sequence == self.sequence {
                    return refused.map_or(Ok(count), Err);
                }
            }
        }
    }
}

/// Sequence numbers and error codes of the acknowledgements in a datagram.
fn errors(mut bytes: &[u8]) -> impl Iterator<Item = (u32, i32)> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    std::iter::from_fn(move || {
        loop {
            let length = word(bytes, 0)? as usize;
            let message = bytes.get(..length).filter(|message| message.len() >= HEADER)?;
            bytes = bytes.get((length + 3) & !3..).unwrap_or_default();
            if message.get(4..6) == Some(&ERROR.to_ne_bytes()) {
                return Some((word(message, 8)?, word(message, HEADER)? as i32));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    /// `ip` shows what was asked for, and the kernel's refusal names the change.
    #[test]
    fn the_kernel_has_the_requested_routes() {
        let Some(_alone) = alone() else { return };
        let namespace = crate::netns::create("netlink").unwrap();
        let ip = |words: &str| namespace.ip_words(&words.split(' ').collect::<Vec<_>>()).unwrap();
        ip("link add va type veth peer name vb");
        let mut netlink = Netlink::open(&namespace).unwrap();
        let [a, b] = [("va", 1), ("vb", 2)].map(|(name, net)| NextHop {
            gateway: Ipv4Addr::new(10, 0, net, 2),
            device: namespace.ifindex(name).unwrap(),
        });
        let up = [Change::Link(a.device, true), Change::Link(b.device, true)];
        assert_eq!(netlink.make(up, |_| true).unwrap(), 2);
        ip("address add 10.0.1.1/24 dev va");
        ip("address add 10.0.2.1/24 dev vb");
        let prefix = |n: u32| Prefix::new(0x1400_0000 | n << 8, 24).unwrap();
        let via = |to: NextHop| (0..1000).map(move |n| Change::Route(prefix(n), to, 0));
        assert_eq!(netlink.make(via(a), |_| true).unwrap(), 1000);
        assert_eq!(netlink.make_paced(via(b).take(600), 1_000_000, |_| true).unwrap(), 600);
        assert_eq!(
            netlink.make(via(b), |made| made < 256).unwrap(),
            256,
            "stops when its caller wants it to"
        );
        let others = [
            Change::Object(7, b),
            Change::ByObject(prefix(2000), 7),
            Change::Multipath(prefix(2001), [a, b]),
            Change::Route(prefix(2002), a, 10),
            Change::Route(prefix(2002), b, 20),
            Change::Remove(prefix(2002), 10),
        ];
        assert_eq!(netlink.make(others, |_| true).unwrap(), 6);
        let lines = |words: &str| ip(words).lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            lines("route show proto static dev va").iter().filter(|l| l.starts_with("20.")).count(),
            400
        );
        assert_eq!(lines("route show 20.2.0.0/16"), [""; 0]);
        assert_eq!(
            lines("route show 20.7.208.0/24")[0],
            "20.7.208.0/24 nhid 7 via 10.0.2.2 dev vb proto static"
        );
        assert_eq!(lines("route show 20.7.209.0/24").len(), 3);
        assert_eq!(
            lines("route show 20.7.210.0/24"),
            ["20.7.210.0/24 via 10.0.2.2 dev vb proto static metric 20"]
        );
        let error = netlink.make([Change::Route(prefix(1), a, 0), Change::Remove(prefix(3000), 0)], |_| true);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the kernel refuses Remove") && error.contains("No such process"), "{error}");
        assert_eq!(netlink.make([Change::Link(a.device, false)], |_| true).unwrap(), 1);
        assert_eq!(lines("route show dev va"), [""; 0]);
    }
}
