//! The kernel's state, followed message by message. The kernel is the truth: after any doubt, the daemon dumps everything again.

use crate::kernel::socket::{Error, Message, Netlink};
use crate::kernel::{
    TABLE_LOCAL, TABLE_MAIN, addr, family, link, message, neigh, netconf, nexthop, route, rule,
};
use crate::rib::dump::{Dump, unless_missing};
use crate::rib::family::{Family, Neighbour};
use crate::rib::kernel_state::{KernelState, Sysctl};
use crate::rib::nexthop_group::{NexthopGroups, NhgId};
use crate::rib::resync::{ATTEMPTS, Resync, SyncState};
use crate::rib::table::{Followed, Ip, Route, Table};
use crate::xdp::action_map::Used;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use trieline_lpm::Prefix;

/// Changes since the last publication.
#[derive(Debug, Default)]
pub struct Changes {
    /// IPv4.
    pub v4: FamilyChanges<u32>,
    /// IPv6.
    pub v6: FamilyChanges<u128>,
    /// Neighbours whose MAC address came, went or changed.
    pub neighbours: BTreeSet<(IpAddr, u32)>,
    /// Nexthop groups whose ways out changed.
    pub nhgs: BTreeSet<NhgId>,
    /// Links, settings or rules: any action and any port may differ.
    pub kernel: bool,
    /// Addresses: the kernel may choose another source.
    pub addresses: bool,
}

/// Changes in one family.
#[derive(Debug)]
pub struct FamilyChanges<A: Ip> {
    /// Prefixes of local and main whose decision may differ; may repeat.
    pub prefixes: Vec<Prefix<A>>,
    /// Those of other tables, by number.
    pub others: BTreeMap<u32, Vec<Prefix<A>>>,
    /// Any decision may differ.
    pub all: bool,
}

impl<A: Ip> Default for FamilyChanges<A> {
    fn default() -> Self {
        Self { prefixes: Vec::new(), others: BTreeMap::new(), all: false }
    }
}

impl<A: Ip> FamilyChanges<A> {
    /// More changed prefixes than this are not compared one by one.
    const FEW: usize = 64;

    fn may_move(&self, address: A) -> bool {
        let mut changed = self.others.values().chain([&self.prefixes]);
        self.all
            || changed.clone().map(Vec::len).sum::<usize>() > Self::FEW
            || changed.any(|prefixes| prefixes.iter().any(|prefix| prefix.contains(address)))
    }

    /// Whether a default route may have come or gone, so that rules behind its table are asked, or no longer.
    fn opens(&self) -> bool {
        let mut changed = self.others.values().chain([&self.prefixes]).flatten();
        self.all || changed.any(|prefix| prefix.len() == 0)
    }

    /// Whether any decision may differ.
    pub fn any(&self) -> bool {
        self.all || !self.prefixes.is_empty() || !self.others.is_empty()
    }
}

impl Changes {
    /// Whether there is anything to publish.
    pub fn any(&self) -> bool {
        self.v4.any()
            || self.v6.any()
            || !self.neighbours.is_empty()
            || !self.nhgs.is_empty()
            || self.kernel
            || self.addresses
    }

    /// Whether other packets may meet a route than before.
    pub fn opens(&self) -> bool {
        self.v4.opens() || self.v6.opens()
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
        (self.v4.all, self.v6.all, self.kernel, self.addresses) = (true, true, true, true);
    }
}

/// Links with messages of their own.
#[derive(Debug, Default)]
pub struct Touched {
    /// By number.
    pub links: BTreeSet<u32>,
    /// Those that went, though another may have the number by now.
    pub gone: BTreeSet<u32>,
    /// Messages were lost: it may be any link.
    pub all: bool,
}

/// The mirrored state.
#[derive(Debug, Default)]
pub struct Mirror {
    /// Links and settings.
    pub kernel: KernelState,
    /// Nexthop groups of all routes.
    pub nhgs: NexthopGroups,
    /// IPv4 routes and neighbours.
    pub v4: Family<u32>,
    /// IPv6 routes and neighbours.
    pub v6: Family<u128>,
    /// Changes that are not published yet.
    pub changes: Changes,
    /// Links with messages since this was last taken.
    pub touched: Touched,
    /// Stale neighbours that the kernel checks only after it hears that they are in use.
    pub stale: BTreeSet<(IpAddr, u32)>,
    /// The parts that have to be dumped again.
    pub resync: Resync,
}

impl Mirror {
    /// Follows one change.
    pub fn apply(&mut self, message: Message<'_>) {
        match message.kind {
            message::NEW_ROUTE | message::DEL_ROUTE => self.apply_route(message),
            message::NEW_NEIGH => {
                if let Some(reported) = neigh::decode(message.payload) {
                    self.set_neighbour(
                        reported.address,
                        reported.ifindex,
                        reported.usable(),
                        reported.is_stale(),
                    );
                }
            }
            message::DEL_NEIGH => {
                if let Some(reported) = neigh::decode(message.payload) {
                    self.set_neighbour(reported.address, reported.ifindex, None, false);
                }
            }
            message::NEW_LINK | message::DEL_LINK => self.apply_link(message),
            message::NEW_ADDR | message::DEL_ADDR => {
                self.apply_address(message);
            }
            message::NEW_NEXTHOP => {
                if let Some((id, object)) = nexthop::decode(message.payload) {
                    self.follow_object(id, Some(object));
                }
            }
            message::DEL_NEXTHOP => {
                if let Some((id, _)) = nexthop::decode(message.payload) {
                    // With it go the routes that use it; IPv4 does not say so.
                    if self.nhgs.uses_object(id) {
                        self.resync.lose_routes();
                    }
                    self.follow_object(id, None);
                }
            }
            message::NEW_RULE | message::DEL_RULE => {
                if let Some(reported) = rule::decode(message.payload) {
                    let is_new = message.kind == message::NEW_RULE;
                    self.changes.kernel = true;
                    if self.kernel.follow_rule(reported, is_new) == Followed::Ambiguously {
                        self.resync.lose_rules();
                    }
                    if is_new && self.kernel.rules.last().is_some_and(rule::Rule::is_by_unknown_device) {
                        // By an alternative name: those of a device that is down are not reported.
                        self.resync.lose_kernel_state();
                    }
                }
            }
            message::NEW_NETCONF => {
                if let Some(reported) = netconf::decode(message.payload) {
                    let before = self.kernel.netconf(reported.family, reported.ifindex);
                    self.kernel.update_netconf(&reported);
                    let after = self.kernel.netconf(reported.family, reported.ifindex);
                    // Linux 6.17 reports `force_forwarding` without its value; it is read with the other settings.
                    self.changes.kernel |= before != after || reported.is_empty();
                    if before.ignore_linkdown != after.ignore_linkdown {
                        self.changes.everything();
                    }
                }
            }
            message::DEL_NETCONF => {
                if let Some(reported) = netconf::decode(message.payload) {
                    self.changes.kernel |=
                        self.kernel.netconf.remove(&(reported.family, reported.ifindex)).is_some();
                }
            }
            _ => {}
        }
    }

    fn apply_route(&mut self, message: Message<'_>) {
        let Some(reported) = route::decode(message.payload) else { return };
        let added = (message.kind == message::NEW_ROUTE).then_some(message.flags);
        let Self { nhgs, changes, resync, .. } = self;
        match reported.family {
            family::INET => {
                follow(&reported, added, &mut self.v4, nhgs, (&mut changes.v4, &mut resync.v4));
            }
            family::INET6 => {
                follow(&reported, added, &mut self.v6, nhgs, (&mut changes.v6, &mut resync.v6));
            }
            _ => {}
        }
    }

    /// A next hop object changes the nexthop groups that use it, and so what is done with their packets. Where other links or neighbours
    /// are meant, it changes what their routes decide.
    fn follow_object(&mut self, id: u32, object: Option<nexthop::Object>) {
        let renewed = self.nhgs.follow_object(id, object);
        self.follow_renewed(renewed);
    }

    /// Nexthop groups have other ways out than `before`.
    fn follow_renewed(&mut self, renewed: Vec<(NhgId, Vec<route::Nexthop>)>) {
        let (mut ipv4, mut ipv6) = (false, false);
        for (nhg, before) in renewed {
            let Some(after) = self.nhgs.get(nhg) else { continue };
            let way = |hops: &[route::Nexthop]| -> Vec<_> {
                hops.iter().map(|hop| (hop.ifindex, hop.is_on_link())).collect()
            };
            if way(&before) != way(&after.hops) {
                ipv4 |= after.family == family::INET;
                ipv6 |= after.family != family::INET;
            }
            self.changes.nhgs.insert(nhg);
        }
        if ipv4 {
            self.changes.v4.all = true;
            self.v4.find_reached(&self.nhgs);
        }
        if ipv6 {
            self.changes.v6.all = true;
            self.v6.find_reached(&self.nhgs);
        }
    }

    /// With an address the kernel changes routes of its family without a message. IPv4: routes go that prefer it as their source. Next hops on
    /// the device die with its last address, and live again with a new one. IPv6: routes lose their preferred source, and the prefix's route
    /// gets another end.
    fn apply_address(&mut self, message: Message<'_>) {
        self.changes.addresses = true;
        let Some(reported) = addr::decode(message.payload) else { return self.resync.lose_routes() };
        if reported.address.is_ipv6() {
            return self.resync.v6.lose();
        }
        let is_new = message.kind == message::NEW_ADDR;
        self.changes.kernel |= self.kernel.follow_address(reported, is_new);
        if is_new {
            self.changes.kernel |= self.kernel.revived.insert((family::INET, reported.ifindex));
        }
        self.resync.v4.lose();
    }

    /// Takes over settings that the kernel does not announce; whether they differ.
    pub fn put_sysctl(&mut self, sysctl: Sysctl) -> bool {
        let (changed, routes) = self.kernel.put_sysctl(sysctl);
        if routes {
            self.changes.v6.all = true;
            self.resync.v6.lose();
        }
        changed
    }

    fn apply_link(&mut self, message: Message<'_>) {
        let Some(reported) = link::decode(message.payload) else { return };
        self.touched.links.insert(reported.ifindex);
        let before = self.kernel.links.get(&reported.ifindex);
        if message.kind == message::DEL_LINK {
            self.touched.gone.insert(reported.ifindex);
            let gone: Vec<_> = self.neighbours_on(reported.ifindex).collect();
            for address in gone {
                self.set_neighbour(address, reported.ifindex, None, false);
            }
            self.kernel.remove_link(reported.ifindex);
            self.changes.kernel = true;
            self.resync.lose_link();
            return;
        }
        if before == Some(&reported) {
            return;
        }
        let state = |link: &link::Link| (link.is_up(), link.has_carrier());
        if before.map(state) != Some(state(&reported)) {
            let families = [family::INET, family::INET6];
            self.kernel.revived.extend(families.map(|family| (family, reported.ifindex)));
            // Another route of the prefix may count from now on.
            let counts = |family: &u8| self.kernel.ignores_linkdown(*family, reported.ifindex);
            let [v4, v6] = families.map(|family| before.is_some() && counts(&family));
            (self.changes.v4.all, self.changes.v6.all) =
                (self.changes.v4.all || v4, self.changes.v6.all || v6);
        }
        if before.is_none_or(|before| reported.may_move_routes(before)) {
            self.resync.lose_link();
        }
        if before.is_some_and(|before| before.resolves_neighbours() != reported.resolves_neighbours()) {
            self.resync.lose_kernel_state();
        }
        self.changes.kernel = true;
        self.kernel.put_link(reported);
    }

    /// Whether a neighbour's MAC address is known.
    pub fn is_resolved(&self, address: IpAddr, link: u32) -> bool {
        match address {
            IpAddr::V4(addr) => self.v4.neighbours.contains_key(&(addr.into(), link)),
            IpAddr::V6(addr) => self.v6.neighbours.contains_key(&(addr.into(), link)),
        }
    }

    /// Where packets to a neighbour go, as an adjacency has it.
    pub fn adjacency_of_neighbour(&self, address: IpAddr, link: u32) -> Option<Used> {
        let known = match address {
            IpAddr::V4(addr) => self.v4.neighbours.get(&(addr.into(), link)),
            IpAddr::V6(addr) => self.v6.neighbours.get(&(addr.into(), link)),
        };
        let destination = known?.mac?;
        let device = self.kernel.links.get(&link)?;
        let (ifindex, vlan) = match (device.vlan, device.parent) {
            (Some(vlan), Some(parent)) => (parent, Some(vlan)),
            _ => (link, None),
        };
        Some(Used { ifindex, vlan, destination })
    }

    fn neighbours_on(&self, link: u32) -> impl Iterator<Item = IpAddr> {
        self.v4.neighbours_on(link).map(Ip::ip).chain(self.v6.neighbours_on(link).map(Ip::ip))
    }

    fn set_neighbour(&mut self, address: IpAddr, link: u32, mac: Option<[u8; 6]>, stale: bool) {
        let mac = mac.filter(|_| self.kernel.links.get(&link).is_none_or(link::Link::resolves_neighbours));
        if stale && mac.is_some() {
            self.stale.insert((address, link));
        } else {
            self.stale.remove(&(address, link));
        }
        let entry = mac.map(|mac| Neighbour { mac: Some(mac), stale });
        let changed = match address {
            IpAddr::V4(addr) => put_neighbour(addr.into(), link, entry, &mut self.v4, &mut self.changes.v4),
            IpAddr::V6(addr) => put_neighbour(addr.into(), link, entry, &mut self.v6, &mut self.changes.v6),
        };
        if changed {
            self.changes.neighbours.insert((address, link));
        }
    }

    /// Asks the kernel for links, settings, rules and neighbours. Changes can interrupt that. If the last of a few dumps is interrupted, too, its
    /// answer is taken all the same, and `Mirror::resync` knows it.
    pub fn dump_kernel_state(&mut self, socket: &mut Netlink) -> Result<(), Error> {
        let (mut reported, mut interrupted) = (Self::default(), true);
        for _ in 0..ATTEMPTS {
            reported = Self::default();
            interrupted = reported.read_kernel_state(socket)?;
            if !interrupted {
                break;
            }
        }
        self.kernel.adopt(reported.kernel);
        self.stale = reported.stale;
        self.resync.end_kernel_state(interrupted);
        self.touched.all = true;
        self.nhgs.take_objects(reported.nhgs.into_objects());
        self.v4.take_neighbours(reported.v4);
        self.v6.take_neighbours(reported.v6);
        self.changes.everything();
        Ok(())
    }

    /// Adds the kernel's state; whether changes interrupted it.
    fn read_kernel_state(&mut self, socket: &mut Netlink) -> Result<bool, Error> {
        let mut interrupted = socket.dump(link::dump(), |message| self.apply(message))?;
        interrupted |= unless_missing(socket.dump(addr::dump(family::INET), |message| self.apply(message)))?;
        interrupted |= unless_missing(socket.dump(nexthop::dump(), |message| self.apply(message)))?;
        for family in [family::INET, family::INET6] {
            for request in [netconf::dump(family), rule::dump(family), neigh::dump(family)] {
                interrupted |= unless_missing(socket.dump(request, |message| self.apply(message)))?;
            }
        }
        Ok(interrupted)
    }

    /// Asks the kernel for the policy rules, where they may not be the mirror's; the changes up to then must have been followed. An interrupted
    /// dump has to be repeated.
    pub fn dump_rules(&mut self, socket: &mut Netlink) -> Result<(), Error> {
        if !self.resync.begin_rules() {
            return Ok(());
        }
        let (mut reported, mut interrupted) = (Self::default(), false);
        reported.kernel.links = std::mem::take(&mut self.kernel.links);
        for family in [family::INET, family::INET6] {
            let dumped = unless_missing(socket.dump(rule::dump(family), |message| reported.apply(message)));
            match dumped {
                Ok(dumped) => interrupted |= dumped,
                Err(error) => {
                    self.kernel.links = reported.kernel.links;
                    self.resync.lose_rules();
                    return Err(error);
                }
            }
        }
        (self.kernel.links, self.kernel.rules) = (reported.kernel.links, reported.kernel.rules);
        self.resync.end_rules(interrupted);
        self.changes.kernel = true;
        Ok(())
    }

    /// Asks the kernel for the next hop objects, where some may have gone without a word; the changes up to then must have been
    /// followed. An interrupted dump has to be repeated.
    pub fn dump_objects(&mut self, socket: &mut Netlink) -> Result<(), Error> {
        if !self.resync.begin_objects() || !self.nhgs.has_objects() {
            return Ok(());
        }
        let mut reported = Self::default();
        let interrupted = unless_missing(socket.dump(nexthop::dump(), |message| reported.apply(message)))?;
        self.resync.end_objects(interrupted);
        if !interrupted {
            let renewed = self.nhgs.take_objects(reported.nhgs.into_objects());
            self.follow_renewed(renewed);
        }
        Ok(())
    }

    /// Begins to ask the kernel for the IPv4 routes. To be adopted when all was read and the changes up to then were followed.
    pub fn begin_ipv4(&mut self, socket: &mut Netlink) -> Result<Dump<u32>, Error> {
        self.resync.v4.begin();
        Dump::begin(socket, &mut self.v4, &mut self.nhgs)
    }

    /// Begins to ask the kernel for the IPv6 routes. To be adopted when all was read and the changes up to then were followed.
    pub fn begin_ipv6(&mut self, socket: &mut Netlink) -> Result<Dump<u128>, Error> {
        self.resync.v6.begin();
        Dump::begin(socket, &mut self.v6, &mut self.nhgs)
    }

    /// Takes the IPv4 routes of a dump over; between the two every change must have been followed.
    pub fn adopt_ipv4(&mut self, dump: Dump<u32>) {
        self.resync.v4.end(dump.adopt(&mut self.v4, &mut self.nhgs));
        self.changes.v4.all = true;
        if !self.resync.v4.needs_dump() {
            self.forget_revived(family::INET);
        }
    }

    /// Takes the IPv6 routes of a dump over; between the two every change must have been followed.
    pub fn adopt_ipv6(&mut self, dump: Dump<u128>) {
        self.resync.v6.end(dump.adopt(&mut self.v6, &mut self.nhgs));
        self.changes.v6.all = true;
        if !self.resync.v6.needs_dump() {
            self.forget_revived(family::INET6);
        }
    }

    /// From now on the routes' own marks say which next hops are dead. The dump may have found one dead that was taken for alive until now.
    fn forget_revived(&mut self, of: u8) {
        let before = self.kernel.revived.len();
        self.kernel.revived.retain(|(family, _)| *family != of);
        self.changes.kernel |= self.kernel.revived.len() != before;
    }

    /// Whether routes lead into VRF devices. O(nexthop groups).
    pub fn leads_into_vrf(&self) -> bool {
        let is_vrf = |link: u32| self.kernel.links.get(&link).is_some_and(|link| link.vrf_table.is_some());
        self.kernel.links.values().any(|link| link.vrf_table.is_some())
            && self.nhgs.iter().any(|(_, nhg)| nhg.hops.iter().any(|hop| is_vrf(hop.ifindex)))
    }

    /// The neighbour of a family that has this MAC address on a link. O(neighbours on the link).
    pub fn neighbour(&self, family: u8, link: u32, mac: [u8; 6]) -> Option<IpAddr> {
        match family {
            family::INET => with_mac(&self.v4, link, mac),
            _ => with_mac(&self.v6, link, mac),
        }
    }

    /// Routes of both families.
    pub fn routes(&self) -> usize {
        let of = |tables: &mut dyn Iterator<Item = usize>| tables.sum::<usize>();
        of(&mut self.v4.tables().map(Table::routes)) + of(&mut self.v6.tables().map(Table::routes))
    }
}

fn with_mac<A: Ip>(family: &Family<A>, link: u32, mac: [u8; 6]) -> Option<IpAddr> {
    let has = |addr: &A| family.neighbours.get(&(*addr, link)).is_some_and(|known| known.mac == Some(mac));
    family.neighbours_on(link).find(has).map(Ip::ip)
}

/// Whether the neighbour's MAC address changed.
fn put_neighbour<A: Ip>(
    addr: A,
    link: u32,
    entry: Option<Neighbour>,
    family: &mut Family<A>,
    changes: &mut FamilyChanges<A>,
) -> bool {
    let before = family.set_neighbour(addr, link, entry);
    if before.and_then(|before| before.mac) == entry.and_then(|entry| entry.mac) {
        return false;
    }
    changes.prefixes.push(Prefix::host(addr));
    for table in family.reaching(link) {
        changes.others.entry(table).or_default().push(Prefix::host(addr));
    }
    true
}

/// Follows one route message; `added` holds the header's flags of a new route.
fn follow<A: Ip>(
    reported: &route::RouteMessage<'_>,
    added: Option<u16>,
    family: &mut Family<A>,
    nhgs: &mut NexthopGroups,
    (changes, state): (&mut FamilyChanges<A>, &mut SyncState),
) {
    let Some(addr) = A::from_bytes(reported.destination) else { return };
    let prefix = Prefix::truncated(addr, reported.prefix_len.into());
    let route = Route { metric: reported.metric, nhg: nhgs.intern(reported) };
    if let Some(left) = reported.ends_in {
        nhgs.note_expiry(route.nhg, left);
    }
    let table = match reported.table {
        TABLE_LOCAL => &mut family.local,
        TABLE_MAIN => &mut family.main,
        other => family.other(other, state.is_dumping()),
    };
    let followed = match added {
        Some(flags) => table.add(prefix, route, flags, nhgs),
        None => table.remove(prefix, route, nhgs),
    };
    if followed == Followed::Ambiguously {
        state.lose();
    }
    match reported.table {
        TABLE_LOCAL => family.touched_by_local(prefix, |prefix| changes.prefixes.push(prefix)),
        TABLE_MAIN => return family.touched_by_main(prefix, |prefix| changes.prefixes.push(prefix)),
        _ => {}
    }
    // Rules may ask table local as one of its own, too.
    family.note(reported.table, prefix, nhgs);
    let touched = changes.others.entry(reported.table).or_default();
    family.touched_by_main(prefix, |prefix| touched.push(prefix));
}
