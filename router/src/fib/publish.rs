//! From the mirrored state to what packets meet: tables in the image, actions, adjacencies.
//!
//! Every change marks prefixes; the answer for each is decided again from the whole state and compared with the table's. So a change that
//! was followed twice, or in vain, does no harm.

use crate::dataplane::Dataplane;
use crate::dataplane::actions::Actions;
use crate::fib::action_index::ActionIndex;
use crate::fib::meaning::Host;
use crate::fib::policies::Policies;
use crate::fib::published::{Counts, Published};
use crate::fib::reserve::Reserve;
use crate::fib::resolve::Resolver;
use crate::fib::sources::Sources;
use crate::fib::writer::Writer;
use crate::kernel::family;
use crate::kernel::route::Nexthop;
use crate::rib::family::NexthopState;
use crate::rib::mirror::Mirror;
use crate::xdp::damage::Damage;
use crate::xdp::local_addrs::{LocalAddrBits, LocalAddrs};
use crate::xdp::rules::Rules;
use crate::xdp::table_ids::{NodeImage, RESERVE_TABLE, TABLE4, TABLE6};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use trieline_lpm::{Image, Prefix, Table};

/// How long after the image was full the next attempt is made.
const RETRY: Duration = Duration::from_secs(5);

/// The writer of the image and of the actions.
pub struct Publisher {
    image: NodeImage,
    reserve: Reserve,
    /// IPv4.
    pub v4: Published<u32>,
    /// IPv6.
    pub v6: Published<u128>,
    /// Numbers of nexthop groups and neighbours.
    pub action_index: ActionIndex,
    /// Lookup ids of the devices.
    pub policies: Policies,
    /// Changes so far.
    pub counts: Counts,
    sources: Sources,
    /// Local IPv4 addresses, which packets' sources are compared with.
    own: LocalAddrBits,
    local_addrs: LocalAddrs,
    /// Nexthop groups after the last clearing out.
    swept: usize,
    /// Nexthop groups by devices that are gone, and that routes use all the same.
    without_device: usize,
    /// Since when there are more next hops than actions: the kernel forwards by the others.
    actions_full: Option<Instant>,
    inherited: bool,
    /// How often the tables that routes name had changed when the lookup ids were found.
    named: u64,
    /// Lookup ids, perhaps, that nothing uses any more.
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
    Dataplane(#[from] crate::xdp::error::Error),
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
            sources: Sources::new()?,
            swept: 0,
            without_device: 0,
            actions_full: None,
            inherited: dataplane.reopened(),
            named: 0,
            may_have_unused: true,
        })
    }

    /// The image, for tables that are not routes.
    pub fn image(&mut self) -> &mut NodeImage {
        &mut self.image
    }

    /// A reader of the image, as the XDP program reads it.
    pub fn reader(&self) -> trieline_lpm::Reader<'_> {
        self.image.reader()
    }

    /// The use of the image's memory.
    pub fn image_stats(&self) -> trieline_lpm::ImageStats {
        self.image.stats()
    }

    /// Takes back memory whose grace period has passed; whether some still waits.
    pub fn reclaim(&mut self, (rules, actions): (&mut Rules, &mut Actions)) -> bool {
        actions.reclaim();
        actions.count();
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
        if self.actions_full.is_some_and(|at| at.elapsed() > RETRY) {
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
        if changes.addresses || changes.kernel {
            self.sources.forget();
        }
        let renamed = self.named != mirror.nhgs.renamed();
        if changes.kernel || renamed {
            self.find_policies(mirror, devices, rules, actions);
        }
        // Their neighbours' decisions may change, too.
        for (of, _) in std::mem::take(&mut self.policies.set_apart) {
            changes.v4.all |= of == family::INET;
            changes.v6.all |= of == family::INET6;
        }
        let (changed4, changed6) = (changes.v4.any(), changes.v6.any());
        let (kernel, nhgs) = (&mirror.kernel, &mirror.nhgs);
        let resolver = Resolver {
            kernel,
            v4: &mirror.v4,
            v6: &mirror.v6,
            devices,
            lookup_ids: &self.policies.lookup_ids,
            nexthops: NexthopState::new(nhgs, kernel),
            sources: &self.sources,
        };
        // Actions first: an action that is known to be wrong is worse than a prefix that is.
        let all = changes.kernel || changes.addresses || renamed;
        let renewed = !changes.nhgs.is_empty();
        if all || changed4 || changed6 || renewed || !changes.neighbours.is_empty() {
            let concerned = |id| {
                let Some(nhg) = mirror.nhgs.get(id) else { return false };
                all || changes.nhgs.contains(&id)
                    || nhg.asks_again() && changes.opens()
                    || Resolver::depends_on(nhg).any(|address| renewed || changes.may_move(address))
                    || nhg.hops.iter().any(|hop| {
                        hop.gateway
                            .is_some_and(|gateway| changes.neighbours.contains(&(gateway, hop.ifindex)))
                    })
            };
            self.action_index.refresh_nhgs(actions, &resolver, concerned);
            let concerned =
                |(address, link, _): &Host| all || changes.neighbours.contains(&(*address, *link));
            self.action_index.refresh_hosts(actions, &resolver, concerned);
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
        writer.family(&mut self.v4, &mirror.v4, resolver.nexthops, changes.v4, &self.policies.lookup_ids);
        writer.family(&mut self.v6, &mirror.v6, resolver.nexthops, changes.v6, &self.policies.lookup_ids);
        // A table that is used from now on has addresses of its own, too.
        if changed4 || all {
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
            self.actions_full.get_or_insert_with(Instant::now);
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
        if self.actions_full.is_some_and(|at| at.elapsed() > RETRY) {
            self.actions_full = None;
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

    /// Own addresses and keys of flows in the map that are not as they were written.
    pub fn local_damage(&self, mirror: &Mirror) -> Vec<Damage> {
        self.local_addrs.damage(&self.own, mirror.kernel.sysctl.flows)
    }

    /// Writes own addresses and keys of flows once more.
    pub fn repair_local(&self, mirror: &Mirror) {
        let [flows4, flows6] = mirror.kernel.sysctl.flows;
        self.local_addrs.set_flows(flows4, flows6);
        self.local_addrs.set(&self.own);
    }

    /// Whether there are more next hops than actions, or were some seconds ago: the kernel may still have routes for that reason.
    pub fn actions_are_full(&self) -> bool {
        self.actions_full.is_some()
    }

    /// Whether there may be lookup ids that nothing uses any more.
    pub fn may_have_unused(&self) -> bool {
        self.may_have_unused
    }

    /// Gives back lookup ids that nothing uses any more: when the ports are as the lookup ids say.
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

    /// Forgets nexthop groups by devices that are gone, whose routes the kernel has removed with them. O(nexthop groups), and O(routes) when there are
    /// new ones.
    pub fn forget(&mut self, mirror: &mut Mirror, actions: &mut Actions) {
        let gone = |mirror: &Mirror| {
            let links = &mirror.kernel.links;
            let is_gone = |hop: &Nexthop| hop.ifindex != 0 && !links.contains_key(&hop.ifindex);
            mirror.nhgs.iter().filter(|(_, nhg)| nhg.hops.iter().any(is_gone)).count()
        };
        let current = self.v4.is_current() && self.v6.is_current();
        if current && gone(mirror) != self.without_device {
            self.sweep(mirror, actions);
            self.without_device = gone(mirror);
        }
    }

    /// Forgets nexthop groups that no route uses any more.
    fn sweep(&mut self, mirror: &mut Mirror, actions: &mut Actions) {
        if mirror.resync.is_dumping() {
            return;
        }
        let mut used = vec![false; mirror.nhgs.bound()];
        let mut mark = |routes: &[crate::rib::table::Route]| {
            routes.iter().for_each(|route| used[route.nhg as usize] = true)
        };
        mirror.v4.tables().for_each(|table| table.iter().for_each(|(_, routes)| mark(routes)));
        mirror.v6.tables().for_each(|table| table.iter().for_each(|(_, routes)| mark(routes)));
        for gone in mirror.nhgs.sweep(|id| used.get(id as usize).is_some_and(|used| *used)) {
            self.action_index.release_nhg(actions, gone);
        }
        self.sources.forget();
        self.swept = mirror.nhgs.len();
        self.may_have_unused = true;
    }
}
