//! The counters that drivers keep (`ethtool -S`) and the kernel (`ip -s link`), and where they say that frames were lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trieline_testbed::command;

use crate::{Error, Result, redirects::Errors};

/// The counters of a device by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

/// Where frames were lost, by the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The generator's device did not take them.
    pub generator: u64,
    /// The RX ring was full, or had no buffer.
    pub rx_ring: u64,
    /// XDP dropped them, or could not redirect them.
    pub xdp: u64,
    /// The TX ring was full.
    pub tx_ring: u64,
}

impl Places {
    /// Adds those of another device.
    pub fn add(&mut self, other: Places) {
        self.generator += other.generator;
        self.rx_ring += other.rx_ring;
        self.xdp += other.xdp;
        self.tx_ring += other.tx_ring;
    }

    /// No more than were `lost`, in the order of the way: a veth counts the same loss at both ends of its ring.
    pub fn within(self, lost: u64) -> Places {
        let mut left = lost;
        let mut take = |count: u64| {
            let taken = count.min(left);
            left -= taken;
            taken
        };
        Places {
            generator: take(self.generator),
            rx_ring: take(self.rx_ring),
            xdp: take(self.xdp),
            tx_ring: take(self.tx_ring),
        }
    }

    /// With what the kernel's tracepoints know of frames that XDP redirected in vain. Drivers count a refused one as a drop of their RX ring (veth)
    /// or not at all. They count one that the next device did not take as they like.
    pub fn with(self, errors: Errors) -> Places {
        let hidden = errors.refused.saturating_sub(self.xdp);
        Places {
            rx_ring: self.rx_ring.saturating_sub(hidden),
            xdp: self.xdp.max(errors.refused),
            tx_ring: self.tx_ring.max(errors.dropped),
            ..self
        }
    }

    /// All of them.
    pub fn sum(&self) -> u64 {
        self.generator + self.rx_ring + self.xdp + self.tx_ring
    }
}

/// A part of [`Places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    RxRing,
    Xdp,
    TxRing,
}

impl Counters {
    /// Of a device in the calling thread's namespace.
    ///
    /// # Errors
    /// The driver has no counters.
    pub fn read(device: &str) -> Result<Counters> {
        let text = command::output("ethtool", &["-S", device]).map_err(|error| {
            Error::Traffic(format!("cannot place losses: {device} has no driver counters: {error}"))
        })?;
        let mut counters = of_ethtool(&text);
        let link = command::ip(&["-j", "-s", "link", "show", "dev", device])?;
        counters.extend(of_ip(&link));
        Ok(Counters(counters))
    }

    /// The counts since `before`; counters that did not change are left out.
    pub fn since(&self, before: &Counters) -> Counters {
        let new = |(name, now): (&String, &u64)| {
            let more = now.saturating_sub(before.0.get(name).copied().unwrap_or(0));
            (more > 0).then(|| (name.clone(), more))
        };
        Counters(self.0.iter().filter_map(new).collect())
    }

    /// Where these say that frames were lost.
    pub fn places(&self) -> Places {
        let at = |place| {
            let of = |is_kernels: bool| {
                let mine = self.0.iter().filter(|(name, _)| name.starts_with(KERNELS) == is_kernels);
                by_queue(mine.filter(|(name, _)| place_of(name) == Some(place)))
            };
            // The kernel's counters often sum up the driver's.
            of(false).max(of(true))
        };
        Places { generator: 0, rx_ring: at(Place::RxRing), xdp: at(Place::Xdp), tx_ring: at(Place::TxRing) }
    }

    /// Those that say so, by name.
    pub fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let losses = self.0.iter().filter(|(name, _)| place_of(name).is_some());
        losses.map(|(name, count)| (name.as_str(), *count))
    }
}

/// The first characters of the kernel's own counters.
const KERNELS: &str = "kernel ";

/// `     name: number`, a line each.
fn of_ethtool(text: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (name, value) = line.trim().rsplit_once(": ")?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(counter).collect()
}

/// `stats64` of `ip -j -s link`: those of reception and of transmission.
fn of_ip(text: &str) -> BTreeMap<String, u64> {
    let document: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let stats = &document[0]["stats64"];
    let side = |side: &'static str| {
        let counters = stats[side].as_object().into_iter().flatten();
        counters.filter_map(move |(name, count)| Some((format!("{KERNELS}{side}_{name}"), count.as_u64()?)))
    };
    side("rx").chain(side("tx")).collect()
}

/// Sums counters. Where a driver counts a thing for each queue and for all together, it is one thing.
fn by_queue<'a>(counters: impl Iterator<Item = (&'a String, &'a u64)>) -> u64 {
    let mut things: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, count) in counters {
        let words =
            name.split(['_', '-', '.', ' ']).map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
        let thing: Vec<&str> = words.filter(|word| !["", "queue", "q"].contains(word)).collect();
        let is_of_a_queue = name.contains(|c: char| c.is_ascii_digit());
        let (queues, all) = things.entry(thing.join("_")).or_default();
        *(if is_of_a_queue { queues } else { all }) += count;
    }
    things.values().map(|(queues, all)| queues.max(all)).sum()
}

/// Where a counter of this name says that frames were lost; none if it counts something else.
fn place_of(name: &str) -> Option<Place> {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is_loss = has(&[
        "drop",
        "err",
        "miss",
        "discard",
        "abort",
        "full",
        "fail",
        "no_buf",
        "nobuf",
        "no_dma",
        "fifo",
        "over",
        "out_of_buffer",
        "invalid",
    ]);
    if !is_loss {
        return None;
    }
    // `xdp_xmit`: frames that XDP of another device sends by this one.
    if has(&["xmit", "xdp_tx", "tx_xdp"]) {
        return Some(Place::TxRing);
    }
    if has(&["xdp"]) {
        return Some(Place::Xdp);
    }
    match (name.contains("rx"), name.contains("tx")) {
        (true, false) => Some(Place::RxRing),
        (false, true) => Some(Place::TxRing),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the drivers print them: veth (Linux 6.18), mlx5 and i40e (Linux documentation and sources).
    const VETH: &str = "NIC statistics:\n     peer_ifindex: 3\n     rx_queue_0_xdp_packets: 500\n     rx_queue_0_drops: 0\n     \
        rx_queue_0_xdp_drops: 7\n     tx_queue_0_xdp_xmit: 90\n     tx_queue_0_xdp_xmit_errors: 4\n     tx_queue_1_xdp_xmit_errors: 5\n";
    const MLX5: &str = "     rx_xdp_drop: 30\n     rx0_xdp_drop: 10\n     rx1_xdp_drop: 20\n     rx_out_of_buffer: 6\n     \
        tx_xdp_full: 3\n     rx_xdp_tx_full: 2\n     rx_packets: 12345\n     tx_queue_dropped: 1\n";
    const I40E: &str =
        "     rx_missed_errors: 8\n     rx_dropped: 8\n     port.tx_errors: 2\n     rx-0.packets: 99\n";

    fn places(text: &str) -> [u64; 3] {
        let Places { rx_ring, xdp, tx_ring, .. } = Counters(of_ethtool(text)).places();
        [rx_ring, xdp, tx_ring]
    }

    #[test]
    fn counters_of_drivers_have_their_places() {
        assert_eq!(places(VETH), [0, 7, 9]);
        assert_eq!(places(MLX5), [6, 30, 6]);
        assert_eq!(places(I40E), [16, 0, 2]);
    }

    #[test]
    fn only_new_losses_count() {
        let before = Counters(of_ethtool("     rx_missed: 5\n     rx_packets: 100\n"));
        let after = Counters(of_ethtool("     rx_missed: 8\n     rx_packets: 900\n     rx_no_buf: 0\n"));
        let new = after.since(&before);
        assert_eq!(new.losses().collect::<Vec<_>>(), [("rx_missed", 3)]);
        assert_eq!(new.places(), Places { rx_ring: 3, ..Places::default() });
        // A driver that was reset counts from 0 again: nothing is known, and nothing is made up.
        assert_eq!(before.since(&after).places(), Places::default());
    }

    #[test]
    fn a_loss_counts_once() {
        let places = Places { generator: 5, rx_ring: 5, xdp: 1, tx_ring: 2 };
        assert_eq!(places.within(5), Places { generator: 5, ..Places::default() });
        assert_eq!(places.within(11), Places { tx_ring: 0, ..places });
        assert_eq!(places.within(99), places);
    }

    #[test]
    fn a_frame_that_was_not_redirected_is_lost_in_xdp_and_not_in_the_rx_ring() {
        let seen = Places { rx_ring: 10, tx_ring: 2, ..Places::default() };
        let errors = |refused, dropped| Errors { refused, dropped };
        assert_eq!(seen.with(errors(0, 0)), seen);
        assert_eq!(seen.with(errors(7, 5)), Places { rx_ring: 3, xdp: 7, tx_ring: 5, generator: 0 });
        // A driver that has a counter of its own for them does not count them twice.
        let own = Places { xdp: 7, ..seen };
        assert_eq!(own.with(errors(7, 2)), own);
        assert_eq!(seen.with(errors(99, 0)), Places { rx_ring: 0, xdp: 99, ..seen });
    }

    #[test]
    fn the_kernels_counters_stand_in_where_the_driver_has_none() {
        let link =
            r#"[{"stats64":{"rx":{"packets":9,"errors":0,"dropped":2},"tx":{"packets":4,"dropped":11}}}]"#;
        let counters = Counters(of_ip(link));
        assert_eq!(counters.places(), Places { rx_ring: 2, tx_ring: 11, ..Places::default() });
        assert_eq!(of_ip("nonsense").len(), 0);
    }
}
