//! Damaged images under AddressSanitizer and UndefinedBehaviorSanitizer: the C header, compiled natively, stays inside its memory
//! and ends. (The Rust reader is fuzzed under them: `./dev fuzz`.)

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use trieline_lpm::{HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

/// Images; some five seconds for each hundred thousand.
const ROUNDS: u32 = 200_000;

/// An image with nodes of every kind that the C header reads.
fn image() -> Vec<u8> {
    let mut image = Image::create(HeapMemory::new(32 << 16), NoReaders::default(), 6).unwrap();
    let spread = |n: u32| n.wrapping_mul(0x9e37_79b9) >> 12;
    // With a palette (node6 and leaf6); all values distinct (ranges and hosts); all kinds of IPv6.
    let many = (0..4500).map(|n| (Prefix::truncated(spread(n) << 8, 22 + n as u16 % 6), n % 40 + 1));
    Table::create(&mut image, 0, many.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    let hosts = (0..600).map(|n| (Prefix::truncated(spread(n) >> 4, 32 - n as u16 % 3), n + 1));
    Table::create(&mut image, 1, hosts.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    let long =
        (0..300u128).map(|n| (Prefix::truncated(n << 104 | n << 40, 64 + n as u16 % 60), n as u32 + 1));
    let close = (0..300u128).map(|n| {
        let (block, at) = (n / 12, n % 12 % (1 + n / 12));
        (Prefix::truncated(1 << 127 | block << 112 | at << 84 | n << 70, 45 + n as u16 % 14), n as u32 + 1)
    });
    let long = long.chain(close);
    Table::create(&mut image, 2, long.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    let short = (0..250u128).map(|n| (Prefix::truncated(n << 108, 20 + n as u16 % 9), n as u32 % 7 + 1));
    Table::create(&mut image, 3, short.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    // Other keys, some of whose prefixes begin as those above do.
    let endpoints = (0..400u64).map(|n| {
        let bytes = ((n << 38) + n * 7).to_be_bytes();
        let key = Key::<48, 6>::new([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
        (Prefix::truncated(key, 8 + n as u16 % 41), n as u32 + 1)
    });
    Table::create(&mut image, 4, endpoints.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    let wide = (0..400u64).map(|n| {
        let mut bytes = [0; 256];
        bytes[..8].copy_from_slice(&(n << 42).to_be_bytes());
        bytes[100] = n as u8;
        (
            Prefix::truncated(Key::<2048, 256>::new(bytes), [11, 14, 20, 30, 810, 2048][n as usize % 6]),
            n as u32 + 1,
        )
    });
    Table::create(&mut image, 5, wide.collect::<std::collections::BTreeMap<_, _>>()).unwrap();
    image.memory().words().iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
}

#[test]
fn the_c_header_stays_inside_a_damaged_image() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let (program, file) = (directory.path().join("damaged"), directory.path().join("image"));
    std::fs::write(&file, image()).unwrap();
    let flags =
        "-std=gnu11 -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all";
    let status = Command::new("cc")
        .args(flags.split(' '))
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/damaged.c"))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("cc, the C compiler, is needed to test the C header");
    assert!(status.success(), "the C header does not compile with sanitizers");
    let output = Command::new(program).arg(file).arg(ROUNDS.to_string()).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", output.status);
}
