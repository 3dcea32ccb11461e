//! The maps of an instance, mapped into this process: for the owner and for readers alike.

use std::os::fd::{AsFd, OwnedFd};

use crate::xdp::action_map::{Array, Records};
use crate::xdp::counters::{self, Counters, PortKey};
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_action, tl_adjacency, tl_group, tl_long_outer, tl_port, tl_rule};
use crate::xdp::local_addrs::LocalAddrs;
use crate::xdp::ports::{PLACES, Port, Ports};
use crate::xdp::rules::RuleMap;
use crate::xdp::sys;
use trieline_bpf::Mapping;

/// Maps the actions and what they lead to.
pub(crate) fn records(maps: [&OwnedFd; 4]) -> Result<Records> {
    let array = |map: &OwnedFd, of: usize| {
        let fail = |e| Error::kernel("cannot map the actions", e);
        let count = sys::map_shape(map.as_fd()).map_err(fail)?.entries;
        let memory = Mapping::of_array(map.as_fd(), u64::from(count) * of as u64).map_err(fail)?;
        Ok::<_, Error>(Array { memory, count })
    };
    let [actions, adjacencies, long_outers, groups] = maps;
    Ok(Records {
        actions: array(actions, size_of::<tl_action>())?,
        adjacencies: array(adjacencies, size_of::<tl_adjacency>())?,
        long_outers: array(long_outers, size_of::<tl_long_outer>())?,
        groups: array(groups, size_of::<tl_group>())?,
    })
}

/// Maps the bits of own addresses.
pub(crate) fn local_addrs(fd: &OwnedFd) -> Result<Mapping> {
    let fail = |e| Error::kernel("cannot map the own addresses", e);
    Mapping::of_array(fd.as_fd(), LocalAddrs::BYTES).map_err(fail)
}

/// Maps the rules.
pub(crate) fn rules(fd: &OwnedFd) -> Result<RuleMap> {
    let fail = |e| Error::kernel("cannot map the rules", e);
    let count = sys::map_shape(fd.as_fd()).map_err(fail)?.entries;
    let bytes = u64::from(count) * size_of::<tl_rule>() as u64;
    Ok(RuleMap::new(Mapping::of_array(fd.as_fd(), bytes).map_err(fail)?, count))
}

/// Maps the ports.
pub(crate) fn ports(ports: &OwnedFd, tagged: OwnedFd) -> Result<Ports> {
    let bytes = u64::from(PLACES) * size_of::<tl_port>() as u64;
    let ports =
        Mapping::of_array(ports.as_fd(), bytes).map_err(|e| Error::kernel("cannot map the ports", e))?;
    Ok(Ports::new(ports, tagged))
}

/// Reads the counters of all ports.
pub(crate) fn read_counters(fd: &OwnedFd, ports: &Ports) -> Result<Counters> {
    let ports: Vec<(PortKey, u16, u32)> =
        ports.all()?.into_iter().map(|(key, port, slot)| (key, slot, port.ifindex)).collect();
    counters::read(fd.as_fd(), &ports)
}

/// Ports: device, VLAN and settings.
pub(crate) fn list_ports(ports: &Ports) -> Result<Vec<(u32, Option<u16>, Port)>> {
    Ok(ports.all()?.into_iter().map(|((ifindex, vlan), port, _)| (ifindex, vlan, port)).collect())
}
