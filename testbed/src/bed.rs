//! The topology most tests use: a node between three neighbours.

use crate::command::Answer;
use crate::namespace::{End, Namespace, veth};
use crate::{eventually, packets};
use std::net::SocketAddr;

/// ```text
///  [gen] g0 ──────── n0 [node] n1 ──────── s0 [sink]
///    10.0.0.2   10.0.0.1    10.1.0.1   10.1.0.2
///    fd00:0::2  fd00:0::1   fd00:1::1  fd00:1::2
///                          n2 ──────── t0 [side]
///                           10.2.0.1   10.2.0.2
///                           fd00:2::1  fd00:2::2
/// ```
/// The neighbours' default routes point to the node. The node forwards IPv4 and IPv6 and accepts segment routing headers.
/// MAC addresses are `02:00:00:00:00:NN`, NN = 00 g0, 01 n0, 10 n1, 11 s0, 20 n2, 21 t0.
pub struct Bed {
    /// Where traffic starts.
    pub generator: Namespace,
    /// Where the daemon runs.
    pub node: Namespace,
    /// Where traffic normally ends.
    pub sink: Namespace,
    /// A second way out.
    pub side: Namespace,
}

impl Bed {
    /// Builds the topology; no neighbour is resolved yet.
    pub fn new() -> Self {
        let bed = Self {
            generator: Namespace::new("gen"),
            node: Namespace::new("node"),
            sink: Namespace::new("sink"),
            side: Namespace::new("side"),
        };
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.all.seg6_enabled", "1"),
            ("net.ipv6.conf.default.seg6_enabled", "1"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            // Otherwise a burst of unreachable packets is answered once a second only.
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv6.icmp.ratelimit", "0"),
        ] {
            bed.node.sysctl(key, value);
        }
        bed.link(&bed.generator, ("g0", 0x00), ("n0", 0x01), 0, (2, 1));
        bed.link(&bed.sink, ("s0", 0x11), ("n1", 0x10), 1, (2, 1));
        bed.link(&bed.side, ("t0", 0x21), ("n2", 0x20), 2, (2, 1));
        for (neighbour, net) in [(&bed.generator, 0), (&bed.sink, 1), (&bed.side, 2)] {
            neighbour.ip(&format!("route add default via 10.{net}.0.1"));
            neighbour.ip(&format!("-6 route add default via fd00:{net}::1"));
        }
        bed
    }

    /// The topology with neighbours resolved, and routes through the sink: 10.50.0.0/16 and fd50::/32.
    pub fn routed() -> Self {
        let bed = Self::new();
        bed.warm();
        bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
        bed.node.ip("-6 route add fd50::/32 via fd00:1::2");
        bed
    }

    /// Waits until packets to `to` go as expected.
    #[track_caller]
    pub fn becomes(&self, what: &str, to: &str, counts: Counts) {
        until_counts(&format!("{what}: to {to}"), counts, || self.send(to, what, 5).counts());
    }

    fn link(&self, there: &Namespace, far: (&str, u8), near: (&str, u8), net: u8, hosts: (u8, u8)) {
        let [here, there] = [(&self.node, near), (there, far)].map(|(namespace, (device, last))| End {
            namespace,
            device,
            mac: [2, 0, 0, 0, 0, last],
        });
        veth(here, there).unwrap_or_else(|error| panic!("{error}"));
        for (end, host) in [(here, hosts.1), (there, hosts.0)] {
            let End { namespace, device, .. } = end;
            namespace.sysctl(&format!("net.ipv6.conf.{device}.accept_dad"), "0");
            namespace.ip(&format!("addr add 10.{net}.0.{host}/24 dev {device}"));
            namespace.ip(&format!("addr add fd00:{net}::{host}/64 dev {device} nodad"));
            namespace.ip(&format!("link set {device} up"));
            // Checksums in the packets, as on a wire. A receive queue of its own (GRO gives a veth its NAPI, without
            // which it refuses frames that XDP redirects to it).
            namespace.run(&format!("ethtool -K {device} tx off gro on")).ok();
        }
    }

    /// Lets the node resolve its six neighbours, as any traffic before the test would have.
    pub fn warm(&self) {
        for net in 0..3 {
            self.node.run(&format!("ping -c 1 -W 2 -i 0.05 10.{net}.0.2")).ok();
            let resolved =
                eventually(15.0, || self.node.run(&format!("ping -c 1 -W 1 fd00:{net}::2")).code == 0);
            assert!(resolved, "fd00:{net}::2 does not answer");
        }
    }

    /// Pings from the generator, `count` times at 20 ms.
    pub fn ping(&self, address: &str, count: u32) -> Answer {
        self.generator.run(&format!("ping -n -c {count} -i 0.02 -W 2 {address}"))
    }

    /// Sends `count` UDP packets with a marked payload from the generator. Returns how many of them the node's kernel saw
    /// and how many of them arrived at the sink. Each packet that XDP passes is seen once coming in.
    pub fn send(&self, to: &str, marker: &str, count: usize) -> Seen {
        let to: SocketAddr = to.parse().expect("an address with a port");
        self.watch(marker.as_bytes(), || {
            if let Err(error) = packets::send_udp(&self.generator, to, marker.as_bytes(), count) {
                panic!("sending to {to}: {error}");
            }
        })
    }

    /// Like [`Bed::send`], for one packet given from its IP header on.
    pub fn send_ip(&self, packet: &[u8], marker: &[u8]) -> Seen {
        self.watch(marker, || packets::send_ip(&self.generator, packet))
    }

    /// Runs `work` and tells where frames with this marker went. Answers on their way back do not count.
    pub fn watch(&self, marker: &[u8], work: impl FnOnce()) -> Seen {
        let taps = [&self.node, &self.sink, &self.side].map(packets::Tap::open);
        work();
        std::thread::sleep(std::time::Duration::from_secs_f64(0.1 * crate::patience().min(2.0)));
        let [mut passed, mut sink, mut side] = taps.map(|tap| tap.close_with(marker));
        let to = |frame: &[u8], last: u8| frame.starts_with(&[2, 0, 0, 0, 0, last]);
        passed.retain(|frame| to(frame, 0x01));
        sink.retain(|frame| !to(frame, 0x10));
        side.retain(|frame| !to(frame, 0x20));
        Seen { passed, sink, side }
    }
}

impl Default for Bed {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the frames of a test went.
#[derive(Debug)]
pub struct Seen {
    /// Frames the node's kernel got: XDP passed them.
    pub passed: Vec<Vec<u8>>,
    /// Frames at the sink.
    pub sink: Vec<Vec<u8>>,
    /// Frames at the second way out.
    pub side: Vec<Vec<u8>>,
}

/// Frames that the node's kernel got, that arrived at the sink, that arrived at the side.
pub type Counts = (usize, usize, usize);

/// Sends again and again until the frames go as expected.
#[track_caller]
pub fn until_counts(what: &str, counts: Counts, send: impl Fn() -> Counts) {
    let mut last = None;
    let equal = eventually(10.0, || {
        last = Some(send());
        last == Some(counts)
    });
    assert!(equal, "{what}: expected {counts:?}, last seen {last:?} (passed, sink, side)");
}

impl Seen {
    /// How many frames were passed, arrived at the sink, arrived at the side.
    pub fn counts(&self) -> Counts {
        (self.passed.len(), self.sink.len(), self.side.len())
    }
}
