//! Generic netlink: families are numbered as the kernel meets them.

use super::attribute::{Attributes, Request, read_u16};
use super::socket::{Error, Netlink};

/// Bytes of `struct genlmsghdr`, which stands before the attributes.
pub const FIXED: usize = 4;

const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// The attributes of a message.
pub fn attributes(payload: &[u8]) -> Attributes<'_> {
    Attributes::new(payload.get(FIXED..).unwrap_or_default())
}

/// A socket and the number of a family, whose name ends with a NUL; `None`: this kernel has no such family.
pub fn family(name: &[u8]) -> Result<Option<(Netlink, u16)>, Error> {
    let mut socket = Netlink::generic()?;
    let mut id = None;
    let request = Request::new(CONTROLLER, 0, &[GET_FAMILY, 1, 0, 0]).attribute(FAMILY_NAME, name);
    let found = socket
        .request(request, |message| id = attributes(message.payload).find(FAMILY_ID).and_then(read_u16));
    Ok(found.ok().and(id).map(|id| (socket, id)))
}
