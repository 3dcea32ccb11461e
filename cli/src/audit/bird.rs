//! BIRD's routes for the kernel, as `birdc` lists them.

use super::rib::{Routes, Wanted, ask, way};
use std::path::Path;
use trieline_lpm::IpPrefix;

/// `rtm_protocol` of BIRD's routes.
const PROTOCOL: u8 = 12;

/// Routes that BIRD exports to its kernel protocols for table main.
pub fn routes(socket: Option<&Path>) -> anyhow::Result<Wanted> {
    let socket = socket.map(|socket| socket.to_string_lossy().into_owned());
    let answer = |command: &[&str]| {
        let mut arguments = vec!["-r"];
        if let Some(socket) = &socket {
            arguments.extend(["-s", socket]);
        }
        arguments.extend(command);
        ask("birdc", &arguments)
    };
    let mut routes = Routes::new();
    for protocol in kernel_protocols(&answer(&["show", "protocols"])?) {
        // A kernel protocol of another table names it (`Kernel table: 100`).
        let details = answer(&["show", "protocols", "all", protocol.as_str()])?;
        let table = details.lines().find_map(|line| line.trim().strip_prefix("Kernel table:"));
        if table.is_none_or(|table| table.trim() == "254") {
            read(&answer(&["show", "route", "export", protocol.as_str()])?, &mut routes);
        }
    }
    Ok(Wanted { routes, protocols: vec![PROTOCOL] })
}

/// Names of the protocols of type Kernel that are up.
fn kernel_protocols(answer: &str) -> Vec<String> {
    let rows = answer.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let up = rows.filter(|row| row.get(1) == Some(&"Kernel") && row.get(3) == Some(&"up"));
    up.map(|row| row[0].to_owned()).collect()
}

/// Types of routes that lead nowhere.
const NOWHERE: [&str; 3] = ["blackhole", "unreachable", "prohibit"];

/// Reads lines such as `192.0.2.0/24  unicast [peer 12:00:00.000] * (100)`, each followed by its ways: `via 10.1.0.2 on n1`, `dev n1`.
fn read(answer: &str, routes: &mut Routes) {
    let mut prefix: Option<IpPrefix> = None;
    for line in answer.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else { continue };
        if !line.starts_with(char::is_whitespace) {
            prefix = first.parse().ok().filter(|_| first.contains('/'));
            if let Some(prefix) = prefix {
                let nowhere = words.get(1).filter(|word| NOWHERE.contains(word));
                routes.entry(prefix).or_default().extend(nowhere.map(|word| (*word).to_owned()));
            }
            continue;
        }
        let found = match words[..] {
            ["via", gateway, "on", device, ..] => {
                gateway.parse().ok().map(|gateway| way(Some(gateway), device))
            }
            ["dev", device, ..] => Some(way(None, device)),
            _ => None,
        };
        if let (Some(prefix), Some(found)) = (prefix, found) {
            routes.entry(prefix).or_default().insert(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_birdc() {
        let protocols = "BIRD 2.17 ready.\nName       Proto      Table      State  Since         Info\n\
                         device1    Device     ---        up     10:00:00.000\n\
                         kernel1    Kernel     master4    up     10:00:00.000\n\
                         kernel2    Kernel     master6    down   10:00:00.000\n";
        assert_eq!(kernel_protocols(protocols), ["kernel1"]);
        let answer = "BIRD 2.17 ready.\nTable master4:\n\
                      192.0.2.0/24         unicast [peer 10:00:00.000] * (100) [AS65002i]\n\tvia 10.1.0.2 on n1 weight 1\n\tvia 10.1.0.3 on n1 weight 1\n\
                      198.51.100.0/24      blackhole [static1 10:00:00.000] * (200)\n\
                      203.0.113.0/24       unicast [static1 10:00:00.000] * (200)\n\tdev n2\n";
        let mut routes = Routes::new();
        read(answer, &mut routes);
        let ways = ["via 10.1.0.2 dev n1", "via 10.1.0.3 dev n1"].map(str::to_owned);
        let wanted = [
            ("192.0.2.0/24".parse().unwrap(), ways.into()),
            ("198.51.100.0/24".parse().unwrap(), ["blackhole".to_owned()].into()),
            ("203.0.113.0/24".parse().unwrap(), ["dev n2".to_owned()].into()),
        ];
        assert_eq!(routes, wanted.into());
    }
}
