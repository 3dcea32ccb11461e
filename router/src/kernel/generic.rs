//! Generic netlink: families are numbered as the kernel meets them.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_text, read_u16, read_u32};
use super::socket::{Error, Netlink};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of `struct genlmsghdr`, which stands before the attributes.
pub const FIXED: usize = 4;

const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// The attributes of a message.
pub fn attributes(payload: &[u8]) -> Attributes<'_> {
    Attributes::new(payload.get(FIXED..).unwrap_or_default())
}

/// The first result of `pick` for the attributes of a family whose name ends with a NUL. Asks for all families: asked for one that is not
/// there, the kernel would start `modprobe` each time.
fn find<T>(
    socket: &mut Netlink,
    name: &[u8],
    pick: impl Fn(Attributes<'_>) -> Option<T>,
) -> Result<Option<T>, Error> {
    let mut found = None;
    socket.dump(Request::new(CONTROLLER, FLAG_DUMP, &[GET_FAMILY, 1, 0, 0]), |message| {
        let reported = attributes(message.payload);
        if reported.clone().find(FAMILY_NAME) == Some(name) {
            found = pick(reported);
        }
    })?;
    Ok(found)
}

/// Families that were found.
static FOUND: Mutex<BTreeMap<Vec<u8>, u16>> = Mutex::new(BTreeMap::new());

/// A socket and the number of a family, whose name ends with a NUL; `None`: this kernel has no such family.
pub fn family(name: &[u8]) -> Result<Option<(Netlink, u16)>, Error> {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let mut socket = Netlink::generic()?;
    if let Some(id) = found.get(name) {
        return Ok(Some((socket, *id)));
    }
    let id = find(&mut socket, name, |reported| reported.find(FAMILY_ID).and_then(read_u16))?;
    found.extend(id.map(|id| (name.to_vec(), id)));
    Ok(id.map(|id| (socket, id)))
}

/// The number of a family's multicast group.
pub fn group(family: &[u8], name: &str) -> Result<Option<u32>, Error> {
    find(&mut Netlink::generic()?, family, |reported| {
        let mut groups =
            Attributes::new(reported.find(FAMILY_GROUPS)?).map(|(_, group)| Attributes::new(group));
        let named =
            |group: &Attributes<'_>| group.clone().find(GROUP_NAME).map(read_text).as_deref() == Some(name);
        groups.find(named)?.find(GROUP_ID).and_then(read_u32)
    })
}
