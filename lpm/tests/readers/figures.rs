//! The readers' cost: `cargo test --release -p trieline-lpm --features shm --test readers figures -- --ignored --nocapture`.

use crate::stress::Random;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use trieline_lpm::{Epochs, Grace, HeapMemory, Image, Pinned, Prefix, Reader, Table};

/// The least time of one of `count` calls in seven runs, nanoseconds.
fn least(what: &str, count: u32, mut run: impl FnMut(u32)) {
    let times = (0..7).map(|_| {
        let begin = Instant::now();
        run(count);
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    });
    println!("{what:48} {:8.2} ns", times.fold(f64::INFINITY, f64::min));
}

/// The ways to look up that a reader has, `pin` being one of them.
fn ways(kind: &str, mut pin: impl FnMut(&mut dyn FnMut(&Pinned<'_>))) {
    const COUNT: u32 = 1 << 20;
    let addrs: Vec<u32> = (0..4096).map(|seed| Random(seed).next() as u32).collect();
    let look = |reader: Reader<'_>, n: u32| {
        black_box(reader.lookup4(0, addrs[n as usize % addrs.len()]));
    };
    pin(&mut |pinned| {
        let reader = pinned.reader();
        least(&format!("{kind}: lookup under one pin for all"), COUNT, |count| {
            (0..count).for_each(|n| look(reader, n));
        });
    });
    least(&format!("{kind}: lookup, a pin for 64"), COUNT, |count| {
        for first in (0..count).step_by(64) {
            pin(&mut |pinned| (first..first + 64).for_each(|n| look(pinned.reader(), n)));
        }
    });
    least(&format!("{kind}: lookup, a pin for each"), COUNT, |count| {
        (0..count).for_each(|n| pin(&mut |pinned| look(pinned.reader(), n)));
    });
    least(&format!("{kind}: pin and unpin"), COUNT, |count| {
        (0..count).for_each(|_| {
            pin(&mut |pinned| {
                black_box(pinned);
            })
        });
    });
}

fn grace(kind: &str, grace: &mut impl Grace) {
    least(&format!("{kind}: begin, and passed without a pin"), 1 << 16, |count| {
        (0..count).for_each(|_| {
            let ticket = grace.begin();
            assert_eq!(grace.passed(), ticket);
        });
    });
}

fn prefixes() -> impl Iterator<Item = (Prefix<u32>, u32)> {
    let mut random = Random(1);
    (1..=50_000)
        .map(move |value| (Prefix::truncated(random.next() as u32, 8 + (random.next() % 25) as u16), value))
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let mut image = Image::create(Arc::new(HeapMemory::new(16 << 20)), Epochs::new(256), 1).unwrap();
    Table::create(&mut image, 0, prefixes()).unwrap();
    let mut reader = image.readers().register().unwrap();
    ways("thread", |with| with(&reader.pin()));
    grace("256 threads", &mut Epochs::new(256));
    #[cfg(all(feature = "shm", target_os = "linux"))]
    {
        use trieline_lpm::io::shared::{ProcessEpochs, SharedImage, SharedReader};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let mut image = SharedImage::create(&path, 16 << 20, 1).unwrap();
        Table::create(&mut image, 0, prefixes()).unwrap();
        let mut reader = SharedReader::open(&path).unwrap();
        ways("process", |with| with(&reader.pin()));
        grace("256 processes", &mut ProcessEpochs::create(directory.path().join("slots")).unwrap());
    }
}
