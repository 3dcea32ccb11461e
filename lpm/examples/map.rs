//! The cost of a `Map` on a prefix list: `cargo run --release -p trieline-lpm --example map -- ../shared/data/bgp-table.txt.gz`.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};
use trieline_lpm::{Address, Map, Prefix, ops};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: map PREFIX-LIST (text, gzip or not)")?;
    let list = trieline_lpm::io::text::read(path.as_ref())?;
    measure("IPv4", list.prefixes.v4.into_iter().map(|(prefix, _)| prefix).collect())?;
    measure("IPv6", list.prefixes.v6.into_iter().map(|(prefix, _)| prefix).collect())
}

/// A pseudo-random order of 0 ... n-1.
fn shuffled(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut seed = 1u64;
    for at in (1..n).rev() {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.swap(at, (seed >> 33) as usize % (at + 1));
    }
    order
}

/// One of 64 values for a prefix, by a hash of its place in the list: neighbours differ, which leaves the least to aggregate.
fn next_hop(at: usize) -> u32 {
    1 + ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u32
}

fn measure<K: Address>(family: &str, prefixes: Vec<Prefix<K>>) -> Result<(), Box<dyn Error>> {
    let n = prefixes.len();
    if n == 0 {
        return Ok(());
    }
    let each = |what: &str, time: Duration, count: usize| {
        println!("{family} {what}: {:.0} ns", time.as_nanos() as f64 / count as f64);
    };
    let order = shuffled(n);
    let begin = Instant::now();
    let mut map: Map<K, u32> =
        prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, next_hop(at))).collect();
    println!(
        "{family} collect: {:.1} ms, {n} prefixes, image of {} bytes",
        begin.elapsed().as_secs_f64() * 1e3,
        map.image_bytes()
    );

    let addrs: Vec<K> = order.iter().map(|at| prefixes[*at].last()).collect();
    let begin = Instant::now();
    let found: u64 = addrs.iter().map(|addr| u64::from(*map.lookup(*addr).unwrap_or(&0))).sum();
    each("lookup", begin.elapsed(), n);
    let mut values = vec![None; addrs.len()];
    let begin = Instant::now();
    map.lookup_batch(&addrs, &mut values);
    each("lookup_batch", begin.elapsed(), n);
    let begin = Instant::now();
    let same: u64 =
        addrs.iter().filter_map(|addr| map.lookup_prefix(*addr)).map(|(_, value)| u64::from(*value)).sum();
    each("lookup_prefix", begin.elapsed(), n);
    if found != same || found != values.iter().flatten().map(|value| u64::from(**value)).sum::<u64>() {
        return Err("the ways to look up disagree".into());
    }
    let begin = Instant::now();
    black_box(order.iter().filter(|at| map.get(&prefixes[**at]).is_some()).count());
    each("get", begin.elapsed(), n);
    let begin = Instant::now();
    black_box(map.iter().count());
    each("iter, a prefix", begin.elapsed(), n);
    let tree: BTreeMap<Prefix<K>, u32> = map.iter().map(|(prefix, value)| (prefix, *value)).collect();
    let begin = Instant::now();
    black_box(order.iter().filter(|at| tree.contains_key(&prefixes[**at])).count());
    each("get of a BTreeMap, for comparison", begin.elapsed(), n);

    let part = &order[..n / 4];
    let begin = Instant::now();
    let removed: Vec<_> = part.iter().filter_map(|at| map.remove(&prefixes[*at])).collect();
    each("remove, random quarter", begin.elapsed(), part.len());
    let begin = Instant::now();
    for (at, value) in part.iter().zip(removed) {
        map.insert(prefixes[*at], value);
    }
    each("insert, random quarter", begin.elapsed(), part.len());
    let begin = Instant::now();
    let mut grown = Map::<K, u32>::new();
    for at in &order {
        grown.insert(prefixes[*at], next_hop(*at));
    }
    each("insert, from empty, growth included", begin.elapsed(), n);
    if grown != map {
        return Err("the map grown one by one differs".into());
    }

    let begin = Instant::now();
    let fewest = ops::aggregate(&map);
    println!(
        "{family} aggregate, 64 next hops: {} of {n} prefixes remain ({:.1} %), {:.0} ms",
        fewest.len(),
        fewest.len() as f64 * 100.0 / n as f64,
        begin.elapsed().as_secs_f64() * 1e3
    );
    if !ops::regions(fewest.iter().map(|(prefix, value)| (*prefix, **value)))
        .eq(ops::regions(map.iter().map(|(prefix, value)| (prefix, *value))))
    {
        return Err("the aggregated table answers differently".into());
    }
    let one = ops::aggregate(map.keys().map(|prefix| (prefix, 1))).len();
    println!(
        "{family} aggregate, one next hop: {one} of {n} prefixes remain ({:.1} %)",
        one as f64 * 100.0 / n as f64
    );
    Ok(())
}
