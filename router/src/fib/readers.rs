//! Lookups that the kernel makes once a packet has met its route: of the first segment, and of an endpoint's next hop. The kernel asks the rules
//! again, as for the packets that met the route: by the VRF or device that they came in by. So a route is resolved by the rules of all
//! whose packets can meet it, its table's readers.

use crate::fib::meaning::is_error;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, TableKey, family};
use crate::rib::family::{Decision, Family, NexthopState};
use crate::rib::nexthop_group::NhgId;
use crate::rib::policy::{PolicyAction, PolicyRule};
use crate::rib::table::Ip;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};

/// The index of a family in a pair of IPv4 and IPv6.
pub(super) fn place(family: u8) -> usize {
    usize::from(family == family::INET6)
}

/// Links with the same rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reader {
    /// The steps that decide for their packets, IPv4 and IPv6.
    pub reads: [Vec<PolicyRule>; 2],
    /// The steps of the lookups after that. Those of a declared tenant's devices are the device's: an outer packet is the node's, not the
    /// tenant's.
    pub asks: [Vec<PolicyRule>; 2],
    /// The VRF device that sends the packets on. The kernel takes what it makes of them for the node's own.
    pub vrf: Option<u32>,
}

impl Reader {
    /// The steps that decide for its packets of a family.
    pub fn reads(&self, family: u8) -> &[PolicyRule] {
        &self.reads[place(family)]
    }
}

/// All whose packets meet routes.
#[derive(Debug, Default)]
pub struct Readers {
    all: Vec<Reader>,
    /// Places in `all` by family and table; main for local and main together.
    by_table: HashMap<TableKey, Vec<usize>>,
    /// The steps of the node's own packets.
    own: [Vec<PolicyRule>; 2],
}

/// The route that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Number of its table; main for local and main together.
    pub table: u32,
    /// Its nexthop group.
    pub nhg: NhgId,
}

/// Why no one route decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclear {
    /// A rule that names no table, or that only the kernel can follow.
    Rule,
    /// Rules select by the packet's source.
    Source,
    /// The routes of the prefix select by more than the destination.
    Route,
}

/// The route that the rules find for a packet, if any does.
pub type Walked = Result<Option<Answer>, Unclear>;

impl Readers {
    /// These, each once.
    pub(super) fn new(links: impl Iterator<Item = Reader>, own: [Vec<PolicyRule>; 2]) -> Self {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        let mut by_table: HashMap<TableKey, Vec<usize>> = HashMap::new();
        for reader in links.filter(|reader| seen.insert(reader.clone())) {
            for family in [family::INET, family::INET6] {
                let tables = reader.reads[place(family)].iter().filter_map(|step| match step.action {
                    PolicyAction::Main | PolicyAction::Table(TABLE_LOCAL) => Some(TABLE_MAIN),
                    PolicyAction::Table(table) => Some(table),
                    _ => None,
                });
                for table in tables.collect::<BTreeSet<_>>() {
                    by_table.entry((family, table)).or_default().push(all.len());
                }
            }
            all.push(reader);
        }
        Self { all, by_table, own }
    }

    /// The steps of the node's own packets.
    pub fn own(&self, family: u8) -> &[PolicyRule] {
        &self.own[place(family)]
    }

    /// The steps of the packets that a VRF device sends on.
    pub fn of_vrf(&self, family: u8, vrf: u32) -> Option<&[PolicyRule]> {
        let reader = self.all.iter().find(|reader| reader.vrf == Some(vrf))?;
        Some(&reader.reads[place(family)])
    }

    /// The steps in `asked`'s family that the kernel goes by for packets that met a route of a table. `meets`: whether a reader's packets
    /// do. A route that nothing reads is resolved as for the node's own packets.
    pub fn steps(
        &self,
        (family, table): TableKey,
        asked: u8,
        meets: impl Fn(&Reader) -> bool,
    ) -> Vec<&[PolicyRule]> {
        let table = if table == TABLE_LOCAL { TABLE_MAIN } else { table };
        let places = self.by_table.get(&(family, table)).map_or(&[][..], Vec::as_slice);
        let readers = places.iter().filter_map(|at| self.all.get(*at)).filter(|reader| meets(reader));
        let steps = readers.map(|reader| match reader.vrf {
            Some(_) => self.own(asked),
            None => &reader.asks[place(asked)],
        });
        let mut seen = HashSet::new();
        let mut steps: Vec<&[PolicyRule]> = steps.filter(|steps| seen.insert(*steps)).collect();
        if steps.is_empty() {
            steps.push(self.own(asked));
        }
        steps
    }
}

/// Whether packets come to a table. They go no further than a table for all of them that has a default route.
pub fn comes_to<A: Ip>(
    steps: &[PolicyRule],
    table: u32,
    (family, nexthops): (&Family<A>, NexthopState<'_>),
) -> bool {
    if steps.iter().any(|step| matches!(step.action, PolicyAction::GoTo(_))) {
        return true;
    }
    for step in steps {
        let asked = match step.action {
            PolicyAction::Main => TABLE_MAIN,
            PolicyAction::Table(table) => table,
            _ => continue,
        };
        if asked == table || asked == TABLE_MAIN && table == TABLE_LOCAL {
            return true;
        }
        let all = step.from.is_none() && step.to.is_none() && !step.inverted && !step.suppress_default;
        let default = || family.decide(asked, Prefix::truncated(A::ZERO, 0), nexthops);
        if all && matches!(default(), Some(Decision::NexthopGroup(_) | Decision::Kernel)) {
            return false;
        }
    }
    false
}

/// Whether an address, if it is known, is within a prefix; `None`: that depends on the packet.
fn within<A: Ip>(prefix: Option<IpPrefix>, address: Option<A>) -> Option<bool> {
    let Some(prefix) = prefix else { return Some(true) };
    Some(match (prefix, address?.ip()) {
        (IpPrefix::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr.into()),
        (IpPrefix::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr.into()),
        _ => false,
    })
}

/// The route that decides about a packet. `from`: its source, if that is known. Steps lead onwards only, so the last is looked at first, and
/// each knows what those behind it say.
pub fn walk<A: Ip>(
    steps: &[PolicyRule],
    (family, nexthops): (&Family<A>, NexthopState<'_>),
    from: Option<A>,
    to: A,
) -> Walked {
    let mut answers: Vec<Walked> = vec![Ok(None); steps.len() + 1];
    for (at, step) in steps.iter().enumerate().rev() {
        let next = answers[at + 1];
        let look_up = |table| match family.lookup(table, to, nexthops) {
            None | Some((_, Decision::Throw)) => next,
            Some((prefix, Decision::NexthopGroup(nhg)))
                if step.suppress_default && prefix.len() == 0 && !is_error(nexthops, nhg) =>
            {
                next
            }
            Some((_, Decision::NexthopGroup(nhg))) => Ok(Some(Answer { table, nhg })),
            Some((_, Decision::Kernel | Decision::Neighbour(..))) => Err(Unclear::Route),
        };
        let taken = match step.action {
            PolicyAction::Main => look_up(TABLE_MAIN),
            PolicyAction::Table(table) => look_up(table),
            PolicyAction::GoTo(place) => answers.get(place).copied().unwrap_or(Ok(None)),
            PolicyAction::Kernel
            | PolicyAction::Blackhole
            | PolicyAction::Unreachable
            | PolicyAction::Prohibit => Err(Unclear::Rule),
        };
        let selected = match (within(step.from, from), within(step.to, Some(to))) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        answers[at] = match selected.map(|selected| selected != step.inverted) {
            Some(true) => taken,
            Some(false) => next,
            None if taken == next => taken,
            None => Err(Unclear::Source),
        };
    }
    answers[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::TABLE_DEFAULT;
    use crate::kernel::route::{decode_nhg, kind};
    use crate::rib::kernel_state::KernelState;
    use crate::rib::nexthop_group::NexthopGroups;
    use crate::rib::table::{Route, Table};

    /// Tables by number with their prefixes; the route of each has a nexthop group of its own.
    struct Routes {
        family: Family<u128>,
        nhgs: NexthopGroups,
        kernel: KernelState,
    }

    impl Routes {
        fn new(tables: &[(u32, &[&str])]) -> Self {
            let (mut family, mut nhgs) = (Family::<u128>::default(), NexthopGroups::default());
            for (number, prefixes) in tables {
                let routes = prefixes.iter().map(|text| {
                    let mut nhg = decode_nhg(&[]);
                    (nhg.family, nhg.kind, nhg.mtu) =
                        (family::INET6, kind::UNICAST, 1000 + nhgs.len() as u32);
                    (text.parse().unwrap(), Route { metric: 1024, nhg: nhgs.intern_nhg(nhg) })
                });
                let table = Table::from_dump(routes.collect::<Vec<(Prefix<u128>, Route)>>());
                match *number {
                    TABLE_MAIN => family.main = table,
                    TABLE_LOCAL => family.local = table,
                    number => *family.other(number, false) = table,
                }
            }
            Self { family, nhgs, kernel: KernelState::default() }
        }

        /// The table that decides.
        fn walk(&self, steps: &[PolicyRule], from: Option<&str>, to: &str) -> Result<Option<u32>, Unclear> {
            let nexthops = NexthopState::new(&self.nhgs, &self.kernel);
            let address = |text: &str| u128::from(text.parse::<std::net::Ipv6Addr>().unwrap());
            let answer = walk(steps, (&self.family, nexthops), from.map(address), address(to))?;
            Ok(answer.map(|answer| answer.table))
        }
    }

    fn table(number: u32) -> PolicyRule {
        PolicyRule::all(PolicyAction::Table(number))
    }

    const MAIN: PolicyRule = PolicyRule {
        from: None,
        to: None,
        inverted: false,
        action: PolicyAction::Main,
        suppress_default: false,
    };

    #[test]
    fn only_tables_that_a_rule_asks_count() {
        let routes =
            Routes::new(&[(TABLE_MAIN, &["fd00:e::/32"]), (100, &["::/0"]), (200, &["fd00:e::/32"])]);
        let walk = |steps: &[PolicyRule]| routes.walk(steps, None, "fd00:e::1");
        assert_eq!(walk(&[MAIN]), Ok(Some(TABLE_MAIN)));
        assert_eq!(walk(&[table(TABLE_LOCAL), table(100), MAIN]), Ok(Some(100)));
        assert_eq!(walk(&[table(TABLE_LOCAL), table(300), MAIN, table(100)]), Ok(Some(TABLE_MAIN)));
        assert_eq!(walk(&[table(300)]), Ok(None));
        assert_eq!(walk(&[table(300), PolicyRule::all(PolicyAction::Kernel)]), Err(Unclear::Rule));
        let to = |net: &str, number| PolicyRule { to: Some(net.parse().unwrap()), ..table(number) };
        assert_eq!(walk(&[to("fd00:f::/32", 200), MAIN]), Ok(Some(TABLE_MAIN)));
        assert_eq!(walk(&[to("fd00:e::/32", 200), MAIN]), Ok(Some(200)));
        // a jump past a table
        assert_eq!(walk(&[PolicyRule::all(PolicyAction::GoTo(2)), table(100), MAIN]), Ok(Some(TABLE_MAIN)));
    }

    #[test]
    fn a_default_route_hides_the_tables_behind_it() {
        let comes = |tables: &[(u32, &[&str])]| {
            let routes = Routes::new(tables);
            let nexthops = NexthopState::new(&routes.nhgs, &routes.kernel);
            let steps = [table(TABLE_LOCAL), table(100), MAIN];
            [TABLE_MAIN, 100, 200].map(|number| comes_to(&steps, number, (&routes.family, nexthops)))
        };
        assert_eq!(comes(&[(100, &["::/1"])]), [true, true, false]);
        assert_eq!(comes(&[(100, &["::/0"])]), [false, true, false]);
    }

    /// With an unknown source the answer is that of every source, or none.
    #[test]
    fn an_unknown_source_counts_where_it_matters() {
        let routes = Routes::new(&[
            (TABLE_MAIN, &["fd00:e::/32", "fd00:f::/32"]),
            (100, &["::/0"]),
            (200, &["fd00:f::/32"]),
        ]);
        let from = |net: &str, action, inverted| PolicyRule {
            from: Some(net.parse().unwrap()),
            inverted,
            ..PolicyRule::all(action)
        };
        let sources = ["fd00::1", "fd01::1", "fd02::1", "2001:db8::1"];
        let nets = ["fd00::/16", "fd01::/16", "::/0"];
        let actions = [
            PolicyAction::Main,
            PolicyAction::Table(100),
            PolicyAction::Table(200),
            PolicyAction::Table(TABLE_DEFAULT),
            PolicyAction::GoTo(3),
            PolicyAction::Kernel,
        ];
        let mut clear = 0;
        for case in 0..actions.len().pow(2) * nets.len().pow(2) * 4 {
            let (one, rest) = (case % actions.len(), case / actions.len());
            let (two, rest) = (rest % actions.len(), rest / actions.len());
            let (net, other, inverted) =
                (rest % nets.len(), rest / nets.len() % nets.len(), rest / nets.len().pow(2));
            let steps = [
                from(nets[net], actions[one], inverted & 1 == 1),
                from(nets[other], actions[two], inverted & 2 == 2),
                table(200),
                MAIN,
            ];
            for to in ["fd00:e::1", "fd00:f::1", "fd77::1"] {
                let known: Vec<_> = sources.iter().map(|from| routes.walk(&steps, Some(from), to)).collect();
                match routes.walk(&steps, None, to) {
                    Ok(answer) => {
                        clear += 1;
                        assert!(known.iter().all(|one| *one == Ok(answer)), "{steps:?} to {to}: {known:?}");
                    }
                    Err(Unclear::Source | Unclear::Rule) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
        assert!(clear > 500, "only {clear}");
    }

    #[test]
    fn readers_are_those_whose_rules_lead_to_the_table() {
        let [four, six] = [vec![MAIN], vec![table(TABLE_LOCAL), MAIN]];
        let plain =
            Reader { reads: [four.clone(), six.clone()], asks: [four.clone(), six.clone()], vrf: None };
        let member = vec![table(TABLE_LOCAL), table(100), MAIN];
        let red = Reader {
            reads: [member.clone(), member.clone()],
            asks: [member.clone(), member.clone()],
            vrf: None,
        };
        let sent = Reader { vrf: Some(7), ..red.clone() };
        let tenant = Reader { reads: [vec![table(200)], vec![table(200)]], ..plain.clone() };
        let all = [plain.clone(), plain.clone(), red, sent, tenant];
        let own = [four, vec![table(TABLE_LOCAL), MAIN, table(TABLE_DEFAULT)]];
        let readers = Readers::new(all.into_iter(), own.clone());
        assert_eq!(readers.all.len(), 4);
        let steps = |number, leads: bool| {
            readers.steps((family::INET, number), family::INET6, |reader| reader.vrf.is_none() || leads)
        };
        // by the VRF's rules, and by the node's where a VRF device sends on
        assert_eq!(steps(100, false), [&member[..]]);
        assert_eq!(steps(100, true), [&member[..], &own[1][..]]);
        // a declared tenant's outer packets are the node's
        assert_eq!(steps(200, false), [&six[..]]);
        assert_eq!(steps(TABLE_MAIN, false), [&six[..], &member[..]]);
        // nothing leads there
        assert_eq!(steps(300, true), [&own[1][..]]);
        assert_eq!(readers.of_vrf(family::INET6, 7), Some(&member[..]));
    }
}
