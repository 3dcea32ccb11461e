//! A file of prefixes read into tables: each table whole, or not at all.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::ffi::{c_char, c_int};

use trieline_lpm::image::layout::VALUE_MAX;
use trieline_lpm::io::{self, ReadOptions};
use trieline_lpm::{Prefix, Table};

use crate::entry::CKey;
use crate::error::{CError, Error, Result};
use crate::handle::{Handle, State, call, path};
use crate::kinds::Kind;

/// `struct trieline_loaded`.
#[repr(C)]
pub struct CLoaded {
    ipv4: u64,
    ipv6: u64,
}

/// `TRIELINE_NO_TABLE`.
const NO_TABLE: u32 = u32::MAX;

fn fill<A: CKey>(
    state: &mut State,
    id: u32,
    value: u32,
    prefixes: Vec<(Prefix<A>, Option<u32>)>,
) -> Result<()> {
    if id == NO_TABLE {
        return Ok(());
    }
    let prefixes = prefixes.into_iter().map(|(prefix, is)| (prefix, is.unwrap_or(value)));
    let table = Table::create(state.tables.image(), id, prefixes)?;
    state.filled.insert(id, Box::new(table));
    Ok(())
}

/// `trieline_load_file`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_load_file(
    handle: *mut Handle,
    file: *const c_char,
    ipv4: u32,
    ipv6: u32,
    value: u32,
    loaded: *mut CLoaded,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        // SAFETY: the caller promises it.
        let file = unsafe { path("file", file) }?;
        if !(1..=VALUE_MAX).contains(&value) {
            return Err(trieline_lpm::Error::Value { value }.into());
        }
        if ipv4 == ipv6 {
            return Err(Error::Argument(format!("table {ipv4} for IPv4 and for IPv6; expected two tables")));
        }
        for (id, kind) in [(ipv4, Kind::IPV4), (ipv6, Kind::IPV6)] {
            if id != NO_TABLE {
                state.expect(id, kind)?;
            }
        }
        let list = io::read(&file, &ReadOptions::default())?.not_blank(&file)?.prefixes;
        let counts = CLoaded { ipv4: list.v4.len() as u64, ipv6: list.v6.len() as u64 };
        fill(state, ipv4, value, list.v4)?;
        let of_ipv6 = fill(state, ipv6, value, list.v6);
        of_ipv6.map_err(|error| {
            if ipv4 == NO_TABLE { error } else { Error::Half { ipv4, ipv6, error: error.into() } }
        })?;
        if !loaded.is_null() {
            // SAFETY: the caller promises that it can be written.
            unsafe { loaded.write(counts) };
        }
        Ok(0)
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}
