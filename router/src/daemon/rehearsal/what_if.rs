//! The tables that trielined would have with another configuration, or with other routes, in maps of this process alone. Packets
//! can be tried over them; nothing is attached, and nothing that runs changes.

use super::Rehearsal;
use super::private::PrivatePins;
use super::routes::{self, RouteList};
use crate::daemon::error::Error;
use crate::dataplane::Dataplane;
use crate::dataplane::pinned_maps::PinnedMaps;
use crate::dataplane::test_run::TestRun;
use crate::fib::publish::Publisher;
use crate::filter::{Filters, maps};
use crate::kernel::family;
use crate::kernel::netdev::{Features, Takes};
use crate::sid_hook::rule::{SidHookRule, What};
use crate::sid_hook::{self, SidHooks};
use crate::srv6::steps;
use crate::xdp::attachment::AttachMode;
use crate::xdp::ports::Port;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Receive buffer of the socket that reads XDP features once.
const BUFFER: usize = 1 << 20;

/// Tables that nothing uses but this process.
#[derive(Debug)]
pub struct WhatIf {
    rehearsal: Rehearsal,
    /// Names of filters by their counters.
    names: BTreeMap<u8, String>,
    dataplane: Dataplane,
    _publisher: Publisher,
    _filters: Filters,
    _sid_hooks: SidHooks,
    _private: PrivatePins,
}

impl WhatIf {
    /// The program, to be tried on packets over these tables.
    pub fn test_run(&self) -> Result<TestRun, Error> {
        Ok(self.dataplane.test_run()?)
    }

    /// Ports: device, VLAN and settings.
    pub fn ports(&self) -> Result<Vec<(u32, Option<u16>, Port)>, Error> {
        Ok(self.dataplane.ports()?)
    }

    /// The name of the filter that counts in `counter`.
    pub fn filter_name(&self, counter: u8) -> Option<String> {
        self.names.get(&counter).cloned()
    }

    /// The neighbour of a family that has this MAC address on a device, if the kernel knows one.
    pub fn neighbour(&self, family: u8, ifindex: u32, mac: [u8; 6]) -> Option<IpAddr> {
        self.rehearsal.mirror.neighbour(family, ifindex, mac)
    }
}

impl Rehearsal {
    /// Replaces the tables that a list of routes names, in the mirror alone. `family` is that of routes that do not show it.
    pub fn replace_routes(&mut self, list: RouteList, family: Option<u8>) -> Result<(), routes::Error> {
        list.put(family.unwrap_or(family::INET), &mut self.mirror)
    }

    /// Fills maps with the tables, filters and SID hooks. Equal paths are chosen as by the tables of `like`, and devices that those are
    /// attached to take frames as they do now. Others are taken to do so once trielined is attached. SID hooks that sample have no file.
    pub fn what_if(mut self, like: &PinnedMaps) -> Result<WhatIf, Error> {
        let (private, mut dataplane) = self.dataplane(Some(like.hash_key()))?;
        let mut publisher = Publisher::new(&mut dataplane)?;
        let (filters, sid_hooks) = self.hooks(&mut dataplane, &mut publisher)?;
        (self.ports.filters, self.ports.sid_hooks) = (filters.any(), sid_hooks.any());
        let attached = like.attachments()?.into_iter().map(|attached| attached.ifindex).collect();
        let egress = self.open_exits(&mut dataplane, &attached)?;
        dataplane.csids().set(&steps::find(&self.mirror))?;
        dataplane.beat(None)?;
        publisher.publish(&mut self.mirror, dataplane.parts(), &egress);
        let tables = (publisher.v4.is_current(), publisher.v6.is_current());
        for ((ifindex, vlan), port) in
            self.ports.wanted(&self.mirror.kernel, &publisher.policies.lookup_ids, tables)
        {
            dataplane.set_port(ifindex, vlan, port)?;
        }
        let lists = dataplane.filters();
        let all = (0..maps::Filters::LISTS).flat_map(|list| lists.list(list));
        let names = all.map(|filter| (filter.counter, filter.rule.name)).collect();
        Ok(WhatIf {
            rehearsal: self,
            names,
            dataplane,
            _publisher: publisher,
            _filters: filters,
            _sid_hooks: sid_hooks,
            _private: private,
        })
    }

    /// Reads the files of the filters, and binds the SID hooks.
    fn hooks(
        &self,
        dataplane: &mut Dataplane,
        publisher: &mut Publisher,
    ) -> Result<(Filters, SidHooks), Error> {
        let has_no_file = |rule: &&SidHookRule| !matches!(rule.what, What::Pcap(_));
        let rules: Vec<_> = self.config.sid_hooks.iter().filter(has_no_file).cloned().collect();
        let mut sid_hooks = SidHooks::new(dataplane.pins());
        let numbers = sid_hooks.numbers(&rules, dataplane.sid_hooks())?;
        let lists = sid_hook::lists(&rules, &numbers);
        let prepared = sid_hooks.prepare(rules, &numbers, dataplane.sid_hooks())?;
        sid_hooks.replace_filters(&prepared, dataplane.sid_hooks())?;
        let filters =
            Filters::rehearse(self.config.filters.clone(), lists, publisher.image(), dataplane.filters())?;
        let mut grace = dataplane.grace();
        sid_hooks.commit(prepared, dataplane.sid_hooks(), &mut grace)?;
        Ok((filters, sid_hooks))
    }

    /// Lets packets leave by the configured devices that take redirected frames, or would.
    fn open_exits(
        &mut self,
        dataplane: &mut Dataplane,
        attached: &BTreeSet<u32>,
    ) -> Result<BTreeSet<u32>, Error> {
        let features = Features::start(BUFFER)?;
        let links: Vec<u32> = self.links().map(|link| link.ifindex).collect();
        let takes = |ifindex: u32| match &features {
            Some(features) if attached.contains(&ifindex) && self.config.mode != AttachMode::Generic => {
                features.of(ifindex)
            }
            _ => Takes { redirects: true, frags: false },
        };
        let mut egress = BTreeSet::new();
        for ifindex in links.iter().copied().filter(|ifindex| takes(*ifindex).redirects) {
            dataplane.open_device(ifindex, takes(ifindex).frags)?;
            egress.insert(ifindex);
        }
        self.mirror.kernel.disabled = links.into_iter().filter(|ifindex| !egress.contains(ifindex)).collect();
        Ok(egress)
    }
}
