//! A dump of all routes of a family, read part by part, so that changes can be followed in between.

use crate::kernel::socket::{Error, Netlink, Ongoing};
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, family, route};
use crate::rib::family::Family;
use crate::rib::nexthop_group::NexthopGroups;
use crate::rib::table::{Ip, Route, Table};
use rustix::io::Errno;
use std::collections::BTreeMap;
use trieline_lpm::Prefix;

type Routes<A> = Vec<(Prefix<A>, Route)>;

/// All tables of a family, as far as the dump has come.
#[derive(Debug)]
pub struct Dump<A: Ip> {
    /// Those that the dump has left.
    reported: BTreeMap<u32, Routes<A>>,
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
        nhgs: &mut NexthopGroups,
    ) -> Result<Self, Error> {
        let ongoing = socket.begin(route::dump(A::NETLINK))?;
        family.watch();
        if A::NETLINK == family::INET6 {
            nhgs.forget_expiries(); // IPv4 routes have none
        }
        let main = Vec::with_capacity(family.main.routes() + family.main.routes() / 8);
        Ok(Self {
            reported: BTreeMap::from([(TABLE_MAIN, main)]),
            number: TABLE_LOCAL,
            routes: Vec::new(),
            ongoing,
        })
    }

    /// Reads the next part, some hundred routes. Whether there may be more. `socket` is that of the beginning.
    pub fn go_on(&mut self, nhgs: &mut NexthopGroups, socket: &mut Netlink) -> Result<bool, Error> {
        let Self { reported, number, routes, ongoing } = self;
        let more = socket.go_on(ongoing, |message| {
            let Some(route) = route::decode(message.payload) else { return };
            let Some(addr) = A::from_bytes(route.destination) else { return };
            // Linux before 4.20 tells of every family.
            if route.family != A::NETLINK {
                return;
            }
            if route.table != *number {
                let other = reported.remove(&route.table).unwrap_or_default();
                reported.insert(std::mem::replace(number, route.table), std::mem::replace(routes, other));
            }
            let prefix = Prefix::truncated(addr, route.prefix_len.into());
            let nhg = nhgs.intern(&route);
            if let Some(left) = route.ends_in {
                nhgs.note_expiry(nhg, left);
            }
            routes.push((prefix, Route { metric: route.metric, nhg }));
        });
        unless_missing(more)
    }

    /// The dump becomes the state. Whether changes interrupted it, so that it may not be whole.
    pub(super) fn adopt(mut self, family: &mut Family<A>, nhgs: &mut NexthopGroups) -> bool {
        self.reported.insert(self.number, self.routes);
        let mut tables: BTreeMap<u32, Table<A>> =
            self.reported.into_iter().map(|(number, routes)| (number, Table::from_dump(routes))).collect();
        let interrupted = self.ongoing.is_interrupted() || family.tables().any(Table::is_touched);
        let mut take = |number| tables.remove(&number).unwrap_or_default();
        let (mut local, mut main) = (take(TABLE_LOCAL), take(TABLE_MAIN));
        if interrupted {
            local.repair(&family.local);
            main.repair(&family.main);
            for (number, before) in &family.others {
                tables.entry(*number).or_default().repair(before);
            }
        }
        if nhgs.hide_metrics() {
            local.hide_metrics(&family.local, nhgs);
            main.hide_metrics(&family.main, nhgs);
            for (number, before) in &family.others {
                tables.entry(*number).or_default().hide_metrics(before, nhgs);
            }
        }
        (family.local, family.main) = (local, main);
        tables.retain(|_, table| !table.is_empty());
        family.set_others(tables, nhgs);
        interrupted
    }
}

/// A kernel without a family, or without the requested feature, refuses; that is an empty answer.
pub(super) fn unless_missing(result: Result<bool, Error>) -> Result<bool, Error> {
    match result {
        Err(Error::Refused { source, .. })
            if matches!(Errno::from_io_error(&source), Some(Errno::AFNOSUPPORT | Errno::OPNOTSUPP)) =>
        {
            Ok(false)
        }
        result => result,
    }
}
