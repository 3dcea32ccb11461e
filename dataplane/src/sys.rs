//! The system calls on XDP links, programs and sockets that no crate has a form for that fits, beside those on maps.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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

/// `struct nlmsghdr`, `struct ifinfomsg`, and where the latter has the device.
const HEADER: usize = 16;
const LINK: usize = 16;
const DEVICE_AT: usize = HEADER + 4;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Asks for the program on a device: this device alone, where libbpf's query dumps all links.
pub(crate) fn xdp_attached(ifindex: u32) -> io::Result<XdpState> {
    // No protocol is NETLINK_ROUTE, whose number is 0.
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::NETLINK, rustix::net::SocketType::RAW, None)?;
    let mut request = [0; HEADER + LINK];
    request[0..4].copy_from_slice(&((HEADER + LINK) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request[DEVICE_AT..DEVICE_AT + 4].copy_from_slice(&ifindex.to_ne_bytes());
    rustix::net::send(&socket, &request, rustix::net::SendFlags::empty())?;
    let mut answer = vec![0; 32 << 10];
    let (len, _) = rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    let answer = answer.get(..len).unwrap_or_default();
    let word = |at: usize| answer.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_ne_bytes(*b));
    if answer.get(4..6) == Some(&(libc::NLMSG_ERROR as u16).to_ne_bytes()) {
        return Err(io::Error::from_raw_os_error((word(HEADER).unwrap_or_default() as i32).wrapping_neg()));
    }
    Ok(decode_xdp(answer.get(HEADER + LINK..).unwrap_or_default()))
}

/// The program in the attributes of a link.
fn decode_xdp(mut attributes: &[u8]) -> XdpState {
    let mut state = XdpState::default();
    while let Some((kind, value)) = attribute(&mut attributes) {
        if kind != IFLA_XDP {
            continue;
        }
        let mut nested = value;
        while let Some((kind, value)) = attribute(&mut nested) {
            match (kind, value.first_chunk()) {
                (IFLA_XDP_ATTACHED, _) => {
                    state.generic =
                        value.first().is_some_and(|mode| u32::from(*mode) == sys::XDP_ATTACHED_SKB);
                }
                (IFLA_XDP_PROG_ID, Some(id)) => state.program = u32::from_ne_bytes(*id),
                _ => {}
            }
        }
    }
    state
}

/// Takes the first attribute off: its type, without the bit "nested", and its value.
fn attribute<'a>(bytes: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let header = bytes.first_chunk::<4>()?;
    let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
    let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
    let value = bytes.get(4..len)?;
    *bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, value))
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

/// Runs an XDP program on a frame, as if it came in by that device of this thread's network namespace; the frame as it is then.
/// Nothing is sent.
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

/// Programs at a device's tcx hook, ingress and egress. None before Linux 6.6, which has no such hook.
pub(crate) fn tcx_programs(ifindex: u32) -> (u32, u32) {
    let count = |hook| {
        let mut options = sys::bpf_prog_query_opts {
            sz: size_of::<sys::bpf_prog_query_opts>() as sys::size_t,
            ..Default::default()
        };
        // SAFETY: options live through the call; without room for ids it only counts.
        let reported = check(unsafe { sys::bpf_prog_query_opts(ifindex as i32, hook, &mut options) });
        // SAFETY: all members of the union are the same number.
        reported.map_or(0, |_| unsafe { options.__bindgen_anon_1.count })
    };
    (count(sys::BPF_TCX_INGRESS), count(sys::BPF_TCX_EGRESS))
}

/// Reads an option of a socket into `value`, which may hold what the option asks for; how many bytes the kernel wrote.
pub(crate) fn getsockopt(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes, which are valid whatever the kernel writes.
    let ret =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

/// Cookie of this thread's network namespace: unlike its inode, never given to a later one.
pub(crate) fn netns_cookie() -> io::Result<u64> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None)?;
    let mut cookie = [0; 8];
    getsockopt(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}
