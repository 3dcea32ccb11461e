//! What can go wrong between user space and the kernel, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of a dataplane operation. The old state keeps forwarding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What map types, pins, maps and their memory have in common with other programs' tables.
    #[error(transparent)]
    Bpf(#[from] trieline_bpf::Error),
    /// What is pinned was made by another version or with other options.
    #[error("pinned `{map}` in {}: {what}; a restart of trielined replaces it, and no packet is lost", path.display())]
    Pins {
        /// Which map.
        map: String,
        /// How it differs.
        what: String,
        /// The directory.
        path: PathBuf,
    },
    /// Nothing is pinned there.
    #[error("no trieline is set up in {}", path.display())]
    NotPinned {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refused a program.
    #[error("the kernel refused {program}: {source}\n{log}")]
    Load {
        /// Which one.
        program: &'static str,
        /// End of the verifier's log, or of libbpf's.
        log: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device's driver has no XDP.
    #[error(
        "{device}: its driver has no native XDP (generic mode works with every device, but is slower: --generic)"
    )]
    NoNativeXdp {
        /// Name of the device.
        device: String,
    },
    /// Another program is attached.
    #[error("{device}: XDP is taken by {owner}")]
    DeviceBusy {
        /// Name of the device.
        device: String,
        /// Program and link.
        owner: String,
    },
    /// There is no such device in this network namespace.
    #[error("{device}: no such device in this network namespace")]
    NoDevice {
        /// Name of the device.
        device: String,
    },
}

impl Error {
    /// The last system call's failure.
    pub(crate) fn kernel(operation: impl Into<String>, source: io::Error) -> Self {
        trieline_bpf::Error::kernel(operation, source).into()
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        trieline_bpf::Error::Argument(text.into()).into()
    }
}
