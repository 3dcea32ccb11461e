//! Why SID hooks cannot be bound.

use std::path::PathBuf;

/// The error of binding SID hooks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dataplane or the kernel refuses.
    #[error("hook {name}: {source}")]
    Dataplane {
        /// The SID hook.
        name: String,
        /// The dataplane's error.
        source: crate::xdp::error::Error,
    },
    /// A sample's file.
    #[error("hook {name}: {}: {source}", path.display())]
    File {
        /// The SID hook.
        name: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// More than the dataplane has places for.
    #[error("hook {name}: expected at most {max} of its kind")]
    TooMany {
        /// The SID hook.
        name: String,
        /// Places there are.
        max: u32,
    },
}
