//! IPsec policies (XFRM): only whether forwarded packets have to meet any, because a policy can block or encrypt any packet.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_u16, read_u32};
use super::family;
use super::optional::Part;
use super::socket::{Error, Netlink};
use std::io::ErrorKind;

const GET_POLICY: u16 = 0x15;
const GET_COUNTS: u16 = 0x25; // XFRM_MSG_GETSPDINFO
const GET_DEFAULT: u16 = 0x28;
const SPD_INFO: u16 = 1;

/// `XFRM_POLICY_IN`: what is delivered to this node; never asked for forwarded packets.
const DIRECTION_IN: u8 = 0;
/// `XFRM_USERPOLICY_BLOCK`: what no policy allows is dropped.
const DEFAULT_BLOCK: u8 = 1;

/// Where the family and the direction stand in `struct xfrm_userpolicy_info`.
const FAMILY_AT: usize = 40;
const DIRECTION_AT: usize = 160;

/// More policies than this are not looked at one by one each second: they are taken to be of both families.
const MANY: u32 = 1024;

/// Without both of these modules there are no policies.
static USER_API: Part = Part::new(&["xfrm_user", "af_key"]);

/// Which families have policies that forwarded packets meet (`ip xfrm policy`, directions `fwd` and `out`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Policies {
    const BOTH: Self = Self { v4: true, v6: true };

    /// Asks the kernel. One that does not tell is taken to have policies; one without XFRM has none. O(policies), at most
    /// 1024 of them.
    pub fn read() -> Self {
        if USER_API.is_missing() {
            return Self::default();
        }
        match Netlink::xfrm() {
            Ok(mut socket) => read(&mut socket).unwrap_or(Self::BOTH),
            // EPROTONOSUPPORT has no kind of its own
            Err(Error::Socket { source, .. }) if source.kind() != ErrorKind::PermissionDenied => {
                USER_API.miss();
                Self::default()
            }
            Err(_) => Self::BOTH,
        }
    }

    /// Whether packets of a family meet policies.
    pub fn concern(&self, family: u8) -> bool {
        if family == family::INET { self.v4 } else { self.v6 }
    }

    /// Takes a policy's message in.
    pub(crate) fn add(&mut self, payload: &[u8]) {
        if payload.get(DIRECTION_AT) == Some(&DIRECTION_IN) {
            return;
        }
        match payload.get(FAMILY_AT..).and_then(read_u16).map(|family| family as u8) {
            Some(family::INET) => self.v4 = true,
            Some(family::INET6) => self.v6 = true,
            _ => *self = Self::BOTH,
        }
    }
}

fn read(socket: &mut Netlink) -> Result<Policies, Error> {
    let mut blocks = false;
    // Linux before 5.15 has no default to tell.
    let _ = socket.request(Request::new(GET_DEFAULT, 0, &[0; 4]), |message| {
        blocks = message.payload.get(1..3).is_some_and(|default| default.contains(&DEFAULT_BLOCK));
    });
    if blocks {
        return Ok(Policies::BOTH);
    }
    let mut count = None;
    socket.request(Request::new(GET_COUNTS, 0, &[0xff; 4]), |message| {
        let counts = Attributes::new(message.payload.get(4..).unwrap_or_default()).find(SPD_INFO);
        // struct xfrmu_spdinfo: in, out, fwd, then those of sockets
        let at = |at: usize| counts.and_then(|counts| read_u32(counts.get(at..)?)).unwrap_or(u32::MAX);
        count = Some(at(4).saturating_add(at(8)));
    })?;
    let mut policies = Policies::default();
    match count {
        Some(0) => {}
        Some(1..MANY) => {
            socket.dump(Request::new(GET_POLICY, FLAG_DUMP, &[]), |message| policies.add(message.payload))?;
        }
        _ => policies = Policies::BOTH,
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_concern_their_family_and_direction() {
        let policy = |family: u8, direction: u8| {
            let mut payload = [0; 168];
            (payload[FAMILY_AT], payload[DIRECTION_AT]) = (family, direction);
            let mut policies = Policies::default();
            policies.add(&payload);
            (policies.v4, policies.v6)
        };
        assert_eq!(policy(2, 0), (false, false), "in");
        assert_eq!(policy(2, 1), (true, false), "out");
        assert_eq!(policy(10, 2), (false, true), "fwd");
        assert_eq!(policy(0, 2), (true, true), "of no family");
        let mut cut = Policies::default();
        cut.add(&[2; 20]);
        assert_eq!(cut, Policies::BOTH, "a message too short");
    }
}
