//! The port that packets come in by, and the tables that decide for them.

use crate::client::Names;
use std::net::IpAddr;
use trieline_lpm::Reader;
use trieline_router::xdp::table_ids::{TABLE4, TABLE6};
use trieline_router::{PinnedMaps, Port, Rule, RuleAction, VALUE_THROW, is_rules};

/// Where packets come from, and so what decides for them.
pub struct Ingress {
    pub from: Option<IpAddr>,
    /// Lookup ids of IPv4 and of IPv6.
    pub lookups: (u32, u32),
    /// Whether packets of each family are forwarded at all.
    pub forwards: (bool, bool),
    /// Of a tenant that the kernel does not know: what it would get is dropped.
    pub tenant: bool,
    /// Whether a port asks filters.
    pub filter: bool,
}

impl Ingress {
    /// Of packets from `from` that come in by the device `iif`, or by any port.
    pub fn new(
        from: Option<IpAddr>,
        iif: Option<&str>,
        pinned: &PinnedMaps,
        names: &mut Names,
    ) -> anyhow::Result<Self> {
        let mut ports: Vec<_> = pinned.ports()?.into_iter().map(|(_, _, port)| port).collect();
        if let Some(device) = iif {
            ports.retain(|port| names.get(port.ifindex) == device);
            if ports.is_empty() {
                return Err(anyhow::anyhow!(
                    "invalid device {device}: trieline is not attached to it; expected a device or VLAN of `trieline node status`"
                ));
            }
        }
        // Where all ports agree, they say what any packet meets.
        let one = |lookups: std::collections::BTreeSet<u32>, else_: u32| match lookups.first() {
            Some(pinned) if lookups.len() == 1 => *pinned,
            _ => else_,
        };
        Ok(Self {
            from,
            lookups: (
                one(ports.iter().map(|port| port.table4).collect(), TABLE4),
                one(ports.iter().map(|port| port.table6).collect(), TABLE6),
            ),
            forwards: (
                ports.iter().any(|port| port.flags.forward4),
                ports.iter().any(|port| port.flags.forward6),
            ),
            tenant: !ports.is_empty() && ports.iter().all(|port| port.flags.tenant),
            filter: ports.iter().any(|port| port.flags.filter),
        })
    }

    /// Of packets from an address that come in by a port.
    pub fn of_port(from: Option<IpAddr>, port: &Port) -> Self {
        let forwards = (port.flags.forward4, port.flags.forward6);
        let (tenant, filter) = (port.flags.tenant, port.flags.filter);
        Self { from, lookups: (port.table4, port.table6), forwards, tenant, filter }
    }

    /// The table that decides by a lookup id, and the value it gives; or a value that a rule gives by itself.
    pub fn decide(&self, pinned: &PinnedMaps, reader: &Reader<'_>, number: u32, to: IpAddr) -> Decided {
        let unspecified = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let from = self.from.filter(|from| from.is_ipv4() == to.is_ipv4()).unwrap_or(unspecified);
        let mut last = Decided { rule: None, table: None, value: None };
        for rule in pinned.concerning(number, from, to) {
            let by = Some(rule).filter(|_| is_rules(number));
            last = match rule.then {
                RuleAction::Value(value) => return Decided { rule: by, table: None, value: Some(value) },
                RuleAction::Table(table) => {
                    Decided { rule: by, table: Some(table), value: lookup_table(reader, table, &to) }
                }
                RuleAction::Except(table, value) => {
                    let found = lookup_table(reader, table, &to).filter(|found| *found != value);
                    Decided { rule: by, table: Some(table), value: found }
                }
                // The lookup id has followed it.
                RuleAction::GoTo(_) => continue,
            };
            if last.value.is_some_and(|value| value != VALUE_THROW) {
                return last;
            }
        }
        Decided { value: None, ..last }
    }
}

/// The value that decides, with its rule.
#[derive(Clone, Copy, PartialEq)]
pub struct Decided {
    /// The rule that decides, where there is more than one table.
    pub rule: Option<Rule>,
    pub table: Option<u32>,
    pub value: Option<u32>,
}

/// The value of `address` in a table of the image.
pub fn lookup_table(reader: &Reader<'_>, table: u32, address: &IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(addr) => reader.lookup4(table, (*addr).into()),
        IpAddr::V6(addr) => reader.lookup6(table, (*addr).into()),
    }
}
