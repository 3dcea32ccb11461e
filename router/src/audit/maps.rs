//! Differences of the maps beside tables and actions: nothing is in flight there, as the daemon alone writes them.

use super::{Difference, Kind, Part};
use crate::xdp::damage::Damage;

/// A damaged entry as a difference.
pub fn difference(Damage { name, written, found }: Damage) -> Difference {
    Difference {
        part: Part::Map,
        kind: Kind::Entry,
        family: "any".into(),
        table: 0,
        prefix: name,
        address: None,
        kernel: None,
        mirror: Some(written),
        image: Some(found),
    }
}
