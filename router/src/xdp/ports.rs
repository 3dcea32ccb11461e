//! Ports: which devices' and VLANs' packets the XDP program handles, and in which tables it looks them up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::xdp::counters::{self, PortKey};
use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_limits, tl_port, tl_port_flags, tl_tagged};
use trieline_bpf::Mapping;
use trieline_lpm::Grace;

use crate::xdp::sys;

/// The place of an untagged port is its device's number, if that is lower. All others have places from here on.
const PORTS: u32 = tl_limits::TL_PORTS.0;
/// Tagged ports there can be.
const TAGGED: u32 = tl_limits::TL_TAGGED.0;
/// Places in the map of ports.
pub(crate) const PLACES: u32 = tl_limits::TL_PORT_PLACES.0;
/// Counter slot of packets of no port, and of ports beyond the slots.
const SLOT_SHARED: u16 = 0;
/// Counter slot no port has: what former ports counted.
const SLOT_RETIRED: u16 = tl_limits::TL_COUNTER_SLOTS.0 as u16 - 1;

/// Makes [`PortFlags`] from one list: field, bit of `enum tl_port_flags`, name in the status.
macro_rules! port_flags {
    ($($(#[$meta:meta])* $field:ident, $bit:ident, $name:literal;)*) => {
        /// The treatment of a port's packets, by the kernel's settings of its device.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct PortFlags {
            $($(#[$meta])* pub $field: bool,)*
        }

        impl PortFlags {
            fn bits(self) -> u32 {
                let bit = |on: bool, flag: tl_port_flags| if on { flag.0 } else { 0 };
                tl_port_flags::TL_PORT_USED.0 $(| bit(self.$field, tl_port_flags::$bit))*
            }

            fn from_bits(bits: u32) -> Self {
                Self { $($field: bits & tl_port_flags::$bit.0 != 0,)* }
            }

            /// Names of the flags that are set, as the status has them.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                let all = [$((self.$field, $name),)*];
                all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name)
            }
        }
    };
}

port_flags! {
    /// IPv4 forwarding is on.
    forward4, TL_PORT_FORWARD4, "forward4";
    /// IPv6 forwarding is on.
    forward6, TL_PORT_FORWARD6, "forward6";
    /// SRv6 endpoints and headends are handled here.
    seg6, TL_PORT_SEG6, "seg6";
    /// The kernel does not know whose packets these are: what it would get is dropped, but for its neighbours' and its own.
    tenant, TL_PORT_TENANT, "tenant";
    /// Reverse path filter of IPv4, loose (RFC 3704).
    rpf_loose, TL_PORT_RPF_LOOSE, "rpf-loose";
    /// Reverse path filter, strict; the stronger of the two counts.
    rpf_strict, TL_PORT_RPF_STRICT, "rpf-strict";
    /// The filters of list 0 are asked.
    filter, TL_PORT_FILTER, "filter";
    /// SIDs may have hooks ([`crate::SidHooks`]).
    sid_hook, TL_PORT_SID_HOOK, "sid_hook";
    /// Checksums of packets that come in may be unfinished, as senders behind a veth leave them: those packets are passed.
    csum_partial, TL_PORT_CSUM_PARTIAL, "csum-partial";
    /// Decapsulation combines the ECN fields (RFC 6040 4.2), as Linux does not.
    ecn, TL_PORT_ECN, "ecn";
    /// IPv4 packets from the link that go back by it are passed: the kernel sends redirects.
    redirects4, TL_PORT_REDIRECTS4, "redirects4";
    /// Likewise those of IPv6.
    redirects6, TL_PORT_REDIRECTS6, "redirects6";
    /// Neighbour discovery that would be forwarded is passed: the kernel may answer it for others.
    proxy_ndp, TL_PORT_PROXY_NDP, "proxy-ndp";
}

/// A device, or a VLAN of one, whose packets the XDP program handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// The lookup id that decides for IPv4: a table's id, or one of [`crate::Rules`].
    pub table4: u32,
    /// The lookup id that decides for IPv6.
    pub table6: u32,
    /// The treatment of its packets.
    pub flags: PortFlags,
    /// Device the kernel receives these packets on: the VLAN device, or the port itself.
    pub ifindex: u32,
    /// Its MAC address: frames to any other are passed to the kernel.
    pub mac: [u8; 6],
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table4, table6, flags, ifindex, mac } = self;
        let flags: Vec<_> = flags.names().collect();
        let [a, b, c, d, e, g] = mac;
        write!(f, "lookup ids {table4:#x} {table6:#x} device {ifindex} ")?;
        write!(f, "mac {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} flags {}", flags.join(","))
    }
}

const WORDS: usize = size_of::<tl_port>() / 8;
type Bytes = [u8; size_of::<tl_port>()];

fn encode(port: &Port, slot: u16) -> Bytes {
    let record = tl_port {
        flags: port.flags.bits(),
        table4: port.table4,
        table6: port.table6,
        ifindex: port.ifindex,
        mac: port.mac,
        counters: slot,
    };
    // SAFETY: a struct of integers without padding (4 × 4 + 6 + 2 bytes).
    unsafe { std::mem::transmute(record) }
}

fn decode(bytes: Bytes) -> Option<(Port, u16)> {
    // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
    let record: tl_port = unsafe { std::mem::transmute(bytes) };
    (record.flags & tl_port_flags::TL_PORT_USED.0 != 0).then_some((
        Port {
            table4: record.table4,
            table6: record.table6,
            flags: PortFlags::from_bits(record.flags),
            ifindex: record.ifindex,
            mac: record.mac,
        },
        record.counters,
    ))
}

/// Key in the map of tagged ports; `None` for a port whose place is its device's number.
fn placed((ifindex, vlan): PortKey) -> Option<(u32, u16)> {
    match vlan {
        None if ifindex < PORTS => None,
        None => Some((ifindex, 0)),
        Some(vid) => Some((ifindex, vid)),
    }
}

fn tagged_key(ifindex: u32, vid: u16) -> [u8; size_of::<tl_tagged>()] {
    // SAFETY: a struct of integers without padding.
    unsafe { std::mem::transmute(tl_tagged { ifindex, vid, reserved: 0 }) }
}

/// The maps of ports.
#[derive(Debug)]
pub(crate) struct Ports {
    all: Mapping,
    /// Places of tagged ports, by device and tag.
    tagged: OwnedFd,
    /// The ports as they were read: ten thousand ports are not read again for each.
    known: Option<Known>,
    /// Places of ports that are gone, by the tickets of their grace periods: a packet looks at its port to the end.
    limbo: VecDeque<(u64, u32)>,
}

/// Numbers of the ports.
#[derive(Debug, Default)]
struct Known {
    /// Counter slots.
    slots: BTreeMap<PortKey, u16>,
    /// Places of the tagged ones.
    places: BTreeMap<PortKey, u32>,
    /// Free places, the lowest last.
    free: Vec<u32>,
}

fn fail(error: io::Error) -> Error {
    Error::kernel("cannot write the map of tagged ports", error)
}

impl Ports {
    pub(crate) fn new(all: Mapping, tagged: OwnedFd) -> Self {
        Self { all, tagged, known: None, limbo: VecDeque::new() }
    }

    fn words(&self) -> &[AtomicU64] {
        self.all.words64(PLACES as usize * WORDS)
    }

    fn place(&self, place: u32) -> Result<&[AtomicU64]> {
        let at = place as usize * WORDS;
        let words = self.words().get(at..at + WORDS);
        words.ok_or_else(|| Error::argument(format!("place {place} of a port: at most {}", PLACES - 1)))
    }

    fn read(words: &[AtomicU64]) -> Option<(Port, u16)> {
        let mut bytes: Bytes = [0; _];
        for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.load(Ordering::Acquire).to_ne_bytes());
        }
        decode(bytes)
    }

    /// All ports with their counter slots.
    pub(crate) fn all(&self) -> Result<Vec<(PortKey, Port, u16)>> {
        let mut all: Vec<_> = self.words()[..PORTS as usize * WORDS]
            .chunks_exact(WORDS)
            .enumerate()
            .filter_map(|(i, words)| Self::read(words).map(|(port, slot)| ((i as u32, None), port, slot)))
            .collect();
        for (key, place) in self.tagged()? {
            all.extend(Self::read(self.place(place)?).map(|(port, slot)| (key, port, slot)));
        }
        Ok(all)
    }

    /// Tagged ports and their places.
    fn tagged(&self) -> Result<Vec<(PortKey, u32)>> {
        let mut all = Vec::new();
        let mut key: Option<Vec<u8>> = None;
        while let Some(next) = sys::map_next_key(self.tagged.as_fd(), key.as_deref()).map_err(fail)? {
            let mut place = [0; 4];
            if sys::map_lookup(self.tagged.as_fd(), &next, &mut place).map_err(fail)? {
                let ifindex = u32::from_ne_bytes([next[0], next[1], next[2], next[3]]);
                let vid = u16::from_ne_bytes([next[4], next[5]]);
                all.push(((ifindex, (vid > 0).then_some(vid)), u32::from_ne_bytes(place)));
            }
            key = Some(next);
        }
        Ok(all)
    }

    /// The ports as they were read.
    fn known(&mut self) -> Result<Known> {
        if let Some(known) = self.known.take() {
            return Ok(known);
        }
        let slots = self.all()?.into_iter().map(|(key, _, slot)| (key, slot)).collect();
        let places: BTreeMap<PortKey, u32> = self.tagged()?.into_iter().collect();
        let used: BTreeSet<u32> = places.values().copied().collect();
        let free = (PORTS..PLACES).rev().filter(|place| !used.contains(place)).collect();
        Ok(Known { slots, places, free })
    }

    /// Sets a port. Its counter slot and its place stay, or are the first free ones. For a new tagged port it waits until no packet
    /// holds what was removed before.
    pub(crate) fn set(
        &mut self,
        key: PortKey,
        port: &Port,
        counter_map: BorrowedFd<'_>,
        grace: &mut impl Grace,
    ) -> Result<()> {
        let (ifindex, vlan) = key;
        check_ifindex(ifindex)?;
        if vlan.is_some_and(|vid| !(1..=4094).contains(&vid)) {
            return Err(Error::argument(format!("VLAN {vlan:?}: must be 1 to 4094")));
        }
        let mut known = self.known()?;
        let slot = match known.slots.get(&key) {
            Some(slot) => *slot,
            None => {
                let mut used = [false; SLOT_RETIRED as usize + 1];
                known.slots.values().for_each(|slot| used[usize::from(*slot)] = true);
                let free = (1..SLOT_RETIRED).find(|slot| !used[usize::from(*slot)]);
                if let Some(slot) = free {
                    counters::retire(counter_map, slot, SLOT_RETIRED)?;
                }
                free.unwrap_or(SLOT_SHARED)
            }
        };
        let bytes = encode(port, slot);
        let done = match placed(key) {
            Some(at) => self.set_placed(&mut known, key, at, &bytes, grace),
            None => self.place(ifindex).map(|words| store(words, &bytes)),
        };
        if done.is_ok() {
            known.slots.insert(key, slot);
        }
        self.known = Some(known);
        done
    }

    fn set_placed(
        &mut self,
        known: &mut Known,
        key: PortKey,
        (ifindex, vid): (u32, u16),
        bytes: &Bytes,
        grace: &mut impl Grace,
    ) -> Result<()> {
        if let Some(place) = known.places.get(&key) {
            store(self.place(*place)?, bytes);
            return Ok(());
        }
        // The hash may give the new element the memory of one that was removed.
        if let Some((ticket, _)) = self.limbo.back() {
            grace.wait(*ticket);
        }
        let passed = grace.passed();
        while let Some((_, place)) = self.limbo.pop_front_if(|(ticket, _)| *ticket <= passed) {
            known.free.push(place);
        }
        let place =
            known.free.pop().ok_or_else(|| Error::argument(format!("more than {TAGGED} tagged ports")))?;
        store(self.place(place)?, bytes);
        let named = sys::map_update(self.tagged.as_fd(), &tagged_key(ifindex, vid), &place.to_ne_bytes());
        match named {
            Ok(()) => drop(known.places.insert(key, place)),
            Err(_) => known.free.push(place),
        }
        named.map_err(fail)
    }

    /// Entries that are not those of these ports, which were set; `name` gives a port's name.
    pub(crate) fn damage(
        &mut self,
        written: &BTreeMap<PortKey, Port>,
        name: impl Fn(PortKey) -> String,
    ) -> Result<Vec<Damage>> {
        let known = self.known()?;
        let found: BTreeMap<PortKey, (Port, u16)> =
            self.all()?.into_iter().map(|(key, port, slot)| (key, (port, slot))).collect();
        let mut damaged = Vec::new();
        for key in written.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let ours =
                written.get(key).map(|port| (*port, known.slots.get(key).copied().unwrap_or_default()));
            if ours.as_ref() != found.get(key) {
                let text = |(port, slot): &(Port, u16)| format!("{port} counters {slot}");
                let name = format!("port {}", name(*key));
                damaged.push(Damage::new(name, ours.as_ref().map(text), found.get(key).map(text)));
            }
        }
        let places: BTreeMap<PortKey, u32> = self.tagged()?.into_iter().collect();
        for key in known.places.keys().chain(places.keys()).collect::<BTreeSet<_>>() {
            let (ours, found) = (known.places.get(key), places.get(key));
            if ours != found {
                damaged.push(Damage::new(format!("place of port {}", name(*key)), ours, found));
            }
        }
        self.known = Some(known);
        Ok(damaged)
    }

    /// Writes these ports, which were set, once more, and removes others.
    pub(crate) fn repair(&mut self, written: &BTreeMap<PortKey, Port>) -> Result<()> {
        let known = self.known()?;
        let places = self.tagged()?;
        for ((ifindex, vlan), place) in &known.places {
            let key = tagged_key(*ifindex, vlan.unwrap_or_default());
            sys::map_update(self.tagged.as_fd(), &key, &place.to_ne_bytes()).map_err(fail)?;
        }
        for ((ifindex, vlan), _) in places.iter().filter(|(key, _)| !known.places.contains_key(key)) {
            let key = tagged_key(*ifindex, vlan.unwrap_or_default());
            sys::map_delete(self.tagged.as_fd(), &key).map_err(fail)?;
        }
        for place in 0..PORTS {
            let key = (place, None);
            match written.get(&key) {
                Some(port) => store(
                    self.place(place)?,
                    &encode(port, known.slots.get(&key).copied().unwrap_or_default()),
                ),
                None => self.place(place)?[0].store(0, Ordering::Release),
            }
        }
        for (key, place) in &known.places {
            if let (Some(port), Some(slot)) = (written.get(key), known.slots.get(key)) {
                store(self.place(*place)?, &encode(port, *slot));
            }
        }
        self.known = Some(known);
        Ok(())
    }

    /// Forgets a port: its packets go to the kernel.
    pub(crate) fn clear(&mut self, key: PortKey, grace: &mut impl Grace) -> Result<()> {
        let mut known = self.known()?;
        known.slots.remove(&key);
        let done = match placed(key) {
            Some((ifindex, vid)) => {
                let removed = sys::map_delete(self.tagged.as_fd(), &tagged_key(ifindex, vid));
                if removed.is_ok()
                    && let Some(place) = known.places.remove(&key)
                {
                    self.limbo.push_back((grace.begin(), place));
                }
                removed.map(drop).map_err(fail)
            }
            // A packet that has found the port in use goes on by what the other words say.
            None => self.place(key.0).map(|words| words[0].store(0, Ordering::Release)),
        };
        self.known = Some(known);
        done
    }
}

/// The kernel numbers devices from 1.
pub(crate) fn check_ifindex(ifindex: u32) -> Result<()> {
    let named = || Error::NoDevice { device: format!("device {ifindex}") };
    if ifindex == 0 { Err(named()) } else { Ok(()) }
}

/// The word with the flags goes last: a new port is not used before the rest is there.
fn store(words: &[AtomicU64], bytes: &Bytes) {
    for (to, from) in words.iter().zip(bytes.chunks_exact(8)).rev() {
        let mut word = [0; 8];
        word.copy_from_slice(from);
        to.store(u64::from_ne_bytes(word), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::PortFlags;
    use libbpf_rs::btf::{Btf, types::Enum};

    #[test]
    fn each_flag_of_the_program_has_its_name() {
        let btf = Btf::from_path(env!("TRIELINE_NODE_OBJECT")).unwrap();
        let flags: Enum<'_> = btf.type_by_name("tl_port_flags").unwrap();
        let mut members: Vec<String> =
            flags.iter().map(|member| member.name.unwrap().to_str().unwrap().to_owned()).collect();
        let all = PortFlags::from_bits(u32::MAX);
        let word = |name: &str| format!("TL_PORT_{}", name.to_uppercase().replace('-', "_"));
        let mut named: Vec<String> = all.names().map(word).chain(["TL_PORT_USED".into()]).collect();
        members.sort();
        named.sort();
        assert_eq!(named, members);
        for member in flags.iter() {
            let bit = u32::try_from(member.value).unwrap();
            let flags = PortFlags::from_bits(bit);
            let name = flags.names().next().map_or("TL_PORT_USED".into(), word);
            assert_eq!(name, member.name.unwrap().to_str().unwrap());
        }
    }
}
