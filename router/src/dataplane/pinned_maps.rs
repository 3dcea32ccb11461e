//! An instance seen from outside its owner: its maps, opened by their pins and only read.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::dataplane::test_run::TestRun;
use crate::filter::maps::{Filter, FilterCount, FilterMaps, Filters};
use crate::xdp::action::Action;
use crate::xdp::action_map::Records;
use crate::xdp::attachment::{self, Attachment};
use crate::xdp::counters::Counters;
use crate::xdp::error::{Error, Result};
use crate::xdp::heartbeat::{Heartbeat, Words};
use crate::xdp::layout::tl_instance;
use crate::xdp::maps;
use crate::xdp::pins::{self, instance, need};
use crate::xdp::ports::{Port, Ports};
use crate::xdp::rules::{Rule, RuleMap};
use trieline_bpf::{ImageMap, ImageMapType, ImageMemory};

/// An instance seen from outside its owner: changes nothing.
#[derive(Debug)]
pub struct PinnedMaps {
    pins: PathBuf,
    instance: tl_instance,
    image: ImageMap,
    records: Records,
    rules: RuleMap,
    ports: Ports,
    counters: OwnedFd,
    filters: FilterMaps,
    heartbeat: Words,
}

/// Opens an instance to look at it, with or without its owner running.
pub fn open_readonly(pins: &Path) -> Result<PinnedMaps> {
    let instance = instance(pins)?.ok_or_else(|| Error::NotPinned { path: pins.into() })?;
    let missing =
        Error::Pins { map: pins::IMAGE.into(), what: "is of another kind".into(), path: pins.into() };
    Ok(PinnedMaps {
        pins: pins.into(),
        instance,
        image: ImageMap::adopt(need(pins, pins::IMAGE)?)?.ok_or(missing)?,
        records: maps::records([
            &need(pins, pins::ACTIONS)?,
            &need(pins, pins::ADJACENCIES)?,
            &need(pins, pins::LONG_OUTERS)?,
            &need(pins, pins::GROUPS)?,
        ])?,
        rules: maps::rules(&need(pins, pins::RULES)?)?,
        ports: maps::ports(&need(pins, pins::PORTS)?, need(pins, pins::TAGGED)?)?,
        counters: need(pins, pins::COUNTERS)?,
        filters: FilterMaps::new(
            &need(pins, pins::FILTERS)?,
            &need(pins, pins::FILTER_LISTS)?,
            need(pins, pins::FILTER_COUNTERS)?,
        )?,
        heartbeat: Words::of(&need(pins, pins::HEARTBEAT)?)?,
    })
}

impl PinnedMaps {
    /// Map type of the image.
    pub fn map_type(&self) -> ImageMapType {
        self.image.map_type()
    }

    /// Size of the image.
    pub fn image_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// The state of the heartbeat, and whether the tables are in use.
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.read()
    }

    /// The key of the hash that chooses among equal paths.
    pub(crate) fn hash_key(&self) -> u64 {
        self.instance.hash_key
    }

    /// Tables the image was made for.
    pub fn tables(&self) -> u32 {
        self.instance.tables
    }

    /// The image. Its owner may change it at any moment and knows nothing of this reader: answers may be wrong for
    /// addresses that are just being changed. Never write to it.
    pub fn memory(&self) -> ImageMemory {
        self.image.memory()
    }

    /// The action that a value in a table stands for.
    pub fn action(&self, id: u32) -> Option<Action> {
        self.records.action(id)
    }

    /// The rules of a lookup id, one after another, for packets between two addresses of one family.
    pub fn concerning(&self, lookup: u32, from: IpAddr, to: IpAddr) -> Vec<Rule> {
        self.rules.concerning(lookup, from, to)
    }

    /// The number of actions that are set.
    pub fn actions_used(&self) -> u32 {
        self.records.set_actions().count() as u32
    }

    /// Packets counted.
    pub fn counters(&self) -> Result<Counters> {
        maps::read_counters(&self.counters, &self.ports)
    }

    /// The program, to be tried on packets over these tables.
    pub fn test_run(&self) -> Result<TestRun> {
        TestRun::load(&self.pins, &self.instance, &self.image)
    }

    /// The filters of a list, in order; list 0 is the ports'.
    pub fn filters(&self, list: u32) -> Vec<Filter> {
        self.filters.list(list)
    }

    /// The name of the filter that counts in `counter`.
    pub fn filter_name(&self, counter: u8) -> Option<String> {
        let all = (0..Filters::LISTS).flat_map(|list| self.filters.list(list));
        all.into_iter().find(|filter| filter.counter == counter).map(|filter| filter.rule.name)
    }

    /// Counts of a filter's matches.
    pub fn filter_count(&self, filter: &Filter) -> Result<FilterCount> {
        self.filters.count(filter.counter)
    }

    /// Devices the program is attached to.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        attachment::all(&self.pins)
    }

    /// Ports: device, VLAN and settings.
    pub fn ports(&self) -> Result<Vec<(u32, Option<u16>, Port)>> {
        maps::list_ports(&self.ports)
    }
}
