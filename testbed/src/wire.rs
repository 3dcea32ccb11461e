//! The wires of a namespace: a packet socket that sends by any of its devices, and catches what comes in by them. The kernel takes VLAN tags
//! off before such a socket sees a frame; they are put back.

use crate::error::{During, Error, Result};
use crate::namespace::Namespace;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` of `linux/if_packet.h`.
const TAG_VALID: u32 = 1 << 4;
const TAG_TYPE_VALID: u32 = 1 << 6;
/// Room for a frame and for the record about its tag.
const FRAME: usize = 1 << 16;
const CONTROL: usize = 128;

/// A frame that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Index of the device.
    pub device: u32,
    /// The whole frame, tag included.
    pub frame: Vec<u8>,
}

/// Sends frames by each device of a namespace, and catches those that come in by them.
pub struct Wire {
    socket: OwnedFd,
    frame: Vec<u8>,
}

/// The result of a system call that is negative when it failed.
fn checked(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn address(device: u32) -> libc::sockaddr_ll {
    // SAFETY: all bits zero is a value of this plain C struct.
    let mut link: libc::sockaddr_ll = unsafe { zeroed() };
    link.sll_family = libc::AF_PACKET as u16;
    link.sll_ifindex = device as i32;
    link.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    link
}

impl Wire {
    /// Listens in `namespace` from now on.
    pub fn open(namespace: &Namespace) -> Result<Self> {
        let what = || format!("cannot open a packet socket in {}", namespace.name());
        let _inside = namespace.enter_here()?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
        // SAFETY: the call takes numbers only.
        let socket = checked(unsafe { libc::socket(libc::AF_PACKET, kind, protocol) }.into()).during(what)?;
        // SAFETY: the descriptor was opened above and belongs to nothing else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
        for (level, option, value) in [
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, 1i32),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20),
        ] {
            let size = size_of::<i32>() as u32;
            // SAFETY: the option's value is an i32 that lives as long as the call.
            let set = unsafe {
                libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
            };
            checked(set.into()).during(what)?;
        }
        Ok(Self { socket, frame: vec![0; FRAME] })
    }

    /// Sends a frame by a device. A device that is down or gone takes no frame: `false`.
    pub fn send(&self, device: u32, frame: &[u8]) -> Result<bool> {
        let to = address(device);
        // SAFETY: frame and address live as long as the call, and their sizes are given.
        let sent = unsafe {
            let size = size_of::<libc::sockaddr_ll>() as u32;
            let fd = self.socket.as_raw_fd();
            libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size)
        };
        match checked(sent as i64) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOBUFS | libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EMSGSIZE)
                ) =>
            {
                Ok(false)
            }
            Err(cause) => Err(Error::Io { what: "cannot send a frame".into(), cause }),
        }
    }

    /// Waits for a frame; says whether one is there.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one record, which lives as long as the call.
        unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as i32) > 0 }
    }

    /// The next frame that came in, if one is there. Frames that leave by other sockets are left out.
    pub fn receive(&mut self) -> Option<Caught> {
        loop {
            let mut from = address(0);
            let mut control = [0u64; CONTROL / 8];
            let mut part = libc::iovec { iov_base: self.frame.as_mut_ptr().cast(), iov_len: FRAME };
            // SAFETY: all bits zero is a value of this plain C struct.
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = CONTROL;
            // SAFETY: the message names buffers with their sizes, which live as long as the call.
            let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
            let length = checked(received as i64).ok()?.min(FRAME);
            if from.sll_pkttype == libc::PACKET_OUTGOING {
                continue;
            }
            let mut frame = self.frame[..length].to_vec();
            // SAFETY: the kernel has filled the message, whose control buffer is still there.
            if let Some((kind, tag)) = unsafe { tag_of(&message) } {
                let at = 12.min(frame.len());
                frame.splice(at..at, [kind.to_be_bytes(), tag.to_be_bytes()].concat());
            }
            return Some(Caught { device: from.sll_ifindex as u32, frame });
        }
    }
}

/// The tag (EtherType, TCI) that the kernel took off a frame.
///
/// # Safety
/// `recvmsg` has filled `message`.
unsafe fn tag_of(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the caller's message; the kernel writes whole records.
    unsafe {
        let mut record = libc::CMSG_FIRSTHDR(message);
        while !record.is_null() {
            if (*record).cmsg_level == libc::SOL_PACKET && (*record).cmsg_type == libc::PACKET_AUXDATA {
                let about = libc::CMSG_DATA(record).cast::<libc::tpacket_auxdata>().read_unaligned();
                if about.tp_status & TAG_VALID == 0 {
                    return None;
                }
                let kind = if about.tp_status & TAG_TYPE_VALID == 0 { 0x8100 } else { about.tp_vlan_tpid };
                return Some((kind, about.tp_vlan_tci));
            }
            record = libc::CMSG_NXTHDR(message, record);
        }
    }
    None
}
