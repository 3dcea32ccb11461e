//! The owner's handle on the dataplane: opens or takes over an instance, attaches it to devices.

pub mod actions;
pub mod damage;
pub(crate) mod frames;
pub mod pinned_maps;
pub mod test_run;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use libbpf_rs::libbpf_sys;

use crate::dataplane::test_run::TestRun;
use crate::filter::maps::{FilterMaps, Filters};
use crate::sid_hook::maps::SidHooks;
use crate::srv6::csids::Csids;
use crate::srv6::sids::{SidCount, Sids};
use crate::xdp::attachment::{self, AttachMode, Attachment};
use crate::xdp::counters::Counters;
use crate::xdp::error::{Error, Result};
use crate::xdp::heartbeat::{Heartbeat, Words};
use crate::xdp::layout::tl_instance;
use crate::xdp::load::{Loaded, PROGRAM, load};
use crate::xdp::local_addrs::LocalAddrs;
use crate::xdp::maps;
use crate::xdp::options::{Options, adopt_image, create_image};
use crate::xdp::pins;
use crate::xdp::ports::{Port, Ports, check_ifindex};
use crate::xdp::probe::takes_jumbo_redirects;
use crate::xdp::rules::Rules;
use crate::xdp::sys;
use actions::Actions;
use trieline_bpf::ReaderGrace;
use trieline_bpf::{ImageMap, ImageMapType, ImageMemory};

/// The loaded dataplane and its maps. Dropping it leaves everything pinned and forwarding.
///
/// Device numbers are those of the network namespace of the thread that calls.
#[derive(Debug)]
pub struct Dataplane {
    pins: PathBuf,
    reopened: bool,
    image: ImageMap,
    tables: u32,
    actions: Actions,
    rules: Rules,
    own: LocalAddrs,
    filters: Filters,
    sid_hooks: SidHooks,
    csids: Csids,
    grace: ReaderGrace,
    ports: Ports,
    devices: OwnedFd,
    jumbo_devices: OwnedFd,
    counters: OwnedFd,
    program: OwnedFd,
    heartbeat: Words,
    beat: OwnedFd,
    /// Tables of another version or shape that are in force until [`Dataplane::take_place`]: their directory and its lock.
    former: Option<(PathBuf, OwnedFd)>,
    /// Attached devices whose driver refuses this build's program.
    outdated: Vec<u32>,
    /// Held until drop: only one owner at a time.
    _lock: OwnedFd,
}

impl Dataplane {
    /// Makes the maps, or takes over what is pinned, and loads this build's program against them. Devices that are attached
    /// already get the new program at once, without missing a packet.
    ///
    /// Where what is pinned was made by another version or with other options, it stays in force. Then all maps are made a
    /// second time, aside: see [`Dataplane::take_place`]. Pins left by a network namespace that is gone (its inode number
    /// given to a new one) are removed. So are those of an owner that ended before it was done. An error leaves pinned what
    /// was, and nothing that was not.
    pub fn open(options: &Options) -> Result<Self> {
        let pin_dir = options.pins.as_path();
        let lock = trieline_bpf::pins::own(pin_dir)?;
        pins::abandon(pin_dir)?;
        let netns = sys::netns_cookie()
            .map_err(|e| Error::kernel("cannot read the network namespace's cookie", e))?;
        let mut hash_key = None;
        match pins::instance(pin_dir) {
            Ok(Some(instance)) if instance.netns == netns => {
                hash_key = Some(instance.hash_key);
                match Self::set_up(options, Some(instance), netns, None, &lock) {
                    Err(Error::Pins { map, what, .. }) => name_difference(&map, &what),
                    done => return done,
                }
            }
            Ok(found) => {
                if found.is_some() {
                    tracing::info!(pins = %pin_dir.display(), "removing the pins of a network namespace that is gone");
                }
                // Else: who pinned these did not get to the end.
                pins::clear(pin_dir)?;
                return Self::set_up(options, None, netns, None, &lock).inspect_err(|_| {
                    // All but the lock is closed again: there is a descriptor for this.
                    if let Err(error) = pins::clear(pin_dir) {
                        tracing::warn!(%error, "cannot remove the pins of a failed start; trielined goes on");
                    }
                });
            }
            Err(Error::Pins { map, what, .. }) => name_difference(&map, &what),
            Err(error) => return Err(error),
        }
        let aside = Options { pins: pins::aside(pin_dir), ..options.clone() };
        let aside_lock = trieline_bpf::pins::own(&aside.pins)?;
        let made = Self::set_up(&aside, None, netns, hash_key, &aside_lock);
        let mut made = made.inspect_err(|_| {
            if let Err(error) = pins::abandon(pin_dir) {
                tracing::warn!(%error, "cannot remove the pins of a failed start; trielined goes on");
            }
        })?;
        made.former = Some((pin_dir.into(), lock));
        Ok(made)
    }

    /// Makes all maps, pinned where no other process looks, to be tried and never attached. `hash_key` is the key of the hash that chooses
    /// among equal paths; `None`: a random one.
    pub(crate) fn unattached(options: &Options, hash_key: Option<u64>) -> Result<Self> {
        let lock = trieline_bpf::pins::own(&options.pins)?;
        let netns = sys::netns_cookie()
            .map_err(|e| Error::kernel("cannot read the network namespace's cookie", e))?;
        Self::set_up(options, None, netns, hash_key, &lock)
    }

    /// Puts these tables in force in the place of those of another version or shape. Each attached device gets the program
    /// over these maps, without missing a packet, then the pins change places at one stroke. Whenever this ends early, the
    /// devices have programs over whole tables, the old or these, and the next owner tidies up. Nothing is to be done where
    /// there are no others. Returns the devices that refused the program and have none now.
    pub fn take_place(&mut self) -> Result<Vec<u32>> {
        let mut refused = Vec::new();
        let Some((place, _)) = &self.former else { return Ok(refused) };
        for (path, link, device) in pins::links(place)? {
            let (Some(ifindex), Some(name)) = (device, path.file_name()) else { continue };
            let fail = |e| Error::kernel(format!("cannot give device {ifindex} the new program"), e);
            sys::pin(link.as_fd(), &self.pins.join(name)).map_err(fail)?;
            if let Err(error) = sys::link_update(link.as_fd(), self.program.as_fd()) {
                // Its old program would go on with tables that no daemon follows.
                tracing::warn!(ifindex, %error, "the device refuses the new program: detached");
                sys::link_detach(link.as_fd()).map_err(fail)?;
                refused.push(ifindex);
            }
        }
        pins::exchange(&self.pins, place)?;
        let former = std::mem::replace(&mut self.pins, place.clone());
        self.former = None;
        if let Err(error) = pins::remove(&former) {
            tracing::warn!(%error, "the old tables: the next start removes them");
        }
        Ok(refused)
    }

    /// Whether tables of another version or shape are in force until [`Dataplane::take_place`].
    pub fn supersedes(&self) -> bool {
        self.former.is_some()
    }

    /// The functions of the tables that are in force until [`Dataplane::take_place`]; `None` where this version cannot read them.
    pub fn former_sid_hooks(&self) -> Option<SidHooks> {
        let (place, _) = self.former.as_ref()?;
        let open = |name| pins::open(place, name).ok().flatten();
        SidHooks::of_former(open(pins::SID_HOOKS)?, open(pins::SID_HOOK_PROGRAMS)?, self.grace.clone())
    }

    /// The directory that holds these maps now.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// The tables are current: they may be used for `limit` from now on; `None`: without end.
    pub fn beat(&self, limit: Option<Duration>) -> Result<()> {
        self.heartbeat.beat(&self.beat, limit)
    }

    /// The state of the heartbeat.
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.read()
    }

    /// Opens what is pinned, or makes and pins it.
    fn set_up(
        options: &Options,
        pinned: Option<tl_instance>,
        netns: u64,
        hash_key: Option<u64>,
        lock: &OwnedFd,
    ) -> Result<Self> {
        let pin_dir = options.pins.as_path();
        let image = match pinned {
            Some(instance) => adopt_image(options, &instance)?,
            None => create_image(options)?,
        };
        let hash_key = pinned.map(|instance| instance.hash_key).or(hash_key).unwrap_or_else(random);
        // The first grace period, which takes some 16 ms, passes meanwhile.
        let (loaded, grace) = std::thread::scope(|scope| {
            let grace = std::thread::Builder::new().spawn_scoped(scope, ReaderGrace::new);
            let loaded = load(options, &image, hash_key, pinned.is_some().then_some(&[]));
            let joined = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (loaded, grace.map_or_else(|_| ReaderGrace::new(), joined))
        });
        let Loaded { mut maps, program, beat } = loaded?;
        if pinned.is_none() {
            let fail = |e| Error::kernel("cannot pin the maps", e);
            sys::pin(image.fd(), &pin_dir.join(pins::IMAGE)).map_err(fail)?;
            for (name, fd) in maps.iter() {
                sys::pin(fd.as_fd(), &pin_dir.join(name)).map_err(fail)?;
            }
            pins::pin_instance(
                pin_dir,
                tl_instance {
                    version: pins::VERSION,
                    map_type: pins::map_type_number(image.map_type()),
                    image_bytes: image.bytes(),
                    netns,
                    tables: options.tables,
                    image_version: pins::IMAGE_VERSION,
                    hash_key,
                    frags: options.frags.into(),
                },
            )?;
        }
        let grace = grace?;
        let mut take = |name| maps.take(name);
        let filters =
            FilterMaps::new(&take(pins::FILTERS)?, &take(pins::FILTER_LISTS)?, take(pins::FILTER_COUNTERS)?)?;
        let mut dataplane = Self {
            pins: options.pins.clone(),
            reopened: pinned.is_some(),
            tables: options.tables,
            actions: Actions::new(
                maps::records([
                    &take(pins::ACTIONS)?,
                    &take(pins::ADJACENCIES)?,
                    &take(pins::LONG_OUTERS)?,
                    &take(pins::GROUPS)?,
                ])?,
                Sids::new(take(pins::SIDS)?)?,
                grace.clone(),
            ),
            rules: Rules::new(maps::rules(&take(pins::RULES)?)?, grace.clone()),
            own: LocalAddrs::new(maps::local_addrs(&take(pins::LOCAL_ADDRS)?)?),
            filters: Filters::new(filters, grace.clone(), pinned.is_some()),
            sid_hooks: SidHooks::new(
                take(pins::SID_HOOKS)?,
                take(pins::SID_HOOK_PROGRAMS)?,
                grace.clone(),
                pinned.is_some(),
            ),
            csids: Csids::new(take(pins::CSIDS)?)?,
            grace,
            ports: maps::ports(&take(pins::PORTS)?, take(pins::TAGGED)?)?,
            devices: take(pins::DEVICES)?,
            jumbo_devices: take(pins::JUMBO_DEVICES)?,
            counters: take(pins::COUNTERS)?,
            program,
            heartbeat: Words::of(&take(pins::HEARTBEAT)?)?,
            beat,
            former: None,
            outdated: Vec::new(),
            image,
            _lock: lock.try_clone().map_err(|e| Error::kernel("cannot keep the lock", e))?,
        };
        dataplane.update_links()?;
        Ok(dataplane)
    }

    /// Gives the pinned links this build's program; removes those whose device is gone. A device that refuses does not stop the others:
    /// it keeps its program, which uses these same maps.
    fn update_links(&mut self) -> Result<()> {
        let mut outdated = Vec::new();
        for (path, link, device) in pins::links(&self.pins)? {
            let Some(ifindex) = device else {
                if let Err(error) = fs::remove_file(&path) {
                    tracing::warn!(%error, "cannot remove {}", path.display());
                }
                continue;
            };
            if let Err(error) = sys::link_update(link.as_fd(), self.program.as_fd()) {
                if !self.outdated.contains(&ifindex) {
                    tracing::warn!(ifindex, %error, "device refuses the new program; the previous program stays attached");
                }
                outdated.push(ifindex);
            }
        }
        self.outdated = outdated;
        Ok(())
    }

    /// Attached devices whose driver refused this build's program: they run the one of before, over these same maps.
    pub fn outdated(&self) -> &[u32] {
        &self.outdated
    }

    /// Tries those devices again. Nothing is to be done where there are none.
    pub fn retry_outdated(&mut self) -> Result<()> {
        if self.outdated.is_empty() { Ok(()) } else { self.update_links() }
    }

    /// Map type of the image.
    pub fn map_type(&self) -> ImageMapType {
        self.image.map_type()
    }

    /// Whether the maps were pinned already: the image then holds the tables of the owner before.
    pub fn reopened(&self) -> bool {
        self.reopened
    }

    /// Prefix tables there can be.
    pub fn tables(&self) -> u32 {
        self.tables
    }

    /// Size of the image.
    pub fn image_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// The image's bytes, for [`trieline_lpm::Image::create`] or, after a reopening, `open`.
    pub fn memory(&self) -> ImageMemory {
        self.image.memory()
    }

    /// Grace periods of the XDP program.
    pub fn grace(&self) -> ReaderGrace {
        self.grace.clone()
    }

    /// The actions that the values in the tables stand for.
    pub fn actions(&mut self) -> &mut Actions {
        &mut self.actions
    }

    /// The same, to look at them.
    pub fn actions_ref(&self) -> &Actions {
        &self.actions
    }

    /// The policies, and what the values in the tables stand for.
    pub fn parts(&mut self) -> (&mut Rules, &mut Actions) {
        (&mut self.rules, &mut self.actions)
    }

    /// The addresses that no IPv4 packet from outside may have as its source.
    pub fn local_addrs(&self) -> LocalAddrs {
        self.own.clone()
    }

    /// The filters, which packets meet before they are routed.
    pub fn filters(&mut self) -> &mut Filters {
        &mut self.filters
    }

    /// The hooks that packets to SIDs meet before their behaviour.
    pub fn sid_hooks(&mut self) -> &mut SidHooks {
        &mut self.sid_hooks
    }

    /// The prefixes whose destinations NEXT-C-SID changes.
    pub fn csids(&mut self) -> &mut Csids {
        &mut self.csids
    }

    /// The program, to be tried on packets over these tables.
    pub(crate) fn test_run(&self) -> Result<TestRun> {
        let instance =
            pins::instance(&self.pins)?.ok_or_else(|| Error::NotPinned { path: self.pins.clone() })?;
        TestRun::load(&self.pins, &instance, &self.image)
    }

    /// The program, for BPF_PROG_TEST_RUN.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Attaches the program to a device. `name` is for messages. Nothing changes when it is attached that way already.
    ///
    /// Fails with [`Error::NoNativeXdp`], [`Error::DeviceBusy`] (and who has it), [`Error::NoDevice`].
    pub fn attach(&mut self, ifindex: u32, name: &str, mode: AttachMode) -> Result<()> {
        check_ifindex(ifindex)?;
        match attachment::of_link(&self.link_path(ifindex), ifindex)? {
            Some(attachment) if attachment.mode == mode => return Ok(()),
            // The tables that are in force go on until these take their place.
            Some(_) if self.former.is_some() => return Ok(()),
            Some(_) => drop(self.detach(ifindex)?),
            None => {}
        }
        let flags = match mode {
            AttachMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        };
        let link = sys::link_xdp(self.program.as_fd(), ifindex, flags)
            .map_err(|error| attach_error(ifindex, name, error))?;
        let path = pins::link_path(&self.pins, ifindex);
        // A link to a device that is gone may still be pinned under its number.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::kernel(format!("cannot remove {}", path.display()), e));
            }
            _ => {}
        }
        sys::pin(link.as_fd(), &path).map_err(|e| Error::kernel(format!("cannot pin the link of {name}"), e))
    }

    /// Takes the program off a device; false when it was not on it.
    pub fn detach(&mut self, ifindex: u32) -> Result<bool> {
        let path = self.link_path(ifindex);
        let fail = |e| Error::kernel(format!("cannot detach from device {ifindex}"), e);
        let Some(link) = sys::get(&path).map_err(fail)? else { return Ok(false) };
        let attached = sys::link_device(link.as_fd()).map_err(fail)?.is_some();
        if attached {
            sys::link_detach(link.as_fd()).map_err(fail)?;
        }
        fs::remove_file(&path).map_err(fail)?;
        Ok(attached)
    }

    /// Where a device's link is pinned: while others' tables are in force, perhaps with those.
    fn link_path(&self, ifindex: u32) -> PathBuf {
        let of_former = self.former.as_ref().map(|(place, _)| pins::link_path(place, ifindex));
        of_former.filter(|path| path.exists()).unwrap_or_else(|| pins::link_path(&self.pins, ifindex))
    }

    /// Devices the program is attached to.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        let mut all = attachment::all(&self.pins)?;
        if let Some((place, _)) = &self.former {
            all.extend(attachment::all(place)?);
        }
        Ok(all)
    }

    /// Handles the packets that come in by a device, untagged (`vlan` `None`) or with that tag. A table number that has no table
    /// matches nothing. It waits for a grace period (some 20 ms) where a tagged port is new and others were cleared just before.
    pub fn set_port(&mut self, ifindex: u32, vlan: Option<u16>, port: Port) -> Result<()> {
        self.ports.set((ifindex, vlan), &port, self.counters.as_fd(), &mut self.grace)
    }

    /// Leaves such packets to the kernel.
    pub fn clear_port(&mut self, ifindex: u32, vlan: Option<u16>) -> Result<()> {
        check_ifindex(ifindex)?;
        self.ports.clear((ifindex, vlan), &mut self.grace)
    }

    /// Ports: device, VLAN and settings.
    pub fn ports(&self) -> Result<Vec<(u32, Option<u16>, Port)>> {
        maps::list_ports(&self.ports)
    }

    /// Lets packets leave by a device of this network namespace. The kernel forgets it when the device goes.
    ///
    /// Frames of several buffers leave only by devices that say they take them. That may change at any time: to be called again
    /// now and then.
    pub fn set_device(&mut self, ifindex: u32) -> Result<()> {
        self.open_device(ifindex, takes_jumbo_redirects(ifindex))
    }

    /// The same, where the caller knows whether the device takes frames of several buffers.
    pub fn open_device(&mut self, ifindex: u32, frags: bool) -> Result<()> {
        check_ifindex(ifindex)?;
        if frags {
            open_device(&self.jumbo_devices, ifindex)?;
        } else {
            close_device(&self.jumbo_devices, ifindex)?;
        }
        open_device(&self.devices, ifindex)
    }

    /// Lets packets no longer leave by a device: they are passed to the kernel.
    pub fn clear_device(&mut self, ifindex: u32) -> Result<()> {
        check_ifindex(ifindex)?;
        close_device(&self.devices, ifindex)?;
        close_device(&self.jumbo_devices, ifindex)
    }

    /// Packets counted.
    pub fn counters(&self) -> Result<Counters> {
        maps::read_counters(&self.counters, &self.ports)
    }

    /// Packets of SRv6 endpoints, by the number of their action, since it became one.
    pub fn sid_counters(&self) -> Result<BTreeMap<u32, SidCount>> {
        self.actions.sids().read()
    }
}

fn open_device(devices: &OwnedFd, ifindex: u32) -> Result<()> {
    let key = ifindex.to_ne_bytes();
    sys::map_update(devices.as_fd(), &key, &key).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENODEV) => Error::NoDevice { device: format!("device {ifindex}") },
        _ => Error::kernel(format!("cannot open device {ifindex} for output"), error),
    })
}

fn close_device(devices: &OwnedFd, ifindex: u32) -> Result<()> {
    sys::map_delete(devices.as_fd(), &ifindex.to_ne_bytes())
        .map(drop)
        .map_err(|e| Error::kernel(format!("cannot close device {ifindex} for output"), e))
}

fn name_difference(map: &str, what: &str) {
    tracing::warn!(
        "pinned `{map}` {what}: the old tables forward until new ones are there; all counters start at 0"
    );
}

/// A number that other processes cannot know: std takes its keys from the kernel's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn attach_error(ifindex: u32, name: &str, error: io::Error) -> Error {
    let device = name.to_owned();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Error::NoNativeXdp { device },
        Some(libc::EBUSY | libc::EEXIST) => Error::DeviceBusy { device, owner: owner_of(ifindex) },
        Some(libc::ENODEV) => Error::NoDevice { device },
        Some(libc::EINVAL) if !sys::device_exists(ifindex) => Error::NoDevice { device },
        Some(libc::EINVAL | libc::E2BIG) => Error::kernel(
            format!("cannot attach to {name} (its driver may want a smaller MTU, other queues or no LRO)"),
            error,
        ),
        _ => Error::kernel(format!("cannot attach to {name}"), error),
    }
}

/// The owner of a device's XDP hook.
fn owner_of(ifindex: u32) -> String {
    let id = match sys::xdp_attached(ifindex) {
        Ok(state) if state.program != 0 => state.program,
        _ => return "an unknown program".into(),
    };
    match sys::program_name(id) {
        Ok(name) if name == PROGRAM => {
            format!("another trieline (program {id}); its owner must detach first")
        }
        Ok(name) => format!("program `{name}` (id {id})"),
        Err(_) => format!("program {id}"),
    }
}
