//! A lookup that stands still between its walk and the default route, in an image without memory left. It must find an answer of a state
//! that there was since it began, or none while the table is withdrawn.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trieline_lpm::image::layout::{DIR_BITS, DIRECTORY, REPLACED, TableHeader};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{Epochs, Error, HeapMemory, Image, Memory, Prefix, Readers, Table};

const ID: u32 = 1;
const DEFAULT: u32 = 1;

/// An address that only the default route covers, at first.
const ADDR: u32 = 0xc633_6401;

/// So many that the root takes 256 KiB.
fn prefixes() -> impl Iterator<Item = (Prefix<u32>, u32)> {
    let some = (0..5000u32).map(|n| (Prefix::truncated(n.wrapping_mul(2_654_435_761) >> 1, 26), 2 + n % 50));
    some.chain([(Prefix::truncated(0, 0), DEFAULT)])
}

struct Live {
    image: Image<Arc<HeapMemory>, Epochs>,
    table: Table<u32>,
    readers: Readers<Arc<HeapMemory>>,
}

impl Live {
    /// The smallest image that holds the table; it holds no second root.
    fn new(may_withdraw: bool) -> Self {
        for chunks in 2.. {
            let grace = Epochs::new(2).with_patience(Duration::from_millis(2));
            let mut image = Image::create(Arc::new(HeapMemory::new(chunks << 16)), grace, 2).unwrap();
            let Ok(table) = Table::create(&mut image, ID, prefixes()) else { continue };
            let table = if may_withdraw { table } else { table.refuse_when_full() };
            let readers = image.readers();
            return Self { image, table, readers };
        }
        unreachable!()
    }

    fn words(&self) -> &[AtomicU32] {
        self.image.memory().words()
    }

    /// The word of the default route that a lookup under way will read.
    fn fallback(&self) -> usize {
        let root = self.words()[(DIRECTORY + 4 * ID) as usize / 4].load(Ordering::Acquire) & !DIR_BITS;
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

/// Runs `gone`, which removes the default route, while a lookup of [`ADDR`] stands still that began before the address had a prefix of
/// its own.
fn removed_under_a_lookup(
    may_withdraw: bool,
    is_filled: bool,
    gone: impl FnOnce(&mut Table<u32>, &mut Image<Arc<HeapMemory>, Epochs>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut live = Live::new(may_withdraw);
    let mut reader = live.readers.register().unwrap();
    let pinned = reader.pin();
    assert_eq!(live.table.lookup(ADDR).unwrap().0.len(), 0);
    // It has walked, found nothing, and will read this word next.
    let fallback = live.fallback();
    live.table.insert(&mut live.image, Prefix::truncated(ADDR, 16), 40).unwrap();
    if is_filled {
        live.use_up();
    }
    let before: Vec<_> = live.table.iter().collect();

    let done = gone(&mut live.table, &mut live.image);

    // The states since it began: the default route, 40, and 40 without a default route.
    let found = live.words()[fallback].load(Ordering::Acquire);
    if found & REPLACED == 0 {
        assert_eq!(found, DEFAULT, "the lookup finds what there never was");
    } else {
        let again = pinned.lookup4(ID, ADDR);
        assert!(again == Some(40) || again.is_none() && live.table.is_withdrawn(), "{again:?}");
    }
    if done.is_err() {
        assert!(live.table.iter().eq(before), "a change that was refused has changed something");
        assert_eq!(pinned.lookup4(ID, ADDR), Some(40));
        assert_eq!(pinned.lookup4(ID, 1), live.table.lookup(1).map(|(_, value)| value));
    } else {
        assert_eq!(live.table.get(&Prefix::truncated(0, 0)), None);
    }
    verify(live.words()).unwrap();
    drop(pinned);

    // The reader has ended: what was refused is done, and what was withdrawn is there.
    live.table.remove(&mut live.image, &Prefix::truncated(0, 0)).unwrap();
    live.table.insert(&mut live.image, Prefix::truncated(ADDR, 17), 41).unwrap();
    assert!(!live.table.is_withdrawn());
    let pinned = reader.pin();
    assert_eq!((pinned.lookup4(ID, ADDR), pinned.lookup4(ID, 0xffff_ffff)), (Some(41), None));
    for (prefix, value) in live.table.iter().filter(|(prefix, _)| prefix.len() == 28) {
        assert_eq!(pinned.lookup4(ID, prefix.addr()), Some(value));
    }
    verify(live.words()).unwrap();
    done
}

#[test]
fn a_default_route_never_goes_in_place_under_a_lookup() {
    let all = Prefix::truncated(0, 0);
    let some: Vec<_> = (0..3).map(|n| Prefix::truncated((n * 2_654_435_761u64) as u32 >> 1, 26)).collect();
    for is_filled in [false, true] {
        removed_under_a_lookup(true, is_filled, |table, image| table.remove(image, &all).map(drop)).unwrap();
        let with_others = some.iter().copied().chain([all]).map(|prefix| (prefix, None));
        removed_under_a_lookup(true, is_filled, |table, image| table.apply(image, with_others).map(drop))
            .unwrap();

        let refused =
            removed_under_a_lookup(false, is_filled, |table, image| table.remove(image, &all).map(drop));
        let Err(error @ Error::Full { waiting, .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("wait for readers to end"), "{error}");
        assert_eq!(waiting > 0, is_filled, "{error}");
        let with_others = some.iter().copied().chain([all]).map(|prefix| (prefix, None));
        let refused = removed_under_a_lookup(false, is_filled, |table, image| {
            table.apply(image, with_others).map(drop)
        });
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    }
}
