//! IPv6 settings of devices (`net.ipv6.conf.DEV.*`), whose changes the kernel does not notify: one request returns those of

use super::attribute::{Attributes, FLAG_DUMP, Request, read_text};
use super::socket::{Error, Netlink};
use super::{family, message};
use std::collections::BTreeMap;

/// Such settings of one device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `hop_limit`; `None`: it is none of a packet.
    pub hop_limit: Option<u8>,
    /// `mtu`, which the kernel forwards IPv6 by.
    pub mtu: u32,
    /// `use_tempaddr` prefers temporary source addresses.
    pub temporary_source: bool,
    /// `disable_ipv6`.
    pub disabled: bool,
    /// `seg6_require_hmac` asks for one.
    pub hmac_required: bool,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: bool,
    /// `force_forwarding` (Linux 6.17): it forwards whatever `forwarding` says.
    pub force_forwarding: bool,
}

/// `struct ifinfomsg`
const FIXED: usize = 16;
const NAME: u16 = 3; // IFLA_IFNAME
const PROTOCOL: u16 = 12; // IFLA_PROTINFO
const VALUES: u16 = 2; // IFLA_INET6_CONF

/// Places of the values, a 32-bit number each (`DEVCONF_*` of `linux/ipv6.h`). A kernel that does not know one has a shorter list,
/// or 0 there.
const HOP_LIMIT: usize = 1;
const MTU: usize = 2;
const USE_TEMPADDR: usize = 10;
const DISABLE_IPV6: usize = 26;
const IGNORE_LINKDOWN: usize = 39;
const SEG6_REQUIRE_HMAC: usize = 45;
const FORCE_FORWARDING: usize = 59;

/// A dump that changes interrupt is repeated at most this often.
const ATTEMPTS: u32 = 4;

/// Decodes a device's name and settings.
pub(crate) fn decode(payload: &[u8]) -> Option<(String, Settings)> {
    // A kernel without IPv6 tells of links as such.
    if *payload.first()? != family::INET6 {
        return None;
    }
    let attributes = Attributes::new(payload.get(FIXED..)?);
    let name = read_text(attributes.clone().find(NAME)?);
    let values = Attributes::new(attributes.find(PROTOCOL)?).find(VALUES)?;
    let value = |place: usize| values.get(4 * place..)?.first_chunk().map(|b| i32::from_ne_bytes(*b));
    let is = |place, least| value(place).is_some_and(|value| value >= least);
    let settings = Settings {
        hop_limit: u8::try_from(value(HOP_LIMIT)?).ok(),
        mtu: u32::try_from(value(MTU)?).ok()?,
        temporary_source: is(USE_TEMPADDR, 2),
        disabled: is(DISABLE_IPV6, 1),
        hmac_required: is(SEG6_REQUIRE_HMAC, 1),
        ignore_linkdown: is(IGNORE_LINKDOWN, 1),
        force_forwarding: is(FORCE_FORWARDING, 1),
    };
    Some((name, settings))
}

/// The settings of every device that has IPv6, by name. O(devices of the namespace).
pub fn read(socket: &mut Netlink) -> Result<BTreeMap<String, Settings>, Error> {
    let mut fixed = [0; FIXED];
    fixed[0] = family::INET6;
    let mut devices = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        // Messages of an interrupted dump are true all the same.
        let request = Request::new(message::GET_LINK, FLAG_DUMP, &fixed);
        if !socket.dump(request, |message| devices.extend(decode(message.payload)))? {
            break;
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attribute::HEADER;

    fn reported(family: u8, values: &[i32]) -> Vec<u8> {
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let nested = Request::new(0, 0, &[]).attribute(1, &[0; 4]).attribute(VALUES, &values).finish(0);
        let mut fixed = [0; FIXED];
        fixed[0] = family;
        let message = Request::new(0, 0, &fixed).attribute(NAME, b"n0\0");
        message.attribute(PROTOCOL, &nested[HEADER..]).finish(0)[HEADER..].to_vec()
    }

    #[test]
    fn settings_stand_at_their_places() {
        let mut values = [0; 60];
        (values[HOP_LIMIT], values[MTU]) = (64, 1500);
        let plain = Settings { hop_limit: Some(64), mtu: 1500, ..Settings::default() };
        assert_eq!(decode(&reported(family::INET6, &values)), Some(("n0".into(), plain)));
        for (place, value, settings) in [
            (USE_TEMPADDR, 1, plain),
            (USE_TEMPADDR, 2, Settings { temporary_source: true, ..plain }),
            (DISABLE_IPV6, 1, Settings { disabled: true, ..plain }),
            (SEG6_REQUIRE_HMAC, -1, plain),
            (SEG6_REQUIRE_HMAC, 1, Settings { hmac_required: true, ..plain }),
            (HOP_LIMIT, 256, Settings { hop_limit: None, ..plain }),
        ] {
            let mut values = values;
            values[place] = value;
            assert_eq!(
                decode(&reported(family::INET6, &values)),
                Some(("n0".into(), settings)),
                "{place} {value}"
            );
        }
        // an older kernel knows fewer
        assert_eq!(decode(&reported(family::INET6, &values[..27])), Some(("n0".into(), plain)));
        assert_eq!(decode(&reported(family::INET6, &values[..2])), None);
        assert_eq!(decode(&reported(family::UNSPEC, &values)), None);
        let whole = reported(family::INET6, &values);
        for end in 0..whole.len() {
            assert!(
                decode(&whole[..end]).is_none_or(|(name, reported)| name == "n0" && reported == plain),
                "{end}"
            );
        }
    }
}
