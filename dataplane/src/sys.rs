//! The bpf(2) calls on XDP links and programs that libbpf-rs has no form for that fits, beside those on maps.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;
pub(crate) use trieline_bpf::sys::*;

/// Attaches an XDP program to a device by a link.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: options live through the call, which returns a new descriptor.
    unsafe { own(sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, sys::BPF_XDP, &options)) }
}

/// Replaces a link's program.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no options.
    check(unsafe { sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) }).map(drop)
}

/// Detaches a link for good, whoever holds it.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain call.
    check(unsafe { sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Device of an XDP link; `None` when its device is gone or it is another kind of link.
pub(crate) fn link_device(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // SAFETY: the struct for links.
    let info: sys::bpf_link_info = unsafe { object_info(link) }?;
    if info.type_ != sys::BPF_LINK_TYPE_XDP {
        return Ok(None);
    }
    // SAFETY: the type says which member of the union is valid.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok((ifindex != 0).then_some(ifindex))
}

/// What the kernel tells of a device's XDP.
pub(crate) struct XdpState {
    /// Id of the program on it; 0 = none.
    pub(crate) program: u32,
    /// Whether that is in generic mode.
    pub(crate) generic: bool,
    /// `enum netdev_xdp_act`; 0 also before Linux 6.3.
    pub(crate) features: u64,
}

/// Asks for a device's XDP.
pub(crate) fn xdp_query(ifindex: u32) -> io::Result<XdpState> {
    let mut options = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: options live through the call.
    check(unsafe { sys::bpf_xdp_query(ifindex as i32, 0, &mut options) })?;
    Ok(XdpState {
        program: options.prog_id,
        generic: u32::from(options.attach_mode) == sys::XDP_ATTACHED_SKB,
        features: options.feature_flags,
    })
}

/// Name of a program.
pub(crate) fn program_name(id: u32) -> io::Result<String> {
    // SAFETY: the call returns a new descriptor.
    let fd = unsafe { own(sys::bpf_prog_get_fd_by_id(id)) }?;
    // SAFETY: the struct for programs.
    let info: sys::bpf_prog_info = unsafe { object_info(std::os::fd::AsFd::as_fd(&fd)) }?;
    Ok(info.name.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect())
}

/// Whether this thread's network namespace has a device of that number.
pub(crate) fn device_exists(ifindex: u32) -> bool {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the length that the call wants.
    !unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) }.is_null()
}

/// Cookie of this thread's network namespace: unlike its inode, never given to a later one.
pub(crate) fn netns_cookie() -> io::Result<u64> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None)?;
    let (mut cookie, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: `cookie` has `len` bytes.
    let ret = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut len,
        )
    };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}
