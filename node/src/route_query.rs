//! Answers to what commands ask about routes, from the state that the tables were written from.

use crate::action_index::ActionIndex;
use crate::control::{Client, Request};
use crate::family::Family;
use crate::hint;
use crate::kernel::route::NexthopGroup;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, family};
use crate::mirror::Mirror;
use crate::nexthop_group::{KeyMap, NhgId};
use crate::policies::TableKey;
use crate::publish::{Published, Publisher, TABLE4, TABLE6};
use crate::rib::{Ip, Route, Table};
use crate::route_json;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use trieline_dataplane::{Action, PassReason};
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
            client.answer(&json!({ "end": true }))?;
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
                let mut object = Map::new();
                object.insert("dst".into(), route_json::destination(prefix).into());
                describe(*route, self.mirror, &mut object);
                if self.number != TABLE_MAIN {
                    object.insert("table".into(), route_json::table(self.number).into());
                }
                let nhg = self.mirror.nhgs.get(route.nhg);
                // No action is made for a route that selects by more: its prefix is the kernel's.
                let kernel = Action::Pass(PassReason::Unsupported);
                let kernel = nhg.is_some_and(NexthopGroup::selects_more).then_some(&kernel);
                if let Some(action) = self.action_index.action(route.nhg).or(kernel) {
                    route_json::action(action, |ifindex| self.mirror.kernel.name(ifindex), &mut object);
                    if let (Action::Pass(reason), Some(nhg)) = (action, nhg)
                        && let Some(hint) = hint::of(nhg, *reason, &self.mirror.kernel)
                    {
                        object.insert("hint".into(), hint.into());
                    }
                }
                client.answer(&object)?;
            }
        }
        *next = routes.next().map(|(prefix, _)| prefix);
        Ok(next.is_none())
    }
}

fn describe(route: Route, mirror: &Mirror, into: &mut Map<String, Value>) {
    if let Some(nhg) = mirror.nhgs.get(route.nhg) {
        route_json::nhg(nhg, &mirror.kernel, into);
    }
    if route.metric != 0 {
        into.insert("metric".into(), route.metric.into());
    }
}

/// Answers of tables in the image for addresses, each from the table with that id.
pub fn explain(asked: &[(IpAddr, u32)], mirror: &Mirror, publisher: &Publisher) -> Vec<Value> {
    let numbers = publisher.action_index.numbers();
    let mirrored = Mirrored { mirror, numbers: &numbers };
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
    answers.map(Value::Object).collect()
}

/// The object that a number in the tables stands for.
#[derive(Debug, Clone, Copy)]
pub enum ActionOwner {
    /// A path.
    NexthopGroup(NhgId),
    /// A neighbour on this link, by a route of this MTU (0: the link's).
    Neighbour(u32, u32),
}

struct Mirrored<'a> {
    mirror: &'a Mirror,
    numbers: &'a KeyMap<u32, ActionOwner>,
}

impl Mirrored<'_> {
    /// The answers of a kernel table, or of local and main together, for an address.
    fn explain<A: Ip>(
        &self,
        addr: A,
        other: Option<u32>,
        family: &Family<A>,
        published: &Published<A>,
    ) -> Map<String, Value> {
        let mut object = Map::new();
        let (written, tables) = match other {
            Some(number) => {
                object.insert("table".into(), route_json::table(number).into());
                (published.others.get(&number), family.table(number).into_iter().collect())
            }
            None => (Some(&published.main), vec![&family.local, &family.main]),
        };
        let table = written.and_then(|written| written.table.as_ref());
        let Some((prefix, id)) = table.and_then(|table| table.lookup(addr)) else {
            object.insert("type".into(), "none".into());
            return object;
        };
        object.insert("id".into(), id.into());
        object.insert("prefix".into(), route_json::destination(prefix).into());
        match self.numbers.get(&id) {
            Some(ActionOwner::NexthopGroup(nhg)) => {
                let find =
                    |table: &Table<A>| table.get(&prefix).iter().find(|route| route.nhg == *nhg).copied();
                let route = tables.iter().copied().find_map(find);
                describe(route.unwrap_or(Route { metric: 0, nhg: *nhg }), self.mirror, &mut object);
                self.first_hop(*nhg, &mut object);
            }
            Some(ActionOwner::Neighbour(link, _)) => {
                object.insert("dev".into(), self.mirror.kernel.name(*link).into());
                object.insert("neighbour".into(), true.into());
            }
            // The kernel decides; probably by the first of these.
            None => {
                if let Some(route) = tables.iter().find_map(|table| table.get(&prefix).first()) {
                    describe(*route, self.mirror, &mut object);
                }
            }
        }
        object
    }

    /// Of a multipath route, the way that is taken.
    fn first_hop(&self, nhg: NhgId, into: &mut Map<String, Value>) {
        let Some(nhg) = self.mirror.nhgs.get(nhg).filter(|nhg| nhg.hops.len() > 1) else { return };
        if let Some(hop) = nhg.hops.iter().find(|hop| self.mirror.kernel.alive(nhg.family, hop.ifindex)) {
            route_json::hop(nhg.family, hop, &self.mirror.kernel, into);
        }
    }
}
