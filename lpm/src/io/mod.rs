//! Files: prefix lists as text, JSON, the output of `ip route`, MRT dumps; and snapshots, which are mapped and used at once.
//!
//! [`read`] tells the formats apart by their content. Nothing is applied by halves: a list is returned whole, or there is an error. It
//! names the file, the place in it, the value found there and what was expected.

mod error;
mod format;
mod hops;
pub mod iproute;
#[cfg(feature = "json")]
pub mod json;
mod keys;
mod list;
#[cfg(feature = "mrt")]
pub mod mrt;
mod set;
#[cfg(all(feature = "shm", target_os = "linux"))]
pub mod shared;
mod sink;
#[cfg(feature = "snapshot")]
pub mod snapshot;
mod source;
pub mod text;

pub use error::ImportError;
pub use format::Format;
pub use keys::KeyPrefix;
pub use list::{MrtValue, PrefixList, Prefixes, ReadOptions};
pub use sink::Sink;

use source::Source;
use std::path::Path;
use std::string::String;

/// Reads `path` (`-` is standard input), packed by gzip (with feature `mrt` also bzip2) or not. O(file).
pub fn read(path: &Path, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let source = Source::open(path, options)?;
    let is_blank = source.is_blank();
    let mut list = parse(source, options)?;
    list.is_blank = is_blank;
    Ok(list)
}

impl PrefixList {
    /// Itself; an error if the file has not one byte. A list that is to be empty has a comment.
    pub fn not_blank(self, path: &Path) -> Result<Self, ImportError> {
        if !self.is_blank {
            return Ok(self);
        }
        let what = "the file has 0 bytes, as a download leaves that failed; expected prefixes, or a comment in a list that is empty";
        Err(ImportError::Whole { path: path.into(), what: what.into() })
    }
}

fn parse(source: Source, options: &ReadOptions) -> Result<PrefixList, ImportError> {
    let format = options.format.unwrap_or_else(|| detect(source.head()));
    if let Some(ignored) = options.ignored(format) {
        return Err(ImportError::Whole {
            path: source.path().into(),
            what: std::format!(
                "looks like {}, for which {ignored} means nothing; expected text",
                format.description()
            ),
        });
    }
    match format {
        Format::Text => text::from(source, options),
        Format::IpRoute => iproute::from(source),
        #[cfg(feature = "json")]
        Format::Json => json::from(source, options.set),
        #[cfg(feature = "mrt")]
        Format::Mrt => mrt::from(source, options),
        #[cfg(feature = "snapshot")]
        Format::Snapshot => from_snapshot(source),
        #[allow(unreachable_patterns, reason = "which formats are left depends on the features")]
        other => Err(ImportError::Whole {
            path: source.path().into(),
            what: std::format!("looks like {}, which this program was built without", other.description()),
        }),
    }
}

/// Reads a snapshot's prefixes; a mapped file's where it lies, another's from the heap.
#[cfg(feature = "snapshot")]
fn from_snapshot(source: Source) -> Result<PrefixList, ImportError> {
    use crate::Error::NotAnImage;
    use snapshot::{Snapshot, SnapshotError};
    use std::io::Read as _;

    let path = source.path().to_path_buf();
    let snapshot = match Snapshot::open(&path) {
        Ok(snapshot) => snapshot,
        // Standard input, a pipe, a packed file.
        Err(SnapshotError::Io { .. } | SnapshotError::Image { source: NotAnImage { .. }, .. }) => {
            let mut bytes = std::vec::Vec::new();
            source.reader().read_to_end(&mut bytes).map_err(|error| source::failed(&path, error))?;
            let snapshot = Snapshot::from_bytes(&path, &bytes)?;
            snapshot.verify()?;
            snapshot
        }
        Err(error) => return Err(error.into()),
    };
    Ok(snapshot.to_list()?)
}

/// Tells the format by the first bytes of the unpacked file.
pub fn detect(head: &[u8]) -> Format {
    if head.starts_with(&crate::image::layout::MAGIC.to_le_bytes()) {
        return Format::Snapshot;
    }
    // RFC 6396, section 2: a 32-bit time, then type and subtype, 16 bits each. Both are small, so that one byte of each is 0,
    // which no text has.
    if let [_, _, _, _, 0, 9..=64, 0, _, ..] = head {
        return Format::Mrt;
    }
    match head.trim_ascii_start().first() {
        Some(b'[' | b'{') => return Format::Json,
        None => return Format::Text,
        _ => {}
    }
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut lines = lines.filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        (Some(line), _) if iproute::is_route(line) => Format::IpRoute,
        // A multipath route has its next hops in lines of their own.
        (_, Some(line)) if iproute::is_hop(line) => Format::IpRoute,
        _ => Format::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_content() {
        for (head, format) in [
            ("", Format::Text),
            ("# list\n10.0.0.0/8\n", Format::Text),
            ("10.0.0.0/8 7\n", Format::Text),
            ("10.0.0.0/8 4 5\n", Format::Text),
            ("10.0.0.0/8 dev\n", Format::Text),
            ("10.0.0.0/8 dev eth0\n", Format::IpRoute),
            ("default via 192.0.2.1 dev eth0\n", Format::IpRoute),
            ("default 5\n", Format::Text),
            ("blackhole 10.0.0.0/8\n", Format::IpRoute),
            ("# saved\nroute replace 10.0.0.0/8 nhid 7\n", Format::IpRoute),
            ("203.0.113.0/24 proto static\n\tnexthop via 192.0.2.1", Format::IpRoute),
            ("203.0.113.0/24 \n\tnexthop via 192.0.2.1 dev eth0", Format::IpRoute),
            ("203.0.113.0/24 tos 0x10 via 192.0.2.1 dev eth0", Format::IpRoute),
            ("\n [{\"dst\":\"10.0.0.0/8\"}]", Format::Json),
            ("TRIL\u{1}", Format::Snapshot),
            ("\u{5f}\u{6e}\u{6a}\u{6a}\0\u{d}\0\u{1}", Format::Mrt),
        ] {
            assert_eq!(detect(head.as_bytes()), format, "{head:?}");
        }
    }
}
