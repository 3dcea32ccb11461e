//! The bound on memory: a stream of updates that never ends does not spread over ever more of the image.

use crate::stress::Random;
use std::time::Instant;
use trieline_lpm::{Grace, HeapMemory, Image, NoReaders, Prefix, Table};

/// Replaced memory that may wait before the writer asks for a grace period by itself, bytes.
const BATCH: u64 = 1 << 20;

/// A grace period that passes when the next is asked for, as one on a thread does.
#[derive(Default)]
struct Late(u64);

impl Grace for Late {
    fn begin(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
    fn passed(&mut self) -> u64 {
        self.0.saturating_sub(1)
    }
    fn wait(&mut self, _ticket: u64) {
        self.0 += 1;
    }
}

fn random(random: &mut Random) -> Prefix<u32> {
    Prefix::truncated(random.next() as u32, 8 + (random.next() % 25) as u16)
}

/// Random updates on 50,000 prefixes; returns the most memory claimed in each part of ten.
fn stream(grace: impl Grace, updates: u32) -> Vec<u64> {
    let mut numbers = Random(5);
    let mut prefixes: Vec<_> = (0..50_000).map(|_| random(&mut numbers)).collect();
    let mut image = Image::create(HeapMemory::new(64 << 20), grace, 1).unwrap();
    let values = prefixes.iter().map(|prefix| (*prefix, 1));
    let mut table = Table::create(&mut image, 0, values).unwrap();
    let (begin, mut most) = (Instant::now(), vec![0; 10]);
    let mut used = 0;
    for update in 0..updates {
        // A prefix goes and another comes, or one gets another value: 50,000 all the time, but never the same for long.
        let one = numbers.below(prefixes.len());
        if update % 3 == 0 {
            table.insert(&mut image, prefixes[one], 2 + update % 1000).unwrap();
        } else {
            table.remove(&mut image, &prefixes[one]).unwrap();
            prefixes[one] = random(&mut numbers);
            table.insert(&mut image, prefixes[one], 2 + update % 1000).unwrap();
        }
        if update % 256 == 0 {
            let stats = image.stats();
            used = used.max(stats.used);
            let part = &mut most[(u64::from(update) * 10 / u64::from(updates)) as usize];
            *part = stats.claimed.max(*part);
            // The bound that lpm/README.md states.
            let bound = 2 * used + 4 * BATCH;
            assert!(stats.claimed <= bound, "update {update}: {stats:?}, bound {bound}");
        }
    }
    println!("{updates} updates in {:?}, at most {used} bytes used; claimed: {most:?}", begin.elapsed());
    most
}

#[test]
fn a_stream_of_updates_does_not_grow_the_image() {
    let updates = if cfg!(debug_assertions) { 200_000 } else { 3_000_000 };
    for most in [stream(NoReaders::default(), updates), stream(Late::default(), updates)] {
        let (early, late) = (most[..5].iter().max().unwrap(), most[5..].iter().max().unwrap());
        assert!(*late <= early + early / 8, "it grows: {most:?}");
    }
}
