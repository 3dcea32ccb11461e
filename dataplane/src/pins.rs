//! The pins of an instance: their names in its directory, opening them again, and removing them.

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::action::Action;
use crate::action_map::{Array, Records};
use crate::counters::{self, Counters};
use crate::dataplane::{AttachMode, Attachment};
use crate::error::{Error, Result};
use crate::filters::{Filter, FilterCount, FilterMaps, Filters};
use crate::heartbeat::{Heartbeat, Words};
use crate::layout::{
    tl_action, tl_adjacency, tl_group, tl_instance, tl_limits, tl_long_outer, tl_port, tl_rule,
};
use crate::local_addrs::LocalAddrs;
use crate::ports::{PORTS, Port, PortKey, Ports, TAGGED as TAGGED_MAX};
use crate::rules::{Rule, RuleMap};
use crate::sys::{self, MapShape};
use crate::test_run::TestRun;
use trieline_bpf::{ImageMap, ImageMapType, ImageMemory, Mapping};

pub(crate) const VERSION: u32 = tl_limits::TL_INTF_VERSION.0;
pub(crate) const IMAGE_VERSION: u32 = tl_limits::TL_INTF_IMAGE.0;
pub(crate) const IMAGE: &str = "image";
pub(crate) const INSTANCE: &str = "instance";
pub(crate) const ACTIONS: &str = "actions";
pub(crate) const ADJACENCIES: &str = "adjacencies";
pub(crate) const RULES: &str = "rules";
pub(crate) const LOCAL_ADDRS: &str = "local_addrs";
pub(crate) const PORT_MAP: &str = "ports";
pub(crate) const TAGGED: &str = "tagged";
pub(crate) const TAGGED_PORTS: &str = "tagged_ports";
pub(crate) const DEVICES: &str = "devices";
pub(crate) const JUMBO_DEVICES: &str = "jumbo_devices";
pub(crate) const COUNTERS: &str = "counters";
pub(crate) const FILTERS: &str = "filters";
pub(crate) const FILTER_LISTS: &str = "filter_lists";
pub(crate) const FILTER_COUNTERS: &str = "filter_counters";
pub(crate) const SID_HOOKS: &str = "sid_hooks";
pub(crate) const SID_HOOK_PROGRAMS: &str = "sid_hook_programs";
pub(crate) const CSIDS: &str = "csids";
pub(crate) const CAPTURES: &str = "captures";
pub(crate) const CAPTURE_RINGS: &str = "capture_rings";
pub(crate) const LONG_OUTERS: &str = "long_outers";
pub(crate) const GROUPS: &str = "groups";
pub(crate) const SIDS: &str = "sids";
pub(crate) const HEARTBEAT: &str = "life";
const LINK: &str = "link-";
const ARRAY: u32 = 2;

pub(crate) fn link_path(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{LINK}{ifindex}"))
}

/// Opens a pin.
pub(crate) fn open(pins: &Path, name: &str) -> Result<Option<OwnedFd>> {
    sys::get(&pins.join(name))
        .map_err(|e| Error::kernel(format!("cannot open the pin {}", pins.join(name).display()), e))
}

/// Opens a pin that must be there.
pub(crate) fn need(pins: &Path, name: &str) -> Result<OwnedFd> {
    open(pins, name)?.ok_or_else(|| Error::Pins {
        map: name.into(),
        what: "is missing".into(),
        path: pins.into(),
    })
}

/// Pinned links with their devices; `None` for one whose device is gone.
pub(crate) fn links(pins: &Path) -> Result<Vec<(PathBuf, OwnedFd, Option<u32>)>> {
    let fail = |error| Error::kernel(format!("cannot read {}", pins.display()), error);
    let mut links = Vec::new();
    for entry in fs::read_dir(pins).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let is_link = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(LINK));
        if is_link && let Some(link) = sys::get(&path).map_err(fail)? {
            let device = sys::link_device(link.as_fd()).map_err(fail)?;
            links.push((path, link, device));
        }
    }
    links.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(links)
}

/// The attachments of these pins, asked from the kernel.
pub(crate) fn attachments(pins: &Path) -> Result<Vec<Attachment>> {
    Ok(links(pins)?.into_iter().filter_map(|(_, _, device)| device).map(attached).collect())
}

fn attached(ifindex: u32) -> Attachment {
    let generic = sys::xdp_attached(ifindex).is_ok_and(|state| state.generic);
    Attachment { ifindex, mode: if generic { AttachMode::Generic } else { AttachMode::Native } }
}

/// The attachment of one device by the pin of its link, asked from the kernel.
pub(crate) fn attachment(link: &Path, ifindex: u32) -> Result<Option<Attachment>> {
    let fail = |error| Error::kernel(format!("cannot get the link of device {ifindex}"), error);
    let Some(link) = sys::get(link).map_err(fail)? else { return Ok(None) };
    Ok(sys::link_device(link.as_fd()).map_err(fail)?.filter(|device| *device == ifindex).map(attached))
}

/// Removes every pin of a directory, in no order, and the directory. A link whose pin was the last to hold it is detached.
pub(crate) fn remove(pins: &Path) -> Result<()> {
    clear(pins)?;
    fs::remove_dir(pins).map_err(|error| Error::kernel(format!("cannot remove {}", pins.display()), error))
}

/// Removes every pin of a directory, but not the directory, which may be locked.
pub(crate) fn clear(pins: &Path) -> Result<()> {
    let fail = |error| Error::kernel(format!("cannot remove old pins in {}", pins.display()), error);
    for entry in fs::read_dir(pins).map_err(fail)? {
        fs::remove_file(entry.map_err(fail)?.path()).map_err(fail)?;
    }
    Ok(())
}

/// Where tables are made that are to take the place of others, and where those are for the moment between.
pub(crate) fn aside(pins: &Path) -> PathBuf {
    let mut name = pins.as_os_str().to_owned();
    name.push("-aside"); // no dot: a BPF file system refuses it
    name.into()
}

/// Removes tables that an owner made aside, or replaced, when it ended in between. A link that is pinned there is pinned
/// in `pins`, too.
pub fn abandon(pins: &Path) -> Result<()> {
    let aside = aside(pins);
    if aside.is_dir() { remove(&aside) } else { Ok(()) }
}

/// Two directories change places at one stroke.
pub(crate) fn exchange(one: &Path, other: &Path) -> Result<()> {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, one, cwd, other, flags).map_err(|e| {
        Error::kernel(format!("cannot exchange {} and {}", one.display(), other.display()), e.into())
    })
}

/// Takes the XDP program off every device of an instance and removes all that is pinned; works without a daemon. How many
/// devices.
pub fn detach_all(pins: &Path) -> Result<u32> {
    match fs::metadata(pins) {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Error::kernel(format!("cannot read {}", pins.display()), error));
        }
        _ => return Err(Error::NotPinned { path: pins.into() }),
    }
    let mut devices = 0;
    for (_, link, device) in links(pins)? {
        if device.is_some() {
            sys::link_detach(link.as_fd()).map_err(|e| Error::kernel("cannot detach a link", e))?;
            devices += 1;
        }
    }
    abandon(pins)?;
    remove(pins)?;
    Ok(devices)
}

/// Removes the pins beside `pins` without an owner whose devices are all gone, as those of a deleted network namespace. Removes `pins`
/// itself, too, if it is such and of a version that this program cannot read. How many instances.
pub fn sweep(pins: &Path) -> Result<u32> {
    let Some(parent) = pins.parent().filter(|parent| parent.is_dir()) else { return Ok(0) };
    let mut swept = 0;
    for entry in
        fs::read_dir(parent).map_err(|e| Error::kernel(format!("cannot read {}", parent.display()), e))?
    {
        let Ok(entry) = entry else { continue };
        let other = entry.path();
        if !other.is_dir() || (other == pins && instance(&other).is_ok()) {
            continue;
        }
        // Pins that another process is making or taking over are locked.
        let Ok(_claim) = trieline_bpf::pins::own_now(&other) else { continue };
        if links(&other).is_ok_and(|links| links.iter().all(|(_, _, device)| device.is_none())) {
            remove(&other)?;
            swept += 1;
        }
    }
    Ok(swept)
}

/// The instance record, if one is pinned.
pub(crate) fn instance(pins: &Path) -> Result<Option<tl_instance>> {
    let Some(fd) = open(pins, INSTANCE)? else { return Ok(None) };
    let shape =
        sys::map_shape(fd.as_fd()).map_err(|e| Error::kernel("cannot read the pinned instance", e))?;
    let expected = MapShape {
        kind: ARRAY,
        key: 4,
        value: size_of::<tl_instance>() as u32,
        entries: 1,
        flags: shape.flags,
        extra: shape.extra,
    };
    if shape != expected {
        return Err(other_version(pins));
    }
    let mut bytes = [0u8; size_of::<tl_instance>()];
    sys::map_lookup(fd.as_fd(), &0u32.to_ne_bytes(), &mut bytes)
        .map_err(|e| Error::kernel("cannot read the pinned instance", e))?;
    // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
    let instance: tl_instance = unsafe { std::mem::transmute(bytes) };
    if instance.version != VERSION {
        return Err(other_version(pins));
    }
    if instance.image_version != IMAGE_VERSION {
        return Err(Error::Pins {
            map: IMAGE.into(),
            what: format!(
                "is of version {}, this trieline reads version {IMAGE_VERSION}",
                instance.image_version
            ),
            path: pins.into(),
        });
    }
    Ok(Some(instance))
}

fn other_version(pins: &Path) -> Error {
    Error::Pins {
        map: INSTANCE.into(),
        what: "was made by another version of trieline".into(),
        path: pins.into(),
    }
}

/// Pins the maker of these maps; the last pin, so that its presence means that all are there.
pub(crate) fn pin_instance(pins: &Path, instance: tl_instance) -> Result<()> {
    let fail = |e| Error::kernel("cannot pin the instance", e);
    let shape = MapShape {
        kind: ARRAY,
        key: 4,
        value: size_of::<tl_instance>() as u32,
        entries: 1,
        ..Default::default()
    };
    let fd = sys::map_create("instance", shape, None).map_err(fail)?;
    // SAFETY: a struct of integers without padding (4 + 4 + 8 + 8 + 4 + 4 bytes).
    let bytes: [u8; size_of::<tl_instance>()] = unsafe { std::mem::transmute(instance) };
    sys::map_update(fd.as_fd(), &0u32.to_ne_bytes(), &bytes).map_err(fail)?;
    sys::pin(fd.as_fd(), &pins.join(INSTANCE)).map_err(fail)
}

pub(crate) fn map_type_of(instance: &tl_instance) -> ImageMapType {
    if instance.map_type == 1 { ImageMapType::Arena } else { ImageMapType::Array }
}

pub(crate) fn map_type_number(map_type: ImageMapType) -> u32 {
    match map_type {
        ImageMapType::Arena => 1,
        ImageMapType::Array => 2,
    }
}

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
pub(crate) fn ports(untagged: &OwnedFd, tagged: OwnedFd, tagged_ports: &OwnedFd) -> Result<Ports> {
    let map = |fd: &OwnedFd, count: u32| {
        let bytes = u64::from(count) * size_of::<tl_port>() as u64;
        Mapping::of_array(fd.as_fd(), bytes).map_err(|e| Error::kernel("cannot map the ports", e))
    };
    Ok(Ports::new(map(untagged, PORTS)?, tagged, map(tagged_ports, TAGGED_MAX)?))
}

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
    let missing = Error::Pins { map: IMAGE.into(), what: "is of another kind".into(), path: pins.into() };
    Ok(PinnedMaps {
        pins: pins.into(),
        instance,
        image: ImageMap::adopt(need(pins, IMAGE)?)?.ok_or(missing)?,
        records: records([
            &need(pins, ACTIONS)?,
            &need(pins, ADJACENCIES)?,
            &need(pins, LONG_OUTERS)?,
            &need(pins, GROUPS)?,
        ])?,
        rules: rules(&need(pins, RULES)?)?,
        ports: ports(&need(pins, PORT_MAP)?, need(pins, TAGGED)?, &need(pins, TAGGED_PORTS)?)?,
        counters: need(pins, COUNTERS)?,
        filters: FilterMaps::new(
            &need(pins, FILTERS)?,
            &need(pins, FILTER_LISTS)?,
            need(pins, FILTER_COUNTERS)?,
        )?,
        heartbeat: Words::of(&need(pins, HEARTBEAT)?)?,
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

    /// The rules of a view, one after another, for packets between two addresses of one family.
    pub fn concerning(&self, lookup: u32, from: IpAddr, to: IpAddr) -> Vec<Rule> {
        self.rules.concerning(lookup, from, to)
    }

    /// The number of actions that are set.
    pub fn actions_used(&self) -> u32 {
        self.records.set_actions().count() as u32
    }

    /// Packets counted.
    pub fn counters(&self) -> Result<Counters> {
        read_counters(&self.counters, &self.ports)
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
        all.into_iter().find(|filter| filter.counter == counter).map(|filter| filter.name)
    }

    /// Counts of a filter's matches.
    pub fn filter_count(&self, filter: &Filter) -> Result<FilterCount> {
        self.filters.count(filter.counter)
    }

    /// Devices the program is attached to.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        attachments(&self.pins)
    }

    /// Ports: device, VLAN and settings.
    pub fn ports(&self) -> Result<Vec<(u32, Option<u16>, Port)>> {
        list_ports(&self.ports)
    }
}

pub(crate) fn read_counters(fd: &OwnedFd, ports: &Ports) -> Result<Counters> {
    let ports: Vec<(PortKey, u16, u32)> =
        ports.all()?.into_iter().map(|(key, port, slot)| (key, slot, port.ifindex)).collect();
    counters::read(fd.as_fd(), &ports)
}

pub(crate) fn list_ports(ports: &Ports) -> Result<Vec<(u32, Option<u16>, Port)>> {
    Ok(ports.all()?.into_iter().map(|((ifindex, vlan), port, _)| (ifindex, vlan, port)).collect())
}
