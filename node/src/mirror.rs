//! The kernel's state, followed message by message; the kernel is the truth, and after any doubt it is asked for everything.

use crate::family::{Family, Neighbour};
use crate::kernel::socket::{Error, Message, Netlink};
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN, addr, family, link, message, neigh, netconf, route, rule};
use crate::path::Paths;
use crate::rib::{Followed, Ip, Route, Table};
use crate::world::World;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use trieline_lpm::Prefix;

/// What changed since it was last published.
#[derive(Debug, Default)]
pub struct Changes {
    /// IPv4.
    pub v4: FamilyChanges<u32>,
    /// IPv6.
    pub v6: FamilyChanges<u128>,
    /// Neighbours whose MAC address came, went or changed.
    pub neighbours: BTreeSet<(IpAddr, u32)>,
    /// Links, settings or rules: any action and any port may differ.
    pub world: bool,
    /// Addresses: the kernel may choose another source.
    pub addresses: bool,
}

/// What changed in one family.
#[derive(Debug)]
pub struct FamilyChanges<A: Ip> {
    /// Prefixes whose decision may differ; may repeat.
    pub prefixes: Vec<Prefix<A>>,
    /// Any decision may differ.
    pub all: bool,
    /// The kernel changed routes without a word, or with words that did not fit: dump again.
    pub doubt: bool,
}

impl<A: Ip> Default for FamilyChanges<A> {
    fn default() -> Self {
        Self { prefixes: Vec::new(), all: false, doubt: false }
    }
}

impl<A: Ip> FamilyChanges<A> {
    /// More changed prefixes than this are not compared one by one.
    const FEW: usize = 64;

    fn may_move(&self, address: A) -> bool {
        self.all
            || self.prefixes.len() > Self::FEW
            || self.prefixes.iter().any(|prefix| prefix.contains(address))
    }
}

impl Changes {
    /// Whether there is anything to publish.
    pub fn any(&self) -> bool {
        let family =
            !self.v4.prefixes.is_empty() || self.v4.all || !self.v6.prefixes.is_empty() || self.v6.all;
        family || !self.neighbours.is_empty() || self.world || self.addresses
    }

    /// Whether the way to `address` may have changed.
    pub fn may_move(&self, address: IpAddr) -> bool {
        let neighbours = self.neighbours.iter().any(|(changed, _)| changed.is_ipv4() == address.is_ipv4());
        neighbours
            || match address {
                IpAddr::V4(addr) => self.v4.may_move(addr.into()),
                IpAddr::V6(addr) => self.v6.may_move(addr.into()),
            }
    }

    fn everything(&mut self) {
        (self.v4.all, self.v6.all, self.world, self.addresses) = (true, true, true, true);
    }

    fn doubt(&mut self) {
        (self.v4.doubt, self.v6.doubt) = (true, true);
    }
}

/// The mirrored state.
#[derive(Debug, Default)]
pub struct Mirror {
    /// Links and settings.
    pub world: World,
    /// Paths of all routes.
    pub paths: Paths,
    /// IPv4 routes and neighbours.
    pub v4: Family<u32>,
    /// IPv6 routes and neighbours.
    pub v6: Family<u128>,
    /// What is yet to be published.
    pub changes: Changes,
    /// Stale neighbours that the kernel checks only when told that they are in use.
    pub stale: BTreeSet<(IpAddr, u32)>,
    /// Changes interrupted what the kernel told of links, settings and rules, again and again: ask once more.
    pub world_doubt: bool,
}

/// A dump that changes interrupt is repeated at most this often at once.
pub const ATTEMPTS: u32 = 4;

impl Mirror {
    /// Follows one change.
    pub fn apply(&mut self, message: Message<'_>) {
        match message.kind {
            message::NEW_ROUTE | message::DEL_ROUTE => self.apply_route(message),
            message::NEW_NEIGH => {
                if let Some(told) = neigh::decode(message.payload) {
                    self.set_neighbour(told.address, told.ifindex, told.usable(), told.is_stale());
                }
            }
            message::DEL_NEIGH => {
                if let Some(told) = neigh::decode(message.payload) {
                    self.set_neighbour(told.address, told.ifindex, None, false);
                }
            }
            message::NEW_LINK | message::DEL_LINK => self.apply_link(message),
            message::NEW_ADDR | message::DEL_ADDR => {
                self.changes.addresses = true;
                // With an address go the routes that prefer it as their source; IPv4 does not say so.
                let ipv4 = addr::decode(message.payload).is_none_or(|told| told.address.is_ipv4());
                self.changes.v4.doubt |= ipv4 && message.kind == message::DEL_ADDR;
            }
            // A next hop object replaced changes all routes that use it, in a word or none.
            message::NEW_NEXTHOP | message::DEL_NEXTHOP
                if self.paths.iter().any(|(_, path)| path.nexthop.is_some()) =>
            {
                self.changes.doubt();
            }
            message::NEW_RULE | message::DEL_RULE => {
                if let Some(told) = rule::decode(message.payload) {
                    if let Some(at) = self.world.rules.iter().position(|known| *known == told) {
                        self.world.rules.swap_remove(at);
                    }
                    if message.kind == message::NEW_RULE {
                        self.world.rules.push(told);
                    }
                    self.changes.world = true;
                }
            }
            message::NEW_NETCONF => {
                if let Some(told) = netconf::decode(message.payload) {
                    let before = self.world.netconf(told.family, told.ifindex);
                    self.world.update_netconf(&told);
                    let after = self.world.netconf(told.family, told.ifindex);
                    self.changes.world |= before != after;
                    if before.ignore_linkdown != after.ignore_linkdown {
                        self.changes.everything();
                    }
                }
            }
            message::DEL_NETCONF => {
                if let Some(told) = netconf::decode(message.payload) {
                    self.changes.world |= self.world.netconf.remove(&(told.family, told.ifindex)).is_some();
                }
            }
            _ => {}
        }
    }

    fn apply_route(&mut self, message: Message<'_>) {
        let Some(told) = route::decode(message.payload) else { return };
        let added = (message.kind == message::NEW_ROUTE).then_some(message.flags);
        match told.family {
            family::INET => follow(&told, added, &mut self.v4, &mut self.paths, &mut self.changes.v4),
            family::INET6 => follow(&told, added, &mut self.v6, &mut self.paths, &mut self.changes.v6),
            _ => {}
        }
    }

    fn apply_link(&mut self, message: Message<'_>) {
        let Some(told) = link::decode(message.payload) else { return };
        let before = self.world.links.get(&told.ifindex);
        if message.kind == message::DEL_LINK {
            let gone: Vec<_> = self.neighbours_on(told.ifindex).collect();
            for address in gone {
                self.set_neighbour(address, told.ifindex, None, false);
            }
            self.world.links.remove(&told.ifindex);
            self.changes.world = true;
            self.changes.doubt();
            return;
        }
        if before == Some(&told) {
            return;
        }
        let same_state = before.is_some_and(|before| {
            before.is_up() == told.is_up() && before.has_carrier() == told.has_carrier()
        });
        if !same_state {
            // IPv4 takes routes of a link that goes down away without a word.
            self.changes.doubt();
        }
        self.changes.world = true;
        self.world.links.insert(told.ifindex, told);
    }

    fn neighbours_on(&self, link: u32) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.neighbours.keys().filter(move |(_, on)| *on == link).map(|(addr, _)| addr.ip());
        v4.chain(self.v6.neighbours.keys().filter(move |(_, on)| *on == link).map(|(addr, _)| addr.ip()))
    }

    fn set_neighbour(&mut self, address: IpAddr, link: u32, mac: Option<[u8; 6]>, stale: bool) {
        let entry = mac.map(|mac| Neighbour { mac: Some(mac), stale });
        let before = match address {
            IpAddr::V4(addr) => put(&mut self.v4.neighbours, (addr.into(), link), entry),
            IpAddr::V6(addr) => put(&mut self.v6.neighbours, (addr.into(), link), entry),
        };
        if stale && mac.is_some() {
            self.stale.insert((address, link));
        } else {
            self.stale.remove(&(address, link));
        }
        if before.and_then(|before| before.mac) == mac {
            return;
        }
        self.changes.neighbours.insert((address, link));
        match address {
            IpAddr::V4(addr) => self.changes.v4.prefixes.push(Prefix::host(addr.into())),
            IpAddr::V6(addr) => self.changes.v6.prefixes.push(Prefix::host(addr.into())),
        }
    }

    /// Asks the kernel for links, settings, rules and neighbours. Changes can interrupt that; asked again in vain, the answer
    /// is taken all the same and `Mirror::world_doubt` says so.
    pub fn dump_world(&mut self, socket: &mut Netlink) -> Result<(), Error> {
        let mut told = Self::default();
        for _ in 0..ATTEMPTS {
            told = Self::default();
            told.world_doubt = told.hear_world(socket)?;
            if !told.world_doubt {
                break;
            }
        }
        told.world.sysctl = std::mem::take(&mut self.world.sysctl);
        told.world.bypass = std::mem::take(&mut self.world.bypass);
        told.world.bypass_netfilter = self.world.bypass_netfilter;
        (self.world, self.stale, self.world_doubt) = (told.world, told.stale, told.world_doubt);
        (self.v4.neighbours, self.v6.neighbours) = (told.v4.neighbours, told.v6.neighbours);
        self.changes.everything();
        Ok(())
    }

    /// Adds what the kernel tells of its world; whether changes interrupted it.
    fn hear_world(&mut self, socket: &mut Netlink) -> Result<bool, Error> {
        let mut interrupted = socket.dump(link::dump(), |message| self.apply(message))?;
        for family in [family::INET, family::INET6] {
            for request in [netconf::dump(family), rule::dump(family), neigh::dump(family)] {
                interrupted |= unless_missing(socket.dump(request, |message| self.apply(message)))?;
            }
        }
        Ok(interrupted)
    }

    /// Asks the kernel for the IPv4 routes. To be adopted when the changes up to then were followed.
    pub fn dump_ipv4(&mut self, socket: &mut Netlink) -> Result<Dump<u32>, Error> {
        self.changes.v4.doubt = false;
        dump_routes(socket, &mut self.v4, &mut self.paths)
    }

    /// Asks the kernel for the IPv6 routes. To be adopted when the changes up to then were followed.
    pub fn dump_ipv6(&mut self, socket: &mut Netlink) -> Result<Dump<u128>, Error> {
        self.changes.v6.doubt = false;
        dump_routes(socket, &mut self.v6, &mut self.paths)
    }

    /// Takes the IPv4 routes of a dump over; between the two every change must have been followed.
    pub fn adopt_ipv4(&mut self, dump: Dump<u32>) {
        adopt(dump, &mut self.v4);
        self.changes.v4.all = true;
    }

    /// Takes the IPv6 routes of a dump over; between the two every change must have been followed.
    pub fn adopt_ipv6(&mut self, dump: Dump<u128>) {
        adopt(dump, &mut self.v6);
        self.changes.v6.all = true;
    }

    /// Whether routes changed during the last dump of a family, so that it has to be asked again.
    pub fn unsettled(&self) -> bool {
        self.v4.unsettled || self.v6.unsettled
    }

    /// Routes of both families.
    pub fn routes(&self) -> usize {
        self.v4.main.routes() + self.v4.local.routes() + self.v6.main.routes() + self.v6.local.routes()
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

/// A kernel without a family, or without what is asked of it, says so; that is an empty answer.
fn unless_missing(result: Result<bool, Error>) -> Result<bool, Error> {
    match result {
        Err(Error::Refused { source, .. })
            if matches!(Errno::from_io_error(&source), Some(Errno::AFNOSUPPORT | Errno::OPNOTSUPP)) =>
        {
            Ok(false)
        }
        result => result,
    }
}

/// Follows one route message; `added` holds the header's flags of a new route.
fn follow<A: Ip>(
    told: &route::RouteMessage<'_>,
    added: Option<u16>,
    family: &mut Family<A>,
    paths: &mut Paths,
    changes: &mut FamilyChanges<A>,
) {
    let local = match told.table {
        TABLE_LOCAL => true,
        TABLE_MAIN => false,
        _ => return,
    };
    let Some(addr) = A::from_bytes(told.destination) else { return };
    let prefix = Prefix::truncated(addr, told.prefix_len.into());
    let route = Route { metric: told.metric, path: paths.intern(told) };
    let table = if local { &mut family.local } else { &mut family.main };
    let followed = match added {
        Some(flags) => table.add(prefix, route, flags, paths),
        None => table.remove(prefix, route, paths),
    };
    changes.doubt |= followed == Followed::Doubtfully;
    if local {
        family.touched_by_local(prefix, |prefix| changes.prefixes.push(prefix));
    } else {
        family.touched_by_main(prefix, |prefix| changes.prefixes.push(prefix));
    }
}

/// Tables local and main as a dump told them.
#[derive(Debug)]
pub struct Dump<A: Ip> {
    local: Table<A>,
    main: Table<A>,
    interrupted: bool,
}

/// Dumps tables local and main.
fn dump_routes<A: Ip>(
    socket: &mut Netlink,
    family: &mut Family<A>,
    paths: &mut Paths,
) -> Result<Dump<A>, Error> {
    family.local.watch();
    family.main.watch();
    let mut interrupted = false;
    let mut dump = |table: u32, room: usize| -> Result<Table<A>, Error> {
        let mut routes = Vec::with_capacity(room);
        let mut told = |message: Message<'_>| {
            let Some(told) = route::decode(message.payload) else { return };
            let Some(addr) = A::from_bytes(told.destination) else { return };
            // Linux before 4.20 tells of every table and family.
            if told.table == table && told.family == A::NETLINK {
                let route = Route { metric: told.metric, path: paths.intern(&told) };
                routes.push((Prefix::truncated(addr, told.prefix_len.into()), route));
            }
        };
        interrupted |= unless_missing(socket.dump(route::dump(A::NETLINK, table), &mut told))?;
        Ok(Table::from_dump(routes))
    };
    let local = dump(TABLE_LOCAL, 64)?;
    let main = dump(TABLE_MAIN, family.main.routes() + family.main.routes() / 8)?;
    Ok(Dump { local, main, interrupted })
}

/// The dump becomes the state, whole when nothing changed meanwhile.
fn adopt<A: Ip>(mut dump: Dump<A>, family: &mut Family<A>) {
    family.unsettled = dump.interrupted || family.local.is_touched() || family.main.is_touched();
    if family.unsettled {
        dump.local.mend(&family.local);
        dump.main.mend(&family.main);
    }
    (family.local, family.main) = (dump.local, dump.main);
}
