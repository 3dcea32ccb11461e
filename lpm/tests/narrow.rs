//! Tables of odd widths in wider types: the same bytes as tables of a type of just that width. Every reader gives the oracle's answers,
//! before and after changes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::Header;
use common::sample::{Random, Sample};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use trieline_lpm::image::verify::verify;
use trieline_lpm::oracle::Oracle;
use trieline_lpm::{Address, Error, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table, with_key};

const ID: u32 = 1;

type Heap = Image<HeapMemory, NoReaders>;

fn words(image: &Heap) -> Vec<u32> {
    image.memory().words().iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

/// The same key in the first bits of a wider type.
fn widened<const BITS: u16, const BYTES: usize, const WIDE: u16, const WIDE_BYTES: usize>(
    key: Key<BITS, BYTES>,
) -> Key<WIDE, WIDE_BYTES> {
    let mut bytes = [0; WIDE_BYTES];
    bytes[..BYTES].copy_from_slice(key.bytes());
    Key::new(bytes)
}

/// A prefix near one of a few keys, so that prefixes crowd and nest.
fn prefix<A: Sample>(random: &mut Random, bases: &[A]) -> Prefix<A> {
    let base = bases[random.below(bases.len() as u64) as usize];
    let shared = random.below(u64::from(A::WIDTH) + 1) as u16;
    let len = match random.below(4) {
        0 => A::WIDTH,
        1 => A::WIDTH.saturating_sub(random.below(20) as u16),
        _ => random.below(u64::from(A::WIDTH) + 1) as u16,
    };
    Prefix::truncated(base.join(shared, A::random(random)), len)
}

fn width<const BITS: u16, const BYTES: usize>(prefixes: usize) {
    with_key!(BITS, K => {
        let widen = |prefix: &Prefix<Key<BITS, BYTES>>| -> Prefix<K> {
            Prefix::new(widened(prefix.addr()), prefix.len()).unwrap()
        };
        let mut random = Random(u64::from(BITS) * 0x9e37_79b9 + 7);
        let bases: Vec<Key<BITS, BYTES>> = (0..6).map(|_| Sample::random(&mut random)).collect();
        let mut model: BTreeMap<Prefix<Key<BITS, BYTES>>, u32> = BTreeMap::new();
        for at in 0..prefixes {
            model.insert(prefix(&mut random, &bases), at as u32 % 500 + 1);
        }
        let images = || Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 2).unwrap();
        let (mut exact_image, mut image) = (images(), images());
        let mut exact = Table::create(&mut exact_image, ID, model.clone()).unwrap();
        let wide = model.iter().map(|(prefix, value)| (widen(prefix), *value));
        let mut table = Table::<K>::create_narrow(&mut image, ID, BITS, wide).unwrap();
        assert_eq!((table.key_bits(), table.len()), (BITS, model.len()));
        for round in 0..6 {
            if round > 0 {
                let changes: Vec<_> = (0..prefixes / 4 + 1)
                    .map(|_| {
                        let any = prefix(&mut random, &bases);
                        let known = model.range(any..).next().map_or(any, |(known, _)| *known);
                        let prefix = if random.below(2) == 0 { known } else { any };
                        (prefix, (random.below(2) == 0).then(|| random.below(500) as u32 + 1))
                    })
                    .collect();
                for (prefix, value) in &changes {
                    match value {
                        Some(value) => model.insert(*prefix, *value),
                        None => model.remove(prefix),
                    };
                }
                // One by one, and many at once.
                if round % 2 == 0 {
                    exact.apply(&mut exact_image, changes.iter().copied()).unwrap();
                    table.apply(&mut image, changes.iter().map(|(prefix, value)| (widen(prefix), *value))).unwrap();
                } else {
                    for (prefix, value) in changes {
                        match value {
                            Some(value) => {
                                exact.insert(&mut exact_image, prefix, value).unwrap();
                                table.insert(&mut image, widen(&prefix), value).unwrap();
                            }
                            None => {
                                exact.remove(&mut exact_image, &prefix).unwrap();
                                table.remove(&mut image, &widen(&prefix)).unwrap();
                            }
                        }
                    }
                }
            }
            assert!(words(&image) == words(&exact_image), "{BITS} bits, round {round}: other bytes");
            let report = verify(image.memory().words()).unwrap();
            assert_eq!((report.tables[0].family, report.tables[0].key_bits), (0, BITS));
            let mut oracle = Oracle::new();
            model.iter().for_each(|(prefix, value)| {
                oracle.insert(*prefix, *value);
            });
            let narrow = image.reader().table_narrow::<K>(ID, BITS).unwrap();
            for _ in 0..1500 {
                let near = prefix(&mut random, &bases);
                let key = near.addr().join(near.len(), Sample::random(&mut random));
                let expected = oracle.lookup(key).map(|(_, value)| value);
                let wide: K = widened(key);
                // Bits behind the key do not count.
                let noisy = wide.filled(BITS);
                assert_eq!(narrow.lookup(noisy), expected, "{key:?}");
                assert_eq!(image.reader().lookup_narrow(ID, BITS, wide), expected, "{key:?}");
                assert_eq!(image.reader().lookup(ID, key), expected, "{key:?}");
                assert_eq!(Header::get().lookup(image.memory(), ID, key), expected, "{key:?}");
                assert_eq!(table.lookup(wide).map(|(_, value)| value), expected, "{key:?}");
            }
        }
        if BITS != K::WIDTH {
            // A lookup with the wider keys finds nothing.
            assert!(image.reader().table::<K>(ID).is_none());
            let (prefix, _) = model.last_key_value().unwrap();
            assert_eq!(Header::get().lookup(image.memory(), ID, widen(prefix).addr()), None);
        }
    })
    .unwrap();
}

#[test]
fn odd_widths_in_wider_types() {
    width::<1, 1>(2);
    width::<7, 1>(60);
    width::<13, 2>(700);
    width::<31, 4>(2000);
    width::<33, 5>(2000);
    width::<47, 6>(2000);
    width::<48, 6>(3000);
    width::<64, 8>(1000);
    width::<65, 9>(2000);
    width::<144, 18>(1500);
    width::<160, 20>(1500);
    width::<257, 33>(500);
    width::<1000, 125>(200);
    width::<2047, 256>(100);
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    type Wide = Key<64, 8>;
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 2).unwrap();
    let none = || core::iter::empty();
    for (bits, most) in [(0, 64), (65, 64), (2048, 64)] {
        let refused = Table::<Wide>::create_narrow(&mut image, ID, bits, none()).unwrap_err();
        assert_eq!(refused, Error::KeyBits { bits, most });
    }
    let refused = Table::<u32>::create_narrow(&mut image, ID, 24, core::iter::empty()).unwrap_err();
    assert_eq!(refused, Error::KeyBits { bits: 24, most: 32 });
    let long = Prefix::truncated(Wide::new([1; 8]), 49);
    let too_long = Error::TooLong { len: 49, key_bits: 48 };
    let refused = Table::create_narrow(&mut image, ID, 48, [(long, 1)]).unwrap_err();
    assert_eq!((refused, image.reader().table_word(ID)), (too_long.clone(), 0));
    let mut table =
        Table::create_narrow(&mut image, ID, 48, [(Prefix::truncated(long.addr(), 48), 1)]).unwrap();
    assert_eq!(table.insert(&mut image, long, 1), Err(too_long.clone()));
    assert_eq!(table.remove(&mut image, &long), Err(too_long.clone()));
    assert_eq!(table.apply(&mut image, [(long, Some(1))]), Err(too_long.clone()));
    assert_eq!(table.replace(&mut image, [(long, 1)]), Err(too_long));
    assert_eq!((table.len(), image.reader().lookup_narrow(ID, 48, long.addr())), (1, Some(1)));
}
