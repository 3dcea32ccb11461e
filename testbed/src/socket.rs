//! A packet socket on one device: whole frames out and in.

use crate::namespace::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Every protocol (`ETH_P_ALL`), in network order.
const ALL: u16 = 3u16.to_be();

/// A packet socket that gets every frame of its namespace; nothing waits for it.
pub(crate) fn every_frame(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let protocol = NonZeroU32::new(ALL.into()).map(Protocol::from_raw);
    rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags | SocketFlags::CLOEXEC, protocol)
}

/// A device of this thread's namespace and a protocol, as an address of a packet socket (`struct sockaddr_ll`).
struct Link([u8; 20]);

// SAFETY: the bytes are those of a whole `struct sockaddr_ll` and live as long as the call.
unsafe impl SocketAddrArg for Link {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(self.0.as_ptr().cast(), self.0.len() as _)
    }
}

/// Sends and receives whole frames by one device.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    /// A socket that also gets each frame of the device, in and out.
    #[track_caller]
    pub fn open(namespace: &Namespace, device: &str) -> Self {
        Self::bound(namespace, device, ALL)
    }

    /// One that only sends.
    #[track_caller]
    pub fn sender(namespace: &Namespace, device: &str) -> Self {
        Self::bound(namespace, device, 0)
    }

    #[track_caller]
    fn bound(namespace: &Namespace, device: &str, protocol: u16) -> Self {
        let index = namespace.ifindex(device).unwrap_or_else(|error| panic!("{error}"));
        let _inside = namespace.enter_here().unwrap_or_else(|error| panic!("{error}"));
        let kind = (AddressFamily::PACKET, SocketType::RAW);
        let socket =
            rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a packet socket");
        let mut link = Link([0; 20]);
        link.0[..2].copy_from_slice(&AddressFamily::PACKET.as_raw().to_ne_bytes());
        link.0[2..4].copy_from_slice(&protocol.to_ne_bytes());
        link.0[4..8].copy_from_slice(&index.to_ne_bytes());
        rustix::net::bind(&socket, &link).unwrap_or_else(|error| panic!("{device}: {error}"));
        Self(socket)
    }

    /// Sends a frame.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::net::send(&self.0, frame, SendFlags::empty()), Ok(frame.len()));
    }

    /// The next frame that `wanted` accepts, if one comes in time.
    pub fn receive(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut buffer = vec![0u8; 65536];
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let left = Timespec::try_from(left).expect("a short time");
            if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)).ok()? == 0 {
                return None;
            }
            let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty()).ok()?;
            if wanted(&buffer[..length]) {
                return Some(buffer[..length].to_vec());
            }
        }
    }
}
