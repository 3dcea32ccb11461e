//! The bpf(2) calls that libbpf-rs has no form for that fits: everything by file descriptor and path.

use std::ffi::{CString, c_void};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

/// libbpf's convention: negative is -errno.
fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 { Err(io::Error::from_raw_os_error(-ret)) } else { Ok(ret) }
}

fn own(ret: i32) -> io::Result<OwnedFd> {
    // SAFETY: a non-negative return of these calls is a new file descriptor that nobody else owns.
    check(ret).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Shape of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapShape {
    pub(crate) kind: u32,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
    /// Address of an arena.
    pub(crate) extra: u64,
}

/// Creates a map. `inner` is the template of a map of maps.
pub(crate) fn map_create(name: &str, shape: MapShape, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: shape.flags,
        map_extra: shape.extra,
        inner_map_fd: inner.map_or(0, |fd| fd.as_raw_fd() as u32),
        ..Default::default()
    };
    // SAFETY: name and options live through the call.
    own(unsafe {
        sys::bpf_map_create(shape.kind, name.as_ptr(), shape.key, shape.value, shape.entries, &options)
    })
}

fn object_info<T: Copy>(fd: BorrowedFd<'_>) -> io::Result<T> {
    // SAFETY: T is one of the kernel's bpf_*_info structs, for which all zeros is valid.
    let mut info: T = unsafe { zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: `info` has `len` bytes.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast::<c_void>(), &mut len)
    })?;
    Ok(info)
}

/// Shape of an existing map.
pub(crate) fn map_shape(fd: BorrowedFd<'_>) -> io::Result<MapShape> {
    let info: sys::bpf_map_info = object_info(fd)?;
    Ok(MapShape {
        kind: info.type_,
        key: info.key_size,
        value: info.value_size,
        entries: info.max_entries,
        flags: info.map_flags,
        extra: info.map_extra,
    })
}

/// Stores an element. `key` and `value` must have the map's sizes (per-CPU maps: of all CPUs).
pub(crate) fn map_update(fd: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: the callers pass slices of the map's sizes.
    check(unsafe { sys::bpf_map_update_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), 0) })
        .map(drop)
}

/// Reads an element into `value`; false when there is none.
pub(crate) fn map_lookup(fd: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    // SAFETY: the callers pass slices of the map's sizes.
    let ret =
        unsafe { sys::bpf_map_lookup_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_mut_ptr().cast()) };
    match check(ret) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes an element; false when there was none.
pub(crate) fn map_delete(fd: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    // SAFETY: the callers pass a key of the map's size.
    match check(unsafe { sys::bpf_map_delete_elem(fd.as_raw_fd(), key.as_ptr().cast()) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The key after `key` (the first for `None`); `None` at the end.
pub(crate) fn map_next_key(
    fd: BorrowedFd<'_>,
    key: Option<&[u8]>,
    len: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut next = vec![0; len];
    let from = key.map_or(std::ptr::null(), |k| k.as_ptr());
    // SAFETY: key and next have the map's key size.
    match check(unsafe { sys::bpf_map_get_next_key(fd.as_raw_fd(), from.cast(), next.as_mut_ptr().cast()) }) {
        Ok(_) => Ok(Some(next)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pins an object.
pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    check(unsafe { sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned object; `None` when nothing is pinned there.
pub(crate) fn get(path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    match own(unsafe { sys::bpf_obj_get(path.as_ptr()) }) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Attaches an XDP program to a device by a link.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: options live through the call.
    own(unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, sys::BPF_XDP, &options) })
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
    let info: sys::bpf_link_info = object_info(link)?;
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
    // SAFETY: a plain call.
    let fd = own(unsafe { sys::bpf_prog_get_fd_by_id(id) })?;
    let info: sys::bpf_prog_info = object_info(std::os::fd::AsFd::as_fd(&fd))?;
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
