//! Calls on one table: filled, changed, asked, removed.

use std::ffi::c_int;

use crate::entry::CEntry;
use crate::error::{CError, Error, Result, number};
use crate::handle::{Handle, State, call};
use crate::kinds::{self, AnyTable, Kind, Writer};

impl State {
    /// A table of this process, and the image to change it in.
    pub fn table(&mut self, id: u32) -> Result<(&mut dyn AnyTable, &mut Writer)> {
        let kind = self.kind(id)?;
        match self.filled.get_mut(&id) {
            Some(table) => Ok((&mut **table, self.tables.image())),
            None => Err(Error::NoTable(format!(
                "table {id} ({kind}) was filled by an earlier process, which had its prefixes: fill it with \
                 trieline_replace first"
            ))),
        }
    }

    /// The kind of keys of table `id`, by its header in the image.
    fn kind(&mut self, id: u32) -> Result<Kind> {
        let image = self.tables.image();
        let Some(keys) = image.reader().keys(id) else {
            let tables = image.stats().tables;
            if id >= tables {
                return Err(trieline_lpm::Error::NoSuchTable { id, tables }.into());
            }
            return Err(Error::NoTable(format!(
                "cannot find table {id}: make it with trieline_table_create"
            )));
        };
        Ok(Kind(u32::from(keys.family) << 16 | u32::from(keys.key_bits)))
    }

    /// An error unless table `id` can be made or replaced by one of `kind`.
    pub fn expect(&mut self, id: u32, kind: Kind) -> Result<()> {
        match self.kind(id) {
            Ok(is) if is != kind => Err(Error::Exists(format!(
                "table {id} has {is}, and would have {kind}: remove it first, or take another id"
            ))),
            Ok(_) | Err(Error::NoTable(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes table `id` hold these entries and nothing else.
    ///
    /// # Safety
    ///
    /// As [`crate::entry::prefixes`] asks.
    unsafe fn replace(&mut self, id: u32, kind: Kind, entries: *const CEntry, count: usize) -> Result<()> {
        self.expect(id, kind)?;
        // SAFETY: the caller promises it.
        let table = unsafe { kinds::create(kind, self.tables.image(), id, entries, count) }?;
        self.filled.insert(id, table);
        Ok(())
    }
}

/// `trieline_table_create`.
///
/// # Safety
///
/// See `trieline.h`, for every function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_table_create(
    handle: *mut Handle,
    id: u32,
    kind: u32,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        if let Ok(is) = state.kind(id) {
            return Err(Error::Exists(format!(
                "table {id} ({is}) is there already: trieline_replace replaces it, trieline_table_remove removes it"
            )));
        }
        // SAFETY: no entries.
        unsafe { state.replace(id, Kind(kind), std::ptr::null(), 0) }.map(|()| 0)
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_table_remove`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_table_remove(handle: *mut Handle, id: u32, error: *mut CError) -> c_int {
    let work = |state: &mut State| {
        state.kind(id)?;
        state.tables.image().remove_table(id)?;
        state.filled.remove(&id);
        Ok(0)
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_replace`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_replace(
    handle: *mut Handle,
    id: u32,
    kind: u32,
    entries: *const CEntry,
    count: usize,
    error: *mut CError,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, |state| state.replace(id, Kind(kind), entries, count).map(|()| 0)) }
}

/// `trieline_apply`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_apply(
    handle: *mut Handle,
    id: u32,
    entries: *const CEntry,
    count: usize,
    error: *mut CError,
) -> i64 {
    let work = |state: &mut State| {
        let (table, image) = state.table(id)?;
        // SAFETY: the caller promises it.
        Ok(unsafe { table.apply(image, entries, count) }? as i64)
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// Changes one prefix; 0 removes it. Returns whether it was there.
unsafe fn set(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    length: u32,
    value: u32,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        let (table, image) = state.table(id)?;
        // SAFETY: the caller promises it.
        Ok((unsafe { table.set(image, key, length, value) }? != 0).into())
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_insert`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_insert(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    length: u32,
    value: u32,
    error: *mut CError,
) -> c_int {
    if value == 0 {
        let none = || Err(trieline_lpm::Error::Value { value }.into());
        // SAFETY: the caller promises it.
        return unsafe { number(error, none) };
    }
    // SAFETY: the caller promises it.
    unsafe { set(handle, id, key, length, value, error) }
}

/// `trieline_remove`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_remove(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    length: u32,
    error: *mut CError,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { set(handle, id, key, length, 0, error) }
}

/// Stores an answer where C wants it.
unsafe fn store(value: u32, to: *mut u32) {
    // SAFETY: the caller promises null or a place for it.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = value;
    }
}

/// `trieline_get`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_get(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    length: u32,
    value: *mut u32,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        let (table, _) = state.table(id)?;
        // SAFETY: the caller promises it.
        let found = unsafe { table.get(key, length) }?;
        // SAFETY: as above.
        unsafe { store(found, value) };
        Ok((found != 0).into())
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_lookup`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_lookup(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    value: *mut u32,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        let kind = state.kind(id)?;
        if key.is_null() {
            return Err(Error::null("key"));
        }
        // SAFETY: the caller promises as many bytes as the table's kind says.
        let found = unsafe { kinds::lookup(kind, state.tables.reader(), id, key) }?;
        // SAFETY: as above.
        unsafe { store(found, value) };
        Ok((found != 0).into())
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_match`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_match(
    handle: *mut Handle,
    id: u32,
    key: *const u8,
    value: *mut u32,
    length: *mut u32,
    error: *mut CError,
) -> c_int {
    let work = |state: &mut State| {
        let (table, _) = state.table(id)?;
        if key.is_null() {
            return Err(Error::null("key"));
        }
        // SAFETY: the caller promises as many bytes as the table's kind says.
        let found = unsafe { table.longest(key) };
        let (is, len) = found.unwrap_or_default();
        // SAFETY: as above.
        unsafe {
            store(is, value);
            store(len.into(), length);
        }
        Ok(found.is_some().into())
    };
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, work) }
}

/// `trieline_count`.
///
/// # Safety
///
/// See `trieline.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trieline_count(handle: *mut Handle, id: u32, error: *mut CError) -> i64 {
    // SAFETY: the caller promises it.
    unsafe { call(handle, error, |state| Ok(state.table(id)?.0.len() as i64)) }
}
