//! Errors between user space and BPF maps, each with a way out.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure of an operation on map types, pins or tables. The state before stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No process may use BPF.
    #[error("{operation}: the kernel's lockdown permits no BPF; boot without lockdown=confidentiality")]
    Lockdown {
        /// The operation that failed.
        operation: String,
    },
    /// The process may not use BPF.
    #[error("{operation}: not permitted; missing {missing} (run as root, or grant it)")]
    Permission {
        /// The operation that failed.
        operation: String,
        /// Capabilities or kernel settings that are missing.
        missing: String,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    Kernel {
        /// The operation that failed.
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
    /// Nothing is pinned there.
    #[error("{}: nothing is pinned there; expected the tables that another call has pinned", path.display())]
    NotPinned {
        /// The pin.
        path: PathBuf,
    },
    /// Something is pinned there already.
    #[error("{}: something is pinned there already", path.display())]
    PinExists {
        /// The pin.
        path: PathBuf,
    },
    /// The pin is not an image's map type.
    #[error("{}: {what}; expected the pinned map type of trieline tables", path.display())]
    Pinned {
        /// The pin.
        path: PathBuf,
        /// The object that is pinned.
        what: String,
    },
    /// Neither map type can hold the image.
    #[error("cannot make a map for the image: as a BPF arena: {arena}; as a memory-mapped array: {array}")]
    NoMapType {
        /// The reason why an arena cannot hold it.
        arena: String,
        /// The reason why an array cannot hold it.
        array: String,
    },
    /// A map is full.
    #[error("cannot add another {what}: all {capacity} are in use")]
    Full {
        /// Of what.
        what: &'static str,
        /// The number that fits.
        capacity: u32,
    },
    /// The image, or one of its tables.
    #[error(transparent)]
    Image(#[from] trieline_lpm::Error),
    /// A value out of range.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// The last system call's failure. EPERM becomes [`Error::Permission`].
    pub fn kernel(operation: impl Into<String>, source: io::Error) -> Self {
        let operation = operation.into();
        let missing = crate::probe::missing_capabilities();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if !missing.is_empty() => {
                Error::Permission { operation, missing: missing.join(", ") }
            }
            Some(libc::EPERM) if crate::probe::bpf_is_locked_down() => Error::Lockdown { operation },
            _ => Error::Kernel { operation, source },
        }
    }
}
