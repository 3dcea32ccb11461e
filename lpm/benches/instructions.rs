//! Instructions that lookups and changes take, counted by valgrind and held against `instructions.txt`: 5 % more fails.
//! `./dev instructions` runs it; `TRIELINE_RECORD=1 ./dev instructions` makes a new record.
//!
//! Counts tell what times on a shared machine do not: they are the same in every run, as long as the compiler is.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

#[allow(dead_code, reason = "the exact answers are for tests")]
#[path = "../tests/common/sample.rs"]
mod sample;

use sample::{Random, Sample};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fmt::Write;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use trieline_lpm::{HeapMemory, Image, NoReaders, Prefix, Table};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
/// The most that a count may be, relative to its record.
const LIMIT: f64 = 1.05;

/// So many give IPv4 the root of a full Internet table.
const PREFIXES: usize = 220_000;
const LOOKUPS: usize = 20_000;
/// Prefixes that are removed and added again.
const CHANGED: usize = 2_000;
const ID: u32 = 0;

/// Values that a table has: as many as a router has next hops, or one for each prefix, which no palette holds.
const HOPS: u64 = 64;
const DISTINCT: u64 = 1 << 30;

const CASES: [(&str, fn()); 14] = [
    ("lookup-ipv4-hops", || Case::<u32>::new(HOPS).lookup()),
    ("lookup-ipv4-distinct", || Case::<u32>::new(DISTINCT).lookup()),
    ("lookup-ipv6-hops", || Case::<u128>::new(HOPS).lookup()),
    ("lookup-ipv6-distinct", || Case::<u128>::new(DISTINCT).lookup()),
    ("lookup-by-id-ipv4-hops", || Case::<u32>::new(HOPS).lookup_by_id()),
    ("lookup-by-id-ipv6-hops", || Case::<u128>::new(HOPS).lookup_by_id()),
    ("batch-ipv4-hops", || Case::<u32>::new(HOPS).batch()),
    ("batch-ipv4-distinct", || Case::<u32>::new(DISTINCT).batch()),
    ("batch-ipv6-hops", || Case::<u128>::new(HOPS).batch()),
    ("batch-ipv6-distinct", || Case::<u128>::new(DISTINCT).batch()),
    ("change-ipv4-hops", || Case::<u32>::new(HOPS).change()),
    ("change-ipv4-distinct", || Case::<u32>::new(DISTINCT).change()),
    ("change-ipv6-hops", || Case::<u128>::new(HOPS).change()),
    ("change-ipv6-distinct", || Case::<u128>::new(DISTINCT).change()),
];

/// How many lookups or changes a case makes.
fn operations(name: &str) -> usize {
    if name.starts_with("change-") { 2 * CHANGED } else { LOOKUPS }
}

/// All that is counted happens in here.
#[inline(never)]
fn counted(work: impl FnOnce()) {
    work();
}

/// Addresses whose prefixes are about as long as those in the Internet's tables.
trait Internet: Sample {
    /// Lengths, and how many of a hundred prefixes have them.
    const LENS: &[(u16, u64)];
}

impl Internet for u32 {
    const LENS: &[(u16, u64)] = &[
        (24, 60),
        (22, 11),
        (23, 10),
        (21, 5),
        (20, 4),
        (19, 3),
        (16, 2),
        (18, 2),
        (12, 1),
        (28, 1),
        (32, 1),
    ];
}

impl Internet for u128 {
    const LENS: &[(u16, u64)] =
        &[(48, 48), (32, 14), (44, 10), (40, 10), (36, 6), (29, 4), (46, 3), (47, 3), (64, 1), (128, 1)];
}

struct Case<A: Internet> {
    image: Image<HeapMemory, NoReaders>,
    table: Table<A>,
    random: Random,
    /// The prefixes in the table, in random order.
    prefixes: Vec<(Prefix<A>, u32)>,
}

impl<A: Internet> Case<A> {
    fn new(values: u64) -> Self {
        let mut random = Random(1);
        let mut known = BTreeMap::new();
        let global = A::from_index(1, 3);
        let mut addr = A::ZERO;
        while known.len() < PREFIXES {
            let mut share = random.below(100);
            let (len, _) = A::LENS
                .iter()
                .find(|(_, of_hundred)| match share.checked_sub(*of_hundred) {
                    Some(rest) => {
                        share = rest;
                        false
                    }
                    None => true,
                })
                .expect("the shares come to a hundred");
            // Near the one before, or anywhere.
            let common = if random.below(16) == 0 { 3 } else { len - random.below(10) as u16 };
            addr = global.join(3, addr.join(common, A::random(&mut random)));
            known.insert(Prefix::truncated(addr, *len), random.below(values) as u32 + 1);
        }
        let mut image = Image::create(HeapMemory::new(64 << 20), NoReaders::default(), 1).unwrap();
        let table = Table::create(&mut image, ID, known.clone()).unwrap();
        let mut prefixes: Vec<_> = known.into_iter().collect();
        for at in (1..prefixes.len()).rev() {
            prefixes.swap(at, random.below(at as u64 + 1) as usize);
        }
        Self { image, table, random, prefixes }
    }

    /// Addresses inside the table's prefixes.
    fn addrs(&mut self) -> Vec<A> {
        let some = self.prefixes.iter().take(LOOKUPS);
        some.map(|(prefix, _)| prefix.addr().join(prefix.len(), A::random(&mut self.random))).collect()
    }

    fn lookup(mut self) {
        let addrs = self.addrs();
        let reader = self.image.reader();
        counted(|| {
            let table = reader.table(ID).unwrap();
            black_box(addrs.iter().fold(0, |sum, addr| sum ^ table.lookup(*addr).unwrap_or(0)));
        });
    }

    fn lookup_by_id(mut self) {
        let addrs = self.addrs();
        let reader = self.image.reader();
        counted(|| {
            black_box(addrs.iter().fold(0, |sum, addr| sum ^ reader.lookup(ID, *addr).unwrap_or(0)));
        });
    }

    fn batch(mut self) {
        let (addrs, mut values) = (self.addrs(), vec![0; LOOKUPS]);
        let reader = self.image.reader();
        counted(|| reader.lookup_batch(ID, &addrs, &mut values));
        assert!(values.iter().all(|value| *value != 0));
    }

    fn change(mut self) {
        let some = &self.prefixes[..CHANGED];
        counted(|| {
            for (prefix, _) in some {
                self.table.remove(&mut self.image, prefix).unwrap();
            }
            for (prefix, value) in some {
                self.table.insert(&mut self.image, *prefix, *value).unwrap();
            }
        });
    }
}

/// Instructions of one lookup or change of case `name`, which runs in a process of its own.
fn count(name: &str) -> f64 {
    let this = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*instructions*counted*",
        ])
        .arg(this)
        .arg(name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} under valgrind: {}\n{said}", output.status);
    let counted = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let counted: u64 = counted.unwrap_or_else(|| panic!("{name}: valgrind prints no count:\n{said}"));
    assert!(counted as usize > operations(name), "{name}: {counted} instructions cannot be all of it");
    counted as f64 / operations(name) as f64
}

/// Compares all counts with `recorded`; whether none is too high.
fn check(recorded: &str) -> bool {
    let recorded: BTreeMap<&str, f64> = recorded
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, count)| (name, count.trim().parse().unwrap()))
        .collect();
    assert!(recorded.keys().copied().eq(BTreeMap::from(CASES).into_keys()), "{RECORD} has other cases");
    let mut is_good = true;
    for (name, _) in CASES {
        let (now, then) = (count(name), recorded[name]);
        let is_within = now <= then * LIMIT;
        let verdict = if is_within { "ok" } else { "FAILED" };
        let percent = (now / then - 1.0) * 100.0;
        println!("instructions {name}: {now:.1}, recorded {then:.1} ({percent:+.1} %) ... {verdict}");
        is_good &= is_within;
    }
    if !is_good {
        println!("If that is meant: `TRIELINE_RECORD=1 ./dev instructions` records what it takes now.");
    }
    is_good
}

fn record() {
    let mut record = format!(
        "# Instructions per lookup or change, of 220,000 prefixes with 64 or with distinct values; see instructions.rs.\n\
         # Architecture: {ARCH}\n"
    );
    for (name, _) in CASES {
        writeln!(record, "{name} {:.1}", count(name)).unwrap();
    }
    std::fs::write(RECORD, &record).unwrap();
    print!("{record}");
}

fn main() -> ExitCode {
    // `cargo bench` itself gives an option.
    if let Some(case) = std::env::args().skip(1).find(|arg| !arg.starts_with('-')) {
        let (_, run) = CASES.iter().find(|(name, _)| *name == case).expect("a case");
        run();
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP: instructions: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("TRIELINE_RECORD").is_some() {
        record();
        return ExitCode::SUCCESS;
    }
    let recorded = std::fs::read_to_string(RECORD).expect(RECORD);
    if !recorded.contains(&format!("# Architecture: {ARCH}\n")) {
        println!("SKIP: instructions: recorded on another architecture than {ARCH}");
        return ExitCode::SUCCESS;
    }
    if check(&recorded) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
