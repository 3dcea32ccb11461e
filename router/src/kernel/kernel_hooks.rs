//! The kernel's processing of packets besides routing, as far as system calls that need `unsafe` return it.
#![warn(clippy::arithmetic_side_effects, reason = "lengths that unsafe code relies on")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys as sys;

use rustix::net::{AddressFamily, SocketType, socket};

/// Programs at a device's tcx hook, ingress and egress. None before Linux 6.6, which has no such hook.
pub fn tcx_programs(ifindex: u32) -> (u32, u32) {
    let count = |hook| {
        let mut options = sys::bpf_prog_query_opts {
            sz: size_of::<sys::bpf_prog_query_opts>() as sys::size_t,
            ..Default::default()
        };
        // SAFETY: options live through the call; without room for ids it only counts.
        let reported = unsafe { sys::bpf_prog_query_opts(ifindex as i32, hook, &mut options) };
        // SAFETY: all members of the union are the same number.
        if reported < 0 { 0 } else { unsafe { options.__bindgen_anon_1.count } }
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

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`
const GET_INFO: i32 = 64;
/// `IPT_SO_GET_ENTRIES` and `IP6T_SO_GET_ENTRIES`
const GET_ENTRIES: i32 = 65;
/// `struct ipt_getinfo`
const INFO: usize = 84;
const INFO_SIZE_AT: usize = 80;
/// `struct ipt_get_entries`: name, size; the entries begin at a multiple of eight.
const ENTRIES_AT: usize = 40;
/// `XT_TABLE_MAXNAMELEN`
const NAME: usize = 32;

/// A table of the legacy iptables (`linux/netfilter_ipv4/ip_tables.h`).
#[derive(Debug)]
pub struct LegacyTable {
    /// `struct ipt_getinfo`.
    pub info: [u8; INFO],
    /// Its entries, `struct ipt_entry` or `ip6t_entry` each with what belongs to it.
    pub entries: Vec<u8>,
}

/// Reads a table of the legacy iptables or ip6tables in this thread's network namespace. The kernel makes it when it is not there:
/// ask only for those in `/proc/thread-self/net/ip_tables_names` or `ip6_tables_names`.
pub fn legacy_table(ipv6: bool, name: &str) -> io::Result<LegacyTable> {
    let (family, level) =
        if ipv6 { (AddressFamily::INET6, libc::SOL_IPV6) } else { (AddressFamily::INET, libc::SOL_IP) };
    let socket = socket(family, SocketType::DGRAM, None)?;
    let named = |len: usize| {
        let mut bytes = vec![0; len];
        let name = name.as_bytes().get(..NAME - 1).unwrap_or(name.as_bytes());
        bytes[..name.len()].copy_from_slice(name);
        bytes
    };
    loop {
        let mut info = [0; INFO];
        info.copy_from_slice(&named(INFO));
        getsockopt(socket.as_fd(), level, GET_INFO, &mut info)?;
        let mut size = [0; 4];
        size.copy_from_slice(&info[INFO_SIZE_AT..][..4]);
        let mut entries = named(ENTRIES_AT.saturating_add(u32::from_ne_bytes(size) as usize));
        entries[NAME..NAME + 4].copy_from_slice(&size);
        match getsockopt(socket.as_fd(), level, GET_ENTRIES, &mut entries) {
            Ok(_) => return Ok(LegacyTable { info, entries: entries.split_off(ENTRIES_AT) }),
            // Replaced by one of another size in between.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
