//! Readers in threads of the writer's process.

use crate::stress::{self, Churn, Distinct, Few, Few6, Hashed, Ipv6, Kind, Notes, Random};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use trieline_lpm::image::verify::verify;
use trieline_lpm::{
    Both, Epochs, Error, Grace, HeapMemory, Image, Memory, NoReaders, Prefix, Table, ThreadReader,
};

const READERS: u64 = 2;

fn memory() -> Arc<HeapMemory> {
    Arc::new(HeapMemory::new(32 << 20))
}

/// Runs readers beside a writer with `grace` for `time` or until an answer is wrong; returns how many were.
fn stress<K: Kind, G: Grace + Send>(
    grace: G,
    memory: Arc<HeapMemory>,
    readers: Vec<ThreadReader<Arc<HeapMemory>>>,
    time: Duration,
) -> u32 {
    let notes = HeapMemory::new(stress::BYTES);
    let notes = Notes(notes.words());
    let mut image = Image::create(memory, grace, 1).unwrap();
    let mut churn = Churn::<K>::new(notes, 1, 2);
    let mut table = churn.create(&mut image).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        for (mut reader, seed) in readers.into_iter().zip(3..) {
            scope.spawn(move || stress::read::<K>(notes, seed, |lookups| lookups(reader.pin().reader())));
        }
        while begin.elapsed() < time && notes.wrong().load(Ordering::Relaxed) == 0 {
            for _ in 0..100 {
                churn.step(&mut image, &mut table).unwrap();
                // At once, so that memory is used again as soon as it may be.
                image.reclaim();
            }
        }
        notes.stop().store(1, Ordering::Relaxed);
    });
    image.synchronize();
    assert_eq!(image.stats().limbo, 0, "no reader is left");
    assert!(churn.is_right(image.reader()));
    let nodes = verify(image.memory().words()).unwrap().tables[0].nodes.clone();
    let has = |kind: &&str| nodes.iter().any(|(found, _)| found == kind);
    assert!(K::NODES.iter().all(has), "{nodes:?}");
    println!(
        "{} lookups, {} of them unchecked, {} wrong, beside {} updates in {:?}; {:?}; {nodes:?}",
        notes.lookups().load(Ordering::Relaxed),
        notes.skipped().load(Ordering::Relaxed),
        notes.wrong().load(Ordering::Relaxed),
        notes.updates().load(Ordering::Relaxed),
        begin.elapsed(),
        image.stats(),
    );
    let (lookups, skipped) =
        (notes.lookups().load(Ordering::Relaxed), notes.skipped().load(Ordering::Relaxed));
    assert!(skipped < lookups / 10, "the test checks next to nothing");
    notes.wrong().load(Ordering::Relaxed)
}

/// An image for the readers to register with before the writer makes its own in the same memory.
fn readers(epochs: &Epochs, memory: &Arc<HeapMemory>) -> Vec<ThreadReader<Arc<HeapMemory>>> {
    drop(Image::create(Arc::clone(memory), NoReaders::default(), 1).unwrap());
    let readers = epochs.readers(Arc::clone(memory));
    (0..READERS).map(|_| readers.register().unwrap()).collect()
}

/// Answers that were wrong within a time.
fn wrong<K: Kind>(seconds: u64) -> u32 {
    let (memory, epochs) = (memory(), Epochs::new(4));
    let readers = readers(&epochs, &memory);
    stress::<K, _>(epochs, memory, readers, Duration::from_secs(seconds))
}

#[test]
fn threads_never_see_a_wrong_answer() {
    assert_eq!(wrong::<Distinct>(5), 0);
}

#[test]
fn threads_never_see_a_wrong_answer_of_a_palette() {
    assert_eq!(wrong::<Few>(4), 0);
    assert_eq!(wrong::<Few6>(3), 0);
}

#[test]
fn threads_never_see_a_wrong_answer_of_ipv6() {
    assert_eq!(wrong::<Ipv6>(4), 0);
}

#[test]
fn threads_never_see_a_wrong_answer_of_a_hash_table() {
    assert_eq!(wrong::<Hashed>(4), 0);
}

#[test]
fn two_grace_periods_at_once() {
    let (memory, one, two) = (memory(), Epochs::new(1), Epochs::new(1));
    drop(Image::create(Arc::clone(&memory), NoReaders::default(), 1).unwrap());
    let readers = [&one, &two].map(|epochs| epochs.readers(Arc::clone(&memory)).register().unwrap());
    assert_eq!(stress::<Distinct, _>(Both::new(one, two), memory, readers.into(), Duration::from_secs(3)), 0);
}

/// Wrong answers where the writer waits for no reader. One is enough, which takes a reader that was stopped in the middle of a lookup: mostly two
/// seconds.
fn without_grace<K: Kind>() -> u32 {
    let (memory, epochs) = (memory(), Epochs::new(4));
    let readers = readers(&epochs, &memory);
    stress::<K, _>(NoReaders::default(), memory, readers, Duration::from_secs(60))
}

/// The proof that the tests above can fail.
#[test]
fn a_grace_period_that_is_none_is_found_out() {
    assert!(without_grace::<Distinct>() > 0, "no answer was wrong");
    assert!(without_grace::<Few>() > 0, "no answer of a palette was wrong");
    assert!(without_grace::<Ipv6>() > 0, "no answer of IPv6 was wrong");
    assert!(without_grace::<Hashed>() > 0, "no answer of a hash table was wrong");
}

/// A table in an image of `chunks` chunks, and changes that use up its memory.
fn small(chunks: usize, epochs: Epochs) -> (Image<Arc<HeapMemory>, Epochs>, Table<u32>) {
    let mut image = Image::create(Arc::new(HeapMemory::new(chunks << 16)), epochs, 1).unwrap();
    let prefixes = (0..500u32).map(|n| (Prefix::truncated(n << 20, 26), n + 1));
    let table = Table::create(&mut image, 0, prefixes).unwrap();
    (image, table)
}

#[test]
fn a_reader_that_stays_pinned_stops_reclamation_only() {
    let patience = Duration::from_millis(50);
    let (mut image, mut table) = small(4, Epochs::new(2).with_patience(patience));
    let mut sleeper = image.readers().register().unwrap();
    let mut other = image.readers().register().unwrap();
    let pinned = sleeper.pin();
    let mut random = Random(1);
    let mut updates = 0u32;
    let (refused, error) = loop {
        let prefix = Prefix::truncated(((random.below(500) as u32) << 20) | 64, 28);
        match table.insert(&mut image, prefix, 1000 + updates) {
            Ok(_) => updates += 1,
            Err(error) => break (prefix, error),
        }
        assert!(updates < 1_000_000, "nothing was held back");
    };
    println!("{updates} updates until the memory was used up");
    assert!(matches!(error, Error::Full { .. }), "{error}");
    // Nothing has changed, in the table or for its readers; lookups and the sleeper's go on.
    let before: Vec<_> = table.iter().collect();
    let answers: Vec<_> = (0..500u32 << 4).map(|n| other.pin().lookup4(0, n << 16 | 70)).collect();
    assert!(pinned.lookup4(0, 5).is_some());
    // A writer that has waited for that reader once refuses at once.
    let begin = Instant::now();
    for _ in 0..20 {
        assert!(matches!(table.insert(&mut image, refused, 7), Err(Error::Full { .. })));
    }
    assert!(begin.elapsed() < 10 * patience, "{:?}", begin.elapsed());
    assert!(table.iter().eq(before), "a change that was refused changed something");
    let again: Vec<_> = (0..500u32 << 4).map(|n| other.pin().lookup4(0, n << 16 | 70)).collect();
    assert_eq!(answers, again);
    drop(pinned);
    table.insert(&mut image, refused, 7).unwrap();
    assert_eq!(other.pin().lookup4(0, refused.addr()), Some(7));
}

#[test]
fn a_change_waits_for_a_reader_that_ends_in_time() {
    let (mut image, mut table) = small(4, Epochs::new(1).with_patience(Duration::from_secs(10)));
    let mut reader = image.readers().register().unwrap();
    thread::scope(|scope| {
        let (pinned, reported) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let guard = reader.pin();
            pinned.send(()).unwrap();
            thread::sleep(Duration::from_millis(300));
            drop(guard);
        });
        reported.recv().unwrap();
        let begin = Instant::now();
        let mut updates = 0;
        while begin.elapsed() < Duration::from_millis(300) {
            table.insert(&mut image, Prefix::truncated((updates % 500) << 20, 26), 1 + updates).unwrap();
            updates += 1;
        }
        assert!(updates > 1000);
    });
}

#[test]
fn slots_are_given_back() {
    let (image, _) = small(4, Epochs::new(2));
    let readers = image.readers();
    let mut one = readers.register().unwrap();
    let _two = readers.register().unwrap();
    assert_eq!(readers.register().unwrap_err(), Error::NoSlot { slots: 2 });
    // A guard that is forgotten holds its slot until its reader pins again or goes.
    core::mem::forget(one.pin());
    drop(one);
    assert!(readers.register().is_ok());
    let empty = Epochs::new(2).readers(Arc::new(HeapMemory::new(1 << 16)));
    assert_eq!(empty.register().unwrap_err(), Error::NotAnImage { found: 0 });
}
