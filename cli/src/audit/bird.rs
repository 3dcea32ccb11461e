//! BIRD's routes for the kernel, as `birdc` lists them.

use super::rib::{Routes, Wanted, ask};
use std::path::Path;
use trieline_lpm::IpPrefix;

/// `rtm_protocol` of BIRD's routes.
const PROTOCOL: u8 = 12;

/// Routes that BIRD exports to its kernel protocols for table main.
pub fn routes(socket: Option<&Path>) -> anyhow::Result<Wanted> {
    let socket = socket.map(|socket| socket.to_string_lossy().into_owned());
    let tell = |command: &[&str]| {
        let mut arguments = vec!["-r"];
        if let Some(socket) = &socket {
            arguments.extend(["-s", socket]);
        }
        arguments.extend(command);
        ask("birdc", &arguments)
    };
    let mut routes = Routes::new();
    for protocol in kernel_protocols(&tell(&["show", "protocols"])?) {
        // A kernel protocol of another table names it (`Kernel table: 100`).
        let details = tell(&["show", "protocols", "all", protocol.as_str()])?;
        let table = details.lines().find_map(|line| line.trim().strip_prefix("Kernel table:"));
        if table.is_none_or(|table| table.trim() == "254") {
            read(&tell(&["show", "route", "export", protocol.as_str()])?, &mut routes);
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

/// Reads lines such as `192.0.2.0/24  unicast [peer 12:00:00.000] * (100)`, each followed by its ways: `via 10.1.0.2 on n1`.
fn read(answer: &str, routes: &mut Routes) {
    let mut prefix: Option<IpPrefix> = None;
    for line in answer.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if !line.starts_with(char::is_whitespace) {
            prefix = first.parse().ok().filter(|_| first.contains('/'));
            if let Some(prefix) = prefix {
                routes.entry(prefix).or_default();
            }
        } else if let (Some(prefix), "via", Some(Ok(gateway))) = (prefix, first, words.next().map(str::parse))
        {
            routes.entry(prefix).or_default().insert(gateway);
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
                      198.51.100.0/24      blackhole [static1 10:00:00.000] * (200)\n";
        let mut routes = Routes::new();
        read(answer, &mut routes);
        let gateways = ["10.1.0.2", "10.1.0.3"].map(|gateway| gateway.parse().unwrap());
        let wanted = [
            ("192.0.2.0/24".parse().unwrap(), gateways.into()),
            ("198.51.100.0/24".parse().unwrap(), [].into()),
        ];
        assert_eq!(routes, wanted.into());
    }
}
