//! SID hooks: what is done to packets to an SRv6 endpoint before its behaviour.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{ProgramHandle, ProgramType};
use trieline_bpf::ReaderGrace;
use trieline_lpm::Grace as _;

use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_limits, tl_sid_hook, tl_sid_hook_kind};
use crate::xdp::sys;

/// A SID hook in the maps: its kind, and the place of what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidHook {
    /// This list of filters checks the packet inside ([`crate::Filters::set`]).
    Filter(u32),
    /// The packet goes to the capture in this slot ([`crate::Capture`]).
    Pcap(u32),
    /// The program in this place of the programs gets the packet.
    Program(u32),
}

impl SidHook {
    /// As the XDP program reads it.
    fn encode(self) -> tl_sid_hook {
        let (kind, index) = match self {
            Self::Filter(list) => (tl_sid_hook_kind::TL_SID_HOOK_FILTER, list),
            Self::Pcap(slot) => (tl_sid_hook_kind::TL_SID_HOOK_PCAP, slot),
            Self::Program(place) => (tl_sid_hook_kind::TL_SID_HOOK_PROGRAM, place),
        };
        tl_sid_hook { kind: kind.0, index }
    }

    /// `None`: not a record that [`SidHook::encode`] makes.
    fn decode(record: &tl_sid_hook) -> Option<Self> {
        match tl_sid_hook_kind(record.kind) {
            tl_sid_hook_kind::TL_SID_HOOK_FILTER => Some(Self::Filter(record.index)),
            tl_sid_hook_kind::TL_SID_HOOK_PCAP => Some(Self::Pcap(record.index)),
            tl_sid_hook_kind::TL_SID_HOOK_PROGRAM => Some(Self::Program(record.index)),
            _ => None,
        }
    }
}

/// The SID hooks of this dataplane, written by their one owner.
///
/// An XDP program that has found an element of the map may still read it when it is another SID's. The kernel gives a freed
/// element to the next key at once. So nothing is written where something was freed before a grace period has passed.
#[derive(Debug)]
pub struct SidHooks {
    map: OwnedFd,
    programs: OwnedFd,
    grace: ReaderGrace,
    /// Whether an element or a program's place was freed since the last grace period.
    freed: bool,
}

/// Looks whether an XDP program is pinned at `path`, as a SID hook needs it. Only [`SidHooks::set_program`] finds out whether it takes
/// frames of several buffers.
pub fn find_program(path: &Path) -> Result<()> {
    let fail = |e| Error::kernel(format!("cannot use the program {}", path.display()), e);
    // The error of a path that is none, or not to be read, before that of what stands there.
    path.metadata().map_err(fail)?;
    let found = ProgramHandle::from_pinned_path(path).map(|program| program.prog_type());
    match found {
        Ok(ProgramType::Xdp) => Ok(()),
        Ok(other) => Err(Error::argument(format!(
            "{}: a program of type {other:?}; expected an XDP program",
            path.display()
        ))),
        Err(_) => Err(Error::argument(format!(
            "{}: no program is pinned there; expected an XDP program",
            path.display()
        ))),
    }
}

impl SidHooks {
    /// SID hooks there can be.
    pub const MAX: u32 = tl_limits::TL_SID_HOOKS.0;

    /// `inherited`: a predecessor may have freed something just before it ended.
    pub(crate) fn new(map: OwnedFd, programs: OwnedFd, grace: ReaderGrace, inherited: bool) -> Self {
        Self { map, programs, grace, freed: inherited }
    }

    /// Waits until no XDP program that runs has found what was freed.
    fn wait_for_readers(&mut self) {
        if std::mem::take(&mut self.freed) {
            let ticket = self.grace.begin();
            self.grace.wait(ticket);
        }
    }

    /// Puts the XDP program pinned at `path` in a place, from the next packet on. The kernel refuses one that takes no frames of several
    /// buffers (section `xdp` instead of `xdp.frags`), or takes them where the dataplane does not ([`crate::Options::frags`]).
    pub fn set_program(&mut self, place: u32, path: &Path) -> Result<()> {
        let fail = |e| Error::kernel(format!("cannot use the program {}", path.display()), e);
        let program =
            sys::get(path).map_err(fail)?.ok_or_else(|| fail(io::Error::from_raw_os_error(libc::ENOENT)))?;
        self.put_program(place, program.as_fd()).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Error::argument(format!(
                "{}: expected an XDP program that takes frames of several buffers (section \"xdp.frags\"); in generic mode one that does \
                 not (section \"xdp\")",
                path.display()
            )),
            _ => fail(error),
        })
    }

    fn put_program(&mut self, place: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        self.wait_for_readers();
        sys::map_update(self.programs.as_fd(), &place.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes())
    }

    /// Opens what another version or shape of the dataplane has pinned in a directory; `None` where this version cannot read it.
    pub(crate) fn of_former(map: OwnedFd, programs: OwnedFd, grace: ReaderGrace) -> Option<Self> {
        let has = |map: &OwnedFd, key, value| {
            sys::map_shape(map.as_fd()).is_ok_and(|shape| (shape.key, shape.value) == (key, value))
        };
        let is_known = has(&map, 16, size_of::<tl_sid_hook>() as u32) && has(&programs, 4, 4);
        is_known.then(|| Self::new(map, programs, grace, true))
    }

    /// Whether there is a program in a place.
    pub fn has_program(&self, place: u32) -> Result<bool> {
        Ok(self.program_id(place)?.is_some())
    }

    /// The kernel's number of the program in a place.
    fn program_id(&self, place: u32) -> Result<Option<u32>> {
        let mut id = [0; 4];
        let is_there = sys::map_lookup(self.programs.as_fd(), &place.to_ne_bytes(), &mut id)
            .map_err(|e| Error::kernel("cannot find a program", e))?;
        Ok(is_there.then(|| u32::from_ne_bytes(id)))
    }

    /// Puts the program that is in the place `of` of others' SID hooks in a place of these. Whether there is one.
    pub fn take_program(&mut self, place: u32, former: &Self, of: u32) -> Result<bool> {
        let fail = |e| Error::kernel("cannot take a program over", e);
        let Some(id) = former.program_id(of)? else { return Ok(false) };
        let Some(program) = sys::program_by_id(id).map_err(fail)? else { return Ok(false) };
        self.put_program(place, program.as_fd()).map_err(fail)?;
        Ok(true)
    }

    /// Takes a program out: packets of a SID that still has it are dropped.
    pub fn clear_program(&mut self, place: u32) -> Result<()> {
        self.freed = true;
        sys::map_delete(self.programs.as_fd(), &place.to_ne_bytes())
            .map(drop)
            .map_err(|e| Error::kernel("cannot take a program out", e))
    }

    /// The bound hooks.
    pub fn get(&self) -> Result<BTreeMap<Ipv6Addr, SidHook>> {
        let fail = |e| Error::kernel("cannot read the SID hooks", e);
        let mut all = BTreeMap::new();
        let mut key: Option<Vec<u8>> = None;
        while let Some(next) = sys::map_next_key(self.map.as_fd(), key.as_deref()).map_err(fail)? {
            let mut value = [0u8; size_of::<tl_sid_hook>()];
            let is_there = sys::map_lookup(self.map.as_fd(), &next, &mut value).map_err(fail)?;
            if let (true, Ok(sid)) = (is_there, <[u8; 16]>::try_from(next.as_slice())) {
                // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
                let sid_hook: tl_sid_hook = unsafe { std::mem::transmute(value) };
                all.extend(SidHook::decode(&sid_hook).map(|sid_hook| (Ipv6Addr::from(sid), sid_hook)));
            }
            key = Some(next);
        }
        Ok(all)
    }

    /// Hooks that are not these, which were bound.
    pub(crate) fn damage(&self, written: &BTreeMap<Ipv6Addr, SidHook>) -> Result<Vec<Damage>> {
        let found = self.get()?;
        let sids: BTreeSet<&Ipv6Addr> = written.keys().chain(found.keys()).collect();
        let differing = sids.into_iter().filter(|sid| written.get(sid) != found.get(sid));
        let text = |hook: Option<&SidHook>| hook.map(|hook| format!("{hook:?}").to_lowercase());
        let damage = |sid: &Ipv6Addr| {
            Damage::new(format!("hook of SID {sid}"), text(written.get(sid)), text(found.get(sid)))
        };
        Ok(differing.map(damage).collect())
    }

    /// Binds these and no others, SID by SID. When this returns, no packet meets a SID hook of before.
    pub fn set(&mut self, wanted: &BTreeMap<Ipv6Addr, SidHook>) -> Result<()> {
        let fail = |e| Error::kernel("cannot bind SID hooks", e);
        let known = self.get()?;
        for gone in known.keys().filter(|sid| !wanted.contains_key(sid)) {
            self.freed = true;
            sys::map_delete(self.map.as_fd(), &gone.octets()).map_err(fail)?;
        }
        for (sid, sid_hook) in wanted.iter().filter(|(sid, sid_hook)| known.get(sid) != Some(sid_hook)) {
            let tl_sid_hook { kind, index } = sid_hook.encode();
            let value = [kind.to_ne_bytes(), index.to_ne_bytes()].concat();
            self.wait_for_readers();
            // An element that is replaced is freed.
            self.freed = known.contains_key(sid);
            sys::map_update(self.map.as_fd(), &sid.octets(), &value).map_err(fail)?;
        }
        self.wait_for_readers();
        Ok(())
    }
}
