//! Routes as `ip route` prints them, and as `ip -batch` takes them: what a router holds can be measured elsewhere, and back.

use super::error::ImportError;
use super::format::Format;
use super::hops::Hops;
use super::list::{PrefixList, ReadOptions};
use super::source::Source;
use crate::{IpPrefix, Prefix};
use std::format;
use std::io::Write;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

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

/// Words that follow a destination.
const ATTRIBUTES: [&str; 11] =
    ["via", "dev", "nhid", "encap", "proto", "scope", "metric", "src", "table", "onlink", "tos"];

/// Words that end an encapsulation.
const AFTER_ENCAP: [&str; 8] = ["via", "dev", "nhid", "proto", "scope", "metric", "src", "pref"];

/// Whether a line is one of `ip route` rather than `PREFIX [VALUE]`.
pub(super) fn is_route(line: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let first = words.first().copied().unwrap_or_default();
    TYPES.contains(&first)
        || ["route", "nexthop"].contains(&first)
        || first == "default" && words.get(1).is_none_or(|word| ATTRIBUTES.contains(word))
        || words.len() > 2 && ATTRIBUTES.contains(&words[1])
}

/// Whether `ip route` prints a line like this below a destination, for one next hop of several.
pub(super) fn is_hop(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next() == Some("nexthop") && words.next().is_some_and(|word| ATTRIBUTES.contains(&word))
}

/// Reads `path` (`-` is standard input), packed or not. It has lines as `ip route` or `ip -6 route` prints them, or the `route add …` lines
/// of `ip -batch`.
///
/// Where every route has an nhid, that is its value. Otherwise distinct next hops (`via 192.0.2.1 dev eth0`, `blackhole`) are numbered 1,
/// 2, … Either way `names` holds each value's next hop in `ip route`'s words. Of several routes to one prefix the first (the best metric)
/// counts. A `default` without a next hop is of the family of the route before it. Routes with a TOS are counted in `skipped`: they are for some
/// packets only. Routes of two tables are an error.
pub fn read(path: &Path) -> Result<PrefixList, ImportError> {
    from(Source::open(path, &ReadOptions::default())?)
}

/// A route whose `nexthop` lines may still follow.
struct Route {
    prefix: IpPrefix,
    hop: String,
    nhid: Option<u32>,
}

pub(super) fn from(source: Source) -> Result<PrefixList, ImportError> {
    let mut hops = Hops::default();
    let mut last: Option<Route> = None;
    let (mut v6, mut skipped, mut is_skipped) = (false, 0, false);
    let mut table = OneTable::default();
    source.for_each_line(|line| {
        let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words[0] == "nexthop" {
            if is_skipped {
                return Ok(());
            }
            let route = last.as_mut().ok_or("a next hop without a route; expected a line of `ip route`")?;
            if !route.hop.is_empty() {
                route.hop.push(' ');
            }
            route.hop += &format!("nexthop {}", hop(&words[1..]));
            return Ok(());
        }
        if let Some(route) = last.take() {
            hops.push(route.prefix, route.hop, route.nhid);
        }
        if words[0] == "route" {
            let verb = words.get(1).copied().unwrap_or_default();
            if !["add", "append", "change", "prepend", "replace"].contains(&verb) {
                return Err(format!("{verb:?} adds no route; expected `route add PREFIX …`"));
            }
            words.drain(..2);
        }
        let kind = words.first().copied().filter(|word| TYPES.contains(word));
        words.drain(..usize::from(kind.is_some()));
        let dst = *words.first().ok_or("no destination; expected a line of `ip route`")?;
        let rest = &words[1..];
        is_skipped = value_of(rest, "tos").is_some_and(|tos| tos != "0");
        if is_skipped {
            skipped += 1;
            return Ok(());
        }
        table.is(value_of(rest, "table").unwrap_or("main"))?;
        let prefix = if dst == "default" {
            v6 = is_default6(rest).unwrap_or(v6);
            if v6 { IpPrefix::V6(Prefix::truncated(0, 0)) } else { IpPrefix::V4(Prefix::truncated(0, 0)) }
        } else {
            dst.parse().map_err(|error| format!("{error}"))?
        };
        v6 = matches!(prefix, IpPrefix::V6(_));
        let kind = kind.filter(|kind| *kind != "unicast").unwrap_or_default();
        let hop = String::from(format!("{kind} {}", hop(rest)).trim());
        let nhid = match value_of(rest, "nhid") {
            None => None,
            Some(id) => Some(id.parse().map_err(|_| format!("invalid nhid {id:?}: expected a number"))?),
        };
        last = Some(Route { prefix, hop, nhid });
        Ok(())
    })?;
    if let Some(route) = last {
        hops.push(route.prefix, route.hop, route.nhid);
    }
    let mut list = hops.finish(Format::IpRoute);
    list.skipped = skipped;
    Ok(list)
}

/// The table of routes: those of several ones would make a table that answers as none of them does.
#[derive(Default)]
pub(super) struct OneTable(Option<String>);

impl OneTable {
    /// A route is of this table; an error if another one was of another.
    pub fn is(&mut self, table: &str) -> Result<(), String> {
        let first = self.0.get_or_insert_with(|| table.into());
        if first == table {
            return Ok(());
        }
        Err(format!(
            "a route of table {table} behind one of table {first}; expected one table: ip route show table {table}"
        ))
    }
}

/// Whether a default route with these attributes is one of IPv6, if they say.
fn is_default6(rest: &[&str]) -> Option<bool> {
    match value_of(rest, "via") {
        // The next hop is of the other family.
        Some("inet6") => Some(false),
        Some("inet") => Some(true),
        Some(via) => Some(via.contains(':')),
        // Linux prints a preference (RFC 4191) for IPv6 only.
        None if rest.contains(&"pref") => Some(true),
        None if rest.is_empty() || value_of(rest, "nhid").is_some() => None,
        None => Some(false),
    }
}

fn value_of<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.windows(2).find(|pair| pair[0] == key).map(|pair| pair[1])
}

/// The words that say where to.
fn hop(words: &[&str]) -> String {
    let mut hop: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let end = match *word {
            "encap" => words[at + 1..]
                .iter()
                .position(|word| AFTER_ENCAP.contains(word))
                .map_or(words.len(), |after| at + 1 + after),
            "via" if matches!(words.get(at + 1), Some(&("inet" | "inet6"))) => at + 3,
            "via" | "dev" | "nhid" | "weight" => at + 2,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = end.min(words.len());
        hop.extend(&words[at..end]);
        at = end;
    }
    hop.join(" ")
}

/// Writes prefixes as `ip -batch` takes them: `route replace PREFIX nhid VALUE`, one a line. The value is the id of a next hop
/// object (`ip nexthop add id VALUE …`), which must be there. That is exact, and [`read`] restores it. The gateway behind a number
/// cannot be restored from a table, so it stands in a comment where `names` has it. A prefix without a value is an error.
pub fn write<'a>(
    to: &mut impl Write,
    prefixes: impl Iterator<Item = (IpPrefix, Option<u32>)> + 'a,
    names: &std::collections::BTreeMap<u32, String>,
) -> std::io::Result<()> {
    for (value, name) in names {
        // A comment ends with its line.
        writeln!(to, "# nhid {value}: {}", name.replace(['\n', '\r'], " "))?;
    }
    for (prefix, value) in prefixes {
        let Some(value) = value else {
            let what = format!("{prefix} has no value; expected one, the id of its next hop object");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
        };
        writeln!(to, "route replace {prefix} nhid {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(text[0], ("0.0.0.0/0".into(), Some(1)));
        assert_eq!(text[1], ("10.0.0.0/8".into(), Some(1)));
        assert_eq!(routes.names[&text[2].1.unwrap()], "blackhole");
        assert_eq!(routes.names[&text[4].1.unwrap()], "dev eth0");
        assert_eq!(text.len(), 5);
        assert_eq!(
            routes.prefixes.v6.iter().map(|(p, _)| p.to_string()).collect::<Vec<_>>(),
            ["2001:db8::/32", "::/0"]
        );
    }

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    #[test]
    fn next_hops_are_distinguished() {
        let routes = read(
            file(
                "default via inet6 fe80::1 dev eth0 proto bgp metric 20\n\
                 10.1.0.0/16 via inet6 fe80::2 dev eth0\n\
                 10.2.0.0/16  encap seg6 mode encap segs 1 [ fd00::1 ] dev eth1 scope link\n\
                 10.3.0.0/16  encap seg6 mode encap segs 1 [ fd00::2 ] dev eth1 scope link\n\
                 10.4.0.0/16 proto bgp metric 20\n\
                 \tnexthop via 192.0.2.1 dev eth0 weight 1\n\
                 \tnexthop via 192.0.2.9 dev eth1 weight 2\n\
                 default dev eth1 proto static metric 1024 pref medium\n",
            )
            .path(),
        )
        .unwrap();
        let names: Vec<_> = routes.names.values().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "via inet6 fe80::1 dev eth0",
                "via inet6 fe80::2 dev eth0",
                "encap seg6 mode encap segs 1 [ fd00::1 ] dev eth1",
                "encap seg6 mode encap segs 1 [ fd00::2 ] dev eth1",
                "nexthop via 192.0.2.1 dev eth0 weight 1 nexthop via 192.0.2.9 dev eth1 weight 2",
                "dev eth1",
            ]
        );
        assert_eq!((routes.prefixes.v4.len(), routes.prefixes.v6.len()), (5, 1));
    }

    #[test]
    fn next_hop_objects_keep_their_ids() {
        let text = "# nhid 7: via 192.0.2.1 dev eth0\nroute replace 10.0.0.0/8 nhid 7\nroute replace 2001:db8::/32 nhid 2147483647\n";
        let list = read(file(text).path()).unwrap();
        assert_eq!(list.prefixes.v4[0].1, Some(7));
        assert_eq!(list.prefixes.v6[0].1, Some(2_147_483_647));
        let rows = [
            (IpPrefix::V4(list.prefixes.v4[0].0), Some(7)),
            (IpPrefix::V6(list.prefixes.v6[0].0), Some(2_147_483_647)),
        ];
        let mut written = Vec::new();
        let names = [(7, "via 192.0.2.1 dev eth0".into())].into();
        write(&mut written, rows.into_iter(), &names).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
        let none = [(rows[0].0, None)];
        let error = write(&mut Vec::new(), none.into_iter(), &names).unwrap_err().to_string();
        assert!(error.contains("10.0.0.0/8 has no value"), "{error}");
        // As `ip route` prints them; and where only some have one, ids are not values.
        let list = read(file("10.0.0.0/8 nhid 9 via 192.0.2.1 dev eth0\n").path()).unwrap();
        assert_eq!(
            (list.prefixes.v4[0].1, list.names[&9].as_str()),
            (Some(9), "nhid 9 via 192.0.2.1 dev eth0")
        );
        let list = read(file("10.0.0.0/8 nhid 9 dev a\n11.0.0.0/8 dev b\n").path()).unwrap();
        assert_eq!(list.prefixes.v4.iter().map(|row| row.1).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    #[test]
    fn routes_for_some_packets_only_are_counted() {
        let text = "10.6.0.0/16 tos 0x10 \n\tnexthop via 192.0.2.8 dev a weight 1\n10.6.0.0/16 via 192.0.2.9 dev a\n";
        let list = read(file(text).path()).unwrap();
        assert_eq!((list.prefixes.v4.len(), list.skipped), (1, 1));
        assert_eq!(list.names.values().collect::<Vec<_>>(), ["via 192.0.2.9 dev a"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = read(file("10.0.0.0/8 dev a\nRTNETLINK answers: no\n").path()).unwrap_err().to_string();
        assert!(error.contains(":2: \"RTNETLINK answers: no\""), "{error}");
        for (text, expected) in [
            ("\tnexthop via 192.0.2.1\n", "without a route"),
            ("route del 10.0.0.0/8\n", "adds no route"),
            ("blackhole\n", "no destination"),
            (
                "default via 192.0.2.1 table 100\n10.0.0.0/8 dev a\n",
                "a route of table main behind one of table 100",
            ),
            ("10.0.0.0/8 nhid x dev a\n", "expected a number"),
        ] {
            let error = read(file(text).path()).unwrap_err().to_string();
            assert!(
                error.contains(&format!(":{}: ", text.lines().count())) && error.contains(expected),
                "{error}"
            );
        }
    }
}
