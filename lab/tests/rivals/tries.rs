//! Properties that the classic tries share, and that hold between a trie's own figures and its behaviour.

use crate::engine::{sparse, tries};
use crate::sample::{Random, Sample};
use trieline_lab::rivals::{Binary, Fib, LcTrie, Patricia, Relaxed, Trie, relaxed::Threshold};
use trieline_lpm::{Address, Prefix};

/// Prefixes that nest and crowd.
fn prefix<A: Sample>(random: &mut Random) -> Prefix<A> {
    let addr = A::random(&mut Random(random.below(3) + 1)).join(random.below(20) as u16, A::random(random));
    Prefix::truncated(addr, random.below(u64::from(A::WIDTH) + 1) as u16)
}

/// The five prefixes of the talk's routes and its four keys of four bits.
fn filled<T: Trie<u32>>(mut trie: T, prefixes: &[&str]) -> T {
    for (value, prefix) in (1..).zip(prefixes) {
        assert_eq!(trie.insert(prefix.parse().unwrap(), value), None);
    }
    trie.verify().unwrap();
    trie
}

const ROUTES: [&str; 5] =
    ["172.16.0.0/16", "172.16.0.0/24", "192.168.0.0/16", "192.168.64.0/18", "192.168.128.0/18"];
const KEYS: [&str; 5] = ["0.0.0.0", "16.0.0.0", "32.0.0.0", "48.0.0.0", "240.0.0.0"];

/// Changes two tries alike and finds them alike after each change.
fn stay_alike<A: Sample>(mut one: impl Trie<A>, mut other: impl Trie<A>) {
    let random = &mut Random(A::WIDTH.into());
    let mut known = Vec::new();
    for n in 0..3000 {
        if n % 3 == 2 {
            let gone: Prefix<A> = known.swap_remove(random.below(known.len() as u64) as usize);
            assert_eq!(one.remove(&gone), other.remove(&gone));
        } else {
            let new = prefix(random);
            known.push(new);
            assert_eq!(one.insert(new, n), other.insert(new, n));
        }
        if n % 50 == 0 {
            assert_eq!(one.graph(), other.graph(), "{} and {}", one.name(), other.name());
        }
    }
}

#[test]
fn a_hundred_percent_is_the_perfect_trie_and_more_is_patricia() {
    stay_alike::<u32>(LcTrie::default(), Relaxed::new(Threshold::all(100)));
    stay_alike::<u128>(LcTrie::default(), Relaxed::new(Threshold::all(100)));
    stay_alike::<u32>(Patricia::default(), Relaxed::new(Threshold::all(101)));
    stay_alike::<u128>(Patricia::default(), Relaxed::new(Threshold::all(120)));
}

#[test]
fn the_perfect_trie_does_not_remember_its_order() {
    let random = &mut Random(3);
    let mut prefixes: Vec<Prefix<u32>> = (0..500).map(|_| prefix(random)).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let build = |prefixes: &[Prefix<u32>]| {
        let mut trie = LcTrie::default();
        for prefix in prefixes {
            trie.insert(*prefix, prefix.addr());
        }
        trie
    };
    let sorted = build(&prefixes);
    prefixes.reverse();
    let mut reversed = build(&prefixes);
    assert_eq!(sorted.graph(), reversed.graph());
    for prefix in prefixes.drain(..250) {
        reversed.remove(&prefix);
    }
    assert_eq!(build(&prefixes).graph(), reversed.graph());
}

#[test]
fn zero_percent_is_one_node() {
    let trie = filled(Relaxed::new(Threshold { within: 4, ..Threshold::all(0) }), &KEYS);
    let figures = trie.figures();
    assert_eq!((figures.internal, figures.slots, figures.empty, figures.depth_max()), (1, 16, 11, 1));
}

#[test]
fn a_lone_child_takes_its_parents_slot() {
    let mut trie = filled(Patricia::default(), &KEYS);
    for (n, key) in KEYS.iter().enumerate() {
        assert_eq!(trie.figures().internal, (4 - n.min(4)), "{:?}", trie.graph());
        trie.remove(&key.parse().unwrap());
        trie.verify().unwrap();
    }
    assert_eq!((trie.figures(), trie.graph()), Default::default());
}

/// The figures are those of the view, counted once more.
#[test]
fn figures_match_the_graph() {
    let random = &mut Random(9);
    for mut trie in tries::<u32>().into_iter().chain([sparse()]) {
        for n in 0..2000 {
            trie.insert(prefix(random), n);
        }
        let (graph, figures) = (trie.graph(), trie.figures());
        let is_inner = |n: &usize| graph.nodes[*n].bits > 0;
        let inner: Vec<usize> = (0..graph.nodes.len()).filter(is_inner).collect();
        let edges = || inner.iter().flat_map(|n| &graph.nodes[*n].children);
        assert_eq!((figures.internal, figures.leaves), (inner.len(), graph.nodes.len() - inner.len()));
        assert_eq!(
            (figures.slots, figures.empty),
            (edges().count(), edges().filter(|e| e.to.is_none()).count())
        );
        let entries = graph.nodes.iter().map(|node| node.entries.len());
        assert_eq!((figures.prefixes, trie.len()), (entries.sum(), figures.prefixes));
        // Parents come before their children, and each node has one.
        let mut depth = vec![None; graph.nodes.len()];
        depth[0] = Some(0usize);
        for n in inner {
            for to in graph.nodes[n].children.iter().filter_map(|edge| edge.to) {
                assert!(to > n && depth[to].is_none());
                depth[to] = depth[n].map(|depth| depth + 1);
            }
        }
        let mut depths = vec![0; figures.depths.len()];
        for (node, depth) in graph.nodes.iter().zip(depth) {
            if !node.entries.is_empty() {
                depths[depth.expect("no node is lost")] += 1;
            }
        }
        assert_eq!(depths, figures.depths, "{}", trie.name());
    }
}

#[test]
fn bytes_are_the_sum_of_the_layouts() {
    let binary = filled(Binary::default(), &KEYS).figures();
    assert_eq!(binary.bytes, 16 * (binary.internal + binary.leaves));
    let patricia = filled(Patricia::default(), &ROUTES).figures();
    assert_eq!((patricia.internal, patricia.leaves, patricia.bytes), (3, 4, 3 * (24 + 2 * 4) + 5 * 16));
    let fib = filled(Fib::default(), &ROUTES).figures();
    assert_eq!(fib.bytes, 40 * fib.internal + 8 * fib.slots + 48 * 4 + 56 * 5);
}

/// The path ends where the answer is, and reads what the trace says.
fn agree<A: Sample>() {
    let random = &mut Random(5);
    let mut went_back = 0;
    for mut trie in tries::<A>().into_iter().chain([sparse()]) {
        for n in 0..300 {
            trie.insert(prefix(random), n);
        }
        let graph = trie.graph();
        for _ in 0..300 {
            let near = prefix::<A>(random);
            let addr = near.addr().join(near.len(), A::random(random));
            let path = trie.path(addr);
            let mut visits = Vec::new();
            trie.trace(addr, &mut |visit| visits.push(visit));
            assert!(visits.len() >= path.len() && path[0].node == 0, "{}", trie.name());
            assert!(visits.iter().all(|visit| visit.loads[0].bytes > 0));
            // Each step that does not go back takes an edge of the one before.
            for pair in path.windows(2) {
                let edge = pair[0].edge.map(|edge| &graph.nodes[pair[0].node].children[edge]);
                let follows = edge.is_some_and(|edge| edge.to == Some(pair[1].node));
                assert!(follows || pair[1].back, "{}: {path:?}", trie.name());
            }
            went_back += path.iter().filter(|step| step.back).count();
            let text = |prefix: Prefix<A>, value| (prefix.to_string(), value);
            match trie.lookup(addr).map(|(prefix, value)| text(prefix, value)) {
                None => (),
                // Of a way without backtracking the last value counts, else the last node has it.
                Some(answer) => {
                    assert!(path.iter().any(|step| graph.nodes[step.node].entries.contains(&answer)));
                    let last = path.last().expect("it begins at the root");
                    let has_it = graph.nodes[last.node].entries.contains(&answer);
                    assert!(has_it || trie.name() == "binary", "{}: {path:?}", trie.name());
                }
            }
        }
    }
    assert!(went_back > 1000, "{went_back}");
}

#[test]
fn a_path_leads_to_the_answer() {
    agree::<u32>();
    agree::<u128>();
}

/// The talk's example: down to 192.168.128.0/18 or where it would be, and back to 192.168.0.0/16.
#[test]
fn the_talks_lookup_goes_back() {
    let addr = u32::parse("192.168.192.123").unwrap();
    for trie in tries::<u32>() {
        let mut trie = trie;
        for (value, route) in (1..).zip(ROUTES) {
            trie.insert(route.parse().unwrap(), value);
        }
        assert_eq!(trie.lookup(addr), Some((ROUTES[2].parse().unwrap(), 3)), "{}", trie.name());
        let goes_back = trie.path(addr).iter().any(|step| step.back);
        assert_eq!(goes_back, trie.name() != "binary", "{}", trie.name());
    }
}
