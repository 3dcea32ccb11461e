//! The places of output devices: each has counters of its own as long as it exists, and leaves them to former devices.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::maps::generated::types::tl_drops_limits;
use super::maps::{Key, Maps};
use trieline_bpf::ReaderGrace;
use trieline_lpm::Grace as _;

/// The places that devices may have.
const PLACES: std::ops::Range<u32> = tl_drops_limits::TL_SLOT_FIRST.0..tl_drops_limits::TL_DROP_SLOTS.0;

/// The owner's record of places; the map of output devices has the same.
#[derive(Debug)]
pub(super) struct Slots {
    grace: ReaderGrace,
    /// By device.
    of: BTreeMap<u32, u32>,
    /// Devices that are gone, which have their places still.
    gone: BTreeSet<u32>,
    /// Places of devices that are gone. Each has the ticket of the grace period after which no program counts there.
    leaving: BTreeMap<u32, u64>,
}

impl Slots {
    /// Takes over the places that an earlier owner gave.
    pub(super) fn open(maps: &Maps, mut grace: ReaderGrace) -> io::Result<Self> {
        let mut of = BTreeMap::new();
        let places = maps.places()?;
        let leaving: BTreeSet<u32> =
            places.iter().filter(|(key, slot)| *key == Key::Gone(*slot)).map(|(_, slot)| *slot).collect();
        for (key, slot) in places {
            match key {
                // Its owner ended before it had deleted the key.
                Key::Device(_) if leaving.contains(&slot) => maps.delete(key)?,
                Key::Device(ifindex) => {
                    of.insert(ifindex, slot);
                }
                Key::Gone(_) => {}
            }
        }
        let ticket = if leaving.is_empty() { 0 } else { grace.begin() };
        let leaving = leaving.into_iter().map(|slot| (slot, ticket)).collect();
        Ok(Self { grace, of, gone: BTreeSet::new(), leaving })
    }

    /// These devices are gone, though others may have their numbers by now: their counts will be those of former devices.
    pub(super) fn retire(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.gone.extend(self.of.keys().copied().filter(|device| is_gone(*device)));
    }

    /// Clears the places of devices that are gone, and gives each of these output devices a place. It does as much as it can; the first
    /// error, if any.
    pub(super) fn follow(&mut self, maps: &Maps, outputs: &BTreeSet<u32>) -> io::Result<()> {
        let mut done = self.leave(maps);
        done = done.and(self.fold(maps));
        let mut taken: BTreeSet<u32> = self.of.values().chain(self.leaving.keys()).copied().collect();
        for device in outputs.iter().filter(|device| !self.of.contains_key(device)).collect::<Vec<_>>() {
            let Some(slot) = PLACES.into_iter().find(|slot| !taken.contains(slot)) else {
                let full = format!("there is room for {} output devices", PLACES.len());
                done = done.and(Err(io::Error::other(full)));
                break;
            };
            match maps.put(Key::Device(*device), slot) {
                Ok(()) => {
                    self.of.insert(*device, slot);
                    taken.insert(slot);
                }
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    /// Takes their places from devices that are gone. The place has the key of a former device before it loses that of the device, so it
    /// is known at any moment.
    fn leave(&mut self, maps: &Maps) -> io::Result<()> {
        let left: Vec<(u32, io::Result<u32>)> = std::mem::take(&mut self.gone)
            .into_iter()
            .filter_map(|device| Some((device, *self.of.get(&device)?)))
            .map(|(device, slot)| {
                let moved = maps.put(Key::Gone(slot), slot).and_then(|()| maps.delete(Key::Device(device)));
                (device, moved.map(|()| slot))
            })
            .collect();
        let ticket = if left.is_empty() { 0 } else { self.grace.begin() };
        let mut done = Ok(());
        for (device, moved) in left {
            match moved {
                Ok(slot) => {
                    self.of.remove(&device);
                    self.leaving.insert(slot, ticket);
                }
                Err(error) => {
                    self.gone.insert(device);
                    done = done.and(Err(error));
                }
            }
        }
        done
    }

    /// Adds the counts of former devices together, if no program counts in their places any more.
    fn fold(&mut self, maps: &Maps) -> io::Result<()> {
        let passed = self.grace.passed();
        let mut done = Ok(());
        self.leaving.retain(|slot, ticket| {
            let folds = *ticket <= passed;
            let folded =
                if folds { maps.fold(*slot).and_then(|()| maps.delete(Key::Gone(*slot))) } else { Ok(()) };
            let stays = !folds || folded.is_err();
            done = std::mem::replace(&mut done, Ok(())).and(folded);
            stays
        });
        done
    }
}
