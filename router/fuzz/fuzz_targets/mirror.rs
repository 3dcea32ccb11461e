//! Bytes as the kernel's stream of changes: followed message by message, whatever they say, and once more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trieline_router::rib::family::NexthopState;
use trieline_router::kernel::{TABLE_LOCAL, TABLE_MAIN, socket::messages};
use trieline_router::rib::mirror::Mirror;
use trieline_router::rib::table::Table;

fuzz_target!(|data: &[u8]| {
    let mut mirror = Mirror::default();
    for _ in 0..2 {
        messages(data).for_each(|message| mirror.apply(message));
    }
    let count = messages(data).count();
    assert!(mirror.routes() <= 2 * count && mirror.nhgs.len() <= 2 * count);
    assert!(mirror.kernel.links.len() + mirror.kernel.rules.len() <= 2 * count);
    let nexthops = NexthopState::new(&mirror.nhgs, &mirror.kernel);
    // Deciding all prefixes at once gives the same as deciding each prefix by itself.
    for number in [TABLE_MAIN, TABLE_LOCAL, 100] {
        let (v4, v6) = (&mirror.v4, &mirror.v6);
        v4.decide_all(number, nexthops, |prefix, decision| {
            assert_eq!(v4.decide(number, prefix, nexthops), Some(decision));
        });
        v6.decide_all(number, nexthops, |prefix, decision| {
            assert_eq!(v6.decide(number, prefix, nexthops), Some(decision));
        });
    }
    let counted = |table: &Table<u32>| table.iter().map(|(_, routes)| routes.len()).sum::<usize>();
    assert!(mirror.v4.tables().all(|table| counted(table) == table.routes()));
});
