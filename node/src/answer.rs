//! Answers to what commands ask about routes, from the state that the tables were written from.

use crate::control::{Client, Request};
use crate::family::Family;
use crate::ledger::Ledger;
use crate::mirror::Mirror;
use crate::path::{KeyMap, PathId};
use crate::publish::{Published, Publisher};
use crate::rib::{Ip, Route, Table};
use crate::show;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use trieline_lpm::{IpPrefix, Prefix};

/// Routes written at a time: the daemon has more to do.
const CHUNK: usize = 500;

/// How far an answer with all routes has come: table by table, prefix by prefix.
#[derive(Debug)]
pub struct Cursor {
    tables: Vec<Part>,
    v4: Option<Prefix<u32>>,
    v6: Option<Prefix<u128>>,
    next4: Option<Prefix<u32>>,
    next6: Option<Prefix<u128>>,
}

/// One table of the answer, the last first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Local4,
    Main4,
    Local6,
    Main6,
}

impl Cursor {
    /// The cursor of a "show" request.
    pub fn new(request: &Request) -> Result<Self, trieline_lpm::PrefixError> {
        let Request::Show { family, prefix, local } = request else {
            return Ok(Self { tables: Vec::new(), v4: None, v6: None, next4: None, next6: None });
        };
        let (mut v4, mut v6) = (None, None);
        match prefix.as_deref().map(str::parse).transpose()? {
            Some(IpPrefix::V4(prefix)) => v4 = Some(prefix),
            Some(IpPrefix::V6(prefix)) => v6 = Some(prefix),
            None => {}
        }
        let wants = |number, other: bool| family.is_none_or(|family| family == number) && !other;
        let mut tables = Vec::new();
        if wants(6, v4.is_some()) {
            tables.push(Part::Main6);
            tables.extend(local.then_some(Part::Local6));
        }
        if wants(4, v6.is_some()) {
            tables.push(Part::Main4);
            tables.extend(local.then_some(Part::Local4));
        }
        Ok(Self { tables, v4, v6, next4: None, next6: None })
    }

    /// Writes the next part of the answer; whether it is complete.
    pub fn advance(
        &mut self,
        mirror: &Mirror,
        ledger: &Ledger,
        client: &mut Client,
    ) -> Result<bool, serde_json::Error> {
        let Some(part) = self.tables.last() else {
            client.answer(&json!({ "end": true }))?;
            return Ok(true);
        };
        let local = matches!(part, Part::Local4 | Part::Local6);
        let done = match part {
            Part::Local4 => list(&mirror.v4.local, self.v4, &mut self.next4, local, mirror, ledger, client)?,
            Part::Main4 => list(&mirror.v4.main, self.v4, &mut self.next4, local, mirror, ledger, client)?,
            Part::Local6 => list(&mirror.v6.local, self.v6, &mut self.next6, local, mirror, ledger, client)?,
            Part::Main6 => list(&mirror.v6.main, self.v6, &mut self.next6, local, mirror, ledger, client)?,
        };
        if done {
            self.tables.pop();
        }
        Ok(false)
    }
}

/// Writes some routes of a table from `next` on; whether that was the last.
fn list<A: Ip>(
    table: &Table<A>,
    within: Option<Prefix<A>>,
    next: &mut Option<Prefix<A>>,
    local: bool,
    mirror: &Mirror,
    ledger: &Ledger,
    client: &mut Client,
) -> Result<bool, serde_json::Error> {
    let all = Prefix::truncated(A::ZERO, 0);
    let within = within.unwrap_or(all);
    let mut routes = table.from(next.unwrap_or(within)).take_while(|(prefix, _)| within.covers(prefix));
    for (prefix, routes) in routes.by_ref().take(CHUNK) {
        for route in routes {
            let mut object = Map::new();
            object.insert("dst".into(), show::destination(prefix).into());
            describe(*route, mirror, &mut object);
            if local {
                object.insert("table".into(), "local".into());
            }
            if let Some(action) = ledger.action(route.path) {
                show::action(action, |ifindex| mirror.world.name(ifindex), &mut object);
            }
            client.answer(&object)?;
        }
    }
    *next = routes.next().map(|(prefix, _)| prefix);
    Ok(next.is_none())
}

fn describe(route: Route, mirror: &Mirror, into: &mut Map<String, Value>) {
    if let Some(path) = mirror.paths.get(route.path) {
        show::path(path, &mirror.world, into);
    }
    if route.metric != 0 {
        into.insert("metric".into(), route.metric.into());
    }
}

/// What decides for each address, as the tables say it.
pub fn explain(addresses: &[IpAddr], mirror: &Mirror, publisher: &Publisher) -> Vec<Value> {
    let numbers = publisher.ledger.numbers();
    let mirrored = Mirrored { mirror, numbers: &numbers };
    let answers = addresses.iter().map(|address| match address {
        IpAddr::V4(addr) => mirrored.explain(u32::from(*addr), &mirror.v4, &publisher.v4),
        IpAddr::V6(addr) => mirrored.explain(u128::from(*addr), &mirror.v6, &publisher.v6),
    });
    answers.map(Value::Object).collect()
}

/// What a number in the tables stands for.
#[derive(Debug, Clone, Copy)]
pub enum Meaning {
    /// A path.
    Path(PathId),
    /// A neighbour, on this link.
    Host(u32),
}

struct Mirrored<'a> {
    mirror: &'a Mirror,
    numbers: &'a KeyMap<u32, Meaning>,
}

impl Mirrored<'_> {
    fn explain<A: Ip>(&self, addr: A, family: &Family<A>, published: &Published<A>) -> Map<String, Value> {
        let mut object = Map::new();
        let Some((prefix, id)) = published.table.as_ref().and_then(|table| table.lookup(addr)) else {
            object.insert("type".into(), "none".into());
            return object;
        };
        object.insert("id".into(), id.into());
        object.insert("prefix".into(), show::destination(prefix).into());
        match self.numbers.get(&id) {
            Some(Meaning::Path(path)) => {
                let find =
                    |table: &Table<A>| table.get(&prefix).iter().find(|route| route.path == *path).copied();
                let route = find(&family.local).or_else(|| find(&family.main));
                describe(route.unwrap_or(Route { metric: 0, path: *path }), self.mirror, &mut object);
                self.first_hop(*path, &mut object);
            }
            Some(Meaning::Host(link)) => {
                object.insert("dev".into(), self.mirror.world.name(*link).into());
                object.insert("neighbour".into(), true.into());
            }
            // The kernel decides; probably by the first of these.
            None => {
                let routes = family.local.get(&prefix).first().or_else(|| family.main.get(&prefix).first());
                if let Some(route) = routes {
                    describe(*route, self.mirror, &mut object);
                }
            }
        }
        object
    }

    /// Of a multipath route, the way that is taken.
    fn first_hop(&self, path: PathId, into: &mut Map<String, Value>) {
        let Some(path) = self.mirror.paths.get(path).filter(|path| path.hops.len() > 1) else { return };
        if let Some(hop) = path.hops.iter().find(|hop| self.mirror.world.alive(path.family, hop.ifindex)) {
            show::hop(path.family, hop, &self.mirror.world, into);
        }
    }
}
