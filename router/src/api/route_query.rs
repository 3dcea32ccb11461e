//! Answers to what commands ask about routes, from the state that the tables were written from.

use crate::api::control::{Client, End, Request};
use crate::api::hint;
use crate::api::route::{Explained, Route as Shown, SidStatus};
use crate::api::route_json;
use crate::fib::action_index::{ActionIndex, ActionOwner};
use crate::fib::publish::Publisher;
use crate::fib::published::Published;
use crate::kernel::route::NexthopGroup;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, TableKey, family};
use crate::rib::family::Family;
use crate::rib::mirror::Mirror;
use crate::rib::nexthop_group::{KeyMap, NhgId};
use crate::rib::table::{Ip, Route, Table};
use crate::srv6::sids::SidCount;
use crate::xdp::action::{Action, PassReason};
use crate::xdp::table_ids::{TABLE4, TABLE6};
use std::collections::BTreeMap;
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};

/// Routes written at a time: the daemon has more to do.
const CHUNK: usize = 500;

/// How far an answer with all routes has come: table by table, prefix by prefix.
#[derive(Debug)]
pub struct Cursor {
    /// Families and numbers, the last first.
    tables: Vec<TableKey>,
    v4: Option<Prefix<u32>>,
    v6: Option<Prefix<u128>>,
    next4: Option<Prefix<u32>>,
    next6: Option<Prefix<u128>>,
}

impl Cursor {
    /// The cursor of a "show" request, or why there is none.
    pub fn new(request: &Request, mirror: &Mirror) -> Result<Self, String> {
        let (tables, next4, next6) = Default::default();
        let mut cursor = Self { tables, v4: None, v6: None, next4, next6 };
        let Request::Show { family, prefix, local, table, vrf } = request else { return Ok(cursor) };
        let prefix = prefix.as_deref().map(str::parse).transpose();
        match prefix.map_err(|error: trieline_lpm::PrefixError| error.to_string())? {
            Some(IpPrefix::V4(prefix)) => cursor.v4 = Some(prefix),
            Some(IpPrefix::V6(prefix)) => cursor.v6 = Some(prefix),
            None => {}
        }
        let of_vrf = |name: &String| {
            let table = mirror.kernel.table_of_vrf(name);
            table.ok_or_else(|| {
                format!("invalid VRF {name:?}: expected the name of a VRF device or of a [[vrf]]")
            })
        };
        let mut numbers = match (table, vrf) {
            (_, Some(name)) => vec![of_vrf(name)?],
            (Some(table), _) => vec![*table],
            (None, None) => vec![TABLE_MAIN],
        };
        numbers.extend(local.then_some(TABLE_LOCAL).filter(|local| !numbers.contains(local)));
        let wants = |number, other: bool| family.is_none_or(|family| family == number) && !other;
        for (number, netlink, other) in
            [(6, family::INET6, cursor.v4.is_some()), (4, family::INET, cursor.v6.is_some())]
        {
            if wants(number, other) {
                cursor.tables.extend(numbers.iter().map(|table| (netlink, *table)));
            }
        }
        Ok(cursor)
    }

    /// Writes the next part of the answer; whether it is complete.
    pub fn advance(
        &mut self,
        mirror: &Mirror,
        action_index: &ActionIndex,
        client: &mut Client,
    ) -> Result<bool, serde_json::Error> {
        let Some(&(netlink, number)) = self.tables.last() else {
            client.answer(&End { end: true })?;
            return Ok(true);
        };
        let reported = Told { number, mirror, action_index };
        let done = if netlink == family::INET {
            reported.list(mirror.v4.table(number), self.v4, &mut self.next4, client)?
        } else {
            reported.list(mirror.v6.table(number), self.v6, &mut self.next6, client)?
        };
        if done {
            self.tables.pop();
        }
        Ok(false)
    }
}

/// The table that is being shown.
struct Told<'a> {
    number: u32,
    mirror: &'a Mirror,
    action_index: &'a ActionIndex,
}

impl Told<'_> {
    /// Writes some of its routes from `next` on; whether that was the last.
    fn list<A: Ip>(
        &self,
        table: Option<&Table<A>>,
        within: Option<Prefix<A>>,
        next: &mut Option<Prefix<A>>,
        client: &mut Client,
    ) -> Result<bool, serde_json::Error> {
        let Some(table) = table else { return Ok(true) };
        let within = within.unwrap_or(Prefix::truncated(A::ZERO, 0));
        let mut routes = table.from(next.unwrap_or(within)).take_while(|(prefix, _)| within.covers(prefix));
        for (prefix, routes) in routes.by_ref().take(CHUNK) {
            for route in routes {
                let mut shown = Shown { dst: route_json::destination(prefix), ..Shown::default() };
                describe(*route, self.mirror, &mut shown);
                shown.table = (self.number != TABLE_MAIN).then(|| route_json::table(self.number));
                set_action(route.nhg, self.mirror, self.action_index, &mut shown);
                client.answer(&shown)?;
            }
        }
        *next = routes.next().map(|(prefix, _)| prefix);
        Ok(next.is_none())
    }
}

/// The action of a nexthop group, and why it is the kernel's.
fn set_action(id: NhgId, mirror: &Mirror, action_index: &ActionIndex, into: &mut Shown) {
    let nhg = mirror.nhgs.get(id);
    // No action is made for a route that selects by more: its prefix is the kernel's.
    let kernel = Action::Pass(PassReason::Unsupported);
    let kernel = nhg.is_some_and(NexthopGroup::selects_more).then_some(&kernel);
    if let Some(action) = action_index.action(id).or(kernel) {
        route_json::action(action, |ifindex| mirror.kernel.name(ifindex), into);
        if let (Action::Pass(reason), Some(nhg)) = (action, nhg) {
            into.hint = hint::told(nhg, *reason, action_index.cause(id), &mirror.kernel);
        }
    }
}

/// The SIDs of all tables, each with its packets.
pub fn sids(mirror: &Mirror, publisher: &Publisher, counts: &BTreeMap<u32, SidCount>) -> Vec<SidStatus> {
    let numbers = publisher.action_index.numbers();
    let counts: BTreeMap<NhgId, SidCount> = counts
        .iter()
        .filter_map(|(id, count)| match numbers.get(id)? {
            ActionOwner::NexthopGroup(nhg) => Some((*nhg, *count)),
            ActionOwner::Neighbour(..) => None,
        })
        .collect();
    let family = &mirror.v6;
    let tables = [(TABLE_MAIN, &family.main), (TABLE_LOCAL, &family.local)].into_iter();
    let tables = tables.chain(family.others.iter().map(|(number, table)| (*number, table)));
    let mut sids = Vec::new();
    for (number, table) in tables {
        let of_table = sids.len();
        for (id, nhg) in mirror.nhgs.iter() {
            let Some((IpAddr::V6(address), len)) = nhg.sid else { continue };
            let prefix = Prefix::truncated(u128::from(address), len.into());
            let Some(found) = table.get(&prefix).iter().find(|route| route.nhg == id) else { continue };
            let mut route = Shown { dst: route_json::destination(prefix), ..Shown::default() };
            describe(*found, mirror, &mut route);
            route.table = (number != TABLE_MAIN).then(|| route_json::table(number));
            set_action(id, mirror, &publisher.action_index, &mut route);
            let is_reached = [TABLE_MAIN, TABLE_LOCAL].contains(&number)
                || publisher.policies.lookup_ids.of_table(crate::kernel::family::INET6, number).is_some();
            if !is_reached {
                route.hint = Some(format!("no rule and no VRF leads to table {number}: ip -6 rule"));
            }
            sids.push((prefix, SidStatus { route, count: counts.get(&id).copied(), sid_hook: None }));
        }
        sids[of_table..].sort_by_key(|(prefix, _)| (prefix.addr(), prefix.len()));
    }
    sids.into_iter().map(|(_, sid)| sid).collect()
}

fn describe(route: Route, mirror: &Mirror, into: &mut Shown) {
    if let Some(nhg) = mirror.nhgs.get(route.nhg) {
        route_json::nhg(nhg, &mirror.kernel, into);
    }
    if route.metric != 0 {
        into.metric = Some(route.metric);
    }
}

/// Answers of tables in the image for addresses, each from the table with that id.
pub fn explain(asked: &[(IpAddr, u32)], mirror: &Mirror, publisher: &Publisher) -> Vec<Explained> {
    let numbers = publisher.action_index.numbers();
    let mirrored = Mirrored { mirror, numbers: &numbers, action_index: &publisher.action_index };
    let (others4, others6) = (publisher.v4.numbers(), publisher.v6.numbers());
    let answers = asked.iter().map(|(address, id)| match address {
        IpAddr::V4(addr) => {
            let table = (*id != TABLE4).then(|| others4.get(id).copied().unwrap_or(0));
            mirrored.explain(u32::from(*addr), table, &mirror.v4, &publisher.v4)
        }
        IpAddr::V6(addr) => {
            let table = (*id != TABLE6).then(|| others6.get(id).copied().unwrap_or(0));
            mirrored.explain(u128::from(*addr), table, &mirror.v6, &publisher.v6)
        }
    });
    answers.collect()
}

struct Mirrored<'a> {
    mirror: &'a Mirror,
    numbers: &'a KeyMap<u32, ActionOwner>,
    action_index: &'a ActionIndex,
}

impl Mirrored<'_> {
    /// The answers of a kernel table, or of local and main together, for an address.
    fn explain<A: Ip>(
        &self,
        addr: A,
        other: Option<u32>,
        family: &Family<A>,
        published: &Published<A>,
    ) -> Explained {
        let mut route = Shown { dst: addr.ip().to_string(), ..Shown::default() };
        let (written, tables) = match other {
            Some(number) => {
                route.table = Some(route_json::table(number));
                (published.others.get(&number), family.table(number).into_iter().collect())
            }
            None => (Some(&published.main), vec![&family.local, &family.main]),
        };
        let table = written.and_then(|written| written.table.as_ref());
        let Some((prefix, id)) = table.and_then(|table| table.lookup(addr)) else {
            route.kind = Some("none".into());
            return Explained { id: None, route };
        };
        route.prefix = Some(route_json::destination(prefix));
        match self.numbers.get(&id) {
            Some(ActionOwner::NexthopGroup(nhg)) => {
                let find =
                    |table: &Table<A>| table.get(&prefix).iter().find(|route| route.nhg == *nhg).copied();
                let found = tables.iter().copied().find_map(find);
                describe(found.unwrap_or(Route { metric: 0, nhg: *nhg }), self.mirror, &mut route);
                self.first_hop(*nhg, &mut route);
                self.set_hint(*nhg, &mut route);
            }
            Some(ActionOwner::Neighbour(link, _)) => {
                route.dev = Some(self.mirror.kernel.name(*link));
                route.neighbour = true;
            }
            // The kernel decides; probably by the first of these.
            None => {
                if let Some(first) = tables.iter().find_map(|table| table.get(&prefix).first()) {
                    describe(*first, self.mirror, &mut route);
                    self.set_hint(first.nhg, &mut route);
                }
            }
        }
        Explained { id: Some(id), route }
    }

    /// Why a nexthop group is the kernel's; its action is found in the image.
    fn set_hint(&self, nhg: NhgId, into: &mut Shown) {
        let mut shown = Shown::default();
        set_action(nhg, self.mirror, self.action_index, &mut shown);
        into.hint = shown.hint;
    }

    /// Of a multipath route, the way that is taken.
    fn first_hop(&self, nhg: NhgId, into: &mut Shown) {
        let Some(nhg) = self.mirror.nhgs.get(nhg).filter(|nhg| nhg.hops.len() > 1) else { return };
        if let Some(hop) = nhg.hops.iter().find(|hop| self.mirror.kernel.alive(nhg.family, nhg, hop)) {
            route_json::hop(nhg.family, hop, &self.mirror.kernel, into);
        }
    }
}
