//! Experiment `map-ops`: the article's table of operations on 10,000 dense hosts, for LPM_TRIE and trieline, from BPF programs and from
//! user space.

mod document;
mod target;

use std::time::{Duration, Instant};

use clap::Args;
use trieline_bpf::{ImageMapType, ReaderGrace};

pub use document::{Outcome, Parameters, Row};

use self::target::{Live, Op, Place, Target, Trie};
use super::{
    experiment::{Compared, Experiment, Figure},
    map_free::{Case, What},
    options::{Run, within},
    structure::{Which, failed, image_bytes},
};
use crate::{
    Context, Result, in_own_thread,
    measure::{Samples, rounded},
    netns, published,
    report::Document,
    tables::kinds::{Entry, numbered},
};

/// Entries of the article's table.
pub const ENTRIES: usize = 10_000;
/// Most entries: as many as a program has addresses.
const MOST: usize = 1 << 20;
/// A quick run begins no further round after this time.
const QUICK: Duration = Duration::from_secs(20);

/// Its options.
#[derive(Args, Clone, Debug)]
pub struct MapOps {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Set the entries of the table
    #[arg(long, value_name = "N", default_value_t = ENTRIES, value_parser = |text: &str| within(text, 1..=MOST))]
    pub entries: usize,
}

impl Experiment for MapOps {
    const NAME: &'static str = "map-ops";
    const PURPOSE: &'static str =
        "lookup, update, delete and free of LPM_TRIE and trieline with the published figures";
    const COMPARED: &'static [Compared] = &[Compared {
        list: "rows",
        names: &["structure", "map_type", "op", "where"],
        figures: &[Figure::lower("ns")],
    }];
    const CODE: &'static [&'static str] = &["lpm/src", "lpm/include", "bpf/src"];
    type Outcome = Outcome;

    fn run(&self, context: &Context) -> Result<Outcome> {
        in_own_thread(|| run_here(self, context))
    }
}

fn run_here(asked: &MapOps, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let (rounds, count) = (asked.run.rounds(5, 15), asked.entries);
    let machine = asked.run.machine();
    // Its thread, made before this one is pinned, waits wherever it likes.
    let grace = ReaderGrace::new().map_err(failed)?;
    let cpu = netns::measure_here()?;
    let (source, published) = published::operations()?;
    let entries = numbered(count);
    let size = image_bytes(&entries, 0)?;
    context.progress.phase("filling", 0);
    let mut targets: Vec<Box<dyn Target + '_>> = Vec::new();
    match Trie::new(&entries) {
        Ok(trie) => targets.push(Box::new(trie)),
        Err(error) => asked.run.lose(context, Which::LpmTrie.name(), "filling", error)?,
    }
    for map_type in [ImageMapType::Arena, ImageMapType::Array] {
        match Live::new(map_type, size, &entries, &grace) {
            Ok(live) => targets.push(Box::new(live)),
            Err(error) if map_type == ImageMapType::Arena => {
                context.progress.note(&format!("no arena here ({error})"))
            }
            Err(error) => return Err(error),
        }
    }
    let cases: Vec<(usize, Op, Place)> = (0..targets.len())
        .flat_map(|n| targets[n].operations().iter().map(move |(op, place)| (n, *op, *place)))
        .collect();
    context.progress.phase("rounds", (rounds * cases.len()) as u64);
    let late = || asked.run.quick && began.elapsed() > QUICK;
    let mut lost = vec![false; targets.len()];
    let taken = asked.run.take(context, "operations", (rounds, cases.len()), late, |case, _| {
        let (n, op, place) = cases[case];
        if lost[n] {
            return Ok((f64::NAN, 0));
        }
        let timed = match op {
            Op::Free => free(targets[n].which(), size, &entries, &grace, context).map(|ns| (ns, 1)),
            _ => targets[n].time(op, place),
        };
        match timed {
            Err(error) if targets[n].which() == Which::LpmTrie => {
                asked.run.lose(context, Which::LpmTrie.name(), op.name(), error)?;
                lost[n] = true;
                Ok((f64::NAN, 0))
            }
            timed => timed,
        }
    })?;
    let measured = || cases.iter().enumerate().filter(|(_, (n, ..))| !lost[*n]);
    let rival = |op: Op| {
        let mut of = measured().filter(|(_, (n, ..))| targets[*n].which() == Which::LpmTrie);
        let same = of.find(|(_, case)| case.1 == op && case.2 != Place::User);
        same.map(|(at, _)| taken.median(at, |(ns, _)| *ns))
    };
    let rows = measured().map(|(at, (n, op, place))| {
        let ns = taken.samples(at, |(ns, _)| *ns);
        let mops: Samples = ns.values().iter().map(|ns| 1e3 / ns).collect();
        let published = published.iter().find(|of| of.name == op.name() && count == ENTRIES);
        let [median, ns_min, ns_max] = ns.spread(2);
        Row {
            structure: targets[*n].which().name(),
            map_type: targets[*n].which().map_type(),
            place: place.name(),
            op: op.name(),
            mops: rounded(1e3 / ns.median(), 6),
            stddev: rounded(mops.deviation(), 6),
            ns: median,
            ns_min,
            ns_max,
            ns_ci: ns.interval(2),
            published_ns: published.map(|of| of.ns),
            published_mops: published.map(|of| of.mops),
            ratio: rival(*op).map(|rival| rounded(rival / ns.median(), 2)),
            operations: taken.0.first().map_or(0, |round| round[at].1),
            checked: targets[*n].checked(),
            rounds: ns.len(),
        }
    });
    let parameters = Parameters {
        quick: asked.run.quick,
        entries: count,
        rounds,
        cpu,
        keys: "/32, dense: 0 to entries - 1, each stored little-endian, one after the other as in the kernel's bench lpm-trie",
        places: "bpf: in bpf_loop inside a program; user: LPM_TRIE by a system call each, trieline by its one writer and reader in user \
                     space while programs and grace periods stand by, memory reclaimed meanwhile; kernel: the kernel's threads that free",
        clock: "monotonic clock around all operations of a turn, the making of the key included; free: CPU time as in map-free",
        published: source,
    };
    Ok(Document::new(MapOps::NAME, machine, parameters, rows.collect()))
}

/// Nanoseconds of CPU time that freeing a whole map takes.
fn free(
    which: Which,
    size: u64,
    entries: &[Entry<u32>],
    grace: &ReaderGrace,
    context: &Context,
) -> Result<f64> {
    let case = Case { what: What::Map, gone: entries, live: &[] };
    let (cost, _) = case.read(which, size, grace, context, |held| case.cost(held, context))?;
    Ok((cost.own + cost.kernel.saturating_sub(cost.idle)).as_nanos() as f64)
}

#[cfg(test)]
mod tests;
