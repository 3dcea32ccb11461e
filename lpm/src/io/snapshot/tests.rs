//! Snapshots: what is saved is found again, and damage is found.

use super::*;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::{Error, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};
use std::fs;
use std::string::ToString;
use std::vec::Vec;

type Endpoint = Key<48, 6>;

impl Random {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.next() as u8)
    }

    /// Nested prefixes: few first bits, many lengths.
    fn prefixes<A: Stored, const N: usize>(&mut self, count: usize) -> Vec<(Prefix<A>, u32)> {
        let one = |random: &mut Self| {
            let mut key = random.bytes::<N>();
            key[0] &= 7;
            let len = (random.next() % (u64::from(A::WIDTH) + 1)) as u16;
            (Prefix::truncated(A::from_bytes(&key), len), (random.next() % 0x7fff_ffff) as u32 + 1)
        };
        (0..count).map(|_| one(self)).collect()
    }
}

/// Whether entries equal an oracle of the same prefixes.
fn compare<A: Stored, const N: usize>(
    entries: Entries<'_, A>,
    prefixes: &[(Prefix<A>, u32)],
    random: &mut Random,
) {
    let mut oracle = Oracle::new();
    for (prefix, value) in prefixes {
        oracle.insert(*prefix, *value);
    }
    let expected: Vec<_> = prefixes
        .iter()
        .map(|(prefix, _)| *prefix)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(entries.iter().map(|(prefix, _)| prefix).collect::<Vec<_>>(), expected);
    assert!(entries.iter().all(|(prefix, value)| entries.get(prefix) == Some(value)));
    for _ in 0..2000 {
        let mut key = random.bytes::<N>();
        key[0] &= 7;
        let addr = A::from_bytes(&key);
        let longest = entries.longest(addr);
        assert_eq!(longest, oracle.lookup(addr));
        let outer = Prefix::truncated(addr, u16::from(key[1]) % (A::WIDTH + 1));
        let covering: Vec<_> =
            expected.iter().rev().filter(|prefix| prefix.covers(&outer)).copied().collect();
        assert_eq!(entries.covering(outer).map(|(prefix, _)| prefix).collect::<Vec<_>>(), covering);
        let covered: Vec<_> = expected.iter().filter(|prefix| outer.covers(prefix)).copied().collect();
        assert_eq!(entries.covered(outer).map(|(prefix, _)| prefix).collect::<Vec<_>>(), covered);
    }
}

/// A table of an odd width from a wider type, read as such and as bytes.
#[test]
fn narrow_tables_are_saved() {
    type Wide = Key<64, 8>;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("narrow.img");
    let mut random = Random(11);
    for bits in [7, 13, 48, 63] {
        let prefixes = random.prefixes::<Wide, 8>(500).into_iter().filter(|(prefix, _)| prefix.len() <= bits);
        let prefixes: std::collections::BTreeMap<_, _> = prefixes.collect();
        let mut builder = Builder::new();
        builder.table_narrow(2, bits, prefixes.clone()).unwrap();
        builder.save(&path).unwrap();
        let snapshot = Snapshot::open(&path).unwrap();
        let contents = snapshot.contents().unwrap();
        let entries = contents.entries_narrow::<Wide>(2, bits).unwrap();
        assert!(entries.iter().eq(prefixes.clone()));
        assert!(contents.entries::<Wide>(2).is_err());
        for prefix in prefixes.keys() {
            let found = snapshot.reader().lookup_narrow(2, bits, prefix.last());
            assert_eq!(found, entries.longest(prefix.last()).map(|(_, value)| value));
        }
        let list = snapshot.to_list().unwrap();
        let typed = list.keys[&bits].iter().map(|(prefix, value)| (prefix.prefix(), value.unwrap()));
        assert!(typed.eq(prefixes.clone()) && list.skipped == 0);
        let long = [(Prefix::truncated(Wide::new([0; 8]), bits + 1), 1)];
        assert!(matches!(builder.table_narrow(3, bits, long), Err(Error::TooLong { .. })));
    }
}

#[test]
fn saved_tables_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.gz");
    let mut random = Random(7);
    for count in [0, 1, 50, 3000] {
        let v4 = random.prefixes::<u32, 4>(count);
        let v6 = random.prefixes::<u128, 16>(count);
        let mut builder = Builder::new();
        builder.table(0, v4.iter().copied()).unwrap();
        builder.table(5, v6.iter().copied()).unwrap();
        builder.name(7, "via 192.0.2.1 dev eth0");
        builder.name(9, "");
        let saved = builder.save(&path).unwrap();
        let snapshot = Snapshot::open(&path).unwrap();
        assert_eq!(saved.file_bytes, fs::metadata(&path).unwrap().len());
        assert_eq!((snapshot.image_bytes(), snapshot.file_bytes()), (saved.image_bytes, saved.file_bytes));
        let contents = snapshot.contents().unwrap();
        assert_eq!(contents.names().values().collect::<Vec<_>>(), ["via 192.0.2.1 dev eth0", ""]);
        let (entries4, entries6) =
            (contents.entries::<u32>(0).unwrap(), contents.entries::<u128>(5).unwrap());
        assert_eq!(saved.prefixes, (entries4.len() + entries6.len()) as u64);
        compare::<_, 4>(entries4, &v4, &mut random);
        compare::<_, 16>(entries6, &v6, &mut random);
        for _ in 0..5000 {
            let (addr, addr6) = (random.next() as u32 >> 5, u128::from_be_bytes(random.bytes()) >> 5);
            assert_eq!(snapshot.reader().lookup4(0, addr), entries4.longest(addr).map(|(_, value)| value));
            assert_eq!(snapshot.reader().lookup6(5, addr6), entries6.longest(addr6).map(|(_, value)| value));
        }
        // A table that goes on from there.
        let mut image = Image::create(HeapMemory::new(4 << 20), NoReaders::default(), 1).unwrap();
        let table = Table::create(&mut image, 0, entries4.iter()).unwrap();
        assert!(table.iter().eq(entries4.iter()));
        // As a file like any other, also packed.
        let list = crate::io::read(&path, &crate::io::ReadOptions::default()).unwrap();
        assert!(list.prefixes.v6.iter().map(|(prefix, value)| (*prefix, value.unwrap())).eq(entries6.iter()));
        let packed = directory.path().join("packed");
        let mut sink = crate::io::Sink::create(&packed.with_extension("gz")).unwrap();
        std::io::Write::write_all(&mut sink, &fs::read(&path).unwrap()).unwrap();
        sink.finish().unwrap();
        let unpacked =
            crate::io::read(&packed.with_extension("gz"), &crate::io::ReadOptions::default()).unwrap();
        assert_eq!(unpacked, list);
        assert!(matches!(
            contents.entries::<u128>(0),
            Err(SnapshotError::NoTable { id: 0, key_bits: 128, .. })
        ));
    }
}

#[test]
fn other_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut random = Random(8);
    let prefixes = random.prefixes::<Endpoint, 6>(2000);
    let odd = random.prefixes::<Key<13, 2>, 2>(300);
    let mut builder = Builder::new();
    builder.table(1, prefixes.iter().copied()).unwrap();
    builder.table(2, odd.iter().copied()).unwrap();
    builder.save(&path).unwrap();
    let snapshot = Snapshot::open(&path).unwrap();
    let contents = snapshot.contents().unwrap();
    compare::<_, 6>(contents.entries::<Endpoint>(1).unwrap(), &prefixes, &mut random);
    compare::<_, 2>(contents.entries::<Key<13, 2>>(2).unwrap(), &odd, &mut random);
}

#[test]
fn an_image_is_as_small_as_its_content() {
    let mut builder = Builder::new();
    builder.table::<u32>(0, [("192.0.2.0/24".parse().unwrap(), 7)]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    assert_eq!(builder.save(&path).unwrap().image_bytes, 65536);
    assert_eq!(
        builder.table::<u32>(0, [("192.0.2.0/24".parse().unwrap(), 0)]),
        Err(Error::Value { value: 0 })
    );
    assert!(matches!(builder.table::<u32>(1 << 20, []), Err(Error::NoSuchTable { .. })));
}

fn small() -> Vec<u8> {
    let mut builder = Builder::new();
    let prefixes = ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/9", "192.0.2.0/24", "192.0.2.1/32"];
    builder
        .table::<u32>(0, prefixes.iter().zip(1..).map(|(prefix, value)| (prefix.parse().unwrap(), value)))
        .unwrap();
    builder.table::<u128>(1, [("2001:db8::/32".parse().unwrap(), 7)]).unwrap();
    builder.name(7, "seven");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    builder.save(&path).unwrap();
    fs::read(path).unwrap()
}

fn opened(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let snapshot = Snapshot::from_bytes(Path::new("table"), bytes)?;
    snapshot.verify()?;
    Ok(snapshot)
}

#[test]
fn damage_is_found() {
    let whole = small();
    opened(&whole).unwrap();
    let image = whole.len() / 65536 * 65536;
    // Every byte of the section, and every 61st of the image.
    for at in (image..whole.len()).chain((0..image).step_by(61)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        // Without its magic, a section is not one, and its bytes do not belong to the image.
        if !(image..image + 4).contains(&at) {
            assert!(opened(&damaged).is_err(), "byte {at}");
        } else {
            assert!(!opened(&damaged).unwrap().has_prefixes());
        }
    }
    for length in (image + HEADER_BYTES..whole.len()).chain((0..image).step_by(997)) {
        assert!(opened(&whole[..length]).is_err(), "{length} bytes");
    }
    let error = opened(&whole[..whole.len() - 1]).unwrap_err().to_string();
    assert!(
        error.contains("table: damaged snapshot: the section has") && error.contains("cut short"),
        "{error}"
    );
    let mut longer = whole.clone();
    longer.push(0);
    assert!(opened(&longer).is_err());
}

/// A section that lies, with checksums that are right: errors, or answers, but never a panic.
#[test]
fn a_hostile_section_is_survived() {
    let whole = small();
    let image = whole.len() / 65536 * 65536;
    let mut random = Random(9);
    let mut refused = 0;
    for round in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 3 {
            let at = image + 8 + random.next() as usize % (whole.len() - image - 8);
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.next() as usize % 6];
        }
        bytes[image + 36..image + 40].fill(0);
        let crc = crc32c::crc32c(&bytes[image..]);
        bytes[image + 36..image + 40].copy_from_slice(&crc.to_le_bytes());
        let snapshot = Snapshot::from_bytes(Path::new("table"), &bytes).unwrap();
        refused += usize::from(snapshot.verify().is_err());
        let Ok(contents) = snapshot.contents() else { continue };
        if let Ok(entries) = contents.entries::<u32>(0) {
            let _ = (entries.iter().count(), entries.longest(0x0a00_0001), entries.get(Prefix::host(7)));
            let _ = entries.covering(Prefix::host(0xc000_0201)).count();
        }
    }
    assert!(refused > 5_000, "{refused}");
}

/// An image alone, as a shared or pinned one is, can be looked up in, but not listed.
#[test]
fn an_image_alone() {
    let whole = small();
    let image = &whole[..whole.len() / 65536 * 65536];
    let snapshot = opened(image).unwrap();
    assert_eq!(snapshot.reader().lookup4(0, 0xc000_0201), Some(5));
    let roots: Vec<_> =
        snapshot.directory().map(|root| (root.id, root.family, root.key_bits, root.prefixes)).collect();
    assert_eq!(roots, [(0, 4, 32, 5), (1, 6, 128, 1)]);
    let error = snapshot.to_list().unwrap_err().to_string();
    assert!(error.contains("without the prefixes"), "{error}");
    assert!(opened(b"").is_err() && opened(b"TRI").is_err() && opened(&image[..65532]).is_err());
}

/// Also where the keys of a table stand in a hash table.
#[test]
fn the_directory_tells_the_family() {
    let mut image = Image::create(HeapMemory::new(4 << 16), NoReaders::default(), 1).unwrap();
    Table::create(&mut image, 0, (0..1000u32).map(|n| (Prefix::host(n << 8), n + 1))).unwrap();
    assert_eq!(image.reader().keys(0).map(|keys| keys.has_exact), Some(true));
    let words = image.memory().words().iter();
    let bytes: Vec<u8> =
        words.flat_map(|word| word.load(core::sync::atomic::Ordering::Relaxed).to_le_bytes()).collect();
    let snapshot = opened(&bytes).unwrap();
    let roots: Vec<_> =
        snapshot.directory().map(|root| (root.family, root.key_bits, root.prefixes)).collect();
    assert_eq!(roots, [(4, 32, 1000)]);
}

#[test]
fn a_map_is_saved_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("map");
    let mut random = Random(11);
    let mut map = crate::IpMap::new();
    random.prefixes::<u32, 4>(300).into_iter().for_each(|(prefix, value)| {
        map.v4.insert(prefix, value);
    });
    random.prefixes::<u128, 16>(300).into_iter().for_each(|(prefix, value)| {
        map.v6.insert(prefix, value);
    });
    let saved = Builder::try_from(&map).unwrap().save(&path).unwrap();
    assert_eq!(saved.prefixes, map.len() as u64);
    let snapshot = Snapshot::open(&path).unwrap();
    let contents = snapshot.contents().unwrap();
    assert!(
        contents.entries::<u32>(0).unwrap().iter().eq(map.v4.iter().map(|(prefix, value)| (prefix, *value)))
    );
    assert!(
        contents.entries::<u128>(1).unwrap().iter().eq(map.v6.iter().map(|(prefix, value)| (prefix, *value)))
    );
    let reader = snapshot.reader();
    for addr in (0..500).map(|_| u32::from_be_bytes(random.bytes())) {
        assert_eq!(reader.lookup4(0, addr), map.v4.lookup(addr).copied());
    }
    // The builder refuses tables that an image cannot hold.
    for value in [0, 1 << 31, u32::MAX] {
        let map = crate::IpMap::from([("2001:db8::/32".parse().unwrap(), value)]);
        assert_eq!(Builder::try_from(&map).unwrap_err(), Error::Value { value });
    }
    let empty = Builder::try_from(&crate::IpMap::new()).unwrap().save(&path).unwrap();
    assert_eq!(empty.prefixes, 0);
    assert_eq!(Snapshot::open(&path).unwrap().reader().lookup6(1, 0), None);
}
