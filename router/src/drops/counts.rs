//! The counts of packets after redirect, as the daemon answers and commands print them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The number of counts that are not of one device.
pub(super) const NO_DEVICE: u32 = 0;

/// Where the counts are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Programs at the kernel's tracepoints.
    Tracepoints,
    /// Counters of the devices' drivers (`ethtool -S`).
    Drivers,
}

/// Packets that were forwarded, by device and fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AfterRedirect {
    /// Where the counts are from; `None`: this node cannot know.
    pub source: Option<Source>,
    /// Why something is not counted.
    pub unknown: Option<String>,
    /// Output devices that packets were forwarded to.
    pub devices: Vec<EgressCount>,
    /// The same, of devices that are gone, together; `None`: there is none. Counts move here from `devices`, so this has no rate.
    pub former: Option<EgressCount>,
}

/// Packets that were forwarded to one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EgressCount {
    /// Name of the device; `None`: other devices together, and packets whose output device is unknown.
    pub dev: Option<String>,
    /// Its index; 0 if it is not one device.
    pub ifindex: u32,
    /// Packets that the driver took; `None`: not known.
    pub sent: Option<u64>,
    /// Packets that were lost, by reason.
    pub drops: Vec<DropCount>,
}

/// Packets that were lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason; the label of metrics and the key in JSON.
    pub reason: Cow<'static, str>,
    /// Packets.
    pub packets: u64,
}

impl EgressCount {
    /// Name of the device, or what it stands for.
    pub fn name(&self) -> &str {
        self.dev.as_deref().unwrap_or("other devices")
    }

    /// All lost packets.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|drop| drop.packets).sum()
    }

    /// Adds the packets of another device.
    pub(super) fn add(&mut self, other: &Self) {
        self.sent = self.sent.zip(other.sent).map(|(one, other)| one + other);
        self.drops.iter_mut().zip(&other.drops).for_each(|(all, drop)| all.packets += drop.packets);
    }

    fn has_packets(&self) -> bool {
        self.sent.is_some_and(|sent| sent > 0) || self.dropped() > 0
    }
}

/// Why nothing more is known of packets in generic mode, which has no tracepoint where a driver takes a packet.
const GENERIC: &str =
    "in generic mode, packets that drivers took or dropped; `ip -s link` has drops of drivers";

impl AfterRedirect {
    /// Leaves out the counts that do not exist in generic mode.
    pub fn in_generic_mode(mut self) -> Self {
        self.devices.iter_mut().chain(&mut self.former).for_each(|device| device.sent = None);
        self.devices.retain(EgressCount::has_packets);
        let unknown = self.unknown.into_iter().chain([GENERIC.to_owned()]);
        Self { unknown: Some(unknown.collect::<Vec<_>>().join("; ")), ..self }
    }

    /// Gives each device its name; one without a name is a former device.
    pub fn named(mut self, mut name: impl FnMut(u32) -> Option<String>) -> Self {
        self.devices.retain_mut(|device| {
            if device.ifindex == NO_DEVICE {
                return device.has_packets();
            }
            device.dev = name(device.ifindex);
            if device.dev.is_none() {
                match &mut self.former {
                    Some(former) => former.add(device),
                    None => self.former = Some(EgressCount { ifindex: NO_DEVICE, ..device.clone() }),
                }
            }
            device.dev.is_some()
        });
        self.former = self.former.filter(EgressCount::has_packets);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(ifindex: u32, sent: u64, packets: u64) -> EgressCount {
        let drops = vec![DropCount { reason: "ring_full".into(), packets }];
        EgressCount { dev: None, ifindex, sent: Some(sent), drops }
    }

    #[test]
    fn devices_without_a_name_are_former_ones() {
        let counted = |devices, former| AfterRedirect { devices, former, ..AfterRedirect::default() };
        let name = |ifindex| (ifindex == 7).then(|| "eth7".to_owned());
        let named = |devices, former| {
            let named = counted(devices, former).named(name);
            (named.devices, named.former)
        };
        let eth7 = EgressCount { dev: Some("eth7".into()), ..count(7, 3, 4) };
        let (devices, former) =
            named(vec![count(0, 1, 2), count(7, 3, 4), count(8, 5, 6)], Some(count(0, 10, 20)));
        assert_eq!((devices, former), (vec![count(0, 1, 2), eth7.clone()], Some(count(0, 15, 26))));
        let none = named(vec![count(0, 0, 0), count(7, 3, 4)], Some(count(0, 0, 0)));
        assert_eq!(none, (vec![eth7], None), "neither other devices nor former ones");
        assert_eq!(named(vec![count(9, 5, 6)], None).1, Some(count(0, 5, 6)));
    }
}
