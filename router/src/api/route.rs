//! A route as `route show` and `route get` print it: the keys of `ip -j route`, and those of XDP's action.

use crate::sid_hook::SidHookStatus;
use crate::srv6::sids::SidCount;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

/// A struct whose keys are left out of JSON where they have their default.
macro_rules! sparse {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$meta])* #[serde(skip_serializing_if = "is_default")] pub $field: $type,)*
        }

        #[cfg(test)]
        impl tests::Any for $name {
            fn any(random: &mut trieline_testbed::random::Random) -> Self {
                Self { $($field: tests::Any::any(random),)* }
            }
        }
    };
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

sparse! {
    /// A route, one of the ways of a multipath route, or a member of a group of equal cost; each has some of the keys.
    ///
    /// The fields are in the order of the keys in JSON, which is the alphabet's.
    pub struct Route {
        /// XDP's action.
        action: Option<String>,
        /// Behaviour of a SID.
        behaviour: Option<String>,
        /// Device of the route.
        dev: Option<String>,
        /// The prefix, or the address asked about; none in ways and members.
        dst: String,
        /// `seg6`, `seg6local` or another encapsulation.
        encap: Option<String>,
        /// The filter that decides in place of the route.
        filter: Option<String>,
        /// Filters that decide for some of the packets.
        filters_may_match: Vec<String>,
        /// Why the kernel would have got a tenant's packet.
        first_reason: Option<String>,
        /// `onlink`.
        flags: Vec<String>,
        /// Flavours of a SID.
        flavors: Vec<String>,
        /// Next hop.
        gateway: Option<IpAddr>,
        /// Why only the kernel can follow the route, and what helps.
        hint: Option<String>,
        /// Bits of the locator block.
        lblen: Option<u32>,
        /// MAC address of the next hop.
        lladdr: Option<String>,
        /// The `table` of a SID.
        lookup: Option<u32>,
        /// Members of a group of equal cost.
        members: Vec<Route>,
        /// Metric.
        metric: Option<u32>,
        /// Mode of `seg6`.
        mode: Option<String>,
        /// MTU of the way out.
        mtu: Option<u16>,
        /// The prefix is a neighbour's, which no route names.
        neighbour: bool,
        /// Ways of a multipath route.
        nexthops: Vec<Route>,
        /// Bits of the node and the function in a C-SID.
        nflen: Option<u32>,
        /// IPv4 next hop of a SID.
        nh4: Option<IpAddr>,
        /// IPv6 next hop of a SID.
        nh6: Option<IpAddr>,
        /// Number of the next hop object.
        nhid: Option<u32>,
        /// Device of a SID.
        oif: Option<String>,
        /// Device by which XDP sends.
        out: Option<String>,
        /// Length of the outer header.
        outer_bytes: Option<usize>,
        /// Its destination.
        outer_dst: Option<Ipv6Addr>,
        /// Source of its flow label.
        outer_flow: Option<String>,
        /// Segments of its SRH as they are visited.
        outer_segs: Vec<Ipv6Addr>,
        /// Its source.
        outer_src: Option<Ipv6Addr>,
        /// The prefix that decides.
        prefix: Option<String>,
        /// Preferred source.
        prefsrc: Option<IpAddr>,
        /// Protocol.
        protocol: Option<String>,
        /// Why `pass` or `drop`.
        reason: Option<String>,
        /// Selector of the policy rule that decides.
        rule: Option<String>,
        /// Scope.
        scope: Option<String>,
        /// Segments of `seg6` and of a SID.
        segs: Vec<Ipv6Addr>,
        /// MAC address that frames come from.
        smac: Option<String>,
        /// `image+daemon` or `image`.
        source: Option<String>,
        /// Table.
        table: Option<String>,
        /// `vrf`: a route into a VRF leads to what decides.
        through: Option<String>,
        /// Type of the route; none for unicast.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// Next hop of the other family.
        via: Option<Via>,
        /// VLAN id of the way out.
        vlan: Option<u16>,
        /// VRF table of a SID.
        vrftable: Option<u32>,
        /// Of a way and a member: its weight.
        weight: Option<u16>,
    }
}

/// A next hop of the other family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Via {
    /// `inet6`.
    pub family: String,
    /// Its address.
    pub host: IpAddr,
}

/// The daemon's explanation of what a table answers for an address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The value in the table; none without a route.
    pub id: Option<u32>,
    /// The route that it comes from: its keys stand beside `id`.
    #[serde(flatten)]
    pub route: Route,
}

/// A SID as `sid show` prints it: its route, and beside the route's keys those of its counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SidStatus {
    /// Its route.
    #[serde(flatten)]
    pub route: Route,
    /// Its packets; none if XDP does not know the SID.
    #[serde(flatten)]
    pub count: Option<SidCount>,
    /// The hook bound to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid_hook: Option<SidHookStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sid_hook::rule::{SidHookRule, What};
    use serde_json::Value;
    use std::net::Ipv4Addr;
    use trieline_testbed::random::Random;

    /// A random value. `sparse!` makes it for every field of a struct.
    pub(super) trait Any {
        fn any(random: &mut Random) -> Self;
    }

    macro_rules! any {
        ($($type:ty: $random:ident => $value:expr;)*) => {
            $(impl Any for $type {
                fn any($random: &mut Random) -> Self {
                    $value
                }
            })*
        };
    }

    any! {
        bool: random => random.one_in(2);
        u16: random => random.bits() as u16;
        u32: random => random.bits() as u32;
        usize: random => random.bits() as u32 as usize;
        String: random => format!("{:x} \"\u{e9}", random.bits() as u8);
        Ipv6Addr: random => random.wide().into();
        IpAddr: random => if bool::any(random) { Ipv4Addr::from(u32::any(random)).into() } else { Ipv6Addr::any(random).into() };
        Via: random => Via { family: String::any(random), host: IpAddr::any(random) };
    }

    impl<T: Any> Any for Option<T> {
        fn any(random: &mut Random) -> Self {
            random.one_in(2).then(|| T::any(random))
        }
    }

    /// Short lists: a route's ways are routes.
    impl<T: Any> Any for Vec<T> {
        fn any(random: &mut Random) -> Self {
            (0..if random.one_in(5) { 2 } else { 0 }).map(|_| T::any(random)).collect()
        }
    }

    fn comes_back<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(answer: &T) {
        let line = serde_json::to_string(answer).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&line).unwrap(), answer, "{line}");
        // As a client reads it.
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(&serde_json::from_value::<T>(value).unwrap(), answer, "{line}");
    }

    #[test]
    fn answers_come_back() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let route = Route::any(&mut random);
            comes_back(&route);
            comes_back(&Explained { id: Option::any(&mut random), route: route.clone() });
            let (packets, bytes, errors) = (1, u64::MAX, 0);
            let count = bool::any(&mut random).then_some(SidCount { packets, bytes, errors });
            let hook = SidHookStatus {
                rule: SidHookRule {
                    name: String::any(&mut random),
                    sid: Ipv6Addr::any(&mut random),
                    what: What::Filter { filters: vec![String::any(&mut random)] },
                },
                frames: None,
                limited: None,
                lost: None,
                problem: Option::any(&mut random),
            };
            comes_back(&SidStatus { route, count, sid_hook: bool::any(&mut random).then_some(hook) });
        }
    }

    #[test]
    fn keys_are_in_the_order_of_the_alphabet() {
        let mut random = Random::new(2);
        for _ in 0..1000 {
            let line = serde_json::to_string(&Route::any(&mut random)).unwrap();
            let sorted: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(sorted.to_string(), line);
        }
    }

    #[test]
    fn a_route_has_only_the_keys_that_say_something() {
        assert_eq!(serde_json::to_string(&Route::default()).unwrap(), "{}");
    }
}
