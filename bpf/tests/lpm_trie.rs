//! A foreign trie that is read while it changes: reported, and never a torn or an invented entry.

// A failed unwrap fails the test.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use libbpf_rs::libbpf_sys::{BPF_F_NO_PREALLOC, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use trieline_bpf::{LpmTrie, Reading};

const ENTRIES: u32 = 20_000;

/// The host of a number: prefix length, then the address.
fn key(number: u32) -> [u8; 8] {
    let mut key = [32, 0, 0, 0, 10, 0, 0, 0];
    key[..4].copy_from_slice(&32u32.to_ne_bytes());
    key[5..].copy_from_slice(&number.to_be_bytes()[1..]);
    key
}

fn store(map: &MapHandle, number: u32, value: u32) {
    map.update(&key(number), &value.to_ne_bytes(), MapFlags::ANY).unwrap();
}

#[test]
fn a_trie_that_changes_while_it_is_read() {
    trieline_testbed::needs_root!();
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::LpmTrie, Some("tltrie"), 8, 4, 2 * ENTRIES, &options).unwrap();
    (0..ENTRIES).for_each(|number| store(&map, number, number + 1));
    let trie = LpmTrie::by_id(map.info().unwrap().info.id).unwrap();
    assert_eq!((trie.key_bits(), trie.name()), (32, "tltrie"));
    // (1) at rest: all of it, in several batches
    let reading = trie.read().unwrap();
    assert_eq!((reading.entries.len(), reading.changing), (ENTRIES as usize, None));
    for (length, addr, value) in reading.entries.iter() {
        let number = u32::from_be_bytes(addr.try_into().unwrap()) & 0xff_ffff;
        assert_eq!((length, value), (32, &(number + 1).to_ne_bytes()[..]));
    }
    // (2) changing all the time
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                for number in 0..ENTRIES {
                    store(&map, number, number + 1 + round % 2 * ENTRIES);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        // Where processors are few the writer may not run during one reading; during one of many it does.
        let is_still = |reading: &Result<Reading, _>| reading.as_ref().is_ok_and(|it| it.changing.is_none());
        let mut readings = (0..1000).map(|_| trie.read()).skip_while(is_still);
        let reading = readings.next().unwrap_or_else(|| trie.read());
        stop.store(true, Ordering::Relaxed);
        let reading = reading.unwrap();
        assert!(reading.changing.is_some());
        for (_, addr, value) in reading.entries.iter() {
            let number = u32::from_be_bytes(addr.try_into().unwrap()) & 0xff_ffff;
            let value = u32::from_ne_bytes(value.try_into().unwrap());
            assert!(value == number + 1 || value == number + 1 + ENTRIES, "{number}: {value}");
        }
    });
    // (3) at rest again
    assert_eq!(trie.read().unwrap().changing, None);
}
