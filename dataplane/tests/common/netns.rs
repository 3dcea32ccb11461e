//! Network namespaces with veth pairs: sender, node, receiver.
//!
//! ```text
//!   tldp-N-a            tldp-N-n              tldp-N-b
//!   a0 ------------- n0          n1 ------------- b0
//!   SENDER_MAC       PORT_MAC    OUT_MAC          NEXT_HOP_MAC
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::PORT_MAC;
use super::packet::{NEXT_HOP_MAC, OUT_MAC, SENDER_MAC};

/// Runs a shell command that must succeed.
pub fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// The three namespaces; gone when dropped.
pub struct Line {
    prefix: String,
    home: OwnedFd,
}

impl Line {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("tldp-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let home = File::open("/proc/thread-self/ns/net").unwrap().into();
        let line = Self { prefix, home };
        let p = &line.prefix;
        sh(&format!(
            "for n in a n b; do ip netns add {p}-$n; ip -n {p}-$n link set lo up
               ip netns exec {p}-$n sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0; done
             ip -n {p}-a link add a0 address {a} type veth peer name n0 address {n0} netns {p}-n
             ip -n {p}-n link add n1 address {n1} type veth peer name b0 address {b} netns {p}-b
             for l in 'a a0' 'n n0' 'n n1' 'b b0'; do set -- $l; ip -n {p}-$1 link set $2 up; done",
            a = mac(SENDER_MAC),
            n0 = mac(PORT_MAC),
            n1 = mac(OUT_MAC),
            b = mac(NEXT_HOP_MAC),
        ));
        line
    }

    /// The name of a namespace ("a", "n", "b").
    pub fn name(&self, namespace: &str) -> String {
        format!("{}-{namespace}", self.prefix)
    }

    /// Runs a script in a namespace ("a", "n", "b").
    pub fn sh(&self, namespace: &str, script: &str) {
        let path = format!("/run/netns/{}-{namespace}", self.prefix);
        let output =
            Command::new("nsenter").arg(format!("--net={path}")).args(["sh", "-ec", script]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Does `work` with this thread in a namespace.
    pub fn within<T>(&self, namespace: &str, work: impl FnOnce() -> T) -> T {
        let there = File::open(format!("/run/netns/{}-{namespace}", self.prefix)).unwrap();
        enter(there.as_fd());
        let result = work();
        enter(self.home.as_fd());
        result
    }

    /// A raw socket on a device of a namespace.
    pub fn socket(&self, namespace: &str, device: &str) -> RawSocket {
        self.within(namespace, || RawSocket::open(device))
    }

    pub fn ifindex(&self, namespace: &str, device: &str) -> u32 {
        self.within(namespace, || ifindex(device))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for n in ["a", "n", "b"] {
            let name = format!("{}-{n}", self.prefix);
            Command::new("ip").args(["netns", "del", &name]).output().ok();
        }
    }
}

fn enter(namespace: impl AsFd) {
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).unwrap();
}

pub fn ifindex(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{device}: {}", io::Error::last_os_error());
    index
}

/// Sends and receives whole frames.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    fn open(device: &str) -> Self {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain calls; the address lives through bind.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all.into());
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let socket = Self(OwnedFd::from_raw_fd(fd));
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = ifindex(device) as i32;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
            socket
        }
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer has that length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// The next frame that `wanted` accepts, if one comes in time.
    pub fn receive(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut buffer = vec![0u8; 65536];
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd; the buffer has that length.
            let received = unsafe {
                if libc::poll(&mut poll, 1, left.as_millis() as i32 + 1) <= 0 {
                    return None;
                }
                libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            };
            let frame = &buffer[..usize::try_from(received).ok()?];
            if wanted(frame) {
                return Some(frame.to_vec());
            }
        }
    }
}
