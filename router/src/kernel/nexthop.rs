//! Next hop objects (`ip nexthop`): ways out that routes name by number, so that one change moves all of them.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_address, read_u16, read_u32};
use super::known;
use super::message;
use super::route::Nexthop;
use super::seg6;
use std::collections::BTreeMap;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
const RTNH_F_ONLINK: u32 = 4;
/// `NEXTHOP_GRP_TYPE_RES`, the highest that is known; 0 is `NEXTHOP_GRP_TYPE_MPATH`.
const RESILIENT: u16 = 1;
/// Bytes of `struct nhmsg`.
const FIXED: usize = 8;
/// Bytes of `struct nexthop_grp`.
const MEMBER: usize = 8;

/// A next hop object's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// One way out.
    Nexthop(Nexthop),
    /// Ids of others, with their weights; a resilient group too, whose buckets change only where they must.
    Group(Vec<(u32, u16)>),
    /// Something that trieline does not forward by: a blackhole, a forwarding entry of a bridge, an object with an unknown attribute or
    /// flag. Routes by it, and by a group that has it, are the kernel's.
    Other,
}

/// Decodes the payload of a next hop message: the id and the object.
pub fn decode(payload: &[u8]) -> Option<(u32, Object)> {
    let flags = read_u32(payload.get(4..FIXED)?)?;
    let (mut id, mut object, mut encap_type, mut encap) = (0, None, 0, &[][..]);
    let mut unknown = flags & !known::HOP_FLAGS != 0;
    let mut hop = Nexthop {
        ifindex: 0,
        gateway: None,
        onlink: flags & RTNH_F_ONLINK != 0,
        weight: 1,
        dead: false,
        encap: None,
    };
    for (kind, value) in Attributes::new(&payload[FIXED..]) {
        match kind {
            NHA_ID => id = read_u32(value)?,
            NHA_GROUP => {
                // The weight is one less, since Linux 6.12 with another byte for more.
                let member = |bytes: &[u8]| {
                    let weight = u16::from(bytes[4]) | u16::from(bytes[5]) << 8;
                    Some((read_u32(bytes)?, weight.saturating_add(1)))
                };
                object = Some(Object::Group(value.chunks_exact(MEMBER).filter_map(member).collect()));
            }
            NHA_GROUP_TYPE => unknown |= read_u16(value).is_none_or(|kind| kind > RESILIENT),
            NHA_BLACKHOLE | NHA_FDB => unknown = true,
            NHA_OIF => hop.ifindex = read_u32(value)?,
            NHA_GATEWAY => hop.gateway = read_address(value),
            NHA_ENCAP_TYPE => encap_type = read_u16(value).unwrap_or(0),
            NHA_ENCAP => encap = value,
            _ => unknown |= !known::NEXTHOP.has(kind),
        }
    }
    if encap_type != 0 {
        hop.encap = Some(seg6::decode(encap_type, encap));
    }
    let object = if unknown { Object::Other } else { object.unwrap_or(Object::Nexthop(hop)) };
    (id != 0).then_some((id, object))
}

/// Asks for all objects.
pub fn dump() -> Request {
    Request::new(message::GET_NEXTHOP, FLAG_DUMP, &[0; FIXED])
}

/// All objects, by id.
#[derive(Debug, Default)]
pub struct Objects(BTreeMap<u32, Object>);

impl Objects {
    /// Takes over an object; `None` removes it. Whether that changes anything.
    pub fn set(&mut self, id: u32, object: Option<Object>) -> bool {
        let before = match object.clone() {
            Some(object) => self.0.insert(id, object),
            None => self.0.remove(&id),
        };
        before != object
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.0.iter().map(|(id, object)| (*id, object))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ways out of an object, none when no route can forward by it; `None`: it is not known.
    pub fn hops(&self, id: u32) -> Option<Vec<Nexthop>> {
        let member = |(id, weight): &(u32, u16)| match self.0.get(id) {
            Some(Object::Nexthop(hop)) => Some(Nexthop { weight: *weight, ..hop.clone() }),
            _ => None,
        };
        Some(match self.0.get(&id)? {
            Object::Nexthop(hop) => vec![hop.clone()],
            Object::Group(members) if members.iter().any(|(id, _)| self.is_other(*id)) => Vec::new(),
            Object::Group(members) => members.iter().filter_map(member).collect(),
            Object::Other => Vec::new(),
        })
    }

    fn is_other(&self, id: u32) -> bool {
        matches!(self.0.get(&id), Some(Object::Other))
    }

    /// Whether the object `id` depends on the object `member`.
    pub fn concerns(&self, id: u32, member: u32) -> bool {
        let has = |members: &Vec<(u32, u16)>| members.iter().any(|(id, _)| *id == member);
        id == member || matches!(self.0.get(&id), Some(Object::Group(members)) if has(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let request = Request::new(0, 0, &[0; FIXED]);
        let request =
            attributes.iter().fold(request, |request, (kind, value)| request.attribute(*kind, value));
        request.finish(0).split_off(super::super::attribute::HEADER)
    }

    #[test]
    fn a_group_has_the_hops_of_its_members() {
        let mut objects = Objects::default();
        for id in [1u32, 2] {
            let attributes: [(u16, &[u8]); 3] = [
                (NHA_ID, &id.to_ne_bytes()),
                (NHA_OIF, &7u32.to_ne_bytes()),
                (NHA_GATEWAY, &[10, 0, 0, id as u8]),
            ];
            let (reported, object) = decode(&message(&attributes)).unwrap();
            assert!(reported == id && objects.set(reported, Some(object)));
        }
        let members = [1u32.to_ne_bytes(), [0; 4], 2u32.to_ne_bytes(), [3, 0, 0, 0]].concat();
        let group: [(u16, &[u8]); 2] = [(NHA_ID, &9u32.to_ne_bytes()), (NHA_GROUP, &members)];
        let (reported, object) = decode(&message(&group)).unwrap();
        objects.set(reported, Some(object));
        let hops = objects.hops(9).unwrap();
        assert_eq!(hops.iter().map(|hop| hop.weight).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(hops[1].gateway, Some([10, 0, 0, 2].into()));
        assert!(objects.concerns(9, 2) && !objects.concerns(9, 3) && objects.concerns(1, 1));
        objects.set(2, None);
        assert_eq!((objects.hops(9).map(|hops| hops.len()), objects.hops(2)), (Some(1), None));
        assert_eq!(decode(&[0; 7]), None);
    }

    #[test]
    fn nexthop_objects_with_unknown_attributes_pass_their_groups() {
        let of = |id: u32, flags: u32, more: &[(u16, &[u8])]| {
            let (oif, id) = (7u32.to_ne_bytes(), id.to_ne_bytes());
            let own: [(u16, &[u8]); 3] = [(NHA_ID, &id), (NHA_OIF, &oif), (NHA_GATEWAY, &[10, 0, 0, 1])];
            let mut payload = message(&[&own[..], more].concat());
            payload[4..8].copy_from_slice(&flags.to_ne_bytes());
            decode(&payload).unwrap().1
        };
        for known in
            [of(1, 0x7f, &[]), of(1, 0, &[(12, &[]), (14, &[0; 4]), (15, &[]), (16, &[0; 4]), (17, &[0; 4])])]
        {
            assert!(matches!(known, Object::Nexthop(_)), "{known:?}");
        }
        for unknown in
            [of(1, 0x80, &[]), of(1, 0, &[(20, &[])]), of(1, 0, &[(NHA_FDB, &[])]), of(1, 0, &[(13, &[])])]
        {
            assert_eq!(unknown, Object::Other);
        }
        let members = [1u32.to_ne_bytes(), [0; 4], 2u32.to_ne_bytes(), [0; 4]].concat();
        let group = |kind: u16| {
            let attributes: [(u16, &[u8]); 3] =
                [(NHA_ID, &9u32.to_ne_bytes()), (NHA_GROUP, &members), (NHA_GROUP_TYPE, &kind.to_ne_bytes())];
            decode(&message(&attributes)).unwrap().1
        };
        assert_eq!((group(0), group(2)), (group(1), Object::Other), "a type that is not known");
        let mut objects = Objects::default();
        for (id, object) in [(1, of(1, 0, &[])), (2, of(2, 0, &[])), (9, group(0))] {
            objects.set(id, Some(object));
        }
        assert_eq!(objects.hops(9).map(|hops| hops.len()), Some(2));
        objects.set(2, Some(of(2, 0, &[(20, &[])])));
        assert_eq!(objects.hops(9).map(|hops| hops.len()), Some(0), "none to forward by");
    }
}
