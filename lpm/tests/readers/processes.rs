//! Readers and writers that are processes of their own, stopped and killed at any moment.

use crate::stress::{self, Churn, Distinct, Few, Ipv6, Kind, Notes, Random};
use memmap2::MmapRaw;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trieline_lpm::io::shared::{SharedImage, SharedReader};
use trieline_lpm::{Error, Prefix, Table};

const BYTES: usize = 32 << 20;
/// Tells a process of ours what to do: its role, the directory, a seed.
const REPORTED: &str = "TRIELINE_READERS_TEST";

/// A directory in memory where there is one.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The words that all processes of a test map.
struct Shared(MmapRaw);

impl Shared {
    fn open(directory: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("notes"))
            .unwrap();
        file.set_len(stress::BYTES as u64).unwrap();
        Self(MmapRaw::map_raw(&file).unwrap())
    }

    fn notes(&self) -> Notes<'_> {
        // SAFETY: the mapping is that long, and everybody uses it through atomics.
        Notes(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<AtomicU32>(), stress::BYTES / 4) })
    }
}

/// A process of ours, killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, directory: &Path, seed: u64) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::process", "--exact", "--ignored", "--nocapture", "--quiet"])
            .env(REPORTED, format!("{role} {seed} {}", directory.display()))
            .stdout(std::process::Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a call without pointers; the process is our child and has not been waited for, so its id is still its own.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn ends_well(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn process() {
    let reported = std::env::var(REPORTED).unwrap();
    let mut words = reported.splitn(3, ' ');
    let (role, seed) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
    let directory = PathBuf::from(words.next().unwrap());
    let (shared, path) = (Shared::open(&directory), directory.join("image"));
    let notes = shared.notes();
    match role {
        Distinct::NAME => read::<Distinct>(notes, seed, &path),
        Few::NAME => read::<Few>(notes, seed, &path),
        Ipv6::NAME => read::<Ipv6>(notes, seed, &path),
        "sleeper" => {
            let mut reader = SharedReader::open(path).unwrap();
            let pinned = reader.pin();
            notes.pinned().store(1, Ordering::Release);
            while notes.stop().load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(pinned);
            notes.pinned().store(0, Ordering::Release);
        }
        "writer" => {
            let mut image = SharedImage::open(path).unwrap();
            let mut churn = Churn::<Distinct>::new(notes, 1, seed);
            let mut table = churn.create(&mut image).unwrap();
            while notes.stop().load(Ordering::Relaxed) == 0 {
                churn.step(&mut image, &mut table).unwrap();
                image.reclaim();
            }
        }
        _ => unreachable!("{role}"),
    }
}

fn read<K: Kind>(notes: Notes<'_>, seed: u64, path: &Path) {
    let mut reader = SharedReader::open(path).unwrap();
    stress::read::<K>(notes, seed, |lookups| lookups(reader.pin().reader()));
}

fn report(notes: Notes<'_>, what: &str) {
    let [lookups, skipped, wrong, updates] =
        [notes.lookups(), notes.skipped(), notes.wrong(), notes.updates()]
            .map(|word| word.load(Ordering::Relaxed));
    println!(
        "{what}: {lookups} lookups, {skipped} of them unchecked, {wrong} wrong, beside {updates} updates"
    );
    assert_eq!(wrong, 0);
    assert!(lookups > 100_000 && updates > 1000 && skipped < lookups / 10, "the test checks next to nothing");
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn readers_that_are_killed() {
    kill_readers::<Distinct>(12);
    kill_readers::<Few>(8);
    kill_readers::<Ipv6>(8);
}

fn kill_readers<K: Kind>(kills: u64) {
    let directory = directory();
    let shared = Shared::open(directory.path());
    let notes = shared.notes();
    let mut image = SharedImage::create(directory.path().join("image"), BYTES, 1).unwrap();
    let mut churn = Churn::<K>::new(notes, 1, 2);
    let mut table = churn.create(&mut image).unwrap();
    let mut random = Random(3);
    let mut readers: Vec<_> = (10..12).map(|seed| Process::start(K::NAME, directory.path(), seed)).collect();
    wait_for("the readers start", || notes.lookups().load(Ordering::Relaxed) > 0);
    let (mut begin, mut killed) = (Instant::now(), 0);
    while killed < kills && notes.wrong().load(Ordering::Relaxed) == 0 {
        for _ in 0..100 {
            churn.step(&mut image, &mut table).unwrap();
            image.reclaim();
        }
        if begin.elapsed() > Duration::from_millis(100 + random.next() % 300) {
            let one = random.below(readers.len());
            // In the middle of a pin, nearly always.
            readers[one].kill();
            readers[one] = Process::start(K::NAME, directory.path(), 20 + killed);
            (begin, killed) = (Instant::now(), killed + 1);
        }
    }
    notes.stop().store(1, Ordering::Relaxed);
    readers.into_iter().for_each(Process::ends_well);
    report(notes, &format!("{killed} readers killed, {}", K::NAME));
    image.synchronize();
    assert_eq!(image.stats().limbo, 0, "the dead hold nothing back");
    assert!(churn.is_right(image.reader()));
}

#[test]
fn writers_that_are_killed() {
    let directory = directory();
    let shared = Shared::open(directory.path());
    let notes = shared.notes();
    drop(SharedImage::create(directory.path().join("image"), BYTES, 1).unwrap());
    let reader = Process::start(Distinct::NAME, directory.path(), 1);
    let mut random = Random(4);
    for seed in 100..115 {
        let before = notes.updates().load(Ordering::Relaxed);
        let mut writer = Process::start("writer", directory.path(), seed);
        wait_for("the writer takes over", || {
            notes.updates().load(Ordering::Relaxed) > before || writer.0.try_wait().unwrap().is_some()
        });
        std::thread::sleep(Duration::from_millis(random.next() % 500));
        assert!(writer.0.try_wait().unwrap().is_none(), "the writer ended by itself");
        writer.kill();
    }
    notes.stop().store(1, Ordering::Relaxed);
    reader.ends_well();
    report(notes, "15 writers killed");
}

/// Another thread may fork between its fork and its exec: the child has the lock's file open meanwhile.
#[test]
fn a_forked_child_keeps_no_lock_that_was_given_back() {
    let directory = directory();
    let path = directory.path().join("image");
    let image = SharedImage::create(&path, BYTES, 1).unwrap();
    // SAFETY: the child only sleeps until it is killed.
    let child = match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: no arguments.
            unsafe { libc::pause() };
        },
        child => child,
    };
    drop(image);
    let again = SharedImage::open(&path);
    // SAFETY: this test's own child, which nothing has waited for yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    again.unwrap();
}

/// A small image whose memory a few thousand updates use up, and a process that is pinned in it.
fn with_a_sleeper(test: impl FnOnce(&Path, &mut SharedImage, &mut Table<u32>, Process, Notes<'_>)) {
    let directory = directory();
    let shared = Shared::open(directory.path());
    let mut image = SharedImage::create(directory.path().join("image"), 4 << 16, 1).unwrap();
    image.set_patience(Duration::from_millis(50));
    let prefixes = (0..500u32).map(|n| (Prefix::truncated(n << 20, 26), n + 1));
    let mut table = Table::create(&mut image, 0, prefixes).unwrap();
    let sleeper = Process::start("sleeper", directory.path(), 0);
    wait_for("the reader pins", || shared.notes().pinned().load(Ordering::Acquire) == 1);
    test(directory.path(), &mut image, &mut table, sleeper, shared.notes());
}

/// Changes prefixes until the memory is full; returns the change that was refused.
fn use_up(image: &mut SharedImage, table: &mut Table<u32>) -> Prefix<u32> {
    for update in 0..1_000_000 {
        let prefix = Prefix::truncated(((update % 500) << 20) | 64, 28);
        match table.insert(image, prefix, 1000 + update) {
            Ok(_) => {}
            Err(Error::Full { .. }) => return prefix,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing was held back");
}

#[test]
fn a_reader_that_is_stopped_while_pinned() {
    with_a_sleeper(|directory, image, table, sleeper, notes| {
        sleeper.signal(libc::SIGSTOP);
        let refused = use_up(image, table);
        // Other readers come, look up and go meanwhile.
        let before: Vec<_> = table.iter().collect();
        let mut reader = SharedReader::open(directory.join("image")).unwrap();
        let found = reader.pin().lookup4(0, refused.addr());
        assert_eq!(found, table.lookup(refused.addr()).map(|(_, value)| value));
        assert!(matches!(table.insert(image, refused, 7), Err(Error::Full { .. })));
        assert!(table.iter().eq(before));
        assert_eq!(reader.pin().lookup4(0, refused.addr()), found);
        sleeper.signal(libc::SIGCONT);
        notes.stop().store(1, Ordering::Relaxed);
        sleeper.ends_well();
        table.insert(image, refused, 7).unwrap();
        assert_eq!(reader.pin().lookup4(0, refused.addr()), Some(7));
    });
}

#[test]
fn a_reader_that_is_killed_while_pinned() {
    with_a_sleeper(|_, image, table, mut sleeper, _| {
        sleeper.signal(libc::SIGSTOP);
        let refused = use_up(image, table);
        sleeper.kill();
        table.insert(image, refused, 7).unwrap();
        image.synchronize();
        assert_eq!(image.stats().limbo, 0);
    });
}

#[test]
fn a_reader_outlives_its_writer() {
    with_a_sleeper(|directory, image, table, sleeper, notes| {
        let path = directory.join("image");
        let mut reader = SharedReader::open(&path).unwrap();
        let expected: Vec<_> = table.iter().collect();
        let fresh = SharedImage::create(directory.join("other"), 1 << 16, 1).unwrap();
        drop(core::mem::replace(image, fresh));
        // No writer at all: lookups go on.
        for (prefix, value) in &expected {
            assert_eq!(reader.pin().lookup4(0, prefix.addr()), Some(*value));
        }
        // A successor must not reuse what the sleeper, who pinned under the first writer, may hold.
        let mut successor = SharedImage::open(&path).unwrap();
        successor.set_patience(Duration::from_millis(50));
        let before: Vec<_> =
            expected.iter().map(|(prefix, _)| reader.pin().lookup4(0, prefix.addr())).collect();
        let full = Table::<u32>::create(&mut successor, 0, expected.clone()).unwrap_err();
        assert!(matches!(full, Error::Full { .. }), "{full}");
        let after: Vec<_> =
            expected.iter().map(|(prefix, _)| reader.pin().lookup4(0, prefix.addr())).collect();
        assert_eq!(before, after);
        notes.stop().store(1, Ordering::Relaxed);
        sleeper.ends_well();
        Table::<u32>::create(&mut successor, 0, expected).unwrap();
    });
}
