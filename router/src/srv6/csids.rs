//! Prefixes whose destinations NEXT-C-SID changes (RFC 9800 4.1), which the kernel does on its own for packets that the XDP program
//! passes. They are known whatever the routes' actions say: the guard asks for them (`guard.bpf.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use trieline_lpm::Prefix;

use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_csid_key, tl_limits};
use crate::xdp::sys;

/// The change that NEXT-C-SID makes to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// The bits behind the block move up.
    Next {
        /// Bytes of the locator block.
        block: u8,
        /// Bytes of node and function.
        node_function: u8,
    },
    /// It is not known, or differs from table to table.
    Unknown,
}

impl Steps {
    fn value(self) -> u32 {
        match self {
            Self::Next { block, node_function } => u32::from(block) << 8 | u32::from(node_function),
            Self::Unknown => tl_limits::TL_CSID_UNKNOWN.0,
        }
    }
}

/// The prefixes, by what happens to their destinations.
pub type CsidMap = BTreeMap<Prefix<u128>, Steps>;

/// The prefixes of this dataplane, written by their one owner.
#[derive(Debug)]
pub struct Csids {
    map: OwnedFd,
    known: BTreeMap<Prefix<u128>, u32>,
}

fn key(prefix: Prefix<u128>) -> [u8; size_of::<tl_csid_key>()] {
    let mut key = [0; size_of::<tl_csid_key>()];
    key[..4].copy_from_slice(&u32::from(prefix.len()).to_ne_bytes());
    key[4..].copy_from_slice(&prefix.addr().to_be_bytes());
    key
}

/// The prefixes in the map, with their values.
fn read(map: &OwnedFd) -> Result<BTreeMap<Prefix<u128>, u32>> {
    let fail = |e| Error::kernel("cannot read the prefixes of NEXT-C-SID", e);
    let (mut known, mut last) = (BTreeMap::new(), None::<Vec<u8>>);
    while let Some(next) = sys::map_next_key(map.as_fd(), last.as_deref()).map_err(fail)? {
        let mut value = [0; 4];
        let is_there = sys::map_lookup(map.as_fd(), &next, &mut value).map_err(fail)?;
        if let (true, Some((len, addr))) = (is_there, next.split_first_chunk())
            && let Ok(addr) = addr.try_into()
        {
            let len = u32::from_ne_bytes(*len).min(128) as u16;
            known.insert(Prefix::truncated(u128::from_be_bytes(addr), len), u32::from_ne_bytes(value));
        }
        last = Some(next);
    }
    Ok(known)
}

impl Csids {
    /// Prefixes there can be.
    pub const MAX: usize = tl_limits::TL_CSIDS.0 as usize;

    pub(crate) fn new(map: OwnedFd) -> Result<Self> {
        let known = read(&map)?;
        Ok(Self { map, known })
    }

    /// Prefixes that are not those which were set.
    pub(crate) fn damage(&self) -> Result<Vec<Damage>> {
        let found = read(&self.map)?;
        let prefixes: BTreeSet<_> = self.known.keys().chain(found.keys()).collect();
        let differing = prefixes.into_iter().filter(|prefix| self.known.get(prefix) != found.get(prefix));
        let text = |value: Option<&u32>| value.map(|value| format!("{value:#x}"));
        let damage = |prefix: &Prefix<u128>| {
            let name = format!("NEXT-C-SID {prefix}");
            Damage::new(name, text(self.known.get(prefix)), text(found.get(prefix)))
        };
        Ok(differing.map(damage).collect())
    }

    /// Writes the prefixes which were set once more, and removes others.
    pub(crate) fn repair(&mut self) -> Result<()> {
        let fail = |e: io::Error| Error::kernel("cannot set the prefixes of NEXT-C-SID", e);
        for gone in read(&self.map)?.into_keys().filter(|prefix| !self.known.contains_key(prefix)) {
            sys::map_delete(self.map.as_fd(), &key(gone)).map_err(fail)?;
        }
        for (prefix, value) in &self.known {
            sys::map_update(self.map.as_fd(), &key(*prefix), &value.to_ne_bytes()).map_err(fail)?;
        }
        Ok(())
    }

    /// These and no others. Of more than there is room for, no IPv6 destination but link-local ones and groups is known.
    pub fn set(&mut self, wanted: &CsidMap) -> Result<()> {
        let mut wanted: BTreeMap<_, _> =
            wanted.iter().map(|(prefix, steps)| (*prefix, steps.value())).collect();
        if wanted.len() > Self::MAX {
            // ::/1, 8000::/2 and so on to fc00::/7.
            let all = (1..8).map(|len| Prefix::truncated(!(u128::MAX >> (len - 1)), len));
            wanted = all.map(|prefix| (prefix, Steps::Unknown.value())).collect();
        }
        let Self { map, known } = self;
        let fail = |e: io::Error| Error::kernel("cannot set the prefixes of NEXT-C-SID", e);
        let gone: Vec<_> = known.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
        for prefix in gone {
            sys::map_delete(map.as_fd(), &key(prefix)).map_err(fail)?;
            known.remove(&prefix);
        }
        for (prefix, value) in wanted {
            if known.get(&prefix) != Some(&value) {
                sys::map_update(map.as_fd(), &key(prefix), &value.to_ne_bytes()).map_err(fail)?;
                known.insert(prefix, value);
            }
        }
        Ok(())
    }
}
