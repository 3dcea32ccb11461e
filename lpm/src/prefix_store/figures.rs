//! The figures that the shadow is made for, printed. Run beside the shared data directory: `cargo test --release -p trieline-lpm --lib
//! figures -- --ignored --nocapture --test-threads 1`.

use super::PrefixStore;
use super::node::Slot;
use crate::io::text;
use crate::random::Random;
use crate::{Address, Prefix};
use alloc::vec::Vec;
use std::hint::black_box;
use std::path::PathBuf;
use std::println;
use std::string::String;
use std::sync::OnceLock;
use std::time::Instant;

fn shuffle<T>(list: &mut [T]) {
    let mut random = Random(1);
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at + 1));
    }
}

/// Processor time of this thread, seconds, to a few milliseconds; the clock where the system does not say.
fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let used = used.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    used.map_or_else(|| START.get_or_init(Instant::now).elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// The best of three.
fn time<T>(mut run: impl FnMut() -> T) -> (f64, T) {
    let mut best: Option<(f64, T)> = None;
    for _ in 0..3 {
        std::thread::yield_now(); // the system then counts up to now
        let start = now();
        let made = run();
        std::thread::yield_now();
        let seconds = now() - start;
        if best.as_ref().is_none_or(|(before, _)| seconds < *before) {
            best = Some((seconds, made));
        }
    }
    best.unwrap()
}

/// Builds from an unsorted list; withdraws and announces each prefix of it once, one by one.
fn measure<A: Address>(name: &str, mut list: Vec<(Prefix<A>, u32)>) {
    let count = list.len();
    let (sorted, _) = time(|| list.iter().copied().collect::<PrefixStore<A>>());
    shuffle(&mut list);
    let (build, mut prefix_store) = time(|| list.iter().copied().collect::<PrefixStore<A>>());
    let bytes = prefix_store.bytes();
    shuffle(&mut list);
    let few = &list[..count.min(1_000_000)];
    let (set, ()) = time(|| {
        for (prefix, value) in few {
            black_box(prefix_store.set(*prefix, None));
            black_box(prefix_store.set(*prefix, Some(*value)));
        }
    });
    let (update, ()) = time(|| {
        for (prefix, value) in few {
            for value in [None, Some(*value)] {
                black_box(prefix_store.set(*prefix, value));
                black_box(prefix_store.inherited(prefix.addr(), prefix.len()));
                black_box(prefix_store.within(*prefix).count());
            }
        }
    });
    let (longest, ()) = time(|| {
        for (prefix, _) in few {
            black_box(prefix_store.longest(prefix.last(), A::WIDTH));
        }
    });
    let (walk, _) = time(|| prefix_store.iter().map(|(_, value)| u64::from(value)).sum::<u64>());
    let (grow, grown) = time(|| {
        let mut grown = PrefixStore::<A>::default();
        for (prefix, value) in few {
            grown.set(*prefix, Some(*value));
        }
        grown
    });
    let ns = |seconds: f64, count: usize| 1e9 * seconds / count as f64;
    println!(
        "{name}: {count} prefixes\n  build {:.1} ms (in its own order {:.1} ms), {bytes} bytes = {:.2} a prefix, after churn {}",
        1e3 * build,
        1e3 * sorted,
        bytes as f64 / count as f64,
        prefix_store.bytes()
    );
    println!(
        "  withdraw + announce: set, inherited, within {:.0} ns (set alone {:.0} ns); longest {:.0} ns; a step in order {:.1} ns",
        ns(update, few.len()),
        ns(set, few.len()),
        ns(longest, few.len()),
        ns(walk, count)
    );
    println!("  nodes above a prefix: {:?}", depths(&prefix_store));
    println!("  grown one by one: {:.0} ns a prefix, {} bytes", ns(grow, few.len()), grown.bytes());
}

/// How many entries of buckets have 0, 1, 2, ... nodes above them.
fn depths<A: Address>(prefix_store: &PrefixStore<A>) -> Vec<usize> {
    fn add<A: Address, const BUCKET: usize>(slot: &Slot<A, BUCKET>, depth: usize, counts: &mut Vec<usize>) {
        if counts.len() <= depth {
            counts.push(0);
        }
        match slot {
            Slot::Bucket(bucket) => counts[depth] += bucket.entries().len(),
            Slot::Node(node) => node.slots.iter().for_each(|slot| add(slot, depth + 1, counts)),
        }
    }
    let mut counts = Vec::new();
    add(&prefix_store.root, 0, &mut counts);
    counts
}

fn full_table() -> Option<crate::io::PrefixList> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/bgp-table.txt.gz");
    path.exists().then(|| text::read(&path).unwrap())
}

#[test]
#[ignore = "prints times"]
fn figures_of_the_full_table() {
    let Some(table) = full_table() else {
        println!("skipped: ../shared/data/bgp-table.txt.gz is missing");
        return;
    };
    fn with_values<A: Copy>(list: &[(Prefix<A>, Option<u32>)]) -> Vec<(Prefix<A>, u32)> {
        list.iter().zip(1..).map(|((prefix, value), other)| (*prefix, value.unwrap_or(other))).collect()
    }
    measure(&String::from("IPv4"), with_values(&table.prefixes.v4));
    measure("IPv6", with_values(&table.prefixes.v6));
}

#[test]
#[ignore = "prints times"]
fn figures_of_ten_million_hosts() {
    let dense = (0..10_000_000u32).map(|host| (Prefix::host(host.swap_bytes()), host % 1000 + 1));
    measure("dense hosts, little-endian", dense.collect());
    let dense = (0..10_000_000u32).map(|host| (Prefix::host(0x0a00_0000 + host), host % 1000 + 1));
    measure("dense hosts", dense.collect());
    let mut random = Random(7);
    measure("random hosts", (0..10_000_000).map(|_| (Prefix::host(random.next() as u32), 9)).collect());
}
