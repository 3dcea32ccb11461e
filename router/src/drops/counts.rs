//! The counts of packets after redirect, as the daemon answers and commands print them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The number of former devices together, and the key of their counts.
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
}

/// Packets that were forwarded to one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EgressCount {
    /// Name of the device; `None`: former devices together.
    pub dev: Option<String>,
    /// Its index; 0 for former devices.
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
        self.dev.as_deref().unwrap_or("former devices")
    }

    /// All lost packets.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|drop| drop.packets).sum()
    }
}

/// Why nothing more is known of packets in generic mode, which has no tracepoint where a driver takes a packet.
const GENERIC: &str =
    "in generic mode, packets that drivers took or dropped; `ip -s link` has drops of drivers";

impl AfterRedirect {
    /// Leaves out the counts that do not exist in generic mode.
    pub fn in_generic_mode(mut self) -> Self {
        self.devices.iter_mut().for_each(|device| device.sent = None);
        self.devices.retain(|device| device.dropped() > 0);
        let unknown = self.unknown.into_iter().chain([GENERIC.to_owned()]);
        Self { unknown: Some(unknown.collect::<Vec<_>>().join("; ")), ..self }
    }

    /// Gives each device its name; one without a name is listed as former devices.
    pub fn named(mut self, mut name: impl FnMut(u32) -> Option<String>) -> Self {
        for device in &mut self.devices {
            device.dev = name(device.ifindex);
        }
        let (mut named, former): (Vec<_>, Vec<_>) =
            self.devices.into_iter().partition(|device| device.dev.is_some());
        let former = former.into_iter().reduce(|mut all, device| {
            all.sent = all.sent.zip(device.sent).map(|(one, other)| one + other);
            all.drops.iter_mut().zip(device.drops).for_each(|(all, drop)| all.packets += drop.packets);
            EgressCount { ifindex: NO_DEVICE, ..all }
        });
        named.extend(former.filter(|former| former.sent != Some(0) || former.dropped() > 0));
        Self { devices: named, ..self }
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
        let counted = |devices| AfterRedirect { devices, ..AfterRedirect::default() };
        let name = |ifindex| (ifindex == 7).then(|| "eth7".to_owned());
        let named = counted(vec![count(0, 1, 2), count(7, 3, 4), count(8, 5, 6)]).named(name).devices;
        let eth7 = EgressCount { dev: Some("eth7".into()), ..count(7, 3, 4) };
        assert_eq!(named, [eth7.clone(), count(0, 6, 8)]);
        let none = counted(vec![count(0, 0, 0), count(7, 3, 4)]).named(name).devices;
        assert_eq!(none, [eth7], "no former device");
    }
}
