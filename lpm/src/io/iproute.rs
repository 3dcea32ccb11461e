//! The output of `ip route` and `ip -6 route` as prefixes: what a router prints can be measured elsewhere.

use super::{ImportError, Prefixes, for_each_line};
use crate::{IpPrefix, Prefix};
use std::collections::HashMap;
use std::format;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// Routes as `ip route` prints them, each with the number of its next hop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRoutes {
    /// The prefixes; the value is the index + 1 of the route's next hop in `next_hops`. Of several routes to one prefix the
    /// first printed (the best metric) counts.
    pub prefixes: Prefixes<u32>,
    /// Each distinct next hop: the route's words that say where to (`via 192.0.2.1 dev eth0`, `blackhole`).
    pub next_hops: Vec<String>,
}

/// Words that begin a route of another type than unicast.
const TYPES: [&str; 9] = [
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
];

/// Reads `path` (`-` is standard input), gzip or not, as printed by `ip route` or `ip -6 route`. A `default` is IPv6 when its next hop
/// or the route before it is.
pub fn read(path: &Path) -> Result<IpRoutes, ImportError> {
    let mut routes = IpRoutes::default();
    let mut values: HashMap<String, u32> = HashMap::new();
    let mut seen: HashMap<IpPrefix, ()> = HashMap::new();
    let mut v6 = false;
    for_each_line(path, |line| {
        let mut words = line.split_ascii_whitespace().peekable();
        let first = words.peek().copied().unwrap_or_default();
        if first == "nexthop" {
            return Ok(()); // a further hop of the multipath route above
        }
        let kind = if TYPES.contains(&first) { words.next() } else { None };
        let dst = words.next().ok_or("no destination; expected a line of `ip route`")?;
        let rest: Vec<&str> = words.collect();
        let prefix = if dst == "default" {
            v6 = if rest.is_empty() { v6 } else { rest.iter().any(|word| word.contains(':')) };
            if v6 { IpPrefix::V6(Prefix::truncated(0, 0)) } else { IpPrefix::V4(Prefix::truncated(0, 0)) }
        } else {
            dst.parse().map_err(|error| format!("{error}"))?
        };
        v6 = matches!(prefix, IpPrefix::V6(_));
        if seen.insert(prefix, ()).is_some() {
            return Ok(());
        }
        let mut hop = String::from(kind.unwrap_or_default());
        for pair in rest.windows(2).filter(|pair| ["encap", "via", "dev", "nhid"].contains(&pair[0])) {
            hop = format!("{hop} {} {}", pair[0], pair[1]);
        }
        let hop = String::from(hop.trim_start());
        let next = values.len() as u32 + 1;
        let value = *values.entry(hop.clone()).or_insert_with(|| {
            routes.next_hops.push(hop);
            next
        });
        routes.prefixes.push(prefix, value);
        Ok(())
    })?;
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::string::ToString;

    #[test]
    fn routes_of_both_families() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(
            b"default via 192.0.2.1 dev eth0 proto dhcp metric 100 \n\
              10.0.0.0/8 via 192.0.2.1 dev eth0 \n\
              10.0.0.0/8 via 192.0.2.2 dev eth0 metric 20 \n\
              blackhole 198.51.100.0/24 \n\
              203.0.113.0/24 proto static \n\
              \tnexthop via 192.0.2.1 dev eth0 weight 1 \n\
              \tnexthop via 192.0.2.9 dev eth1 weight 1 \n\
              192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7 \n\
              2001:db8::/32 dev eth1 proto kernel metric 256 pref medium\n\
              default via fe80::1 dev eth1 metric 1024 pref medium\n",
        )
        .unwrap();
        let routes = read(file.path()).unwrap();
        let text: Vec<_> = routes.prefixes.v4.iter().map(|(p, v)| (p.to_string(), *v)).collect();
        assert_eq!(text[0], ("0.0.0.0/0".into(), 1));
        assert_eq!(text[1], ("10.0.0.0/8".into(), 1));
        assert_eq!(routes.next_hops[text[2].1 as usize - 1], "blackhole");
        assert_eq!(routes.next_hops[text[4].1 as usize - 1], "dev eth0");
        assert_eq!(text.len(), 5);
        assert_eq!(
            routes.prefixes.v6.iter().map(|(p, _)| p.to_string()).collect::<Vec<_>>(),
            ["2001:db8::/32", "::/0"]
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"10.0.0.0/8 dev a\nRTNETLINK answers: no\n").unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains(":2: \"RTNETLINK answers: no\""), "{error}");
    }
}
