//! An image laid open: its nodes are those that the check counts, its ways cover every key, and its paths end at what lookups find.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::atomic::Ordering;
use trieline_lpm::graph::Graph;
use trieline_lpm::image::graph::TableGraph;
use trieline_lpm::{Address, HeapMemory, Image, Key, Memory, NoReaders, Prefix, Table};

#[path = "common/sample.rs"]
#[allow(dead_code, reason = "its random numbers only")]
mod sample;
use sample::Random;

impl Random {
    fn addr<A: Address>(&mut self) -> A {
        (0..A::WIDTH).step_by(16).fold(A::ZERO, |addr, at| {
            let bits = (A::WIDTH - at).min(16);
            or(addr, A::from_index(self.below(1 << bits) as usize, bits), at)
        })
    }
}

/// `addr` with the bits of `part` from `at` on.
fn or<A: Address>(addr: A, part: A, at: u16) -> A {
    let mut prefix = Prefix::truncated(addr, at);
    for bit in 0..16.min(A::WIDTH - at) {
        let half = Prefix::truncated(prefix.addr(), prefix.len() + 1);
        let other = Prefix::truncated(prefix.last(), prefix.len() + 1);
        prefix = if part.bits_at(bit, 1) == 0 { half } else { other };
    }
    prefix.addr()
}

/// Prefixes in clusters: each is random, or near one before it.
fn prefixes<A: Address>(rng: &mut Random, count: usize, values: u64) -> Vec<(Prefix<A>, u32)> {
    let mut all: Vec<(Prefix<A>, u32)> = Vec::new();
    for _ in 0..count {
        let len = 1 + rng.below(A::WIDTH.into()) as u16;
        let mut addr = rng.addr();
        if !all.is_empty() && rng.below(4) > 0 {
            let near = all[rng.below(all.len() as u64) as usize].0;
            let shared = rng.below(A::WIDTH.into()) as u16 / 16 * 16;
            addr = or(near.addr().masked(shared), addr, shared);
        }
        all.push((Prefix::truncated(addr, len), 1 + rng.below(values) as u32));
    }
    all
}

fn check<A: Address>(mut prefixes: Vec<(Prefix<A>, u32)>, rng: &mut Random) -> Graph {
    if rng.below(2) == 0 {
        prefixes.push((Prefix::truncated(A::ZERO, 0), 77));
    }
    let mut image = Image::create(HeapMemory::new(16 << 20), NoReaders::default(), 1).unwrap();
    Table::create(&mut image, 0, prefixes.iter().copied()).unwrap();
    let table = TableGraph::new(image.memory().words(), 0).unwrap();
    let graph = table.graph();
    assert_eq!(table.ways(), graph.nodes.iter().map(|node| node.children.len()).sum::<usize>());
    // (1) the nodes that the check has counted, each at the end of one way
    for (kind, count) in table.report().nodes.iter().filter(|(kind, _)| *kind != "bucket") {
        let found = graph.nodes.iter().filter(|node| node.kind == *kind).count();
        assert_eq!(found, *count as usize, "{kind}");
    }
    let mut reached = vec![0; graph.nodes.len()];
    reached[0] = 1;
    for (index, edge) in graph
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(index, node)| node.children.iter().map(move |edge| (index, edge)))
    {
        assert!(edge.to.is_none_or(|to| to > index && edge.value.is_none()));
        edge.to.into_iter().for_each(|to| reached[to] += 1);
    }
    assert!(reached.iter().all(|times| *times == 1), "{reached:?}");
    // (2) paths end at what lookups find
    let fallback = table.report().fallback;
    let default = graph.nodes.iter().flat_map(|node| &node.entries).map(|(_, value)| *value);
    assert_eq!(
        default.collect::<Vec<_>>(),
        (fallback != 0).then_some(fallback).into_iter().collect::<Vec<_>>()
    );
    let near = prefixes.iter().rev().take(500).flat_map(|(prefix, _)| [prefix.addr(), prefix.last()]);
    let mut addrs: Vec<A> = near.collect();
    addrs.extend((0..200).map(|_| rng.addr::<A>()));
    for addr in addrs {
        let path = table.path(addr);
        for pair in path.windows(2) {
            let taken = pair[0].edge.map(|edge| &graph.nodes[pair[0].node].children[edge]);
            assert_eq!(taken.and_then(|edge| edge.to), Some(pair[1].node));
        }
        let last = path.last().unwrap();
        let edge = &graph.nodes[last.node].children[last.edge.expect("every key has a way")];
        let value = edge.value.unwrap_or(fallback);
        assert_eq!(image.reader().lookup(0, addr), (value != 0).then_some(value));
        assert!(path.len() <= 1 + table.report().steps as usize);
    }
    graph
}

#[test]
fn random_tables_are_laid_open() {
    let mut rng = Random(5);
    let mut kinds = std::collections::BTreeSet::new();
    let mut add = |graph: Graph| kinds.extend(graph.nodes.iter().map(|node| node.kind));
    for count in [0, 1, 2, 5, 20, 100, 700, 9000] {
        for values in [3, 100_000] {
            add(check::<u32>(prefixes(&mut rng, count, values), &mut rng));
            add(check::<u128>(prefixes(&mut rng, count, values), &mut rng));
            add(check::<Key<48, 6>>(prefixes(&mut rng, count, values), &mut rng));
        }
    }
    // Dense parts make the kinds that random prefixes do not.
    let dense4 = (0..600u32).map(|n| (Prefix::host(0x0a00_0000 + 3 * n), 1 + n % 200));
    add(check(dense4.collect(), &mut rng));
    let dense6 = (0..300u128).map(|n| (Prefix::truncated(0x2001 << 112 | n << 80, 48), 1 + n as u32));
    add(check(dense6.collect(), &mut rng));
    let all =
        ["direct12", "hash table", "leaf6", "leaf8", "node6", "node8", "ranges", "ranges32", "root", "skip"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn labels_name_slots() {
    let routes = ["172.16.0.0/16", "172.16.0.0/24", "192.168.0.0/16"];
    let prefixes = (1..).zip(routes).map(|(value, route)| (route.parse().unwrap(), value)).collect();
    let graph = check::<u32>(prefixes, &mut Random(1));
    let labels = |node: usize| graph.nodes[node].children.iter().map(|edge| edge.label.as_str());
    let root = ["00000000-10101011", "10101100", "10101101-10111111", "11000000", "11000001-11111111"];
    assert_eq!(labels(0).collect::<Vec<_>>(), root);
    let inner = ["0x0000-0x0fff", "0x1000", "0x1001-0x10ff", "0x1100-0xffff"];
    assert_eq!(labels(1).collect::<Vec<_>>(), inner);
    assert_eq!((graph.nodes[1].kind, graph.nodes[1].at, graph.nodes[1].bits), ("ranges", 8, 16));
}

#[test]
fn missing_tables_are_not_opened() {
    let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 2).unwrap();
    Table::<u32>::create(&mut image, 0, [(Prefix::host(1), 1)]).unwrap();
    let words = image.memory().words();
    assert!(TableGraph::new(words, 1).is_err() && TableGraph::new(words, 2).is_err());
    assert!(TableGraph::new(&words[1..], 0).is_err());
    assert!(TableGraph::new(words, 0).unwrap().path(0u128).is_empty());
}

/// Bits flipped anywhere: refused, or still laid open without a panic.
#[test]
fn damaged_images_are_refused_or_opened() {
    let mut rng = Random(11);
    let mut image = Image::create(HeapMemory::new(2 << 16), NoReaders::default(), 2).unwrap();
    Table::create(&mut image, 0, prefixes::<u32>(&mut rng, 120, 5)).unwrap();
    Table::create(&mut image, 1, prefixes::<u128>(&mut rng, 120, 5)).unwrap();
    let words = image.memory().words();
    let used: Vec<usize> = (0..words.len()).filter(|at| words[*at].load(Ordering::Relaxed) != 0).collect();
    let mut opened = 0;
    for _ in 0..20_000 {
        let word = &words[used[rng.below(used.len() as u64) as usize]];
        let flipped = 1 << rng.below(32);
        word.fetch_xor(flipped, Ordering::Relaxed);
        for id in 0..2 {
            if let Ok(table) = TableGraph::new(words, id) {
                opened += 1;
                let steps = table.path(rng.addr::<u32>()).len() + table.path(rng.addr::<u128>()).len();
                assert!(steps <= table.graph().nodes.len());
            }
        }
        word.fetch_xor(flipped, Ordering::Relaxed);
    }
    assert!(opened > 1000 && opened < 39_000, "{opened}");
}
