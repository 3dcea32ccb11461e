//! Experiment `map-ops`: the article's table of operations on 10,000 dense hosts, for LPM_TRIE and trieline, from BPF programs and from
//! user space.

mod document;
mod target;
mod text;

use std::time::{Duration, Instant};

use trieline_bpf::{ImageMapType, ReaderGrace};

pub use document::{Parameters, Row, lines};

use self::target::{Live, Op, Place, Target, Trie};
use super::{
    Options,
    map_free::{Case, Held, What},
    structure::{Which, failed, image_bytes},
};
use crate::{
    Context, Error, Result, in_own_thread,
    measure::{Samples, rounded},
    netns, published,
    report::{Document, Machine},
    tables::kinds::{Entry, numbered},
};

/// Entries of the article's table.
pub const ENTRIES: usize = 10_000;
/// Most entries: as many as a program has addresses.
const MOST: usize = 1 << 20;
/// Readings of one freeing before it is given up.
const TRIES: usize = 4;
/// A quick run begins no further round after this time.
const QUICK: Duration = Duration::from_secs(20);

/// The experiment's document.
pub type Outcome = Document<Parameters, Row>;

/// Runs it; blocks until the end.
pub fn run(options: &Options, context: &Context) -> Result<Outcome> {
    in_own_thread(|| run_here(options, context))
}

fn run_here(options: &Options, context: &Context) -> Result<Outcome> {
    let began = Instant::now();
    let rounds = options.rounds.unwrap_or(if options.quick { 5 } else { 15 });
    let count = match options.entries[..] {
        [] => ENTRIES,
        [count] => count,
        [_, count, ..] => {
            return Err(Error::Size { what: "a second number of entries", value: count, least: 0, most: 0 });
        }
    };
    if !(1..=MOST).contains(&count) {
        return Err(Error::Size { what: "entries", value: count, least: 1, most: MOST });
    }
    let machine = Machine::here(options.command.clone(), options.seed);
    // Its thread, made before this one is pinned, waits wherever it likes.
    let grace = ReaderGrace::new().map_err(failed)?;
    let cpu = netns::measure_here()?;
    let (source, published) = published::operations()?;
    let entries = numbered(count);
    let size = image_bytes(&entries, 0)?;
    context.progress.phase("filling", 0);
    let mut targets: Vec<Box<dyn Target + '_>> = vec![Box::new(Trie::new(&entries)?)];
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
    let mut series: Vec<(Samples, usize)> = cases.iter().map(|_| (Samples::default(), 0)).collect();
    context.progress.phase("rounds", (rounds * cases.len()) as u64);
    for round in 0..rounds {
        if options.quick && round > 0 && began.elapsed() > QUICK {
            context.progress.note("slow machine, fewer rounds than asked for");
            break;
        }
        for ((n, op, place), (samples, operations)) in cases.iter().zip(&mut series) {
            context.check()?;
            let (ns, done) = match op {
                Op::Free => (free(targets[*n].which(), size, &entries, &grace, context)?, 1),
                _ => targets[*n].time(*op, *place)?,
            };
            samples.push(ns);
            *operations = done;
            context.progress.advance(1);
        }
    }
    let rival = |op: Op| {
        let same = |case: &&(usize, Op, Place)| case.0 == 0 && case.1 == op && case.2 != Place::User;
        cases.iter().position(|case| same(&case)).map_or(f64::NAN, |at| series[at].0.median())
    };
    let rows = cases.iter().zip(&series).map(|((n, op, place), (ns, operations))| {
        let mops: Samples = ns.values().iter().map(|ns| 1e3 / ns).collect();
        let published = published.iter().find(|of| of.name == op.name() && count == ENTRIES);
        Row {
            structure: targets[*n].which().name(),
            map_type: targets[*n].which().map_type(),
            place: place.name(),
            op: op.name(),
            mops: rounded(1e3 / ns.median(), 6),
            stddev: rounded(mops.deviation(), 6),
            ns: rounded(ns.median(), 2),
            ns_min: rounded(ns.min(), 2),
            ns_max: rounded(ns.max(), 2),
            published_ns: published.map(|of| of.ns),
            published_mops: published.map(|of| of.mops),
            ratio: rounded(rival(*op) / ns.median(), 2),
            operations: *operations,
            checked: targets[*n].checked(),
            rounds: ns.len(),
        }
    });
    Ok(Document {
        experiment: "map-ops",
        version: 1,
        machine,
        parameters: Parameters {
            quick: options.quick,
            entries: count,
            rounds,
            cpu,
            keys: "/32, dense: 0 to entries - 1, each stored little-endian, one after the other as in the kernel's bench lpm-trie",
            places: "bpf: in bpf_loop inside a program; user: LPM_TRIE by a system call each, trieline by its one writer and reader in user \
                     space while programs and grace periods stand by, memory reclaimed meanwhile; kernel: the kernel's threads that free",
            clock: "monotonic clock around all operations of a turn, the making of the key included; free: CPU time as in map-free",
            published: source,
        },
        rows: rows.collect(),
    })
}

/// Nanoseconds of CPU time that freeing a whole map takes.
fn free(
    which: Which,
    size: u64,
    entries: &[Entry<u32>],
    grace: &ReaderGrace,
    context: &Context,
) -> Result<f64> {
    for _ in 0..TRIES {
        context.check()?;
        let held = Held::fill(which, size, entries, &[], grace)?;
        if let Some(cost) = (Case { what: What::Map, gone: entries, live: &[] }).cost(held, context)? {
            let kernel = cost.kernel.saturating_sub(cost.idle);
            return Ok((cost.own + kernel).as_nanos() as f64);
        }
    }
    Err(Error::Busy(TRIES))
}
