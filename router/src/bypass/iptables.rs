//! The legacy iptables (not those that speak to nftables): chains, their rules and policies. The kernel announces no change of them.

use super::netfilter::{Chain, Hook};
use super::reach::{Forwarded, legacy};
use crate::kernel::attribute::{read_u16, read_u32};
use crate::kernel::kernel_hooks::{LegacyTable, legacy_table};
use std::io;

/// Differences between the two families.
struct Layout {
    tool: &'static str,
    names: &'static str,
    entry: legacy::Entry,
}

const LAYOUTS: [Layout; 2] = [
    Layout { tool: "iptables", names: "ip_tables_names", entry: legacy::IPV4 },
    Layout { tool: "ip6tables", names: "ip6_tables_names", entry: legacy::IPV6 },
];

/// Chains that tables begin with (`NF_INET_*`).
const NAMES: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Where `struct ipt_getinfo` has the hooks that are in use, the offset of each chain's first entry, and that of its policy.
const HOOKS_AT: usize = 32;
const FIRST_AT: usize = 36;
const POLICY_AT: usize = 56;
/// Where the verdict stands in a standard target.
const VERDICT_AT: usize = 32;
/// `-NF_DROP - 1`
const DROP: u32 = u32::MAX;

/// The chains of all tables in this thread's network namespace. O(rules). A kernel without iptables has none.
pub fn chains(forwarded: Forwarded<'_>) -> io::Result<Vec<Chain>> {
    let mut chains = Vec::new();
    for layout in &LAYOUTS {
        let path = format!("/proc/thread-self/net/{}", layout.names);
        let names = match std::fs::read_to_string(path) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for name in names.lines() {
            match legacy_table(layout.entry.ipv6, name) {
                Ok(table) => {
                    chains.extend(decode(layout, name, &table, forwarded).ok_or(io::ErrorKind::InvalidData)?);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // unloaded since
                Err(error) => return Err(error),
            }
        }
    }
    Ok(chains)
}

/// The chains of a table that was read.
pub(crate) fn decode_table(ipv6: bool, table: &LegacyTable) -> Option<Vec<Chain>> {
    decode(&LAYOUTS[usize::from(ipv6)], "filter", table, Forwarded { devices: &[] })
}

fn decode(
    layout: &Layout,
    table: &str,
    LegacyTable { info, entries }: &LegacyTable,
    forwarded: Forwarded<'_>,
) -> Option<Vec<Chain>> {
    let Layout { entry: legacy::Entry { ipv6, offsets_at, .. }, .. } = *layout;
    let number = |at: usize| info.get(at..).and_then(read_u32).unwrap_or_default();
    let hooks = number(HOOKS_AT);
    let chain = |at: usize| {
        let (first, policy) = (number(FIRST_AT + 4 * at) as usize, number(POLICY_AT + 4 * at) as usize);
        let (mut entry, mut rules) = (first, 0);
        while entry < policy {
            let next = read_u16(entries.get(entry + offsets_at + 2..)?)?;
            entry += usize::from(next).max(1);
            rules += 1;
        }
        let target = read_u16(entries.get(policy + offsets_at..)?)?;
        let verdict = read_u32(entries.get(policy + usize::from(target) + VERDICT_AT..)?)?;
        Some(Chain {
            tool: layout.tool,
            table: table.into(),
            name: NAMES[at].into(),
            hook: Hook::INET[at],
            v4: !ipv6,
            v6: ipv6,
            rules,
            drops: verdict == DROP,
            devices: Vec::new(),
            reach: None,
            counts: false,
        })
    };
    let used = || (0..NAMES.len()).filter(|at| hooks & 1 << at != 0);
    let mut chains: Vec<Chain> = used().map(chain).collect::<Option<_>>()?;
    let place = |start: usize, at: usize| number(start + 4 * at) as usize;
    let known: Vec<_> = used().map(|at| (place(FIRST_AT, at), place(POLICY_AT, at), NAMES[at])).collect();
    let rules = legacy::rules(layout.entry, entries, &known)?;
    for chain in &mut chains {
        chain.reach = forwarded.reached(chain, &rules);
        chain.counts = forwarded.counted(chain, &rules);
    }
    Some(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: usize = 4;
    const ALL: Forwarded<'_> = Forwarded { devices: &[] };

    /// A table with FORWARD alone: entries of a header and a standard target, the last of them the policy.
    fn table(layout: &Layout, rules: usize, verdict: u32) -> LegacyTable {
        let header = layout.entry.offsets_at + 24; // offsets, comefrom, counters
        let len = header + 40;
        let mut entry = vec![0; len];
        entry[layout.entry.offsets_at..][..2].copy_from_slice(&(header as u16).to_ne_bytes());
        entry[layout.entry.offsets_at + 2..][..2].copy_from_slice(&(len as u16).to_ne_bytes());
        entry[header + VERDICT_AT..][..NUMBER].copy_from_slice(&verdict.to_ne_bytes());
        let mut info = [0; 84];
        info[HOOKS_AT] = 1 << 2;
        info[POLICY_AT + 4 * 2..][..NUMBER].copy_from_slice(&((rules * len) as u32).to_ne_bytes());
        LegacyTable { info, entries: entry.repeat(rules + 1) }
    }

    #[test]
    fn rules_are_counted_up_to_the_policy() {
        for layout in &LAYOUTS {
            let reported = |rules, verdict| {
                let chains = decode(layout, "filter", &table(layout, rules, verdict), ALL).unwrap();
                chains.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            let tool = layout.tool;
            let accept = -2i32 as u32;
            assert_eq!(
                reported(0, accept),
                [format!("{tool} table filter, chain FORWARD (hook forward): 0 rules")]
            );
            assert_eq!(
                reported(2, DROP),
                [format!("{tool} table filter, chain FORWARD (hook forward): 2 rules, policy drop")]
            );
        }
    }

    #[test]
    fn entries_cut_short_are_noticed() {
        for layout in &LAYOUTS {
            let mut cut = table(layout, 1, DROP);
            assert!(decode(layout, "filter", &cut, ALL).is_some());
            // The last bytes fill the verdict up to a multiple of eight.
            cut.entries.truncate(cut.entries.len() - NUMBER);
            while cut.entries.pop().is_some() {
                assert!(decode(layout, "filter", &cut, ALL).is_none(), "{} bytes", cut.entries.len());
            }
        }
    }
}
