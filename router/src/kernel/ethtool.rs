//! Offloads of a device that change what its XDP program sees (`ethtool -k`).

use super::attribute::{Attributes, HEADER, Request, read_text, read_u32};
use super::generic;
use super::socket::{Error, Message};
use std::collections::{BTreeSet, HashMap};

/// An offload that must be off for XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offload {
    /// VLAN tags are handed over beside the frame: a tagged packet looks like an untagged one.
    RxVlan,
    /// The same for tags of 802.1ad.
    RxVlanStag,
    /// Packets are joined to ones that were never sent, longer than the next link takes.
    Lro,
}

impl Offload {
    /// As `ethtool -K` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RxVlan => "rxvlan",
            Self::RxVlanStag => "rx-vlan-stag-hw-parse",
            Self::Lro => "lro",
        }
    }

    /// The harm that the offload's absence does.
    pub fn harm(self) -> &'static str {
        match self {
            Self::RxVlan | Self::RxVlanStag => "hides VLAN tags from XDP",
            Self::Lro => "joins packets before XDP sees them",
        }
    }

    /// The offload that the kernel calls so.
    pub fn by_feature(name: &str) -> Option<Self> {
        match name {
            "rx-vlan-hw-parse" => Some(Self::RxVlan),
            "rx-vlan-stag-hw-parse" => Some(Self::RxVlanStag),
            "rx-lro" => Some(Self::Lro),
            _ => None,
        }
    }
}

const GET_FEATURES: u8 = 11; // ETHTOOL_MSG_FEATURES_GET
/// With `NLA_F_NESTED`, without which it is refused.
const FEATURES_HEADER: u16 = 1 | 0x8000;
const HEADER_INDEX: u16 = 1;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;

/// Names of the features that are on.
pub(crate) fn decode(message: Message<'_>) -> Vec<String> {
    let active = generic::attributes(message.payload).find(FEATURES_ACTIVE);
    let bits = active.and_then(|set| Attributes::new(set).find(BITSET_BITS)).unwrap_or_default();
    let names = Attributes::new(bits).filter_map(|(_, bit)| Attributes::new(bit).find(BIT_NAME));
    names.map(read_text).collect()
}

/// The features of some devices that are on, by device. Linux before 5.6 does not tell.
fn features(devices: impl Iterator<Item = u32>) -> Result<Vec<(u32, String)>, Error> {
    let Some((mut socket, family)) = generic::family(b"ethtool\0")? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for device in devices {
        let header = Request::new(0, 0, &[]).attribute(HEADER_INDEX, &device.to_ne_bytes()).finish(0);
        let request =
            Request::new(family, 0, &[GET_FEATURES, 1, 0, 0]).attribute(FEATURES_HEADER, &header[HEADER..]);
        match socket
            .request(request, |message| found.extend(decode(message).into_iter().map(|name| (device, name))))
        {
            // Gone since.
            Ok(()) | Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Names of a device's features that are on, as the kernel calls them.
pub fn active_features(device: u32) -> Result<Vec<String>, Error> {
    Ok(features(std::iter::once(device))?.into_iter().map(|(_, name)| name).collect())
}

/// Offloads in the way, by device. trielined reads a device's offloads once, and again when its link may have changed: the kernel sends a
/// link's message when its features change, too.
#[derive(Debug, Default)]
pub struct Offloads {
    known: HashMap<u32, Vec<Offload>>,
}

impl Offloads {
    /// Those of `devices` that are on.
    pub fn in_the_way(&mut self, devices: impl Iterator<Item = u32>) -> Result<Vec<(u32, Offload)>, Error> {
        let devices: BTreeSet<u32> = devices.collect();
        let new: Vec<u32> =
            devices.iter().copied().filter(|device| !self.known.contains_key(device)).collect();
        if !new.is_empty() {
            let found = features(new.iter().copied())?;
            self.known.extend(new.into_iter().map(|device| (device, Vec::new())));
            for (device, name) in found {
                self.known.entry(device).or_default().extend(Offload::by_feature(&name));
            }
        }
        self.known.retain(|device, _| devices.contains(device));
        let known = self.known.iter().flat_map(|(device, on)| on.iter().map(|offload| (*device, *offload)));
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        Ok(known)
    }

    /// Asks for this device again.
    pub fn forget(&mut self, device: u32) {
        self.known.remove(&device);
    }

    /// Asks for every device again.
    pub fn forget_all(&mut self) {
        self.known.clear();
    }
}

const GET_LINK_MODES: u8 = 4; // ETHTOOL_MSG_LINKMODES_GET
const SPEED: u16 = 5;
const GET_CHANNELS: u8 = 17; // ETHTOOL_MSG_CHANNELS_GET
const RX_QUEUES: u16 = 6;
const COMBINED: u16 = 9;

/// The hardware of a device, as far as its driver tells.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// Mbit/s.
    pub speed: Option<u32>,
    /// Receive queues: combined ones and those for receiving alone.
    pub queues: Option<u32>,
}

/// The hardware of a device. Linux before 5.6 does not tell.
pub fn hardware(device: u32) -> Result<Hardware, Error> {
    let Some((mut socket, family)) = generic::family(b"ethtool\0")? else { return Ok(Hardware::default()) };
    let mut ask = |command: u8, each: &mut dyn FnMut(&[u8])| {
        let header = Request::new(0, 0, &[]).attribute(HEADER_INDEX, &device.to_ne_bytes()).finish(0);
        let request =
            Request::new(family, 0, &[command, 1, 0, 0]).attribute(FEATURES_HEADER, &header[HEADER..]);
        match socket.request(request, |message| each(message.payload)) {
            // The driver does not tell.
            Ok(()) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    };
    let mut found = Hardware::default();
    ask(GET_LINK_MODES, &mut |payload| found.speed = speed(payload))?;
    ask(GET_CHANNELS, &mut |payload| found.queues = queues(payload))?;
    Ok(found)
}

/// The speed of an answer; a link that is down has none (`SPEED_UNKNOWN`).
fn speed(payload: &[u8]) -> Option<u32> {
    let speed = generic::attributes(payload).find(SPEED).and_then(read_u32);
    speed.filter(|speed| ![0, u32::MAX].contains(speed))
}

fn queues(payload: &[u8]) -> Option<u32> {
    let count = |kind| generic::attributes(payload).find(kind).and_then(read_u32).unwrap_or(0);
    Some(count(COMBINED) + count(RX_QUEUES)).filter(|queues| *queues > 0)
}

/// Whether a device takes packets whose checksum it is to finish (`ethtool -K DEVICE tx on`).
pub fn finishes_checksums(device: u32) -> Result<bool, Error> {
    Ok(features(std::iter::once(device))?.iter().any(|(_, name)| name.starts_with("tx-checksum-ip")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        Request::new(0, 0, &[]).attribute(kind, value).finish(0).split_off(HEADER)
    }

    #[test]
    fn active_features_are_found_by_name() {
        let bit = |name: &[u8]| attribute(1, &[attribute(1, &[8, 0, 0, 0]), attribute(2, name)].concat());
        let set = |names: &[&[u8]]| {
            let bits: Vec<u8> = names.iter().flat_map(|name| bit(name)).collect();
            [attribute(1, &[]), attribute(2, &[64, 0, 0, 0]), attribute(BITSET_BITS, &bits)].concat()
        };
        let reported = |kind: u16, names: &[&[u8]]| {
            let payload = [vec![11, 1, 0, 0], attribute(1, &[]), attribute(kind, &set(names))].concat();
            decode(Message { kind: 0x20, flags: 0, sequence: 0, payload: &payload })
        };
        let both: &[&[u8]] = &[b"rx-gro\0", b"rx-vlan-hw-parse\0", b"rx-lro\0", b"rx-lro-x\0"];
        assert_eq!(Offload::by_feature("rx-vlan-stag-hw-parse"), Some(Offload::RxVlanStag));
        let harmful = |names: Vec<String>| -> Vec<_> {
            names.iter().filter_map(|name| Offload::by_feature(name)).collect()
        };
        assert_eq!(reported(FEATURES_ACTIVE, both), ["rx-gro", "rx-vlan-hw-parse", "rx-lro", "rx-lro-x"]);
        assert_eq!(harmful(reported(FEATURES_ACTIVE, both)), [Offload::RxVlan, Offload::Lro]);
        assert!(reported(2, both).is_empty(), "what the hardware could do");
        assert!(reported(FEATURES_ACTIVE, &[]).is_empty());
    }

    #[test]
    fn hardware_reports_speed_and_queues() {
        let number = |kind: u16, value: u32| attribute(kind, &value.to_ne_bytes());
        let answer = |attributes: &[Vec<u8>]| [vec![0; 4], attributes.concat()].concat();
        assert_eq!(speed(&answer(&[number(SPEED, 25_000)])), Some(25_000));
        assert_eq!(speed(&answer(&[number(SPEED, u32::MAX)])), None, "no carrier");
        assert_eq!(speed(&answer(&[])), None);
        assert_eq!(queues(&answer(&[number(RX_QUEUES, 2), number(COMBINED, 6)])), Some(8));
        assert_eq!(queues(&answer(&[number(COMBINED, 0)])), None);
    }
}
