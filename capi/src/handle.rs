//! `struct trieline`: tables made, opened, pinned and closed, and what a loader needs to know of their map.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use trieline_bpf::deferred::{self, bpf_insn};
use trieline_bpf::{ImageMapType, Options, Tables};

use crate::error::{CError, Error, Result, answer, number};
use crate::kinds::AnyTable;

/// `struct trieline`. The lock makes calls from several threads wait for each other; a panic poisons it.
pub struct Handle(Mutex<State>);

/// The state of a handle.
pub struct State {
    /// The image and its map.
    pub tables: Tables,
    /// The tables that this process has filled.
    pub filled: BTreeMap<u32, Box<dyn AnyTable>>,
}

/// `struct trieline_options`.
#[repr(C)]
pub struct COptions {
    map_type: u32,
    tables: u32,
    bytes: u64,
}

/// `struct trieline_stats`.
#[repr(C)]
pub struct CStats {
    bytes: u64,
    used: u64,
    waiting: u64,
    peak: u64,
    claimed: u64,
    tables: u32,
    tables_used: u32,
}

const ANY: u32 = 0;
const ARENA: u32 = 1;
const ARRAY: u32 = 2;

fn handle(tables: Tables) -> *mut Handle {
    Box::into_raw(Box::new(Handle(Mutex::new(State { tables, filled: BTreeMap::new() }))))
}

/// Does `work` with a handle's state, to itself; a failure is written as [`answer`] does, and is a negative errno.
///
/// # Safety
///
/// As for [`answer`]; `handle` is null or one that is not closed.
pub unsafe fn call<T: From<c_int>>(
    handle: *mut Handle,
    error: *mut CError,
    work: impl FnOnce(&mut State) -> Result<T>,
) -> T {
    let work = || {
        // SAFETY: the caller promises it.
        let handle = unsafe { handle.as_ref() }.ok_or_else(|| Error::null("t"))?;
        let poisoned = |_| Error::Bug("an earlier call has failed half way; close these tables".into());
        work(&mut *handle.0.lock().map_err(poisoned)?)
    };
    // SAFETY: the caller promises it.
    unsafe { answer(error, work) }.unwrap_or_else(T::from)
}

/// A path from C.
///
/// # Safety
///
/// `text` is null or a string.
pub unsafe fn path(what: &str, text: *const c_char) -> Result<PathBuf> {
    if text.is_null() {
        return Err(Error::null(what));
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())).into())
}

/// `trieline_create`.
///
/// # Safety
///
/// See `trieline.h`, for every function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_create(options: *const COptions, error: *mut CError) -> *mut Handle {
    let work = || {
        let mut wanted = Options::default();
        // SAFETY: null or options.
        if let Some(options) = unsafe { options.as_ref() } {
            wanted.map_type = match options.map_type {
                ANY => None,
                ARENA => Some(ImageMapType::Arena),
                ARRAY => Some(ImageMapType::Array),
                other => {
                    return Err(Error::Argument(format!(
                        "map_type {other}; expected TRIELINE_ANY, TRIELINE_ARENA or TRIELINE_ARRAY"
                    )));
                }
            };
            wanted.bytes = if options.bytes == 0 { wanted.bytes } else { options.bytes };
            wanted.tables = if options.tables == 0 { wanted.tables } else { options.tables };
        }
        Ok(handle(Tables::create(&wanted)?))
    };
    // SAFETY: the caller promises it.
    unsafe { answer(error, work) }.unwrap_or(std::ptr::null_mut())
}

/// `trieline_open`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_open(directory: *const c_char, error: *mut CError) -> *mut Handle {
    // SAFETY: the caller promises it.
    unsafe { answer(error, || Ok(handle(Tables::open(&path("directory", directory)?)?))) }
        .unwrap_or(std::ptr::null_mut())
}

/// `trieline_close`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_close(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: the caller gives back what `handle` made; nothing is there to tell a failure to.
        let _ = unsafe {
            number(std::ptr::null_mut(), || {
                drop(Box::from_raw(handle));
                Ok(0)
            })
        };
    }
}

/// `trieline_pin`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_pin(
    handle: *mut Handle,
    directory: *const c_char,
    error: *mut CError,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        call(handle, error, |state| {
            state.tables.pin(&path("directory", directory)?)?;
            Ok(0)
        })
    }
}

/// `trieline_unpin`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_unpin(directory: *const c_char, error: *mut CError) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        number(error, || {
            Tables::unpin(&path("directory", directory)?)?;
            Ok(0)
        })
    }
}

/// `trieline_stays_awake`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_stays_awake(
    instructions: *const bpf_insn,
    count: usize,
    error: *mut CError,
) -> c_int {
    let work = || {
        if instructions.is_null() {
            return Err(Error::null("instructions"));
        }
        // SAFETY: the caller promises so many.
        let instructions = unsafe { std::slice::from_raw_parts(instructions, count) };
        match deferred::deferring(instructions)? {
            Some(function) => Err(Error::Argument(format!("calls {function}, whose callback may sleep,"))),
            None => Ok(0),
        }
    };
    // SAFETY: the caller promises it.
    unsafe { number(error, work) }
}

/// `trieline_map_fd`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_map_fd(handle: *mut Handle) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { call(handle, std::ptr::null_mut(), |state| Ok(state.tables.map().fd().as_raw_fd())) }
}

/// `trieline_map_type`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_map_type(handle: *mut Handle) -> c_int {
    let map_type = |map_type| if map_type == ImageMapType::Arena { ARENA as c_int } else { ARRAY as c_int };
    // SAFETY: the caller promises it.
    unsafe { call(handle, std::ptr::null_mut(), |state| Ok(map_type(state.tables.map_type()))) }
}

/// `trieline_map_bytes`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_map_bytes(handle: *mut Handle) -> u64 {
    // SAFETY: the caller promises it.
    unsafe { call(handle, std::ptr::null_mut(), |state| Ok(state.tables.map().bytes() as i64)) }.max(0) as u64
}

/// `trieline_stats`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_stats(
    handle: *mut Handle,
    stats: *mut CStats,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        if stats.is_null() {
            return Err(Error::null("stats"));
        }
        let is = state.tables.image().stats();
        let (tables, tables_used) = (is.tables, is.tables_used);
        let (used, waiting, peak, claimed) = (is.used, is.limbo, is.peak, is.claimed);
        // SAFETY: the caller promises that it can be written.
        unsafe { stats.write(CStats { bytes: is.size, used, waiting, peak, claimed, tables, tables_used }) };
        Ok(0)
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_reclaim`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_reclaim(handle: *mut Handle, error: *mut CError) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, |state| Ok(state.tables.image().reclaim().into())) }
}

/// `trieline_give_back`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_give_back(handle: *mut Handle, error: *mut CError) -> i64 {
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, |state| Ok(state.tables.give_back()? as i64)) }
}

/// `trieline_synchronize`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_synchronize(handle: *mut Handle, error: *mut CError) -> c_int {
    // SAFETY: the caller promises it.
    unsafe {
        call(handle, error, |state| {
            state.tables.image().synchronize();
            Ok(0)
        })
    }
}
