//! Maps of this process alone: a dataplane whose pins no path leads to, and that goes with the process, however it ends.

use super::Rehearsal;
use crate::api::instance::Instance;
use crate::daemon::error::Error;
use crate::dataplane::Dataplane;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A BPF file system without a name.
#[derive(Debug)]
pub(super) struct PrivatePins(OwnedFd);

impl PrivatePins {
    pub(super) fn mount() -> Result<Self, Error> {
        let fail =
            |what: &str, error: rustix::io::Errno| crate::xdp::error::Error::kernel(what, error.into());
        let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(|e| fail("cannot make a private BPF file system", e))?;
        fsconfig_create(&context).map_err(|e| fail("cannot make a private BPF file system", e))?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map_err(|e| fail("cannot open a private BPF file system", e))?;
        Ok(Self(mount))
    }

    /// The directory of the pins, as long as this lives.
    pub(super) fn directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/node", self.0.as_raw_fd()))
    }
}

impl Rehearsal {
    /// Makes maps as the configuration says. `hash_key` is the key of the hash that chooses among equal paths; `None`: a random one.
    pub(super) fn dataplane(&self, hash_key: Option<u64>) -> Result<(PrivatePins, Dataplane), Error> {
        let private = PrivatePins::mount()?;
        let mut options = self.config.options(&Instance::current()?);
        options.pins = private.directory();
        let dataplane = Dataplane::unattached(&options, hash_key)?;
        Ok((private, dataplane))
    }
}
