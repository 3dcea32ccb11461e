//! Prefixes whose destinations the kernel changes by itself (NEXT-C-SID), for the XDP program's guard: it follows packets that it
//! passes, and has to know the steps whatever may be done with their routes here.

use crate::kernel::route::Path;
use crate::kernel::seg6::Encap;
use crate::mirror::Mirror;
use crate::rib::Table;
use std::collections::BTreeSet;
use std::net::IpAddr;
use trieline_dataplane::{CsidMap, Steps};
use trieline_lpm::Prefix;

fn of_path(path: &Path) -> impl Iterator<Item = Steps> + '_ {
    path.hops.iter().filter_map(|hop| hop.encap.as_ref().and_then(Encap::steps))
}

/// The prefixes with their steps, of all tables together: which one decides for a packet is the kernel's business. O(paths), and
/// O(prefixes · tables) if there are any; O(routes) if some hang on next hop objects or multipath routes.
pub fn find(mirror: &Mirror) -> CsidMap {
    let mut prefixes = BTreeSet::new();
    let mut scattered = BTreeSet::new();
    for (id, path) in mirror.paths.iter().filter(|(_, path)| of_path(path).next().is_some()) {
        match path.sid {
            Some((IpAddr::V6(address), len)) => {
                prefixes.insert(Prefix::truncated(u128::from(address), len.into()));
            }
            _ => {
                scattered.insert(id);
            }
        }
    }
    if !scattered.is_empty() {
        let routes = mirror.v6.tables().flat_map(Table::iter);
        let found = routes.filter(|(_, routes)| routes.iter().any(|route| scattered.contains(&route.path)));
        prefixes.extend(found.map(|(prefix, _)| prefix));
    }
    prefixes.into_iter().filter_map(|prefix| Some((prefix, at(mirror, prefix)?))).collect()
}

/// What the tables say of a prefix; `None` if it is in none of them any more.
fn at(mirror: &Mirror, prefix: Prefix<u128>) -> Option<Steps> {
    let routes = mirror.v6.tables().filter_map(|table| Some(table.covering(prefix).next()?.1));
    let paths = routes.flatten().filter_map(|route| mirror.paths.get(route.path));
    paths.flat_map(of_path).reduce(|one, other| if one == other { one } else { Steps::Unknown })
}
