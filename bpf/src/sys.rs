//! The bpf(2) calls on maps and pins that libbpf-rs has no form for that fits: everything by file descriptor and path.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

/// The result of a call by libbpf's convention: negative is -errno.
pub fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 { Err(io::Error::from_raw_os_error(ret.saturating_neg())) } else { Ok(ret) }
}

/// The file descriptor that a call returned.
///
/// # Safety
///
/// If not negative, `ret` is a new descriptor without another owner.
pub unsafe fn own(ret: i32) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises it.
    check(ret).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Shape of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapShape {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Elements there can be.
    pub entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// Address of an arena.
    pub extra: u64,
}

/// Creates a map. `inner` is the template of a map of maps.
pub fn map_create(name: &str, shape: MapShape, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: shape.flags,
        map_extra: shape.extra,
        inner_map_fd: inner.map_or(0, |fd| fd.as_raw_fd() as u32),
        ..Default::default()
    };
    // SAFETY: name and options live through the call, which returns a new descriptor.
    unsafe {
        own(sys::bpf_map_create(shape.kind, name.as_ptr(), shape.key, shape.value, shape.entries, &options))
    }
}

/// The kernel's facts about a map, program or link.
///
/// # Safety
///
/// `T` is the kernel's bpf_*_info of that kind of object (all zeros are valid for each).
pub unsafe fn object_info<T: Copy>(fd: BorrowedFd<'_>) -> io::Result<T> {
    // SAFETY: the caller promises that zeros are valid.
    let mut info: T = unsafe { zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: `info` has `len` bytes.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast::<c_void>(), &mut len)
    })?;
    Ok(info)
}

/// Shape of an existing map.
pub fn map_shape(fd: BorrowedFd<'_>) -> io::Result<MapShape> {
    // SAFETY: the struct for maps; of another object the kernel would say EINVAL or fill what they share.
    let info: sys::bpf_map_info = unsafe { object_info(fd) }?;
    Ok(MapShape {
        kind: info.type_,
        key: info.key_size,
        value: info.value_size,
        entries: info.max_entries,
        flags: info.map_flags,
        extra: info.map_extra,
    })
}

/// Whether the descriptor is one of a map.
pub fn is_map(fd: BorrowedFd<'_>) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .is_ok_and(|target| target.as_os_str() == "anon_inode:bpf-map")
}

/// Number of a map.
pub fn map_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the struct for maps.
    let info: sys::bpf_map_info = unsafe { object_info(fd) }?;
    Ok(info.id)
}

/// Numbers of the maps that a program uses.
pub fn program_maps(fd: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // SAFETY: the struct for programs.
    let info: sys::bpf_prog_info = unsafe { object_info(fd) }?;
    let mut ids = vec![0u32; info.nr_map_ids as usize];
    // SAFETY: zeros are valid.
    let mut info: sys::bpf_prog_info = unsafe { zeroed() };
    info.nr_map_ids = ids.len() as u32;
    info.map_ids = ids.as_mut_ptr() as u64;
    let mut len = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: `info` has `len` bytes and names `ids`, which has as many elements as it says.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast::<c_void>(), &mut len)
    })?;
    ids.truncate(info.nr_map_ids as usize);
    Ok(ids)
}

/// Bytes of a map's key, and of its value as user space sees it. Per-CPU maps have a value for each CPU, each a multiple of 8.
fn element(fd: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
    const PER_CPU: [u32; 4] = [
        sys::BPF_MAP_TYPE_PERCPU_HASH,
        sys::BPF_MAP_TYPE_PERCPU_ARRAY,
        sys::BPF_MAP_TYPE_LRU_PERCPU_HASH,
        sys::BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE,
    ];
    let shape = map_shape(fd)?;
    let value = shape.value as usize;
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let value = if PER_CPU.contains(&shape.kind) {
        value.checked_next_multiple_of(8).and_then(|each| each.checked_mul(cpus)).ok_or_else(too_large)?
    } else {
        value
    };
    Ok((shape.key as usize, value))
}

/// More elements than memory can hold.
fn too_large() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

fn expect(what: &str, is: usize, must: usize) -> io::Result<()> {
    if is == must {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{is} bytes of {what}, the map has {must}")))
}

/// Stores an element. `key` and `value` must have the map's sizes (per-CPU maps: of all CPUs).
pub fn map_update(fd: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let sizes = element(fd)?;
    expect("key", key.len(), sizes.0)?;
    expect("value", value.len(), sizes.1)?;
    // SAFETY: both have the map's sizes.
    check(unsafe { sys::bpf_map_update_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), 0) })
        .map(drop)
}

/// Reads an element into `value`; false when there is none.
pub fn map_lookup(fd: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    let sizes = element(fd)?;
    expect("key", key.len(), sizes.0)?;
    expect("value", value.len(), sizes.1)?;
    // SAFETY: both have the map's sizes.
    let ret =
        unsafe { sys::bpf_map_lookup_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_mut_ptr().cast()) };
    match check(ret) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes an element; false when there was none.
pub fn map_delete(fd: BorrowedFd<'_>, key: &[u8]) -> io::Result<bool> {
    expect("key", key.len(), element(fd)?.0)?;
    // SAFETY: the key has the map's size.
    match check(unsafe { sys::bpf_map_delete_elem(fd.as_raw_fd(), key.as_ptr().cast()) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The key after `key` (the first for `None`); `None` at the end.
pub fn map_next_key(fd: BorrowedFd<'_>, key: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
    let len = element(fd)?.0;
    expect("key", key.map_or(len, <[u8]>::len), len)?;
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
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string.
    check(unsafe { sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned object; `None` when nothing is pinned there.
pub fn get(path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = c_path(path)?;
    // SAFETY: the path is a C string, and the call returns a new descriptor.
    match unsafe { own(sys::bpf_obj_get(path.as_ptr())) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the map of a number; `None` when there is none.
pub fn map_by_id(id: u32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: the call returns a new descriptor.
    match unsafe { own(sys::bpf_map_get_fd_by_id(id)) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Name of a type of map, as bpftool has it.
pub fn map_kind(kind: u32) -> String {
    // SAFETY: the answer is null or a string that stays.
    let name = unsafe { sys::libbpf_bpf_map_type_str(kind).as_ref().map(|name| CStr::from_ptr(name)) };
    name.map_or_else(|| format!("type {kind}"), |name| name.to_string_lossy().into_owned())
}

/// Names that a map's creator gave it.
pub struct MapNames {
    /// The map's name; may be empty.
    pub name: String,
    /// Number of its BTF; 0: none.
    pub btf: u32,
    /// The type of its keys there; 0: none.
    pub key: u32,
    /// The type of its values.
    pub value: u32,
}

/// A map's name and types.
pub fn map_names(fd: BorrowedFd<'_>) -> io::Result<MapNames> {
    // SAFETY: the struct for maps.
    let info: sys::bpf_map_info = unsafe { object_info(fd) }?;
    let name = info.name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    let name = String::from_utf8(name).unwrap_or_default();
    Ok(MapNames { name, btf: info.btf_id, key: info.btf_key_type_id, value: info.btf_value_type_id })
}

/// Reads up to `count` elements behind `from` (`None`: the first) into `keys` and `values`. How many, and where to go on; `None` at the
/// end. Some types of map have no such call: EINVAL or ENOTSUPP.
pub fn map_lookup_batch(
    fd: BorrowedFd<'_>,
    from: Option<&[u8]>,
    count: u32,
    keys: &mut Vec<u8>,
    values: &mut Vec<u8>,
) -> io::Result<(usize, Option<Vec<u8>>)> {
    let (key, value) = element(fd)?;
    expect("place to go on at", from.map_or(key, <[u8]>::len), key)?;
    keys.resize((count as usize).checked_mul(key).ok_or_else(too_large)?, 0);
    values.resize((count as usize).checked_mul(value).ok_or_else(too_large)?, 0);
    let mut next = vec![0u8; key];
    let mut read = count;
    // SAFETY: keys and values have room for `count` elements, `from` and `next` have a key's size, which such maps use for the place.
    let ret = unsafe {
        sys::bpf_map_lookup_batch(
            fd.as_raw_fd(),
            from.map_or(std::ptr::null_mut(), |from| from.as_ptr().cast_mut().cast()),
            next.as_mut_ptr().cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut read,
            std::ptr::null(),
        )
    };
    match check(ret) {
        Ok(_) => Ok((read as usize, Some(next))),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((read as usize, None)),
        Err(error) => Err(error),
    }
}

/// The bytes of a BTF that the kernel has.
pub fn btf_bytes(id: u32) -> io::Result<Vec<u8>> {
    // SAFETY: the call returns a new descriptor.
    let fd = unsafe { own(sys::bpf_btf_get_fd_by_id(id)) }?;
    // SAFETY: the struct for BTF; zeros are valid.
    let known: sys::bpf_btf_info = unsafe { object_info(fd.as_fd()) }?;
    let mut bytes = vec![0u8; known.btf_size as usize];
    let mut info =
        sys::bpf_btf_info { btf: bytes.as_mut_ptr() as u64, btf_size: known.btf_size, ..Default::default() };
    let mut len = size_of::<sys::bpf_btf_info>() as u32;
    // SAFETY: `info` has `len` bytes and names `bytes`, which is as long as it says.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast::<c_void>(), &mut len)
    })?;
    Ok(bytes)
}
