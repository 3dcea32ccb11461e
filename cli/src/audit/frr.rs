//! FRR's selected routes, as `vtysh` lists them.

use super::rib::{Routes, Wanted, ask, way};
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// `rtm_protocol` of routes that zebra installs: zebra, BGP, IS-IS, OSPF, RIP, EIGRP; and FRR's numbers from NHRP to OpenFabric.
const PROTOCOLS: [u8; 17] =
    [11, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 42, 200];
/// Routes that zebra has from the kernel.
const FROM_KERNEL: [&str; 3] = ["connected", "local", "kernel"];
/// The kernel's table main, in zebra's answer.
const MAIN: u32 = 254;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Route {
    protocol: String,
    #[serde(default)]
    selected: bool,
    #[serde(default)]
    table: Option<u32>,
    #[serde(default)]
    nexthops: Vec<Hop>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hop {
    /// It is one of those for the kernel.
    #[serde(default)]
    fib: bool,
    ip: Option<IpAddr>,
    interface_name: Option<String>,
    /// It leads nowhere: `blackhole` (`reject`, `adminProhibited`) says how.
    #[serde(default)]
    unreachable: bool,
    #[serde(default)]
    blackhole: bool,
    #[serde(default, alias = "admin-prohibited")]
    admin_prohibited: bool,
    /// It only leads to others, which follow it.
    #[serde(default)]
    recursive: bool,
}

impl Hop {
    fn way(&self) -> Option<String> {
        match (&self.interface_name, self.unreachable) {
            (_, true) if self.blackhole => Some("blackhole".into()),
            (_, true) if self.admin_prohibited => Some("prohibit".into()),
            (_, true) => Some("unreachable".into()),
            (device, false) => device.as_ref().map(|device| way(self.ip, device)),
        }
    }
}

/// Routes that zebra selected for the kernel's table main.
pub fn routes(folder: Option<&Path>) -> anyhow::Result<Wanted> {
    let mut routes = Routes::new();
    for family in ["ip", "ipv6"] {
        let command = format!("show {family} route json");
        let folder = folder.map(|folder| folder.to_string_lossy().into_owned());
        let mut arguments = Vec::new();
        if let Some(folder) = &folder {
            arguments.extend(["--vty_socket", folder]);
        }
        arguments.extend(["-c", &command]);
        let answer = ask("vtysh", &arguments)?;
        // Before the JSON, vtysh may print which daemons it did not reach.
        let json = answer.find('{').map_or("{}", |at| &answer[at..]);
        read(json, &mut routes).with_context(|| format!("cannot read the answer of vtysh to `{command}`"))?;
    }
    Ok(Wanted { routes, protocols: PROTOCOLS.to_vec() })
}

fn read(json: &str, routes: &mut Routes) -> anyhow::Result<()> {
    let all: BTreeMap<String, Vec<Route>> = serde_json::from_str(json)?;
    for (prefix, candidates) in all {
        let prefix = prefix.parse().with_context(|| format!("invalid prefix {prefix:?}"))?;
        let wanted = candidates.iter().filter(|route| {
            let is_main = route.table.is_none_or(|table| table == MAIN);
            route.selected && is_main && !FROM_KERNEL.contains(&route.protocol.as_str())
        });
        for route in wanted {
            let hops = route.nexthops.iter().filter(|hop| hop.fib && !hop.recursive);
            routes.entry(prefix).or_default().extend(hops.filter_map(Hop::way));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selected_routes_of_the_daemons_count() {
        let json = r#"{
            "192.0.2.0/24": [
                {"protocol": "bgp", "selected": true, "table": 254, "nexthops": [
                    {"ip": "10.9.9.9", "recursive": true}, {"fib": true, "ip": "10.1.0.2", "interfaceName": "n1"}, {"ip": "10.1.0.3"}
                ]},
                {"protocol": "ospf", "table": 254, "nexthops": [{"ip": "10.2.0.2"}]}
            ],
            "203.0.113.0/24": [{"protocol": "static", "selected": true, "nexthops": [{"fib": true, "unreachable": true, "blackhole": true}]}],
            "10.1.0.0/24": [{"protocol": "connected", "selected": true, "nexthops": [{"fib": true}]}],
            "198.51.100.0/24": [{"protocol": "static", "selected": true, "table": 7, "nexthops": [{"fib": true, "ip": "10.1.0.2"}]}]
        }"#;
        let mut routes = Routes::new();
        read(json, &mut routes).unwrap();
        let wanted = [
            ("192.0.2.0/24".parse().unwrap(), ["via 10.1.0.2 dev n1".to_owned()].into()),
            ("203.0.113.0/24".parse().unwrap(), ["blackhole".to_owned()].into()),
        ];
        assert_eq!(routes, wanted.into());
        assert!(read("[]", &mut routes).is_err());
    }
}
