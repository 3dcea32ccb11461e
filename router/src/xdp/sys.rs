//! The system calls on XDP links, programs and sockets that no crate has a form for that fits, beside those on maps.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::collections::HashMap;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::kernel::attribute::{Attributes, Request, read_u8, read_u32};
use crate::kernel::link;
use crate::kernel::socket::{self, Message, Netlink};
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

/// Detaches a link for good, also one of another process.
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

/// The program on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpState {
    /// Its id; 0 = none.
    pub(crate) program: u32,
    /// Whether that is in generic mode.
    pub(crate) generic: bool,
}

/// Bytes of `struct ifinfomsg`, and where it has the device.
const LINK: usize = 16;
const DEVICE_AT: usize = 4;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Asks for the program on a device: this device alone, where libbpf's query dumps all links.
pub(crate) fn xdp_attached(ifindex: u32) -> Result<XdpState, socket::Error> {
    let mut fixed = [0; LINK];
    fixed[DEVICE_AT..DEVICE_AT + 4].copy_from_slice(&ifindex.to_ne_bytes());
    let mut state = XdpState::default();
    Netlink::route()?.request(Request::new(libc::RTM_GETLINK, 0, &fixed), |link| state = xdp_of(link))?;
    Ok(state)
}

/// Asks for the programs on all devices, in one request.
pub(crate) fn xdp_attached_all() -> Result<HashMap<u32, XdpState>, socket::Error> {
    let mut states = HashMap::new();
    Netlink::route()?.dump(link::dump(), |link| {
        if let Some(device) = link.payload.get(DEVICE_AT..DEVICE_AT + 4).and_then(read_u32) {
            states.insert(device, xdp_of(link));
        }
    })?;
    Ok(states)
}

/// The program in a link's message.
fn xdp_of(link: Message<'_>) -> XdpState {
    let attributes = Attributes::new(link.payload.get(LINK..).unwrap_or_default());
    let Some(xdp) = attributes.find(IFLA_XDP).map(Attributes::new) else { return XdpState::default() };
    let attached = xdp.clone().find(IFLA_XDP_ATTACHED).and_then(read_u8);
    XdpState {
        program: xdp.find(IFLA_XDP_PROG_ID).and_then(read_u32).unwrap_or_default(),
        generic: attached.is_some_and(|mode| u32::from(mode) == sys::XDP_ATTACHED_SKB),
    }
}

/// Asks for a device's `enum netdev_xdp_act`; 0 also before Linux 6.3.
pub(crate) fn xdp_features(ifindex: u32) -> io::Result<u64> {
    let mut options = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: options live through the call.
    check(unsafe { sys::bpf_xdp_query(ifindex as i32, 0, &mut options) })?;
    Ok(options.feature_flags)
}

/// Opens the program of a number; `None` when there is none.
pub(crate) fn program_by_id(id: u32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: the call returns a new descriptor.
    match unsafe { own(sys::bpf_prog_get_fd_by_id(id)) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Name of a program.
pub(crate) fn program_name(id: u32) -> io::Result<String> {
    let fd = program_by_id(id)?.ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: the struct for programs.
    let info: sys::bpf_prog_info = unsafe { object_info(fd.as_fd()) }?;
    Ok(info.name.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect())
}

/// The kernel's hash of a program's instructions, in hexadecimal digits.
pub(crate) fn program_tag(program: BorrowedFd<'_>) -> io::Result<String> {
    // SAFETY: the struct for programs.
    let info: sys::bpf_prog_info = unsafe { object_info(program) }?;
    Ok(info.tag.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs an XDP program on a frame, as if it came in by that device of this thread's network namespace. Returns the frame as it
/// is then. Nothing is sent.
pub(crate) fn test_run(program: BorrowedFd<'_>, ifindex: u32, frame: &[u8]) -> io::Result<Vec<u8>> {
    /// Room for what a program can put in front.
    const ROOM: usize = 4096;
    let mut output = vec![0u8; frame.len().saturating_add(ROOM)];
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex: ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: output.as_mut_ptr().cast(),
        data_size_out: output.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: every buffer lives through the call and has the length given.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) })?;
    output.truncate(options.data_size_out as usize);
    Ok(output)
}

/// Runs an XDP program many times on a frame, each time as the run before left it, as if it came in by that device. Returns its answer, and
/// the mean time of a run in nanoseconds. Nothing is sent.
pub(crate) fn time_run(
    program: BorrowedFd<'_>,
    ifindex: u32,
    frame: &[u8],
    times: u32,
) -> io::Result<(u32, u32)> {
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex: ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: times as i32,
        ..Default::default()
    };
    // SAFETY: every buffer lives through the call and has the length given.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) })?;
    Ok((options.retval, options.duration))
}

/// Runs a program of type `BPF_PROG_TYPE_SYSCALL` with these bytes as its context.
pub(crate) fn run_syscall_program(program: BorrowedFd<'_>, context: &[u8]) -> io::Result<()> {
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ..Default::default()
    };
    // SAFETY: the context lives through the call and has the length given.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) }).map(drop)
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
    let mut cookie = [0; 8];
    crate::kernel::kernel_hooks::getsockopt(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_NETNS_COOKIE,
        &mut cookie,
    )?;
    Ok(u64::from_ne_bytes(cookie))
}
