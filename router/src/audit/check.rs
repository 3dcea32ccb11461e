//! One address, compared on its whole way: the kernel's route, the mirror's decision, the table as written, the image's word, the action.

use super::answer::{Answer, action_text, decision_text, kernel_text};
use super::{Difference, Kind, Part, family_name};
use crate::dataplane::actions::Actions;
use crate::fib::expected::{Expected, Routed, expected};
use crate::fib::publish::Publisher;
use crate::fib::readers::walk;
use crate::kernel::route::{NexthopGroup, kind};
use crate::kernel::rule::FibRuleAction;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, family};
use crate::rib::family::{Decision, NexthopState};
use crate::rib::mirror::Mirror;
use crate::xdp::action::{Action, Adjacency};
use trieline_lpm::{Prefix, Reader};

/// The parts that are compared.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The mirrored state.
    pub mirror: &'a Mirror,
    /// The tables as they were written, and the numbers.
    pub publisher: &'a Publisher,
    /// The actions in the maps.
    pub actions: &'a Actions,
    /// The image as packets read it.
    pub reader: Reader<'a>,
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// The result for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All say the same.
    Equal,
    /// The kernel has its packets.
    Passed,
    /// It could not be compared.
    Skipped,
    /// They differ.
    Differs(Box<Difference>),
}

/// An address as the tables have it.
struct Found<A> {
    stored: Option<(Prefix<A>, u32)>,
    expected: Option<Expected<A>>,
    in_image: Option<u32>,
}

impl<A: Routed> Found<A> {
    fn decided(&self) -> Option<(Prefix<A>, Decision<A>)> {
        Some((self.stored?.0, self.expected.as_ref()?.decision))
    }
}

impl Parts<'_> {
    /// Compares what packets to `addr` meet in table `number` with what was written and decided. `answer`: the kernel's.
    pub fn compare<A: Routed>(&self, number: u32, addr: A, answer: Option<&Answer<A>>) -> Outcome {
        let published = A::published(self.publisher);
        let Some(written) = published.get(number).filter(|written| written.blocked.is_none()) else {
            return Outcome::Skipped;
        };
        let Some(table) = &written.table else { return Outcome::Skipped };
        let stored = table.lookup(addr);
        let found = Found {
            stored,
            expected: stored.and_then(|(prefix, _)| expected(self.mirror, self.publisher, number, prefix)),
            in_image: self.reader.lookup(written.id(), addr),
        };
        let differs = |part, answer: Option<&Answer<A>>| {
            Outcome::Differs(Box::new(self.difference(part, number, addr, &found, answer)))
        };
        let is_left = self.is_left(stored.map(|(_, id)| id));
        if !is_left && found.expected.as_ref().map(|expected| expected.id) != stored.map(|(_, id)| id) {
            return differs(Part::Table, answer);
        }
        if found.in_image != stored.map(|(_, id)| id) {
            return differs(Part::Image, answer);
        }
        if is_left {
            return Outcome::Passed;
        }
        if let Some(Expected { id, action: Some(action), decision }) = &found.expected {
            if !self.actions.holds(*id, action) || !self.leads(*decision, action) {
                return differs(Part::Action, answer);
            }
            if matches!(action, Action::Pass(_)) {
                return Outcome::Passed;
            }
        }
        match answer {
            None => Outcome::Equal,
            Some(answer) => match self.agrees(number, addr, found.decided(), answer) {
                Some(true) => Outcome::Equal,
                Some(false) => differs(Part::Mirror, Some(answer)),
                None => Outcome::Skipped,
            },
        }
    }

    /// Whether a prefix of this number is left to the kernel until there is room for its action again.
    pub(super) fn is_left(&self, id: Option<u32>) -> bool {
        self.publisher.actions_are_full() && id == Some(self.publisher.action_index.full())
    }

    fn difference<A: Routed>(
        &self,
        part: Part,
        number: u32,
        addr: A,
        found: &Found<A>,
        answer: Option<&Answer<A>>,
    ) -> Difference {
        let whole = match answer {
            Some(Answer::Route { prefix, .. }) => *prefix,
            _ => found.stored.map_or(Prefix::host(addr), |(prefix, _)| prefix),
        };
        let action = found.in_image.and_then(|id| self.actions.get(id));
        let image = match found.in_image {
            None => "no route".into(),
            Some(id) => format!("{} (action {id})", action_text(action.as_ref(), self.mirror)),
        };
        Difference {
            part,
            kind: Kind::Route,
            family: family_name(A::NETLINK).into(),
            table: number,
            prefix: whole.to_string(),
            address: Some(addr.ip().to_string()),
            kernel: answer.map(|answer| kernel_text(answer, self.mirror)),
            mirror: Some(decision_text(found.decided(), self.mirror)),
            image: Some(image),
        }
    }

    /// Whether the action sends packets where the decision says: to the neighbours that the mirror has for its next hops. Encapsulations
    /// and behaviours are not looked into.
    fn leads<A: Routed>(&self, decision: Decision<A>, action: &Action) -> bool {
        let is_at = |adjacency: &Adjacency, address, link| {
            let way = self.mirror.adjacency_of_neighbour(address, link);
            way.is_some_and(|way| {
                (way.ifindex, way.vlan, way.destination)
                    == (adjacency.ifindex, adjacency.vlan, adjacency.destination)
            })
        };
        let nhg = match decision {
            Decision::NexthopGroup(nhg) => self.mirror.nhgs.get(nhg),
            Decision::Neighbour(addr, link, _) => {
                return match action {
                    Action::Deliver(adjacency) => is_at(adjacency, addr.ip(), link),
                    action => matches!(action, Action::Pass(_)),
                };
            }
            Decision::Kernel | Decision::Throw => return matches!(action, Action::Pass(_)),
        };
        let leads = |adjacency: &Adjacency| {
            let mut hops = nhg.iter().flat_map(|nhg| &nhg.hops);
            hops.any(|hop| hop.gateway.is_some_and(|gateway| is_at(adjacency, gateway, hop.ifindex)))
        };
        match action {
            Action::Forward(adjacency) => leads(adjacency),
            Action::Drop(_) => nhg.is_some_and(|nhg| nhg.kind == kind::BLACKHOLE),
            Action::Group(members) => members.iter().all(|(_, member)| match member {
                Action::Forward(adjacency) => leads(adjacency),
                _ => true,
            }),
            _ => true,
        }
    }

    /// Whether the kernel's lookup for a packet of the node ends with main's answer.
    fn is_certain<A: Routed>(&self, number: u32, addr: A) -> bool {
        let own = self.publisher.policies.lookup_ids.readers.own(A::NETLINK);
        let nexthops = NexthopState::new(&self.mirror.nhgs, &self.mirror.kernel);
        let walked = walk(own, (A::family(self.mirror), nexthops), Some(A::ZERO), addr);
        number == TABLE_MAIN
            && walked.is_ok_and(|answer| answer.is_none_or(|answer| answer.table == TABLE_MAIN))
    }

    /// Whether a rule, or a table other than local and main, may answer with this error where those two have no route.
    fn may_end_behind_main<A: Routed>(&self, error: u8) -> bool {
        let family = A::family(self.mirror);
        self.mirror.kernel.rules(A::NETLINK).any(|rule| match rule.then {
            FibRuleAction::Blackhole => error == kind::BLACKHOLE,
            FibRuleAction::Unreachable => error == kind::UNREACHABLE,
            FibRuleAction::Prohibit => error == kind::PROHIBIT,
            FibRuleAction::Table(TABLE_LOCAL | TABLE_MAIN) | FibRuleAction::Vrf | FibRuleAction::Nop => false,
            FibRuleAction::Table(table) => family.table(table).is_some_and(|table| table.routes() > 0),
            FibRuleAction::GoTo(_) => false,
            FibRuleAction::Other => true,
        })
    }

    /// Whether the kernel's answer is the decision; `None`: it says nothing about it.
    fn agrees<A: Routed>(
        &self,
        number: u32,
        addr: A,
        decided: Option<(Prefix<A>, Decision<A>)>,
        answer: &Answer<A>,
    ) -> Option<bool> {
        let answering = match answer {
            Answer::Unknown => return None,
            Answer::Route { table: TABLE_LOCAL | TABLE_MAIN, .. } => TABLE_MAIN,
            Answer::Route { table, .. } => *table,
            Answer::Error(_) | Answer::Nothing => number,
        };
        // Rules chose another table, or may have.
        let is_certain = matches!(answer, Answer::Route { .. }) || self.is_certain(number, addr);
        if answering != number || !is_certain {
            return None;
        }
        let (prefix, decision) = match (decided, answer) {
            (None, Answer::Nothing) => return Some(true),
            // Rules and tables behind main decide what main does not have; they are compared by themselves.
            (None, Answer::Error(error)) if self.may_end_behind_main::<A>(*error) => return None,
            (None, _) => return Some(false),
            (Some(found), _) => found,
        };
        let nhg = match decision {
            Decision::Kernel | Decision::Throw => return None,
            Decision::Neighbour(_, link, _) => {
                return Some(match answer {
                    Answer::Route { nhg, .. } => {
                        matches!(&nhg.hops[..], [hop] if hop.ifindex == link && hop.gateway.is_none())
                    }
                    _ => false,
                });
            }
            Decision::NexthopGroup(nhg) => self.mirror.nhgs.get(nhg)?,
        };
        match answer {
            Answer::Route { prefix: theirs, nhg: found, .. } => {
                Some(*theirs == prefix && is_same(nhg, found))
            }
            // A next hop object that leads nowhere answers with an error, too.
            Answer::Error(_) if nhg.nexthop.is_some() => None,
            Answer::Error(error) => Some(nhg.kind == *error),
            Answer::Nothing => Some(false),
            Answer::Unknown => None,
        }
    }
}

/// Whether a nexthop group of the mirror is the one that the kernel's lookup reports.
fn is_same(ours: &NexthopGroup, theirs: &NexthopGroup) -> bool {
    let own = |nhg: &NexthopGroup| {
        matches!(nhg.kind, kind::LOCAL | kind::BROADCAST | kind::ANYCAST | kind::MULTICAST)
    };
    if own(ours) && own(theirs) {
        return true;
    }
    // Of IPv6, the order of next hops depends on the message that reports them.
    let has_all = |some: &NexthopGroup, others: &NexthopGroup| {
        some.hops.len() == others.hops.len() && some.hops.iter().all(|hop| others.hops.contains(hop))
    };
    // Each of several IPv6 next hops has an MTU of its own. A lookup tells that of the chosen one, a dump that of the first.
    let has_one_mtu = ours.family == family::INET || ours.hops.len() < 2;
    ours.kind == theirs.kind
        && (ours.mtu == theirs.mtu || !has_one_mtu)
        && ours.nexthop == theirs.nexthop
        // The kernel may name a next hop object without its hops, and the mirror has none of an object that it leaves to the kernel.
        && (has_all(ours, theirs)
            || ours.nexthop.is_some() && (ours.hops.is_empty() || theirs.hops.is_empty()))
}
