//! Jumbo frames to devices that take redirected frames of one buffer only: none is lost, whether XDP or the kernel forwards them.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use common::cases::{SOURCE4, adjacency};
use common::netns::*;
use common::packet::*;
use common::*;
use trieline_lpm::{Image, Table};
use trieline_router::{Action, Adjacency, AttachMode, Dataplane};
use trieline_testbed::needs_root;

const PATIENCE: Duration = Duration::from_millis(500);

/// A tap device of this thread's namespace: XDP redirects to it, but only frames of one buffer.
struct Tap(File);

impl Tap {
    fn new(name: &str) -> Self {
        const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
        let file = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: an integer struct; the request outlives the call.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
            assert_eq!(libc::ioctl(file.as_raw_fd(), TUNSETIFF, &request), 0);
        }
        Self(file)
    }

    /// Whether such a frame was sent out by the device.
    fn sent(&mut self, wanted: &[u8]) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 65536];
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd.
            if unsafe { libc::poll(&mut poll, 1, left.as_millis() as i32 + 1) } > 0 {
                let bytes = self.0.read(&mut buffer).unwrap();
                if &buffer[..bytes] == wanted {
                    return true;
                }
            }
        }
        false
    }
}

#[test]
fn jumbo_frames_arrive() {
    needs_root!();
    if !Path::new("/dev/net/tun").exists() {
        trieline_testbed::skip("jumbo frames: this kernel has no tap devices");
        return;
    }
    let line = Line::new();
    let mut tap = line.within("n", || Tap::new("tap0"));
    line.sh("a", "ip link set a0 mtu 9000");
    line.sh("b", "ip link set b0 mtu 9000");
    let mac = OUT_MAC.map(|b| format!("{b:02x}")).join(":");
    line.sh(
        "n",
        &format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.n0.rp_filter=0
             ip link set n0 mtu 9000
             ip link set n1 mtu 9000
             ip link set tap0 mtu 9000 address {mac} up
             ip address add 192.0.2.1/24 dev n0
             ip address add 192.0.66.1/24 dev n1
             ip address add 192.0.77.1/24 dev tap0
             ip neigh add 192.0.66.2 lladdr 02:00:00:00:01:02 dev n1 nud permanent
             ip neigh add 192.0.77.2 lladdr 02:00:00:00:01:02 dev tap0 nud permanent
             ip route add 198.51.100.0/24 via 192.0.66.2
             ip route add 203.0.113.0/24 via 192.0.77.2"
        ),
    );
    let packet = |destination, payload| ipv4_of(SOURCE4, destination, 64, payload);
    let b0 = line.ifindex("b", "b0");
    let (from, to) = (line.socket("a", "a0"), line.socket("b", "b0"));
    let send = |packet: &[u8]| from.send(&Frame::new(packet.to_vec()).bytes());
    let (small, jumbo) = (packet("203.0.113.1", 1000), packet("203.0.113.1", 8000));
    for packet in [&small, &jumbo] {
        send(packet);
        assert!(tap.sent(&sent(&[], &hop(packet))), "the kernel forwards {} bytes", packet.len());
    }

    let (fs, receiver_fs) = (BpfFs::mount(), BpfFs::mount());
    let (n0, n1, tap0) = (line.ifindex("n", "n0"), line.ifindex("n", "n1"), line.ifindex("n", "tap0"));
    let (mut node, image) = line.within("n", || {
        let mut node = Dataplane::open(&options(&fs, map_types()[0])).unwrap();
        let mut image = Image::create(node.memory(), node.grace(), node.tables()).unwrap();
        let routes = [("198.51.100.0/24", n1), ("203.0.113.0/24", tap0)].map(|(prefix, ifindex)| {
            let id = node.actions().alloc().unwrap();
            let adjacency = Adjacency { mtu: 9000, ..adjacency(ifindex) };
            node.actions().set(id, &Action::Forward(adjacency)).unwrap();
            (prefix.parse().unwrap(), id)
        });
        Table::<u32>::create(&mut image, 0, routes).unwrap();
        node.set_port(n0, None, port(ALL)).unwrap();
        node.set_device(tap0).unwrap();
        node.set_device(n1).unwrap();
        node.attach(n0, "n0", AttachMode::Native).unwrap();
        (node, image)
    });
    let counted = |node: &Dataplane| (named(node, "ipv4"), named(node, "xdp_frags"));
    for packet in [&small, &jumbo] {
        send(packet);
        assert!(tap.sent(&sent(&[], &hop(packet))), "{} bytes: {:?}", packet.len(), counted(&node));
    }
    assert_eq!(counted(&node), (1, 1), "the jumbo frame is the kernel's");

    // A veth takes them once its peer has XDP.
    let jumbo = packet("198.51.100.1", 8000);
    let expected = sent(&[], &hop(&jumbo));
    let arrives = |node: &mut Dataplane| {
        line.within("n", || node.set_device(n1)).unwrap();
        send(&jumbo);
        to.receive(PATIENCE, |frame| frame == expected).is_some()
    };
    assert!(arrives(&mut node), "{:?}", counted(&node));
    assert_eq!(counted(&node), (1, 2), "not yet");
    let mut receiver = line.within("b", || Dataplane::open(&options(&receiver_fs, map_types()[0])).unwrap());
    line.within("b", || receiver.attach(b0, "b0", AttachMode::Native)).unwrap();
    // A kernel that does not tell (before Linux 6.3) does not redirect them either.
    let tells = u64::from(line.within("n", || trieline_router::takes_redirects(n1)).is_some());
    assert!(arrives(&mut node), "{:?}", counted(&node));
    assert_eq!(counted(&node), (1 + tells, 3 - tells), "now");
    line.within("b", || receiver.detach(b0)).unwrap();
    assert!(arrives(&mut node), "{:?}", counted(&node));
    assert_eq!(counted(&node), (1 + tells, 4 - tells), "no longer");
    drop(image);
}
