//! Nexthop groups by number: a million routes name a few hundred ways of forwarding, so each route keeps four bytes.

use crate::kernel::nexthop::{Object, Objects};
use crate::kernel::route::{Nexthop, NexthopGroup, RouteMessage};
use crate::kernel::seg6::{Encap, Endpoint};
use crate::rib::expiry::Expiries;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

/// Number of a nexthop group in [`NexthopGroups`].
pub type NhgId = u32;

/// A fast hash for keys that the kernel chose, not an adversary: bytes folded eight at a time by multiplication.
#[derive(Debug, Default, Clone)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut last = [0; 8];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

/// A map with [`KeyHasher`].
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug)]
struct Slot {
    nhg: NexthopGroup,
    keys: Vec<Box<[u8]>>,
}

fn tables_of(nhg: &NexthopGroup) -> impl Iterator<Item = (u8, u32)> + '_ {
    nhg.hops.iter().flat_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(behaviour)) => behaviour.tables(),
        _ => Vec::new(),
    })
}

fn leads_of(nhg: &NexthopGroup) -> impl Iterator<Item = (u8, u32)> + '_ {
    nhg.hops.iter().filter(|hop| hop.encap.is_none()).map(|hop| (nhg.family, hop.ifindex))
}

/// Every nexthop group in use, each once.
#[derive(Debug, Default)]
pub struct NexthopGroups {
    /// The nexthop group of each key as the kernel wrote it: two keys can mean one nexthop group.
    by_key: KeyMap<Box<[u8]>, NhgId>,
    by_nhg: HashMap<NexthopGroup, NhgId>,
    slots: Vec<Option<Slot>>,
    free: Vec<NhgId>,
    scratch: Vec<u8>,
    last: NhgId,
    last_key: Vec<u8>,
    /// Tables that behaviours look up in, as (family, number).
    tables: BTreeSet<(u8, u32)>,
    /// Devices that packets are sent by as they are, as (family, number).
    leads: BTreeSet<(u8, u32)>,
    /// Times that those two have changed.
    renamed: u64,
    /// Next hop objects: what nexthop groups that name one forward by.
    objects: Objects,
    /// When routes end.
    ends: Expiries,
}

impl NexthopGroups {
    /// The nexthop group of a route message. O(length of the message).
    #[inline]
    pub fn intern(&mut self, route: &RouteMessage<'_>) -> NhgId {
        self.scratch.clear();
        route.nhg_key(&mut self.scratch);
        if self.scratch == self.last_key {
            return self.last;
        }
        let id = match self.by_key.get(&self.scratch[..]) {
            Some(id) => *id,
            None => {
                let mut nhg = route.nhg();
                // Without `net.ipv4.nexthop_compat_mode` a route tells the object's number only; with it, nothing of what trieline
                // does not know of the object.
                if let Some(hops) = nhg.nexthop.and_then(|id| self.objects.hops(id))
                    && (nhg.hops.is_empty() || hops.is_empty())
                {
                    nhg.hops = hops;
                }
                let id = self.intern_nhg(nhg);
                let key: Box<[u8]> = self.scratch[..].into();
                self.by_key.insert(key.clone(), id);
                if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
                    slot.keys.push(key);
                }
                id
            }
        };
        std::mem::swap(&mut self.last_key, &mut self.scratch);
        self.last = id;
        id
    }

    /// The number of `nhg`.
    pub fn intern_nhg(&mut self, mut nhg: NexthopGroup) -> NhgId {
        if !nhg.asks_again() {
            nhg.table = 0;
        }
        if let Some(id) = self.by_nhg.get(&nhg) {
            return *id;
        }
        let known = self.tables.len();
        self.tables.extend(tables_of(&nhg));
        self.renamed += u64::from(self.tables.len() > known);
        let known = self.leads.len();
        self.leads.extend(leads_of(&nhg));
        self.renamed += u64::from(self.leads.len() > known);
        let slot = Some(Slot { nhg: nhg.clone(), keys: Vec::new() });
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as NhgId
            }
        };
        self.by_nhg.insert(nhg, id);
        id
    }

    /// Follows a next hop object (`None`: it is gone). Nexthop groups whose ways out differ by it, with those before; they keep
    /// their numbers, so no route changes. O(nexthop groups).
    pub fn follow_object(&mut self, id: u32, object: Option<Object>) -> Vec<(NhgId, Vec<Nexthop>)> {
        if self.objects.set(id, object) {
            self.renew(|objects, used| objects.concerns(used, id))
        } else {
            Vec::new()
        }
    }

    /// Whether a nexthop group forwards by an object.
    pub fn uses_object(&self, id: u32) -> bool {
        self.iter().any(|(_, nhg)| nhg.nexthop.is_some_and(|used| self.objects.concerns(used, id)))
    }

    /// Takes all next hop objects as a dump tells them; see [`NexthopGroups::follow_object`].
    pub fn take_objects(&mut self, objects: Objects) -> Vec<(NhgId, Vec<Nexthop>)> {
        self.objects = objects;
        self.renew(|_, _| true)
    }

    /// The next hop objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The next hop objects, taken out.
    pub fn into_objects(self) -> Objects {
        self.objects
    }

    /// Whether next hops of some group have metrics that the kernel does not tell.
    pub fn hide_metrics(&self) -> bool {
        self.iter().any(|(_, nhg)| nhg.hides_metrics())
    }

    /// Whether there are next hop objects.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Finds out which tables behaviours look up in, and which devices packets are sent by. O(nexthop groups).
    fn find_tables(&mut self) {
        let tables = self.iter().flat_map(|(_, nhg)| tables_of(nhg)).collect();
        let leads = self.iter().flat_map(|(_, nhg)| leads_of(nhg)).collect();
        self.renamed += u64::from(tables != self.tables || leads != self.leads);
        (self.tables, self.leads) = (tables, leads);
    }

    /// Gives nexthop groups the ways out of their objects.
    fn renew(&mut self, concerned: impl Fn(&Objects, u32) -> bool) -> Vec<(NhgId, Vec<Nexthop>)> {
        let mut renewed = Vec::new();
        for (id, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            let Some(used) = slot.nhg.nexthop.filter(|used| concerned(&self.objects, *used)) else {
                continue;
            };
            let Some(hops) = self.objects.hops(used).filter(|hops| *hops != slot.nhg.hops) else { continue };
            if self.by_nhg.get(&slot.nhg) == Some(&(id as NhgId)) {
                self.by_nhg.remove(&slot.nhg);
            }
            // The routes' old keys mean another group by now.
            for key in slot.keys.drain(..) {
                self.by_key.remove(&key);
            }
            renewed.push((id as NhgId, std::mem::replace(&mut slot.nhg.hops, hops)));
            self.by_nhg.entry(slot.nhg.clone()).or_insert(id as NhgId);
        }
        if !renewed.is_empty() {
            self.last_key.clear();
            self.find_tables();
        }
        renewed
    }

    /// A route by nexthop group `id` ends in `left` hundredths of a second.
    pub fn note_expiry(&mut self, id: NhgId, left: i32) {
        self.ends.note(id, left, Instant::now());
    }

    /// Forgets when routes end: a dump is about to say it again.
    pub fn forget_expiries(&mut self) {
        self.ends.forget();
    }

    /// Whether a route by this nexthop group may have ended, or is about to: only the kernel knows. Routers prolong such routes all the time,
    /// without a message of the kernel.
    pub fn is_expiring(&self, id: NhgId) -> bool {
        self.get(id).is_some_and(|nhg| nhg.expires) && self.ends.is_near(id)
    }

    /// It is `now`. Returns whether the daemon has to dump routes again because some end.
    pub fn pass_time(&mut self, now: Instant) -> bool {
        self.ends.pass_time(now)
    }

    /// The nexthop group of number `id`.
    pub fn get(&self, id: NhgId) -> Option<&NexthopGroup> {
        self.slots.get(id as usize)?.as_ref().map(|slot| &slot.nhg)
    }

    /// All nexthop groups.
    pub fn iter(&self) -> impl Iterator<Item = (NhgId, &NexthopGroup)> {
        self.slots.iter().enumerate().filter_map(|(id, slot)| Some((id as NhgId, &slot.as_ref()?.nhg)))
    }

    /// Devices of the hops that encapsulate for SRv6; may repeat. O(nexthop groups).
    pub fn encapsulating(&self) -> impl Iterator<Item = u32> {
        let hops = self.iter().flat_map(|(_, nhg)| &nhg.hops);
        let pushes = |hop: &&Nexthop| match &hop.encap {
            Some(Encap::Seg6 { .. }) => true,
            Some(Encap::Seg6Local(behaviour)) => behaviour.endpoint == Endpoint::EndB6Encaps,
            _ => false,
        };
        hops.filter(pushes).map(|hop| hop.ifindex)
    }

    /// Tables that behaviours (seg6local) look up in, as (family, number); perhaps also some of nexthop groups that are no more.
    pub fn tables(&self) -> &BTreeSet<(u8, u32)> {
        &self.tables
    }

    /// Whether routes of a family send packets by a device as they are.
    pub fn lead_to(&self, family: u8, ifindex: u32) -> bool {
        self.leads.contains(&(family, ifindex))
    }

    /// How often those tables and devices have changed.
    pub fn renamed(&self) -> u64 {
        self.renamed
    }

    /// Number of nexthop groups.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the highest number given out.
    pub fn bound(&self) -> usize {
        self.slots.len()
    }

    /// Forgets every nexthop group for which `used` returns false; returns their numbers, which may be given out again.
    pub fn sweep(&mut self, used: impl Fn(NhgId) -> bool) -> Vec<NhgId> {
        let mut gone = Vec::new();
        for id in 0..self.slots.len() {
            if used(id as NhgId) {
                continue;
            }
            if let Some(slot) = self.slots[id].take() {
                for key in &slot.keys {
                    self.by_key.remove(key);
                }
                if self.by_nhg.get(&slot.nhg) == Some(&(id as NhgId)) {
                    self.by_nhg.remove(&slot.nhg);
                }
                self.ends.remove(id as NhgId);
                self.free.push(id as NhgId);
                gone.push(id as NhgId);
            }
        }
        self.last_key.clear();
        self.find_tables();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::route::decode;
    use crate::kernel::route::tests::{END_DX4, GATEWAY, bytes, with};

    /// Routes that ask for something unknown are not taken for each other.
    #[test]
    fn unknown_parts_make_a_nexthop_group_of_their_own() {
        let mut nhgs = NexthopGroups::default();
        let mut intern = |payload: &[u8]| nhgs.intern(&decode(payload).unwrap());
        let plain = bytes(GATEWAY);
        let mut flagged = plain.clone();
        flagged[8..12].copy_from_slice(&0x1_0080u32.to_ne_bytes());
        let all = [plain.clone(), flagged, with(&plain, 31, &[1]), with(&plain, 31, &[2])];
        assert_eq!(all.map(|payload| intern(&payload)), [0, 1, 2, 3]);
    }

    /// Fields that change by themselves (link flags of the moment, timers) and the prefix itself make no new nexthop group.
    #[test]
    fn a_nexthop_group_is_recognised_by_what_it_does() {
        let mut nhgs = NexthopGroups::default();
        let mut intern = |payload: &[u8]| nhgs.intern(&decode(payload).unwrap());
        let plain = bytes(GATEWAY);
        let first = intern(&plain);
        let mut changed = plain.clone();
        changed[1] = 24; // prefix length
        changed[8] |= 16; // link down
        changed[26] = 99; // the prefix
        changed[32] = 78; // the metric
        assert_eq!(intern(&changed), first);
        let mut other = plain.clone();
        other[55] = 3; // the gateway
        assert_ne!(intern(&other), first);
        let mut timer = bytes(END_DX4);
        let end_dx4 = intern(&timer);
        let len = timer.len();
        timer[len - 36] = 9; // last use
        assert_eq!(intern(&timer), end_dx4);
        timer[len - 32] = 9; // expires: another matter
        let expiring = intern(&timer);
        assert!(nhgs.get(expiring).unwrap().expires && !nhgs.get(end_dx4).unwrap().expires);
        assert_eq!(nhgs.len(), 4);
        assert_eq!(nhgs.sweep(|id| id == first), [first + 1, end_dx4, expiring]);
        assert_eq!(nhgs.intern(&decode(&plain).unwrap()), first);
    }
}
