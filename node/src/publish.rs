//! From the mirrored state to what packets meet: tables in the image, actions, adjacencies.
//!
//! Every change marks prefixes; the answer for each is decided again from the whole state and compared with the table's. So a change that
//! was followed twice, or in vain, does no harm.

mod writer;

use crate::action_index::{ActionIndex, Host};
use crate::family::NexthopState;
use crate::kernel::family;
use crate::kernel::route::{self, Nexthop};
use crate::kernel::socket::Netlink;
use crate::mirror::Mirror;
use crate::nexthop_group::NhgId;
use crate::policies::Policies;
use crate::reserve::Reserve;
use crate::resolve::Resolver;
use crate::rib::Ip;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};
use trieline_dataplane::{Actions, Dataplane, ImageMemory, LocalAddrBits, LocalAddrs, ReaderGrace, Rules};
use trieline_lpm::{Image, Prefix, Table};
use writer::Writer;

/// Table of local and main together, IPv4.
pub const TABLE4: u32 = trieline_dataplane::MAIN4;
/// Table of local and main together, IPv6.
pub const TABLE6: u32 = trieline_dataplane::MAIN6;
/// Tables of filters' sets: of each filter one a family, and as many again while they are replaced.
pub const FILTER_TABLES: std::ops::Range<u32> = 2..2 + 4 * trieline_dataplane::Filters::MAX as u32;
/// Table that keeps room for another where the image is full.
const RESERVE_TABLE: u32 = FILTER_TABLES.end;
/// Tables of routes other than local and main.
pub const OTHER_TABLES: std::ops::RangeFrom<u32> = RESERVE_TABLE + 1..;

/// The dataplane's image.
pub type NodeImage = Image<ImageMemory, ReaderGrace>;

/// How long after the image was full the next attempt is made.
const RETRY: Duration = Duration::from_secs(5);

/// A table in the image.
#[derive(Debug)]
pub struct Written<A: Ip> {
    /// The table, once it was built.
    pub table: Option<Table<A>>,
    /// Why the table is not as the kernel's, and since when: the family's packets are left to the kernel meanwhile.
    pub blocked: Option<(String, Instant)>,
    id: u32,
}

impl<A: Ip> Written<A> {
    fn new(id: u32) -> Self {
        Self { table: None, blocked: None, id }
    }
}

/// A family's tables in the image.
#[derive(Debug)]
pub struct Published<A: Ip> {
    /// Local and main together.
    pub main: Written<A>,
    /// Other kernel tables, by number.
    pub others: BTreeMap<u32, Written<A>>,
}

impl<A: Ip> Published<A> {
    fn new(id: u32) -> Self {
        Self { main: Written::new(id), others: BTreeMap::new() }
    }

    /// Whether packets may be forwarded by these tables.
    pub fn is_current(&self) -> bool {
        self.main.table.is_some() && self.blocked().is_none()
    }

    /// Why packets may not, and since when.
    pub fn blocked(&self) -> Option<&(String, Instant)> {
        self.main.blocked.as_ref().or_else(|| self.others.values().find_map(|table| table.blocked.as_ref()))
    }

    /// The other tables' kernel numbers by their ids in the image. O(tables).
    pub fn numbers(&self) -> HashMap<u32, u32> {
        self.others.iter().map(|(number, written)| (written.id, *number)).collect()
    }

    /// Whether a table of a few has just this value for one address.
    fn has(&self, addr: A, id: u32, mut others: impl Iterator<Item = u32>) -> bool {
        let is = |written: &Written<A>| value(&written.table, addr) == Some(id);
        is(&self.main) || others.any(|number| self.others.get(&number).is_some_and(is))
    }
}

/// The kernel's choice of source addresses, remembered until something changes.
#[derive(Debug)]
struct Sources {
    socket: Netlink,
    /// By destination: the path it takes, and what was chosen.
    known: HashMap<Ipv6Addr, (NhgId, Option<(u32, Ipv6Addr)>)>,
}

impl Sources {
    fn get(&mut self, destination: Ipv6Addr, nhg: NhgId) -> Option<(u32, Ipv6Addr)> {
        match self.known.get(&destination) {
            Some((known, chosen)) if *known == nhg => return *chosen,
            _ => {}
        }
        let mut chosen = None;
        // An error is an answer too: unreachable.
        let _ = self.socket.request(route::source_for(&destination.into()), |message| {
            if let Some((device, IpAddr::V6(source))) = route::decode_source(message.payload) {
                chosen = Some((device, source));
            }
        });
        self.known.insert(destination, (nhg, chosen));
        chosen
    }
}

/// Counts of what was published.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Prefixes written or removed one by one.
    pub prefixes: u64,
    /// Whole tables written.
    pub tables: u64,
    /// Times that the image had no room.
    pub full: u64,
}

/// The writer of the image and of the actions.
pub struct Publisher {
    image: NodeImage,
    reserve: Reserve,
    /// IPv4.
    pub v4: Published<u32>,
    /// IPv6.
    pub v6: Published<u128>,
    /// Numbers of paths and neighbours.
    pub action_index: ActionIndex,
    /// Views of the devices.
    pub policies: Policies,
    /// Changes so far.
    pub counts: Counts,
    sources: RefCell<Sources>,
    /// Local IPv4 addresses, which packets' sources are compared with.
    own: LocalAddrBits,
    local_addrs: LocalAddrs,
    /// Paths after the last clearing out.
    swept: usize,
    /// Paths by devices that are gone, and that routes use all the same.
    lingering: usize,
    /// Since when there are more next hops than actions; their routes are left to the kernel.
    pressed: Option<Instant>,
    inherited: bool,
    /// How often the tables that routes name had changed when the views were found.
    named: u64,
    /// Views, perhaps, that nothing uses any more.
    may_have_unused: bool,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The error of publishing tables.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image.
    #[error(transparent)]
    Image(#[from] trieline_lpm::Error),
    /// The dataplane.
    #[error(transparent)]
    Dataplane(#[from] trieline_dataplane::Error),
    /// The kernel.
    #[error(transparent)]
    Netlink(#[from] crate::kernel::socket::Error),
}

impl Publisher {
    /// Takes the dataplane's image over, with what an earlier daemon left in it.
    pub fn new(dataplane: &mut Dataplane) -> Result<Self, Error> {
        let (memory, grace, tables) = (dataplane.memory(), dataplane.grace(), dataplane.tables());
        let opened = if dataplane.reopened() {
            Image::open(memory.clone(), grace.clone()).map_err(|error| {
                tracing::warn!(%error, "the image of the daemon before is unusable; trielined makes a new one");
            })
        } else {
            Err(())
        };
        let mut image = match opened {
            Ok(image) => image,
            Err(()) => Image::create(memory, grace, tables)?,
        };
        let used = |id| image.reader().table_word(id) != 0;
        let policies = Policies::new(tables, used, dataplane.grace());
        let action_index = ActionIndex::new(dataplane.actions())?;
        let mut reserve = Reserve::new(action_index.full(), RESERVE_TABLE);
        reserve.keep(&mut image);
        Ok(Self {
            image,
            reserve,
            policies,
            v4: Published::new(TABLE4),
            v6: Published::new(TABLE6),
            action_index,
            counts: Counts::default(),
            own: LocalAddrBits::default(),
            local_addrs: dataplane.local_addrs(),
            sources: RefCell::new(Sources { socket: Netlink::route()?, known: HashMap::new() }),
            swept: 0,
            lingering: 0,
            pressed: None,
            inherited: dataplane.reopened(),
            named: 0,
            may_have_unused: true,
        })
    }

    /// The image, for tables that are not routes.
    pub fn image(&mut self) -> &mut NodeImage {
        &mut self.image
    }

    /// The use of the image's memory.
    pub fn image_stats(&self) -> trieline_lpm::ImageStats {
        self.image.stats()
    }

    /// Takes back memory whose grace period has passed; whether some still waits.
    pub fn reclaim(&mut self, (rules, actions): (&mut Rules, &mut Actions)) -> bool {
        actions.reclaim();
        let waiting = rules.reclaim() | self.reclaim_policies();
        self.image.reclaim() || waiting
    }

    /// Removes the tables that no packet can ask any more; whether some still wait.
    fn reclaim_policies(&mut self) -> bool {
        let image = &mut self.image;
        self.policies.reclaim(|id| {
            // The table may not exist.
            let _ = image.remove_table(id);
        })
    }

    /// Whether an attempt to write a table that did not fit is due again.
    pub fn retry_due(&self) -> (bool, bool) {
        if self.pressed.is_some_and(|at| at.elapsed() > RETRY) {
            return (true, true);
        }
        let due = |blocked: Option<&(String, Instant)>| blocked.is_some_and(|(_, at)| at.elapsed() > RETRY);
        (due(self.v4.blocked()), due(self.v6.blocked()))
    }

    /// Makes packets meet the mirrored state. `devices` are those that packets may leave by.
    pub fn publish(
        &mut self,
        mirror: &mut Mirror,
        (rules, actions): (&mut Rules, &mut Actions),
        devices: &BTreeSet<u32>,
    ) {
        let refused = self.action_index.refused;
        let mut changes = std::mem::take(&mut mirror.changes);
        (mirror.changes.v4.needs_resync, mirror.changes.v6.needs_resync) =
            (changes.v4.needs_resync, changes.v6.needs_resync);
        if changes.addresses || changes.kernel {
            self.sources.borrow_mut().known.clear();
        }
        if changes.kernel || self.named != mirror.nhgs.renamed() {
            self.find_policies(mirror, devices, rules, actions);
        }
        // Their neighbours' decisions may change, too.
        for (of, _) in std::mem::take(&mut self.policies.set_apart) {
            changes.v4.all |= of == family::INET;
            changes.v6.all |= of == family::INET6;
        }
        let (changed4, changed6) = (changes.v4.any(), changes.v6.any());
        let (kernel, sources) = (&mirror.kernel, &self.sources);
        let alive4 = |link| kernel.alive(family::INET, link);
        let alive6 = |link| kernel.alive(family::INET6, link);
        let source = |destination, nhg| sources.borrow_mut().get(destination, nhg);
        let resolver = Resolver {
            kernel,
            v4: &mirror.v4,
            v6: &mirror.v6,
            devices,
            policies: &self.policies,
            nexthops4: NexthopState { nhgs: &mirror.nhgs, alive: &alive4 },
            nexthops6: NexthopState { nhgs: &mirror.nhgs, alive: &alive6 },
            source: &source,
        };
        // Actions first: an action that is known to be wrong is worse than a prefix that is.
        let all = changes.kernel || changes.addresses;
        let renewed = !changes.nhgs.is_empty();
        if all || changed4 || changed6 || renewed || !changes.neighbours.is_empty() {
            let concerned = |id| {
                let Some(nhg) = mirror.nhgs.get(id) else { return false };
                all || changes.nhgs.contains(&id)
                    || Resolver::depends_on(nhg).any(|address| renewed || changes.may_move(address))
                    || nhg.hops.iter().any(|hop| {
                        hop.gateway
                            .is_some_and(|gateway| changes.neighbours.contains(&(gateway, hop.ifindex)))
                    })
            };
            self.action_index.refresh_nhgs(actions, concerned, |id| resolver.nhg(id));
            let concerned =
                |(address, link, _): &Host| all || changes.neighbours.contains(&(*address, *link));
            self.action_index.refresh_hosts(actions, concerned, |host| resolve_host(&resolver, host));
        }
        if changes.v4.all {
            self.own = LocalAddrBits::default(); // every IPv4 route is looked at
        }
        let mut writer = Writer {
            image: &mut self.image,
            reserve: &mut self.reserve,
            action_index: &mut self.action_index,
            actions,
            resolver: &resolver,
            counts: &mut self.counts,
            own: &mut self.own,
        };
        writer.family(&mut self.v4, &mirror.v4, resolver.nexthops4, changes.v4, &self.policies);
        writer.family(&mut self.v6, &mirror.v6, resolver.nexthops6, changes.v6, &self.policies);
        if changed4 {
            self.local_addrs.set(&self.own);
        }
        let [flows4, flows6] = mirror.kernel.sysctl.flows;
        self.local_addrs.set_flows(flows4, flows6);
        if changed4 || changed6 || !changes.neighbours.is_empty() {
            let (v4, v6) = (&self.v4, &self.v6);
            self.action_index.retain_hosts(actions, |(address, link, _), id| match address {
                IpAddr::V4(addr) => v4.has(u32::from(*addr), id, mirror.v4.reaching(*link)),
                IpAddr::V6(addr) => v6.has(u128::from(*addr), id, mirror.v6.reaching(*link)),
            });
        }
        if self.action_index.refused > refused {
            self.pressed.get_or_insert_with(Instant::now);
        }
        if self.inherited && self.v4.is_current() && self.v6.is_current() {
            let released = actions.release_inherited();
            tracing::debug!(released, "released actions of the daemon before");
            self.inherited = false;
        }
        // A full table still holds the decisions of an earlier state, by numbers that must keep their meaning.
        if !self.v4.is_current() || !self.v6.is_current() {
            return;
        }
        if self.pressed.is_some_and(|at| at.elapsed() > RETRY) {
            self.pressed = None;
            self.sweep(mirror, actions);
            (mirror.changes.v4.all, mirror.changes.v6.all) = (true, true);
        } else if mirror.nhgs.len() > 2 * self.swept + 1024 {
            self.sweep(mirror, actions);
        }
    }

    /// Finds out what decides for each device's packets.
    fn find_policies(
        &mut self,
        mirror: &Mirror,
        devices: &BTreeSet<u32>,
        rules: &mut Rules,
        actions: &mut Actions,
    ) {
        let named = mirror.nhgs.tables();
        (self.named, self.may_have_unused) = (mirror.nhgs.renamed(), true);
        self.reclaim_policies();
        // Until it is written; if the image is full, for longer.
        let (image, full) = (&mut self.image, self.action_index.full());
        let open = |(family, _), id| {
            let compiled = if family == family::INET {
                Table::create(image, id, [(Prefix::truncated(0_u32, 0), full)]).map(drop)
            } else {
                Table::create(image, id, [(Prefix::truncated(0_u128, 0), full)]).map(drop)
            };
            compiled.is_ok()
        };
        let parts = (rules, actions);
        self.policies.refresh(
            (&mirror.kernel, devices),
            named.iter().copied(),
            &mut self.action_index,
            parts,
            open,
        );
    }

    /// Whether there may be views that nothing uses any more.
    pub fn may_have_unused(&self) -> bool {
        self.may_have_unused
    }

    /// Gives back views that nothing uses any more: when the ports are as the views say.
    pub fn release_unused(&mut self, mirror: &Mirror, rules: &mut Rules) {
        if !std::mem::take(&mut self.may_have_unused) {
            return;
        }
        let (v4, v6) = (&mut self.v4, &mut self.v6);
        self.policies.release_unused(mirror.nhgs.tables(), rules, |(family, table)| {
            if family == family::INET {
                v4.others.remove(&table);
            } else {
                v6.others.remove(&table);
            }
        });
    }

    /// Forgets paths by devices that are gone, whose routes the kernel has removed with them. O(paths), and O(routes) when there are
    /// new ones.
    pub fn forget(&mut self, mirror: &mut Mirror, actions: &mut Actions) {
        let gone = |mirror: &Mirror| {
            let links = &mirror.kernel.links;
            let is_gone = |hop: &Nexthop| hop.ifindex != 0 && !links.contains_key(&hop.ifindex);
            mirror.nhgs.iter().filter(|(_, nhg)| nhg.hops.iter().any(is_gone)).count()
        };
        let current = self.v4.is_current() && self.v6.is_current();
        if current && gone(mirror) != self.lingering {
            self.sweep(mirror, actions);
            self.lingering = gone(mirror);
        }
    }

    /// Forgets paths that no route uses any more.
    fn sweep(&mut self, mirror: &mut Mirror, actions: &mut Actions) {
        if mirror.dumping {
            return;
        }
        let mut used = vec![false; mirror.nhgs.bound()];
        let mut mark =
            |routes: &[crate::rib::Route]| routes.iter().for_each(|route| used[route.nhg as usize] = true);
        mirror.v4.tables().for_each(|table| table.iter().for_each(|(_, routes)| mark(routes)));
        mirror.v6.tables().for_each(|table| table.iter().for_each(|(_, routes)| mark(routes)));
        for gone in mirror.nhgs.sweep(|id| used.get(id as usize).is_some_and(|used| *used)) {
            self.action_index.release_nhg(actions, gone);
        }
        self.sources.borrow_mut().known.clear();
        self.swept = mirror.nhgs.len();
        self.may_have_unused = true;
    }
}

fn value<A: Ip>(table: &Option<Table<A>>, addr: A) -> Option<u32> {
    table.as_ref()?.get(&Prefix::host(addr))
}

fn resolve_host(resolver: &Resolver<'_>, (address, link, mtu): &Host) -> trieline_dataplane::Action {
    match address {
        IpAddr::V4(addr) => resolver.host(u32::from(*addr), *link, *mtu),
        IpAddr::V6(addr) => resolver.host(u128::from(*addr), *link, *mtu),
    }
}
