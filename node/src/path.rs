//! Paths by number: a million routes name a few hundred ways of forwarding, so each route keeps four bytes.

use crate::kernel::nexthop::{Object, Objects};
use crate::kernel::route::{Hop, Path, RouteMessage};
use crate::kernel::seg6::{Behaviour, Encap};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

/// Number of a path in [`Paths`].
pub type PathId = u32;

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

#[path = "path/ends.rs"]
mod ends;
use ends::Ends;

/// A map with [`KeyHasher`].
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug)]
struct Slot {
    path: Path,
    keys: Vec<Box<[u8]>>,
}

fn tables_of(path: &Path) -> impl Iterator<Item = (u8, u32)> + '_ {
    path.hops.iter().flat_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(behaviour)) => behaviour.tables(),
        _ => Vec::new(),
    })
}

/// Every path in use, each once.
#[derive(Debug, Default)]
pub struct Paths {
    /// The path of each key as the kernel wrote it: two keys can mean one path.
    by_key: KeyMap<Box<[u8]>, PathId>,
    by_path: HashMap<Path, PathId>,
    slots: Vec<Option<Slot>>,
    free: Vec<PathId>,
    scratch: Vec<u8>,
    last: PathId,
    last_key: Vec<u8>,
    /// Tables that behaviours look up in, as (family, number).
    tables: BTreeSet<(u8, u32)>,
    /// Times that those have changed.
    renamed: u64,
    /// Next hop objects: what paths that name one forward by.
    objects: Objects,
    /// When routes end.
    ends: Ends,
}

impl Paths {
    /// The path of a route message. O(length of the message).
    #[inline]
    pub fn intern(&mut self, route: &RouteMessage<'_>) -> PathId {
        self.scratch.clear();
        route.path_key(&mut self.scratch);
        if self.scratch == self.last_key {
            return self.last;
        }
        let id = match self.by_key.get(&self.scratch[..]) {
            Some(id) => *id,
            None => {
                let mut path = route.path();
                // Without `net.ipv4.nexthop_compat_mode` a route tells the object's number only; with it, nothing of what trieline
                // does not know of the object.
                if let Some(hops) = path.nexthop.and_then(|id| self.objects.hops(id))
                    && (path.hops.is_empty() || hops.is_empty())
                {
                    path.hops = hops;
                }
                let id = self.intern_path(path);
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

    /// The number of `path`.
    pub fn intern_path(&mut self, path: Path) -> PathId {
        if let Some(id) = self.by_path.get(&path) {
            return *id;
        }
        let known = self.tables.len();
        self.tables.extend(tables_of(&path));
        self.renamed += u64::from(self.tables.len() > known);
        let slot = Some(Slot { path: path.clone(), keys: Vec::new() });
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as PathId
            }
        };
        self.by_path.insert(path, id);
        id
    }

    /// Follows a next hop object (`None`: it is gone). Paths whose ways out differ by it, with those before; they keep
    /// their numbers, so no route changes. O(paths).
    pub fn follow_object(&mut self, id: u32, object: Option<Object>) -> Vec<(PathId, Vec<Hop>)> {
        if self.objects.set(id, object) {
            self.renew(|objects, used| objects.concerns(used, id))
        } else {
            Vec::new()
        }
    }

    /// Whether a path forwards by an object.
    pub fn uses_object(&self, id: u32) -> bool {
        self.iter().any(|(_, path)| path.nexthop.is_some_and(|used| self.objects.concerns(used, id)))
    }

    /// Takes all next hop objects as a dump tells them; see [`Paths::follow_object`].
    pub fn take_objects(&mut self, objects: Objects) -> Vec<(PathId, Vec<Hop>)> {
        self.objects = objects;
        self.renew(|_, _| true)
    }

    /// The next hop objects, taken out.
    pub fn into_objects(self) -> Objects {
        self.objects
    }

    /// Whether there are next hop objects.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Finds out which tables behaviours look up in. O(paths).
    fn find_tables(&mut self) {
        let tables = self.iter().flat_map(|(_, path)| tables_of(path)).collect();
        self.renamed += u64::from(tables != self.tables);
        self.tables = tables;
    }

    /// Gives paths the ways out of their objects.
    fn renew(&mut self, concerned: impl Fn(&Objects, u32) -> bool) -> Vec<(PathId, Vec<Hop>)> {
        let mut renewed = Vec::new();
        for (id, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            let Some(used) = slot.path.nexthop.filter(|used| concerned(&self.objects, *used)) else {
                continue;
            };
            let Some(hops) = self.objects.hops(used).filter(|hops| *hops != slot.path.hops) else { continue };
            if self.by_path.get(&slot.path) == Some(&(id as PathId)) {
                self.by_path.remove(&slot.path);
            }
            // What a route said before means something else by now.
            for key in slot.keys.drain(..) {
                self.by_key.remove(&key);
            }
            renewed.push((id as PathId, std::mem::replace(&mut slot.path.hops, hops)));
            self.by_path.entry(slot.path.clone()).or_insert(id as PathId);
        }
        if !renewed.is_empty() {
            self.last_key.clear();
            self.find_tables();
        }
        renewed
    }

    /// A route by path `id` ends in `left` hundredths of a second.
    pub fn note_end(&mut self, id: PathId, left: i32) {
        self.ends.note(id, left, Instant::now());
    }

    /// Forgets when routes end: a dump is about to say it again.
    pub fn forget_ends(&mut self) {
        self.ends.forget();
    }

    /// Whether a route by this path may have ended, or is about to: only the kernel knows. Routers prolong such routes all the time, of
    /// which the kernel says nothing.
    pub fn is_ending(&self, id: PathId) -> bool {
        self.get(id).is_some_and(|path| path.expires) && self.ends.is_near(id)
    }

    /// It is `now`. Whether the kernel has to be asked again when routes end.
    pub fn pass_time(&mut self, now: Instant) -> bool {
        self.ends.pass_time(now)
    }

    /// The path of number `id`.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.slots.get(id as usize)?.as_ref().map(|slot| &slot.path)
    }

    /// All paths.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.slots.iter().enumerate().filter_map(|(id, slot)| Some((id as PathId, &slot.as_ref()?.path)))
    }

    /// Devices of the hops that encapsulate for SRv6; may repeat. O(paths).
    pub fn encapsulating(&self) -> impl Iterator<Item = u32> {
        let hops = self.iter().flat_map(|(_, path)| &path.hops);
        let pushes = |hop: &&Hop| {
            matches!(hop.encap, Some(Encap::Seg6 { .. } | Encap::Seg6Local(Behaviour::EndB6Encaps { .. })))
        };
        hops.filter(pushes).map(|hop| hop.ifindex)
    }

    /// Tables that behaviours (seg6local) look up in, as (family, number); perhaps also some of paths that are no more.
    pub fn tables(&self) -> &BTreeSet<(u8, u32)> {
        &self.tables
    }

    /// How often those have changed.
    pub fn renamed(&self) -> u64 {
        self.renamed
    }

    /// Number of paths.
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

    /// Forgets every path for which `used` says no; returns their numbers, which may be given out again.
    pub fn sweep(&mut self, used: impl Fn(PathId) -> bool) -> Vec<PathId> {
        let mut gone = Vec::new();
        for id in 0..self.slots.len() {
            if used(id as PathId) {
                continue;
            }
            if let Some(slot) = self.slots[id].take() {
                for key in &slot.keys {
                    self.by_key.remove(key);
                }
                if self.by_path.get(&slot.path) == Some(&(id as PathId)) {
                    self.by_path.remove(&slot.path);
                }
                self.ends.remove(id as PathId);
                self.free.push(id as PathId);
                gone.push(id as PathId);
            }
        }
        self.last_key.clear();
        self.find_tables();
        gone
    }
}
