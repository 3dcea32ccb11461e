//! Why filters cannot be set.

/// Why filters cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error("filter {name}: {source}")]
    File {
        /// The filter.
        name: String,
        /// File, line, value, what was expected.
        source: trieline_lpm::io::ImportError,
    },
    /// No file is configured.
    #[error("filter {name}: it has no file")]
    NoFile {
        /// The filter.
        name: String,
    },
    /// The image, perhaps for want of room.
    #[error("filter {name}: its set does not fit the image: {source}")]
    Image {
        /// The filter.
        name: String,
        /// The image's error.
        source: trieline_lpm::Error,
    },
    /// There are no numbers for tables left.
    #[error("filter {name}: no table is left for its set")]
    Tables {
        /// The filter.
        name: String,
    },
    /// No filter has this name.
    #[error("no filter is named {name}; there are: {known}")]
    NoFilter {
        /// As asked for.
        name: String,
        /// The filters there are.
        known: String,
    },
    /// The dataplane.
    #[error(transparent)]
    Dataplane(#[from] crate::xdp::error::Error),
    /// The thread that reads.
    #[error("cannot read filters: {0}")]
    Thread(#[from] std::io::Error),
}
