//! Tables made, filled, removed beside live ones, grown to the map type's limit, pinned, taken over; and what is refused, by which error.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{KEYS, map_types, open, run, tables};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use trieline_bpf::{Error, ImageMap, ImageMapType, Options, Tables};
use trieline_lpm::image::layout::VERSION;
use trieline_lpm::{Prefix, Table};
use trieline_testbed::bpffs::BpfFs;
use trieline_testbed::needs_root;

fn hosts(from: u32, count: u32) -> impl Iterator<Item = (Prefix<u32>, u32)> {
    (from..from + count).map(|n| (Prefix::host(n.wrapping_mul(2_654_435_761)), n + 1))
}

#[test]
fn a_removed_table_gives_its_pages_back() {
    needs_root!();
    for map_type in map_types() {
        let mut tables = tables(map_type, 64 << 20);
        let object = tables.load(open(map_type)).unwrap();
        let mut small: Table<u32> = Table::create(tables.image(), 0, hosts(7, 20_000)).unwrap();
        let before = tables.image().stats().used;
        let mut claimed = Vec::new();
        for round in 0..4 {
            Table::<u32>::create(tables.image(), 1, hosts(0, 400_000)).unwrap();
            claimed.push(tables.image().stats().claimed);
            let full = tables.map().resident().unwrap();
            tables.remove(1).unwrap();
            let given = tables.give_back().unwrap();
            assert_eq!(tables.image().stats().used, before, "round {round}");
            match map_type {
                ImageMapType::Arena => {
                    assert!(given > 2 << 20, "{given} bytes given back");
                    let left = tables.map().resident().unwrap();
                    assert!(left < before + (2 << 20), "{left} bytes of {before} used are resident");
                    // Of the last chunks of root, hash table and nodes not all pages were ever filled.
                    assert!(
                        full + (192 << 10) > left + given,
                        "{full} bytes were resident, {left} are, {given} given back"
                    );
                }
                ImageMapType::Array => assert_eq!(given, 0),
            }
            // The neighbour is as it was, also when it changes.
            small.insert(tables.image(), Prefix::host(round), 9).unwrap();
            small.remove(tables.image(), &Prefix::host(round)).unwrap();
            let keys: Vec<Vec<u8>> =
                hosts(7, KEYS as u32).map(|(prefix, _)| prefix.addr().to_be_bytes().into()).collect();
            let answers = run(&object, "lookup4", 0, &keys);
            assert!(answers.iter().zip(hosts(7, KEYS as u32)).all(|(got, (_, value))| got.0 == value));
            assert!(run(&object, "lookup4", 1, &keys).iter().all(|got| got.0 == 0));
        }
        assert!(claimed.iter().all(|bytes| *bytes <= claimed[0] + (1 << 20)), "{claimed:?}");
    }
}

#[test]
fn tables_grow_to_the_limit_and_not_beyond() {
    needs_root!();
    for map_type in map_types() {
        let mut tables = tables(map_type, 4 << 20);
        let mut table: Table<u32> = Table::create(tables.image(), 0, []).unwrap();
        let mut added = 0;
        let error = loop {
            let (prefix, value) = hosts(added, 1).next().unwrap();
            match table.insert(tables.image(), prefix, value) {
                Ok(_) => added += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, trieline_lpm::Error::Full { size: 0x40_0000, .. }), "{error}");
        assert!(added > 50_000, "{added}");
        let reader = tables.reader();
        for (prefix, value) in hosts(0, added) {
            assert_eq!(reader.lookup4(0, prefix.addr()), Some(value));
        }
    }
    // The largest there can be; of an arena only what is touched is taken.
    let largest = Tables::create(&Options { map_type: None, bytes: 4 << 30, tables: 4 }).unwrap();
    assert_eq!(largest.map().bytes(), largest.map_type().max_bytes());
}

/// An empty directory looks like that of a dead owner: another process may remove it between its making and its locking. Its owner makes
/// it again.
#[test]
fn a_directory_removed_before_it_is_locked_is_made_again() {
    needs_root!();
    let fs = BpfFs::mount();
    let directory = fs.path().join("acl");
    let removed = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if directory.exists() && trieline_bpf::pins::own_now(&directory).is_ok() {
                    let is_removed = std::fs::remove_dir(&directory).is_ok();
                    removed.fetch_add(is_removed.into(), Ordering::Relaxed);
                }
            }
        });
        let own = || trieline_bpf::pins::own(&directory).map(drop);
        let refused =
            (0..100_000).take_while(|_| removed.load(Ordering::Relaxed) < 20).find_map(|_| own().err());
        over.store(true, Ordering::Relaxed);
        assert!(refused.is_none(), "{refused:?}");
    });
    assert!(removed.into_inner() >= 20);
}

#[test]
fn pinned_tables_outlive_their_process_and_are_taken_over() {
    needs_root!();
    for map_type in map_types() {
        let fs = BpfFs::mount();
        let directory = fs.path().join("acl");
        assert!(matches!(Tables::open(&directory), Err(Error::NotPinned { .. })));
        let mut tables = tables(map_type, 8 << 20);
        assert!(matches!(tables.pin(&std::env::temp_dir().join("no-bpffs")), Err(Error::NotBpffs { .. })));
        let object = tables.load(open(map_type)).unwrap();
        Table::<u32>::create(tables.image(), 0, hosts(0, 1000)).unwrap();
        tables.pin(&directory).unwrap();
        assert!(matches!(Tables::open(&directory), Err(Error::InUse { .. })));
        drop(tables);
        let keys: Vec<Vec<u8>> =
            hosts(0, KEYS as u32).map(|(prefix, _)| prefix.addr().to_be_bytes().into()).collect();
        let all = |answers: Vec<(u32, u32)>| answers.iter().zip(1..1001).all(|(got, want)| got.0 == want);
        assert!(all(run(&object, "lookup4", 0, &keys)), "without an owner");
        let mut second = Tables::open(&directory).unwrap();
        assert!(all(run(&object, "lookup4", 0, &keys)), "after taking over");
        // The same value for all: one word of the directory later.
        let others = hosts(0, 2000).map(|(prefix, _)| (prefix, 5));
        let mut table: Table<u32> = Table::create(second.image(), 0, others).unwrap();
        assert!(run(&object, "lookup4", 0, &keys).iter().all(|got| got.0 == 5));
        table.insert(second.image(), hosts(3, 1).next().unwrap().0, 6).unwrap();
        assert_eq!(run(&object, "lookup4", 0, &keys)[3].0, 6);
        drop(second);
        // Another program, another process: only the pin.
        let map = ImageMap::pinned(&directory.join("image")).unwrap();
        assert_eq!((map.map_type(), map.bytes()), (map_type, 8 << 20));
        drop(map);
        let third = Tables::open(&directory).unwrap();
        assert!(matches!(Tables::unpin(&directory), Err(Error::InUse { .. })));
        drop(third);
        Tables::unpin(&directory).unwrap();
        assert!(matches!(Tables::unpin(&directory), Err(Error::NotPinned { .. })));
        assert!(!directory.exists());
    }
}

#[test]
fn refused_tables_have_a_reason() {
    needs_root!();
    for map_type in map_types() {
        for bytes in [0, 4096, 100_000, map_type.max_bytes() * 2] {
            let error = Tables::create(&Options { map_type: Some(map_type), bytes, tables: 4 }).unwrap_err();
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        let mut tables = tables(map_type, 1 << 20);
        let error = Table::<u32>::create(tables.image(), 16, []).unwrap_err();
        assert!(error.to_string().contains("invalid table id 16"), "{error}");
        assert!(tables.remove(99).unwrap_err().to_string().contains("invalid table id 99"));
        // An object of the other map type, and one without tables.
        let other = if map_type == ImageMapType::Arena { ImageMapType::Array } else { ImageMapType::Arena };
        let error = tables.load(open(other)).unwrap_err().to_string();
        assert!(error.contains(&map_type.to_string()), "{error}");
        // A program that may sleep.
        let error = tables.load(common::open_sleepable(map_type)).unwrap_err().to_string();
        assert!(error.contains("`asleep`") && error.contains("sleepable"), "{error}");
        // A callback that may, where the kernel has such.
        let kernel = Btf::from_vmlinux().unwrap();
        if kernel.type_by_name::<Func<'_>>("bpf_wq_set_callback_impl").is_some() {
            let error = tables.load(common::open_deferred(map_type)).unwrap_err().to_string();
            assert!(error.contains("`deferred` (tc) calls bpf_wq_set_callback_impl"), "{error}");
        } else {
            println!("EXPECTED SKIP: bpf_wq: this kernel has none (Linux 6.10 or newer)");
        }
        // The pin is something else, or an image of another version.
        let fs = BpfFs::mount();
        let directory = fs.path().join("other");
        std::fs::create_dir(&directory).unwrap();
        common::pin_hash(&directory.join("image"));
        let error = Tables::open(&directory).unwrap_err();
        assert!(matches!(error, Error::Pinned { .. }) && error.to_string().contains("type 1"), "{error}");
        let older = fs.path().join("older");
        tables.pin(&older).unwrap();
        common::damage_version(tables.map());
        drop(tables);
        let error = Tables::open(&older).unwrap_err().to_string();
        assert!(
            error.contains(&format!("cannot read image version 2: this program reads version {VERSION}")),
            "{error}"
        );
    }
}
