//! The formats of files of prefixes.

/// Formats of files of prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `PREFIX [VALUE]` lines: [`text`](super::text).
    Text,
    /// An array of objects: `json`.
    Json,
    /// Lines of `ip route`: [`iproute`](super::iproute).
    IpRoute,
    /// TABLE_DUMP_V2 of RFC 6396: `mrt`.
    Mrt,
    /// An image with its prefixes: `snapshot`.
    Snapshot,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Text, Self::Json, Self::IpRoute, Self::Mrt, Self::Snapshot];

    /// Its name, as commands take it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::IpRoute => "iproute",
            Self::Mrt => "mrt",
            Self::Snapshot => "image",
        }
    }

    /// The words for it in errors.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "JSON (feature `json`)",
            Self::IpRoute => "the output of `ip route`",
            Self::Mrt => "an MRT dump (feature `mrt`)",
            Self::Snapshot => "a snapshot (feature `snapshot`)",
        }
    }
}
