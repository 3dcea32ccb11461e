//! Bytes as a snapshot, or as damage done to a sound one: refused or opened, never a panic, also where it is used unverified.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use shared::Input;
use std::path::Path;
use std::sync::OnceLock;
use trieline_lpm::Prefix;
use trieline_lpm::io::snapshot::{Snapshot, save_list};
use trieline_lpm::io::{Format, PrefixList};

fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let mut list = PrefixList::new(Format::Text);
        for number in 0..40u32 {
            list.prefixes.v4.push((Prefix::truncated(number << 24 | number << 9, 24), Some(number + 1)));
            list.prefixes.v6.push((Prefix::truncated(u128::from(number) << 80, 48), Some(number + 1)));
            list.names.insert(number + 1, format!("name {number}"));
        }
        let path = shared::file(&[]);
        save_list(&path, &list).expect("it fits");
        std::fs::read(path).expect("it was just written")
    })
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some(mode) = input.byte() else { return };
    let damaged;
    let bytes = if mode % 4 == 0 {
        input.0
    } else {
        let mut bytes = sound().to_vec();
        let cut = if mode % 4 == 1 { usize::from(mode / 4) * 8 } else { 0 };
        // Half of the damage goes to the section behind the image, which is small.
        let image = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default()) as usize;
        while let (Some(at), Some(how), Some(value)) = (input.short(), input.byte(), input.byte()) {
            let last = bytes.len() - 1;
            let from = if how % 2 == 0 { image.min(last) } else { 0 };
            bytes[from + usize::from(at) % (last - from + 1)] = value;
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        damaged = bytes;
        &damaged
    };
    let Ok(snapshot) = Snapshot::from_bytes(Path::new("fuzz"), bytes) else { return };
    let is_sound = snapshot.verify().is_ok();
    let list = snapshot.to_list();
    assert!(!is_sound || list.is_ok() || !snapshot.has_prefixes(), "sound, but no list: {list:?}");
    for root in snapshot.directory() {
        let _ = format!("{root:?}");
    }
    if let Ok(contents) = snapshot.contents() {
        for table in contents.tables() {
            if let Ok(entries) = contents.entries::<u32>(table.id) {
                let _ = (entries.longest(0x0102_0304), entries.iter().count());
            }
            if let Ok(entries) = contents.entries::<u128>(table.id) {
                let _ = (entries.longest(1 << 80), entries.iter().rev().count());
            }
        }
    }
    for number in 0..64u32 {
        snapshot.reader().lookup4(0, number << 24 | number << 9);
        snapshot.reader().lookup6(1, u128::from(number) << 80);
    }
});
