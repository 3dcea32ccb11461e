//! What can go wrong between user space and the kernel, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of a dataplane operation. The old state keeps forwarding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not use BPF.
    #[error("{operation}: not permitted; missing {missing} (run as root, or grant it)")]
    Permission {
        /// What was tried.
        operation: String,
        /// Capabilities or kernel settings that are missing.
        missing: String,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    Kernel {
        /// What was tried.
        operation: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The directory of the pins is not in a BPF file system.
    #[error("{} is not in a BPF file system: mount -t bpf bpf /sys/fs/bpf", path.display())]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// Another process owns the pins.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// What is pinned was made by another version or with other options.
    #[error("pinned `{map}` in {}: {what}; `trieline node detach` removes it (forwarding falls back to the kernel)", path.display())]
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
    /// Neither home can hold the image.
    #[error("no home for the image: as a BPF arena: {arena}; as a memory-mapped array: {array}")]
    NoHome {
        /// Why not an arena.
        arena: String,
        /// Why not an array.
        array: String,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the XDP program: {source}\n{log}")]
    Load {
        /// End of the verifier's log, or of libbpf's.
        log: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device's driver has no XDP.
    #[error("{device}: its driver has no native XDP (generic mode works with every device, but is slower)")]
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
    /// Numbers of devices above the maps' size.
    #[error(
        "device number {ifindex} is above {max}: too many devices have been made in this network namespace; make a new one"
    )]
    Ifindex {
        /// The number.
        ifindex: u32,
        /// The highest possible.
        max: u32,
    },
    /// A map is full.
    #[error("no room for another {what}: all {capacity} are in use")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many fit.
        capacity: u32,
    },
    /// A value out of range.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// The last system call's failure. EPERM becomes [`Error::Permission`].
    pub(crate) fn kernel(operation: impl Into<String>, source: io::Error) -> Self {
        let operation = operation.into();
        let missing = crate::probe::missing_capabilities();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if !missing.is_empty() => {
                Error::Permission { operation, missing: missing.join(", ") }
            }
            Some(libc::EPERM) if crate::probe::bpf_is_locked_down() => Error::Permission {
                operation,
                missing: "kernel.unprivileged_bpf_disabled or lockdown permits no BPF".into(),
            },
            _ => Error::Kernel { operation, source },
        }
    }
}
