//! A lookup that stands still between its walk and the default route, while the default route changes. It must find an answer of a state that
//! there was since it began. The change takes no memory and leaves the root where it is, also in an image that is full.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use trieline_lpm::image::layout::{DIR_BITS, DIR_ENTRY, DIRECTORY, TableHeader};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Epochs, Error, HeapMemory, Image, Memory, Prefix, Readers, Table};

const ID: u32 = 1;
const DEFAULT: u32 = 1;

/// An address that only the default route covers, at first.
const ADDR: u32 = 0xc633_6401;

/// The prefix of the default route.
fn all() -> Prefix<u32> {
    Prefix::truncated(0, 0)
}

/// So many that the root takes 256 KiB.
fn prefixes() -> impl Iterator<Item = (Prefix<u32>, u32)> {
    let some = (0..5000u32).map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761) >> 1, 26), 2 + n % 50));
    some.chain([(all(), DEFAULT)])
}

struct Live {
    image: Image<Arc<HeapMemory>, Epochs>,
    table: Table<u32>,
    readers: Readers<Arc<HeapMemory>>,
}

impl Live {
    /// An image of `chunks`; None if it is too small for the table.
    fn of(chunks: usize) -> Option<Self> {
        let grace = Epochs::new(2).with_patience(Duration::from_millis(2));
        let mut image = Image::create(Arc::new(HeapMemory::new(chunks << 16)), grace, 2).unwrap();
        let table = Table::create(&mut image, ID, prefixes()).ok()?;
        let readers = image.readers();
        Some(Self { image, table, readers })
    }

    /// The smallest image that holds the table and no second root, or one that has room.
    fn new(memory: Room) -> Self {
        let mut sizes = if memory == Room::Ample { 64..65 } else { 2..64 };
        sizes.find_map(Self::of).unwrap()
    }

    fn word(&self, at: usize) -> u32 {
        self.image.memory().words()[at].load(Ordering::Acquire)
    }

    /// The table's directory entry: its root, and the number of changes.
    fn entry(&self) -> (u32, u32) {
        let at = (DIRECTORY + DIR_ENTRY * ID) as usize / 4;
        (self.word(at), self.word(at + 1))
    }

    /// The word of the default route that a lookup under way will read.
    fn fallback(&self) -> usize {
        let root = self.entry().0 & !DIR_BITS;
        (root as usize - size_of::<TableHeader>() + offset_of!(TableHeader, fallback)) / 4
    }

    /// Changes prefixes until nothing fits any more, as what was replaced waits for the reader.
    fn use_up(&mut self) {
        for value in 0..1_000_000u32 {
            let prefix = Prefix::truncated((value % 4096) << 19 | 0x40, 28);
            match self.table.insert(&mut self.image, prefix, 2 + value % 50) {
                Ok(_) => {}
                Err(Error::Full { waiting, .. }) => {
                    assert!(waiting > 0, "a reader holds what was replaced");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the memory is never used up");
    }
}

/// Memory that is left in the image.
#[derive(Clone, Copy, PartialEq)]
enum Room {
    Ample,
    /// None for another root.
    Little,
    /// None for any change that takes some.
    None,
}

/// Runs `change`, which leaves the default route `after`, while a lookup of [`ADDR`] stands still. It began before the address had a prefix
/// of its own.
fn changed_under_a_lookup(
    room: Room,
    after: Option<u32>,
    change: impl FnOnce(&mut Table<u32>, &mut Image<Arc<HeapMemory>, Epochs>),
) {
    let mut live = Live::new(room);
    let mut reader = live.readers.register().unwrap();
    let pinned = reader.pin();
    assert_eq!(live.table.lookup(ADDR).unwrap().0.len(), 0);
    // It has loaded the entry, walked, found nothing, and will read this word next, then the entry again.
    let (entry, fallback) = (live.entry(), live.fallback());
    live.table.insert(&mut live.image, Prefix::truncated(ADDR, 16), 40).unwrap();
    if room == Room::None {
        live.use_up();
    }
    let (used, limbo) = (live.image.stats().used, live.image.stats().limbo);

    change(&mut live.table, &mut live.image);

    assert_eq!((live.entry().0, live.word(fallback)), (entry.0, after.unwrap_or(0)), "in place");
    assert_ne!(live.entry().1, entry.1, "the lookup must see that what it found may not belong together");
    let stats = live.image.stats();
    if room != Room::Ample {
        assert_eq!((stats.used, stats.limbo), (used, limbo), "a default route takes no memory");
    }
    assert!(stats.limbo < limbo + (1 << 16), "no root waits for readers");
    assert_eq!(pinned.lookup4(ID, ADDR), Some(40));
    assert_eq!(pinned.lookup4(ID, 0xffff_ffff), after);
    assert_eq!(live.table.get(&all()), after);
    verify(live.image.memory().words()).unwrap();
}

#[test]
fn a_default_route_changes_in_place_also_under_a_lookup() {
    for room in [Room::Ample, Room::Little, Room::None] {
        changed_under_a_lookup(room, None, |table, image| {
            table.remove(image, &all()).unwrap();
        });
        changed_under_a_lookup(room, Some(7), |table, image| {
            table.insert(image, all(), 7).unwrap();
        });
        // It goes and comes back with the value that it had.
        changed_under_a_lookup(room, Some(DEFAULT), |table, image| {
            table.remove(image, &all()).unwrap();
            table.insert(image, all(), DEFAULT).unwrap();
        });
    }
}

#[test]
fn it_changes_in_place_with_others_that_all_come_or_all_go() {
    let some = |n: u64| Prefix::truncated((n * 2_654_435_761) as u32 >> 1, 26);
    changed_under_a_lookup(Room::Ample, None, |table, image| {
        let changes = (0..3).map(some).chain([all()]).map(|prefix| (prefix, None));
        table.apply(image, changes).unwrap();
    });
    changed_under_a_lookup(Room::Ample, Some(7), |table, image| {
        let changes = [all(), Prefix::truncated(0x0a00_0000, 8)].map(|prefix| (prefix, Some(7)));
        table.apply(image, changes).unwrap();
    });
}
