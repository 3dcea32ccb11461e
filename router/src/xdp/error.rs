//! Errors between user space and the kernel, each with a way out.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of a dataplane operation. The old state keeps forwarding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of map types, pins, maps or their memory, as with other programs' tables.
    #[error(transparent)]
    Bpf(#[from] trieline_bpf::Error),
    /// Another version, or other options, made the pins.
    #[error("pinned `{map}` in {}: {what}; a restart of trielined replaces it, and no packet is lost", path.display())]
    Pins {
        /// The map.
        map: String,
        /// The difference.
        what: String,
        /// The directory.
        path: PathBuf,
    },
    /// Nothing is pinned there.
    #[error("cannot open the tables: nothing is pinned in {}", path.display())]
    NotPinned {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refused a program.
    #[error("cannot load {program}: {source}\n{log}")]
    Load {
        /// The program.
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
    #[error(
        "cannot attach to {device}: XDP is taken by {owner}; detach that program first (by its owner, or `ip link set dev {device} xdp off`)"
    )]
    DeviceBusy {
        /// Name of the device.
        device: String,
        /// Program and link.
        owner: String,
    },
    /// The device has frames without an Ethernet header.
    #[error(
        "{device}: expected an Ethernet device: its frames have no Ethernet header, which the XDP program reads; without it in `devices`, the kernel \
         forwards its packets"
    )]
    NotEthernet {
        /// Name of the device.
        device: String,
    },
    /// This network namespace has no such device.
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
