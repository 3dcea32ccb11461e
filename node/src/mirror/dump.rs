//! A dump of all routes of a family, read part by part, so that changes can be followed in between.

use crate::family::Family;
use crate::kernel::socket::{Error, Netlink, Ongoing};
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, family, route};
use crate::path::Paths;
use crate::rib::{Ip, Route, Table};
use std::collections::BTreeMap;
use trieline_lpm::Prefix;

type Routes<A> = Vec<(Prefix<A>, Route)>;

/// All tables of a family, as far as the dump has told them.
#[derive(Debug)]
pub struct Dump<A: Ip> {
    /// Those that the dump has left.
    told: BTreeMap<u32, Routes<A>>,
    /// The table that it tells now: routes of one come together.
    number: u32,
    routes: Routes<A>,
    ongoing: Ongoing,
}

impl<A: Ip> Dump<A> {
    /// Begins to dump every table: asking for each by itself would make the kernel walk all of them each time.
    pub(super) fn begin(
        socket: &mut Netlink,
        family: &mut Family<A>,
        paths: &mut Paths,
    ) -> Result<Self, Error> {
        let ongoing = socket.begin(route::dump(A::NETLINK))?;
        family.watch();
        if A::NETLINK == family::INET6 {
            paths.forget_ends(); // IPv4 routes have none
        }
        let main = Vec::with_capacity(family.main.routes() + family.main.routes() / 8);
        Ok(Self {
            told: BTreeMap::from([(TABLE_MAIN, main)]),
            number: TABLE_LOCAL,
            routes: Vec::new(),
            ongoing,
        })
    }

    /// Reads the next part, some hundred routes. Whether there may be more. `socket` is that of the beginning.
    pub fn go_on(&mut self, paths: &mut Paths, socket: &mut Netlink) -> Result<bool, Error> {
        let Self { told, number, routes, ongoing } = self;
        let more = socket.go_on(ongoing, |message| {
            let Some(route) = route::decode(message.payload) else { return };
            let Some(addr) = A::from_bytes(route.destination) else { return };
            // Linux before 4.20 tells of every family.
            if route.family != A::NETLINK {
                return;
            }
            if route.table != *number {
                let other = told.remove(&route.table).unwrap_or_default();
                told.insert(std::mem::replace(number, route.table), std::mem::replace(routes, other));
            }
            let prefix = Prefix::truncated(addr, route.prefix_len.into());
            let path = paths.intern(&route);
            if let Some(left) = route.ends_in {
                paths.note_end(path, left);
            }
            routes.push((prefix, Route { metric: route.metric, path }));
        });
        super::unless_missing(more)
    }

    /// The dump becomes the state, whole when nothing changed meanwhile.
    pub(super) fn adopt(mut self, family: &mut Family<A>, paths: &Paths) {
        self.told.insert(self.number, self.routes);
        let mut tables: BTreeMap<u32, Table<A>> =
            self.told.into_iter().map(|(number, routes)| (number, Table::from_dump(routes))).collect();
        family.unsettled = self.ongoing.is_interrupted() || family.tables().any(Table::is_touched);
        let mut take = |number| tables.remove(&number).unwrap_or_default();
        let (mut local, mut main) = (take(TABLE_LOCAL), take(TABLE_MAIN));
        if family.unsettled {
            local.mend(&family.local);
            main.mend(&family.main);
            for (number, before) in &family.others {
                tables.entry(*number).or_default().mend(before);
            }
        }
        (family.local, family.main) = (local, main);
        tables.retain(|_, table| !table.is_empty());
        family.set_others(tables, paths);
    }
}
